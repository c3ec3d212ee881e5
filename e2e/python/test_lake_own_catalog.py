"""Tables that are committed to a catalog of the user's own, where others commit, too: pyiceberg's over SQLite, and Glue, Hive and REST by servers that others made."""

import pathlib
import tempfile

import lake_catalogs
import pyarrow as pa
import pytest
import requests
from conftest import LAKE, Server, Table, build, column
from lake_readers import PyIceberg, rows

pytestmark = pytest.mark.alone

MINE = {"table.datalake.freshness": "1h", "table.datalake.auto-compaction": "false", **LAKE}


@pytest.fixture(scope="module", params=[lake_catalogs.SQL, lake_catalogs.Glue, lake_catalogs.REST, lake_catalogs.Hive], ids=lambda c: c.kind)
def own(request):
    """A server that is told of the catalog, and the catalog."""
    with tempfile.TemporaryDirectory(prefix="millrace-own-") as name:
        folder = pathlib.Path(name)
        (folder / "data").mkdir()
        catalog = request.param(folder)
        server = Server(build(folder), folder / "data", *catalog.flags, env=getattr(catalog, "env", {})).start()
        try:
            server.call("POST", "/v1/databases", {"name": "own"})
            yield server, catalog.client
        finally:
            server.kill()
            catalog.close()


def make(server, name, columns, key=None):
    body = {"name": name, "columns": [column(c) for c in columns], "buckets": 1, "properties": MINE, **({"primary_key": key} if key else {})}
    server.call("POST", "/v1/databases/own/tables", body)
    return Table(server, "own", name)


def test_commits_go_there(own):
    server, catalog = own
    t = make(server, "orders", ["id BIGINT", "v ROW<a INT, b STRING>"])
    model = []
    for n in range(4):
        new = [{"id": n * 10 + i, "v": {"a": i, "b": f"b{i}"}} for i in range(5)]
        t.write(new)
        model += new
        status = t.tier()
        assert status["state"] == "ok" and status["pending_rows"] == 0, status
        table = catalog.load_table("own.orders")
        assert rows(table.scan().to_arrow()) == sorted(model, key=lambda r: repr(sorted(r.items())))
        assert len(table.snapshots()) == n + 1
    assert [f.field_id for f in table.schema().fields] == [1, 2], "the columns' own ids"
    assert PyIceberg(server.http).load(t).metadata_location == table.metadata_location, "the catalog at /iceberg says the same"


def test_others_commit_in_between(own):
    """Rows that someone else appends stay, ours come once, and what someone deletes stays deleted."""
    server, catalog = own
    t = make(server, "events", ["id BIGINT"])
    t.write([{"id": i} for i in range(10)])
    t.tier()
    catalog.load_table("own.events").append(pa.table({"id": pa.array([100, 101], pa.int64())}))
    t.write([{"id": i} for i in range(10, 20)])
    assert t.tier()["state"] == "ok"
    table = catalog.load_table("own.events")
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == list(range(20)) + [100, 101]
    table.delete("id < 5")
    t.write([{"id": 20}])
    assert t.tier()["state"] == "ok"
    assert sorted(catalog.load_table("own.events").scan().to_arrow()["id"].to_pylist()) == list(range(5, 21)) + [100, 101]


def test_keyed_with_others(own):
    server, catalog = own
    t = make(server, "dim", ["id BIGINT", "name STRING"], ["id"])
    t.write([{"id": i, "name": "a"} for i in range(20)])
    t.tier()
    catalog.load_table("own.dim").overwrite(pa.table({"id": pa.array([3], pa.int64()), "name": ["theirs"]}, schema=catalog.load_table("own.dim").schema().as_arrow()), overwrite_filter="id = 3")
    t.write([{"id": i, "name": "b"} for i in range(3, 6)])
    t.write([{"id": 7}], mode="delete")
    assert t.tier()["state"] == "ok"
    want = {i: "b" if 3 <= i < 6 else "a" for i in range(20) if i != 7}
    assert {r["id"]: r["name"] for r in catalog.load_table("own.dim").scan().to_arrow().to_pylist()} == want


def test_a_name_that_is_taken(own):
    """A table of someone else by the same name is left alone, and the status says so."""
    server, catalog = own
    catalog.create_namespace_if_not_exists("own")
    catalog.create_table("own.taken", pa.schema([("x", pa.int32())])).append(pa.table({"x": pa.array([1], pa.int32())}))
    t = make(server, "taken", ["id BIGINT"])
    t.write([{"id": 1}])
    answer = requests.post(server.http + t.path + "/lake/tier", timeout=120)
    assert not answer.ok, answer.text
    status = server.call("GET", t.path + "/lake")
    assert status["state"] == "failing" and "someone else" in status["error"]["detail"], status
    assert catalog.load_table("own.taken").scan().to_arrow()["x"].to_pylist() == [1]
