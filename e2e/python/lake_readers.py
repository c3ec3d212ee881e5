"""Stock readers of lake tables, attached through the catalog at /iceberg as their manuals say; each gives a table's rows as Arrow."""

import importlib
import os
import pathlib

import duckdb
import pyarrow as pa
from pyiceberg.catalog import load_catalog


class PyIceberg:
    name = "pyiceberg"

    def __init__(self, http, store=None):
        credentials = {} if store is None else {"s3.access-key-id": store.access, "s3.secret-access-key": store.secret}
        self.catalog = load_catalog("millrace", type="rest", uri=http + "/iceberg", **credentials)

    def tables(self, db):
        return sorted(name for _, name in self.catalog.list_tables(db))

    def load(self, table):
        return self.catalog.load_table(table.full)

    def read(self, table, where=None):
        return self.load(table).scan(row_filter=where or "true").to_arrow()


class DuckDB:
    name = "duckdb"

    def __init__(self, http, store=None):
        self.http, self.options, self.connection = http, "", duckdb.connect()
        for extension in ("httpfs", "avro", "iceberg"):  # as packages of PyPI: INSTALL would load them from elsewhere
            module = importlib.import_module("duckdb_extension_" + extension)
            (file,) = pathlib.Path(module.__path__[0]).rglob("*.duckdb_extension")
            self.connection.execute(f"LOAD '{file}'")
        self.connection.execute("SET TimeZone = 'UTC'")
        if store is not None:
            self.options = ", ACCESS_DELEGATION_MODE 'none'"
            self.connection.execute(f"CREATE SECRET lake (TYPE s3, KEY_ID '{store.access}', SECRET '{store.secret}', REGION '{store.region}', ENDPOINT '{store.address}', URL_STYLE 'path', USE_SSL false)")
        self.attach()

    def attach(self):
        self.connection.execute(f"ATTACH '' AS millrace (TYPE iceberg, ENDPOINT '{self.http}/iceberg', AUTHORIZATION_TYPE 'none'{self.options})")

    def tables(self, db):
        self.connection.execute("DETACH millrace")  # what it has listed once, it lists for as long as it is attached
        self.attach()
        return sorted(r[0] for r in self.connection.execute(
            "SELECT table_name FROM duckdb_tables() WHERE database_name = 'millrace' AND schema_name = ?", [db]).fetchall())

    def read(self, table, where=None):
        return self.connection.sql(f"SELECT * FROM millrace.{table.full}" + (f" WHERE {where}" if where else "")).to_arrow_table()


class Spark:
    """One session for all tests; a server's catalog is named after its port."""

    name = "spark"
    session = None

    def __init__(self, http, store=None):
        from pyspark.sql import SparkSession

        if Spark.session is None:
            Spark.session = (
                SparkSession.builder.master("local[1]")
                .config("spark.jars", os.environ["E2E_SPARK_ICEBERG"])
                .config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "1").config("spark.log.level", "ERROR")
                .config("spark.sql.session.timeZone", "UTC").config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
                .config("spark.sql.extensions", "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions")
                .getOrCreate())
        self.catalog = "millrace" + http.rsplit(":", 1)[1]
        credentials = {} if store is None else {".s3.access-key-id": store.access, ".s3.secret-access-key": store.secret}
        for key, value in {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "rest", ".uri": http + "/iceberg", ".cache-enabled": "false", **credentials}.items():
            self.session.conf.set(f"spark.sql.catalog.{self.catalog}{key}", value)

    def tables(self, db):
        return sorted(r["tableName"] for r in self.session.sql(f"SHOW TABLES IN {self.catalog}.{db}").collect())

    def read(self, table, where=None):
        frame = self.session.sql(f"SELECT * FROM {self.catalog}.{table.full}" + (f" WHERE {where}" if where else ""))
        try:
            return frame.toArrow()
        except pa.ArrowInvalid:  # pyspark 4.0 does so for NULL structs whose fields are NOT NULL
            from pyspark.sql.pandas.types import to_arrow_schema

            schema = pa.schema([(f.name, nullable(f.type)) for f in to_arrow_schema(frame.schema)])
            return pa.Table.from_pylist([r.asDict(recursive=True) for r in frame.collect()], schema)


ALL = {r.name: r for r in (PyIceberg, DuckDB, Spark)}


def nullable(t):
    """A type whose nested fields may all be NULL."""
    if pa.types.is_struct(t):
        return pa.struct([(f.name, nullable(f.type)) for f in t])
    if pa.types.is_list(t):
        return pa.list_(nullable(t.value_type))
    return pa.map_(t.key_type, nullable(t.item_type)) if pa.types.is_map(t) else t


def rows(table):
    """Rows of an Arrow table as dicts, in an order of their own."""
    return in_order(table.to_pylist())


def in_order(dicts):
    return sorted(dicts, key=lambda r: repr(sorted(r.items())))


def raw(column, arrow_type):
    """Values of a column as the type of the vector has them: times as integers, NaN equal to itself."""
    from test_types import raw as values

    if pa.types.is_temporal(arrow_type):
        return values(column.cast(arrow_type))
    if pa.types.is_map(column.type) or pa.types.is_nested(column.type):
        return values(column)
    return values(column.cast(arrow_type))
