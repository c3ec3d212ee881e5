"""Tails: unbounded streams with heartbeats, resumed from what each batch's metadata says."""

import json

import pyarrow.flight as flight


def tail(client, t, **request):
    """Opens an unbounded read; yields (rows as dicts, metadata) batch by batch."""
    ticket = flight.Ticket(json.dumps({"op": "scan", "table": t.full, "until": "never", "heartbeat_ms": 200, **request}))
    reader = client.do_get(ticket, flight.FlightCallOptions(timeout=60))
    try:
        while True:
            chunk = reader.read_chunk()
            yield chunk.data.to_pylist(), json.loads(chunk.app_metadata.to_pybytes())
    finally:
        reader.cancel()


def test_tail_sends_schema_and_positions_at_once(create, client):
    t = create("t", ["id BIGINT"], buckets=3)
    t.write([{"id": 0}])
    stream = tail(client, t, **{"from": "latest"})
    first = [next(stream) for _ in range(3)]
    assert sorted(m["bucket"] for _, m in first) == [0, 1, 2]
    assert all(not rows and "next" in m for rows, m in first)
    stream.close()


def test_tail_from_earliest_then_live(create, client):
    """X8: every row once and in order, then what is written while one reads, with heartbeats in between."""
    t = create("t", ["id BIGINT"], buckets=1)
    t.write([{"id": i} for i in range(100)])
    got, heartbeats, offset, wrote = [], 0, 0, False
    stream = tail(client, t, **{"from": "earliest"})
    for rows, meta in stream:
        if rows:
            assert meta["base"] == offset and meta["next"] == offset + len(rows)
            offset = meta["next"]
            got += [r["id"] for r in rows]
        elif got:
            heartbeats += 1
        if len(got) == 100 and not wrote:
            t.write([{"id": 100}, {"id": 101}])
            wrote = True
        if len(got) >= 102 and heartbeats >= 3:
            break
    stream.close()
    assert got == list(range(102))


def test_tail_resumes_from_offsets(create, client):
    t = create("t", ["id BIGINT"], buckets=1)
    t.write([{"id": i} for i in range(10)])
    position = None
    for rows, meta in tail(client, t, **{"from": "earliest"}):
        if rows:
            position = {"0": meta["next"]}
            break
    t.write([{"id": 10}])
    for rows, _ in tail(client, t, **{"from": position}):
        if rows:
            assert rows[-1] == {"id": 10} and rows[0]["id"] == position["0"]
            break


def test_full_hands_over(create, client):
    """`full` gives the current rows as +I without an offset, then the changelog from exactly there."""
    t = create("t", ["id BIGINT", "v BIGINT"], ["id"], 1)
    t.write([{"id": 1, "v": 1}, {"id": 2, "v": 1}])
    t.write([{"id": 1, "v": 2}])
    changes = []
    for rows, _ in tail(client, t, view="changelog", **{"from": "full"}):
        changes += [(r["_change_type"], r["_log_offset"], r["id"], r["v"]) for r in rows]
        if len(changes) == 2:
            t.write([{"id": 2, "v": 3}])
        if len(changes) >= 4:
            break
    assert sorted(changes[:2], key=lambda c: c[2]) == [("+I", None, 1, 2), ("+I", None, 2, 1)]
    assert changes[2:] == [("-U", 4, 2, 1), ("+U", 5, 2, 3)]
