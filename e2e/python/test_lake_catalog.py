"""The catalog at /iceberg through stock readers: what they see, from a table's creation to its drop, and that none of them writes."""

import pyarrow as pa
import pytest
import requests
from conftest import LAKE

NAMES = ["id BIGINT", "name STRING"]


def test_tables_are_there_from_creation_on(create, reader):
    """Tables of the lake are listed and empty; those that are not in it are not there."""
    t = create("t", ["id BIGINT", "name STRING NOT NULL", "at TIMESTAMP_LTZ(6)", "price DECIMAL(10,2)", "tags MAP<STRING, ARRAY<INT>>"], ["id"], properties=LAKE)
    create("plain", NAMES)
    part = create("part", ["id BIGINT", "day DATE"], partition_by=["day"], properties=LAKE)
    assert reader.tables(t.db) == ["part", "t"]
    got = reader.read(t)
    assert got.num_rows == 0 and got.schema.names == ["id", "name", "at", "price", "tags"]
    assert [got.schema.field(n).type for n in ("id", "at", "price")] == [pa.int64(), pa.timestamp("us", "UTC"), pa.decimal128(10, 2)]
    assert reader.read(part).num_rows == 0


def test_what_changes_is_seen(create, reader, server):
    """Tables that come into the lake, change their columns, go, and come again under the same name."""
    t = create("t", NAMES)
    assert reader.tables(t.db) == []
    t.alter({"op": "set_properties", "properties": LAKE})
    assert reader.tables(t.db) == ["t"] and reader.read(t).schema.names == ["id", "name"]
    server.call("DELETE", t.path)
    assert reader.tables(t.db) == []
    again = create("t", ["other DOUBLE"], properties=LAKE)
    assert reader.read(again).schema.names == ["other"]


def test_unknown_names(create, reader):
    """What is not there is told as each reader tells it, and names of its metadata tables are no tables."""
    t = create("t", NAMES, properties=LAKE)
    t.full = t.db + ".nothing"
    with pytest.raises(Exception, match="(?i)not exist|no table|not be found|NOT_FOUND"):
        reader.read(t)
    t.full = "nowhere.t"
    with pytest.raises(Exception, match="(?i)not exist|no table|not be found|NOT_FOUND"):
        reader.read(t)


def test_pyiceberg_does_not_write(create, server, pyiceberg):
    t = create("t", NAMES, properties=LAKE)
    table = pyiceberg.load(t)
    for change in (
        lambda: table.append(pa.table({"id": [1], "name": ["a"]})),
        lambda: pyiceberg.catalog.create_namespace("mine"),
        lambda: pyiceberg.catalog.create_table(t.db + ".mine", table.schema()),
        lambda: pyiceberg.catalog.drop_table(t.full),
        lambda: pyiceberg.catalog.rename_table(t.full, t.db + ".mine"),
        lambda: pyiceberg.catalog.drop_namespace(t.db),
    ):
        with pytest.raises(NotImplementedError, match="does not support endpoint"):
            change()
    assert pyiceberg.tables(t.db) == ["t"] and pyiceberg.read(t).num_rows == 0
    assert not pyiceberg.catalog.view_exists(t.db + ".v") and pyiceberg.catalog.list_views(t.db) == []


def test_duckdb_does_not_write(create, duck):
    t = create("t", NAMES, properties=LAKE)
    for change in (f"INSERT INTO millrace.{t.full} VALUES (1, 'a')", f"CREATE TABLE millrace.{t.db}.mine (a INT)", "CREATE SCHEMA millrace.mine", f"DROP TABLE millrace.{t.full}"):
        with pytest.raises(Exception, match="406|NotAcceptable"):
            duck.connection.execute(change)
    assert duck.tables(t.db) == ["t"] and duck.read(t).num_rows == 0


@pytest.mark.spark
def test_spark_does_not_write(create, spark):
    t = create("t", NAMES, properties=LAKE)
    c = spark.catalog
    for change in (f"INSERT INTO {c}.{t.full} VALUES (1, 'a')", f"CREATE TABLE {c}.{t.db}.mine (a INT)", f"CREATE NAMESPACE {c}.mine", f"DROP TABLE {c}.{t.full}", f"ALTER TABLE {c}.{t.full} ADD COLUMN x INT"):
        with pytest.raises(Exception, match="does not support endpoint"):
            spark.session.sql(change)
    assert spark.tables(t.db) == ["t"] and spark.read(t).num_rows == 0
    assert spark.session.sql(f"SELECT * FROM {c}.{t.full}.snapshots").collect() == []
    assert spark.session.sql(f"SHOW VIEWS IN {c}.{t.db}").collect() == []


def test_the_host_is_checked(server):
    """A page of another site that makes its name point here is refused, in Iceberg's form."""
    answer = requests.get(server.http + "/iceberg/v1/config", headers={"Host": "evil.example"}, timeout=10)
    assert answer.status_code == 403 and answer.json()["error"]["type"] == "ForbiddenException"
