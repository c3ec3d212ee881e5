"""Catalogs of the user's own, as others made them: what Millrace is told of each, and pyiceberg's client of it."""

import os
import pathlib
import shutil
import socket
import subprocess
import time

from hive_metastore import ThriftHiveMetastore
from hive_metastore.ttypes import GetTableRequest
from pyiceberg.catalog import load_catalog

# The jars of e2e/catalogs/pom.xml, and a Hive metastore with an empty database; `make interop` has them brought.
JARS = "E2E_CATALOG_JARS"
HIVE = "E2E_HIVE"


class SQL:
    """pyiceberg's own, over SQLite."""

    kind = "sql"

    def __init__(self, folder):
        file = folder / "catalog.db"
        self.flags = ["--lake-catalog", "sql", "--lake-catalog-uri", f"sqlite://{file}", "--lake-catalog-properties", "catalog-name=shop"]
        self.client = load_catalog("shop", type="sql", uri=f"sqlite:///{file}", warehouse=f"file://{folder}/elsewhere")

    def close(self):
        pass


class Glue:
    """moto's Glue, and its S3 for the files."""

    kind = "glue"

    def __init__(self, folder):
        from moto.glue.responses import GlueResponse
        from moto.server import ThreadedMotoServer

        self.patched, update = GlueResponse, GlueResponse.update_table

        def update_table(response):
            """What AWS documents and moto leaves out: a change of another version than the newest is refused."""
            from moto.core.exceptions import JsonRESTError

            want, given = response.parameters.get("VersionId"), response.parameters["TableInput"]
            have = response.glue_backend.get_table(response.parameters["DatabaseName"], given["Name"]).as_dict()["VersionId"]
            if want is not None and want != have:
                raise JsonRESTError("ConcurrentModificationException", f"the version is {have}, not {want}")
            return update(response)

        self.restore = lambda: setattr(GlueResponse, "update_table", update)
        GlueResponse.update_table = update_table
        self.server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self.server.start()
        endpoint = "http://%s:%d" % self.server.get_host_and_port()
        self.env = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "s", "AWS_REGION": "eu-west-1"}
        keys = {"region": "eu-west-1", "access-key-id": "a", "secret-access-key": "s"}
        self.flags = ["--lake-catalog", "glue", "--lake-catalog-properties", ",".join([f"glue.endpoint={endpoint}", *(f"glue.{k}={v}" for k, v in keys.items())]),
                      "--lake-uri", "s3://shop/lake", "--s3-endpoint", endpoint, "--s3-path-style", "--s3-region", "eu-west-1"]
        import boto3

        boto3.client("s3", endpoint_url=endpoint, region_name="eu-west-1", aws_access_key_id="a", aws_secret_access_key="s").create_bucket(
            Bucket="shop", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
        self.client = load_catalog("own", type="glue", warehouse="s3://shop/elsewhere", **{"glue.endpoint": endpoint, "s3.endpoint": endpoint},
                                   **{f"{s}.{k}": v for s in ("glue", "s3") for k, v in keys.items()})

    def close(self):
        self.server.stop()
        self.restore()


class Java:
    """A server of the JVM in a process of its own."""

    def start(self, folder, port, classes, *args, env=None, options=()):
        self.log = open(folder / f"{self.kind}.log", "wb")
        self.process = subprocess.Popen(
            ["java", "-Xmx384m", "-XX:TieredStopAtLevel=1", *options, "-cp", ":".join(map(str, classes)), *args],
            cwd=folder, stdout=self.log, stderr=self.log, env={**os.environ, **(env or {})})
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline:
            assert self.process.poll() is None, self.tail()
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return
            except OSError:
                time.sleep(0.1)
        self.close()
        raise AssertionError(f"the {self.kind} catalog was not ready: " + self.tail())

    def tail(self):
        return pathlib.Path(self.log.name).read_text(errors="replace")[-4000:]

    def close(self):
        self.process.kill()
        self.process.wait()
        self.log.close()


class REST(Java):
    """The server that Iceberg tests its clients against, over SQLite."""

    kind = "rest"

    def __init__(self, folder):
        port = free_port()
        self.start(folder, port, [pathlib.Path(os.environ[JARS]) / "*"], "org.apache.iceberg.rest.RESTCatalogServer", env={
            "CATALOG_CATALOG__IMPL": "org.apache.iceberg.jdbc.JdbcCatalog", "CATALOG_URI": f"jdbc:sqlite:{folder}/rest.db",
            "CATALOG_JDBC_USER": "user", "CATALOG_JDBC_PASSWORD": "password", "CATALOG_WAREHOUSE": f"file://{folder}/elsewhere",
            "CATALOG_IO__IMPL": "org.apache.iceberg.hadoop.HadoopFileIO", "CATALOG_REST_PORT": str(port)})
        uri = f"http://127.0.0.1:{port}"
        self.flags = ["--lake-catalog", "rest", "--lake-catalog-uri", uri]
        self.client = load_catalog("own", type="rest", uri=uri)


class Hive(Java):
    """A metastore of Hive 4 over Derby, whose schema lets it compare pointers, as other databases do."""

    kind = "hive"

    def __init__(self, folder):
        port, home = free_port(), pathlib.Path(os.environ[HIVE])
        shutil.copytree(home / "derby", folder / "derby")
        settings = {
            "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder}/derby",
            "metastore.warehouse.dir": f"file://{folder}/warehouse",
            "metastore.expression.proxy": "org.apache.hadoop.hive.metastore.DefaultPartitionExpressionProxy",
            "metastore.task.threads.always": "", "metastore.task.threads.remote": "",
        }
        (folder / "metastore-site.xml").write_text("<configuration>%s</configuration>" % "".join(
            f"<property><name>{k}</name><value>{v}</value></property>" for k, v in settings.items()))
        opens = [f"--add-opens=java.base/java.{p}=ALL-UNNAMED" for p in ("lang", "net", "util", "util.concurrent")]
        self.start(folder, port, [folder, home / "lib" / "*", pathlib.Path(os.environ[JARS]) / "*"],
                   "org.apache.hadoop.hive.metastore.HiveMetaStore", "-p", str(port), options=opens)
        uri = f"thrift://127.0.0.1:{port}"
        self.flags = ["--lake-catalog", "hive", "--lake-catalog-uri", uri]
        # Hive 4 has no get_table any more, which pyiceberg calls.
        ThriftHiveMetastore.Client.get_table = lambda client, dbname, tbl_name: client.get_table_req(GetTableRequest(dbName=dbname, tblName=tbl_name)).table
        self.client = load_catalog("own", type="hive", uri=uri, warehouse=f"file://{folder}/elsewhere")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]
