"""DoPut: one final result by default, cumulative acknowledgements on request, exactly once with a writer."""

import json

import pyarrow as pa
import pytest
from conftest import command, read

DATA = pa.table({"id": pa.array(range(1000), pa.int64()), "v": pa.array([f"v{i}" for i in range(1000)])})


def put(client, descriptor, table, **kwargs):
    """Writes a table and returns the one final result."""
    writer, reader = client.do_put(descriptor, table.schema)
    with writer:
        writer.write_table(table, **kwargs)
        writer.done_writing()
        result = json.loads(reader.read().to_pybytes())
        assert reader.read() is None, "there is one result"
    return result


def test_final_result(create, client):
    t = create("t", ["id BIGINT", "v STRING"], buckets=2)
    result = put(client, t.descriptor(), DATA, max_chunksize=100)
    assert result["rows"] == 1000
    assert sum(r["end"] - r["start"] for r in result["offsets"].values()) == 1000
    assert read(client, t.descriptor()).sort_by("id").equals(DATA)


def test_a_writer_that_never_reads(create, client):
    """Most programs never look at the result: leaving the block is enough, and is durable."""
    t = create("t", ["id BIGINT", "v STRING"], ["id"], 2)
    writer, _ = client.do_put(t.descriptor(), DATA.schema)
    with writer:
        writer.write_table(DATA)
    assert t.count() == 1000


def test_streamed_acknowledgements(create, client):
    t = create("t", ["id BIGINT", "v STRING"])
    writer, reader = client.do_put(command(op="put", table=t.full, acks="stream"), DATA.schema)
    with writer:
        writer.write_batch(DATA.to_batches()[0].slice(0, 0))
        ready = json.loads(reader.read().to_pybytes())
        assert not ready.get("ack_rows"), "the first message says that the stream is ready"
        acked = 0
        for batch in DATA.to_batches(max_chunksize=50):
            writer.write_batch(batch)
        writer.done_writing()
        while (message := reader.read()) is not None:
            rows = json.loads(message.to_pybytes())["ack_rows"]
            assert rows >= acked, "acknowledgements are cumulative"
            acked = rows
    assert acked == 1000


def test_numbered_batches_are_written_once(create, client):
    """The same numbers sent again, on another stream, change nothing."""
    t = create("t", ["id BIGINT", "v STRING"])
    for _ in range(2):
        writer, reader = client.do_put(command(op="put", table=t.full, writer_id="w", acks="stream"), DATA.schema)
        with writer:
            for seq, batch in enumerate(DATA.to_batches(max_chunksize=100), 1):
                writer.write_with_metadata(batch, json.dumps({"seq": seq}).encode())
            writer.done_writing()
            last = None
            while (message := reader.read()) is not None:
                last = json.loads(message.to_pybytes())
        assert last["ack_seq"] == 10
    assert t.count() == 1000


def test_partial_update_and_delete(create, client):
    """X5: a stream of some columns with `partial` leaves the others alone; a delete needs only the key."""
    t = create("product_dim", ["product_id BIGINT", "name STRING", "category STRING", "price_cents BIGINT"], ["product_id"], 2)
    ids = pa.array([99], pa.int64())
    put(client, command(op="put", table=t.full, partial=True), pa.table({"product_id": ids, "price_cents": pa.array([1499], pa.int64())}))
    put(client, command(op="put", table=t.full, partial=True), pa.table({"product_id": ids, "name": ["Widget"], "category": ["tools"]}))
    assert read(client, t.descriptor()).to_pylist() == [{"product_id": 99, "name": "Widget", "category": "tools", "price_cents": 1499}]
    put(client, command(op="put", table=t.full, mode="delete"), pa.table({"product_id": ids}))
    assert t.count() == 0


def test_change_types_copy_a_changelog(create, client):
    """What one table's changelog says can be put into another as it is."""
    a = create("a", ["id BIGINT", "v STRING"], ["id"], 1)
    a.write([{"id": 1, "v": "x"}, {"id": 2, "v": "y"}, {"id": 1, "v": "z"}])
    a.write([{"id": 2}], mode="delete")
    log = read(client, a.descriptor("$changelog")).select(["_change_type", "id", "v"])
    b = create("b", ["id BIGINT", "v STRING"], ["id"], 1)
    put(client, b.descriptor(), log)
    assert read(client, b.descriptor()).to_pylist() == [{"id": 1, "v": "z"}]


def test_columns_match_by_name_and_cast(create, client):
    """Any order, other integer widths, large, view and dictionary strings, other time units: what loses nothing."""
    t = create("t", ["id BIGINT", "s STRING", "at TIMESTAMP(6)", "tags ARRAY<STRING>"])
    for strings in (pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())):
        put(client, t.descriptor(), pa.table({
            "tags": pa.array([["a", None]], pa.large_list(pa.large_string())),
            "at": pa.array([1], pa.timestamp("s")),
            "s": pa.array(["x"]).cast(strings) if strings != pa.string_view() else pa.array(["x"], pa.string_view()),
            "id": pa.array([7], pa.uint8()),
        }))
    rows = read(client, t.descriptor()).to_pylist()
    assert len(rows) == 3 and all(r == rows[0] for r in rows)
    assert (rows[0]["id"], rows[0]["s"], rows[0]["at"].isoformat(), rows[0]["tags"]) == (7, "x", "1970-01-01T00:00:01", ["a", None])


def test_a_bad_batch_writes_nothing(create, client):
    t = create("t", ["id BIGINT", "small TINYINT"])
    bad = pa.table({"id": pa.array([1, 2], pa.int64()), "small": pa.array([1, 1000], pa.int64())})
    with pytest.raises(pa.ArrowInvalid, match="small"):
        put(client, t.descriptor(), bad)
    assert t.count() == 0
