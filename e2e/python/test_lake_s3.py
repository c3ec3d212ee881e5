"""Stock readers of a lake in S3, here versitygw, with credentials of their own: the catalog tells them the rest."""

import dataclasses
import pathlib
import socket
import subprocess
import tempfile
import time

import pytest
import requests
from conftest import LAKE, ROOT, Server, Table, build, column
from lake_readers import ALL
from test_lake_rounds import COLUMNS, Model, rounds

pytestmark = pytest.mark.alone


@dataclasses.dataclass
class Store:
    """A versitygw of the version that the Makefile pins, with one bucket."""

    address: str
    access: str = "key"
    secret: str = "secret"
    region: str = "us-east-1"


@pytest.fixture(scope="module")
def store():
    gateway = subprocess.run(["make", "-s", "-C", str(ROOT), "--no-print-directory", "versitygw"], check=True, capture_output=True, text=True).stdout.strip()
    with tempfile.TemporaryDirectory(prefix="millrace-s3-") as folder:
        (pathlib.Path(folder) / "lake").mkdir()
        for _ in range(3):  # another process may take the port first
            with socket.create_server(("127.0.0.1", 0)) as s:
                port = s.getsockname()[1]
            store = Store(f"127.0.0.1:{port}")
            process = subprocess.Popen(
                [gateway, "--port", store.address, "--quiet", "--keep-alive", "--health", "/health",
                 "--access", store.access, "--secret", store.secret, "posix", folder])
            try:
                if answers(process, store):
                    yield store
                    return
            finally:
                process.kill()
                process.wait()
        raise AssertionError("versitygw does not start")


def answers(process, store):
    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline:
        try:
            if requests.get(f"http://{store.address}/health", timeout=5).ok:
                return True
        except OSError:
            time.sleep(0.02)
    return False


@pytest.fixture(scope="module")
def in_s3(store):
    with tempfile.TemporaryDirectory(prefix="millrace-lake-s3-") as folder:
        data = pathlib.Path(folder) / "data"
        data.mkdir()
        server = Server(
            build(folder), data, "--lake-uri", "s3://lake/lakes", "--s3-endpoint", f"http://{store.address}", "--s3-region", store.region, "--s3-path-style",
            env={"AWS_ACCESS_KEY_ID": store.access, "AWS_SECRET_ACCESS_KEY": store.secret}).start()
        try:
            server.call("POST", "/v1/databases", {"name": "s3"})
            yield server
        finally:
            server.kill()


@pytest.mark.parametrize("name", ["pyiceberg", "duckdb", pytest.param("spark", marks=pytest.mark.spark)])
@pytest.mark.parametrize("key", [None, ["id", "day"]], ids=["log", "keyed"])
def test_each_round(in_s3, store, name, key):
    table = f"t_{name}_{'keyed' if key else 'log'}"
    body = {
        "name": table, "columns": [column(c) for c in COLUMNS], "buckets": 3, "partition_by": ["day"],
        "properties": {**LAKE, "table.datalake.freshness": "1h"}, **({"primary_key": key} if key else {}),
    }
    in_s3.call("POST", "/v1/databases/s3/tables", body)
    table = Table(in_s3, "s3", table)
    assert table.tier()["location"].startswith("s3://lake/lakes/")
    rounds(table, Model(table, key or [], seed=name), [ALL[name](in_s3.http, store)], count=4, size=200)
