"""X12: the three ways to read a table in the lake, and a stock reader beside them."""

import time

from conftest import LAKE, read
from test_tail import tail


def ids(table):
    return sorted(r["id"] for r in table.to_pylist())


def take(stream, n):
    """The next n rows of a tail, and whether each has an offset."""
    got = []
    for rows, _ in stream:
        got += rows
        if len(got) >= n:
            return got


def test_three_read_paths(create, client, reader):
    """A tail from latest has what is new and nothing else; the lake lags by what was not tiered; the union has all; the stock reader has what the lake has."""
    freshness = 2
    t = create("orders_log", ["id BIGINT", "cents INT"], buckets=2, properties=LAKE | {"table.datalake.freshness": f"{freshness}s"})
    t.write([{"id": i, "cents": i} for i in range(1000)])
    t.tier()
    stream = tail(client, t, **{"from": "latest"})
    for _ in range(2):
        assert next(stream)[0] == []
    t.write([{"id": i, "cents": i} for i in range(1000, 1100)])
    assert sorted(r["id"] for r in take(stream, 100)) == list(range(1000, 1100))
    stream.close()
    assert ids(read(client, t.scan())) == list(range(1100))
    deadline = time.monotonic() + 180
    while len(lake := ids(read(client, t.scan(tier="lake")))) < 1100:  # nobody asks for a round: freshness does
        assert lake == list(range(1000)), "the lake has what was tiered, whole"
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert ids(reader.read(t)) == ids(read(client, t.scan(tier="lake"))) == ids(read(client, t.scan())) == list(range(1100))


def test_full_tail(create, client):
    """full: the lake's history without offsets, then the log from exactly there, and what comes."""
    t = create("t", ["id BIGINT"], buckets=2, properties=LAKE)
    t.write([{"id": i} for i in range(500)])
    t.tier()
    t.write([{"id": i} for i in range(500, 600)])
    stream = tail(client, t, **{"from": "full", "columns": ["id", "_log_offset"]})
    got = take(stream, 600)
    t.write([{"id": 600}])
    got += take(stream, 1)
    stream.close()
    assert sorted(r["id"] for r in got) == list(range(601))
    assert {r["id"] for r in got if r["_log_offset"] is None} == set(range(500))
