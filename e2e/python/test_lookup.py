"""Lookups over DoExchange, one answer a request, and enrichment while the dimension changes (X9)."""

import json

import pyarrow as pa
from conftest import command


def exchange(client, descriptor, schema):
    writer, reader = client.do_exchange(descriptor)
    writer.begin(schema)
    return writer, reader


def test_lookup(create, client):
    t = create("cust_dim", ["cust_id BIGINT", "name STRING", "tier STRING"], ["cust_id"], 16)
    t.write([{"cust_id": i, "name": f"c{i}", "tier": "gold" if i % 2 else "silver"} for i in range(1000)])
    schema = pa.schema([("cust_id", pa.int64())])
    writer, reader = exchange(client, command(op="lookup", table=t.full, columns=["tier", "name"]), schema)
    with writer:
        for n, keys in enumerate(([42, -1, 43], [], [7] * 5, list(range(1000)))):
            writer.write_with_metadata(pa.record_batch([pa.array(keys, pa.int64())], schema=schema), str(n).encode())
            chunk = reader.read_chunk()
            assert chunk.app_metadata.to_pybytes() == str(n).encode()
            got = chunk.data
            assert got.schema.names == ["_found", "tier", "name"]
            assert all(f.nullable for f in got.schema if f.name != "_found")
            assert got["_found"].to_pylist() == [0 <= k < 1000 for k in keys]
            assert got["name"].to_pylist() == [f"c{k}" if k >= 0 else None for k in keys]
        writer.done_writing()


def test_enrichment_without_a_cache(create, client):
    """After the upsert (42, platinum) is acknowledged every later lookup says platinum."""
    t = create("cust_dim", ["cust_id BIGINT", "name STRING", "tier STRING"], ["cust_id"], 4)
    t.write([{"cust_id": 42, "name": "Acme", "tier": "gold"}])
    schema = pa.schema([("cust_id", pa.int64())])
    key = pa.record_batch([pa.array([42], pa.int64())], schema=schema)
    writer, reader = exchange(client, command(op="lookup", table=t.full), schema)
    with writer:
        for tier in ["gold", "platinum", "silver", "platinum"] * 10:
            t.write([{"cust_id": 42, "tier": tier}], columns=["cust_id", "tier"])
            writer.write_batch(key)
            assert reader.read_chunk().data.to_pylist() == [{"_found": True, "cust_id": 42, "name": "Acme", "tier": tier}]
        writer.done_writing()


def test_lookup_as_an_action(create, client):
    """The unary operation is an action too, with the JSON of REST."""
    import pyarrow.flight as flight

    t = create("t", ["id BIGINT", "v STRING"], ["id"])
    t.write([{"id": 1, "v": "a"}])
    body = json.dumps({"database": t.db, "table": t.name, "keys": [{"id": 1}, {"id": 2}]}).encode()
    (answer,) = client.do_action(flight.Action("millrace.lookup_rows", body))
    assert json.loads(answer.body.to_pybytes()) == {"rows": [{"id": 1, "v": "a"}, None]}
