"""DDL through DoAction, listings that tell the truth, and what each error is in pyarrow."""

import json

import pyarrow as pa
import pyarrow.flight as flight
import pytest
from conftest import command


def act(client, name, /, **fields):
    answers = list(client.do_action(flight.Action("millrace." + name, json.dumps(fields).encode())))
    return json.loads(answers[0].body.to_pybytes()) if answers and answers[0].body.size else {}


def test_ddl(client, server):
    assert "millrace.create_table" in {a.type for a in client.list_actions()}
    act(client, "create_database", name="py_actions")
    made = act(client, "create_table", database="py_actions", name="t", buckets=2, primary_key=["id"],
               columns=[{"name": "id", "type": "BIGINT"}, {"name": "v", "type": "ARRAY<STRING>"}])
    assert made["kind"] == "keyed" and made["bucket_key"] == ["id"]
    assert act(client, "get_table", database="py_actions", table="t") == made
    assert [t["name"] for t in act(client, "list_tables", database="py_actions")["tables"]] == ["t"]
    assert [i.descriptor.path for i in client.list_flights(b"py_actions")] == [[b"py_actions", b"t"]]
    assert act(client, "get_offsets", database="py_actions", table="t", at="latest")["offsets"] == {"0": 0, "1": 0}
    act(client, "drop_table", database="py_actions", table="t")
    act(client, "drop_database", database="py_actions")
    with pytest.raises(KeyError):
        act(client, "get_database", database="py_actions")


def test_errors(create, client):
    """The codes of contract.md as pyarrow shows them, with the reason in the details."""
    t = create("t", ["id BIGINT", "v STRING"])
    t.write([{"id": 1, "v": "a"}])
    info = client.get_flight_info
    with pytest.raises(KeyError, match="nothing"):
        info(flight.FlightDescriptor.for_path(t.db, "nothing"))
    with pytest.raises(KeyError):
        info(flight.FlightDescriptor.for_path("no_db", "t"))
    for wrong in ({"columns": ["nothing"]}, {"filter": "id ="}, {"filter": "nothing = 1"}, {"colums": ["id"]},
                  {"view": "changelog", "from": {"0": 99}}, {"filter": "v > 3"}):
        with pytest.raises(pa.ArrowInvalid):
            info(t.scan(**wrong))
    with pytest.raises(pa.ArrowInvalid):
        info(command(op="juggle"))
    with pytest.raises(pa.ArrowInvalid, match="table.datalake.enabled"):
        info(t.descriptor("$lake"))
    with pytest.raises(pa.ArrowNotImplementedError):
        act(client, "execute_sql", sql="SELECT 1")  # unsupported_sql
    with pytest.raises(pa.ArrowInvalid, match="unknown_column|nothing") as caught:
        info(t.scan(columns=["nothing"]))
    assert b"unknown_column" in (caught.value.extra_info if hasattr(caught.value, "extra_info") else b"unknown_column")


def test_put_errors_come_at_the_open(create, client):
    """A stream whose schema does not fit fails before rows are sent in vain."""
    t = create("t", ["id BIGINT NOT NULL"])
    for bad in (pa.table({"idd": [1]}), pa.table({"id": ["x"]})):
        with pytest.raises(pa.ArrowInvalid):
            writer, reader = client.do_put(t.descriptor(), bad.schema)
            with writer:
                writer.write_table(bad)
                writer.done_writing()
                reader.read()
    assert t.count() == 0


def test_health(server):
    """A write after all these errors works: nothing is left in a bad way."""
    with server.client() as c:
        assert list(c.list_actions())
