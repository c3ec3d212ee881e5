"""What the tests share: one real server, built from source unless E2E_MILLRACE names a binary, and small helpers."""

import itertools
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time

import pyarrow.flight as flight
import pytest
import requests

# The properties of a table that is kept in the lake.
LAKE = {"table.datalake.enabled": "true"}

ROOT = pathlib.Path(__file__).resolve().parents[2]


def build(folder):
    given = os.environ.get("E2E_MILLRACE")
    if given:
        return pathlib.Path(given).resolve()
    binary = pathlib.Path(folder) / "millrace"
    subprocess.run(
        ["go", "build", "-o", str(binary), "./cmd/millrace"],
        cwd=ROOT, check=True, env={**os.environ, "CGO_ENABLED": "0"},
    )
    return binary


class Server:
    """A millrace process over a data directory of its own."""

    def __init__(self, binary, folder, *flags, env=None):
        self.binary, self.folder, self.flags, self.env = binary, pathlib.Path(folder), flags, env or {}
        self.process = None

    def start(self):
        addresses = self.folder / "addresses.json"
        addresses.unlink(missing_ok=True)
        env = {k: v for k, v in os.environ.items() if not k.startswith("MILLRACE_")} | self.env
        self.log = open(self.folder.parent / (self.folder.name + ".log"), "ab")
        self.process = subprocess.Popen(
            [str(self.binary), "serve", "--http-addr", "127.0.0.1:0", "--flight-addr", "127.0.0.1:0",
             "--data-dir", str(self.folder), *self.flags],
            stdout=self.log, stderr=self.log, env={**env, **self.env},
        )
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            assert self.process.poll() is None, "the server ended: " + self.tail()
            try:
                found = json.loads(addresses.read_text())
                if found["pid"] == self.process.pid:
                    self.http = "http://" + found["http"]
                    self.flight = "grpc+tcp://" + found["flight"]
                    if requests.get(self.http + "/readyz", timeout=5).ok:
                        return self
            except (OSError, ValueError):
                pass
            time.sleep(0.02)
        raise AssertionError("the server was not ready: " + self.tail())

    def tail(self):
        return pathlib.Path(self.log.name).read_text(errors="replace")[-8000:]

    def kill(self):
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        self.log.close()

    def call(self, method, path, body=None, **kwargs):
        answer = requests.request(method, self.http + path, json=body, timeout=60, **kwargs)
        assert answer.ok, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else {}

    def client(self):
        return flight.FlightClient(self.flight)


class Cluster:
    """A nats-server and the processes of a cluster, of which the last, a front, is what clients see."""

    def __init__(self, binary, folder, nats_server):
        folder = pathlib.Path(folder)
        ports = folder / "nats"
        ports.mkdir()
        config = folder / "nats.conf"
        config.write_text(f'listen: "127.0.0.1:-1"\nports_file_dir: "{ports}"\n'
                          f'jetstream {{ store_dir: "{ports}", sync_interval: always }}\n')
        self.log = open(folder / "nats.log", "ab")
        self.nats = subprocess.Popen([nats_server, "-c", str(config)], stdout=self.log, stderr=self.log)
        self.processes = []
        try:
            url = self.nats_url(ports)
            flags = ["--nats-url", url, "--shards", "4", "--log-max-size", "256MiB", "--lake-uri", f"file://{folder}/lake", "--remote-uri", f"file://{folder}/remote"]
            for name, roles in ("worker-1", "worker"), ("worker-2", "worker"), ("front", "front,tier"):
                (folder / name).mkdir()
                self.processes.append(Server(binary, folder / name, "--roles", roles, *flags).start())
        except BaseException:
            self.kill()
            raise

    @staticmethod
    def nats_url(ports):
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            for file in ports.glob("*.ports"):
                try:
                    return json.loads(file.read_text())["nats"][0]
                except (ValueError, KeyError, IndexError):
                    pass  # it is being written
            time.sleep(0.02)
        raise AssertionError("nats-server was not ready")

    def kill(self):
        for process in self.processes:
            process.kill()
        self.nats.kill()
        self.nats.wait()
        self.log.close()


@pytest.fixture(scope="session")
def server():
    """A server alone, or a front of a cluster when E2E_NATS_SERVER names a nats-server to run one with."""
    nats_server = os.environ.get("E2E_NATS_SERVER")
    with tempfile.TemporaryDirectory(prefix="millrace-interop-") as folder:
        if nats_server:
            c = Cluster(build(folder), folder, nats_server)
            try:
                yield c.processes[-1]
            finally:
                c.kill()
            return
        data = pathlib.Path(folder) / "data"
        data.mkdir()
        s = Server(build(folder), data).start()
        try:
            yield s
        finally:
            s.kill()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    """A failed test shows the end of the server's log."""
    report = (yield).get_result()
    s = getattr(item, "funcargs", {}).get("server")
    if report.when == "call" and report.failed and s is not None:
        report.sections.append(("server log", s.tail()[-4000:]))


@pytest.fixture
def client(server):
    with server.client() as c:
        yield c


_numbers = itertools.count()


class Table:
    """A table with its REST path and Flight descriptors."""

    def __init__(self, server, db, name):
        self.server, self.db, self.name = server, db, name
        self.full = f"{db}.{name}"
        self.path = f"/v1/databases/{db}/tables/{name}"

    def write(self, rows, **members):
        return self.server.call("POST", self.path + "/records", {"rows": rows, **members})

    def count(self):
        return self.server.call("GET", self.path + "/count")["count"]

    def alter(self, *ops):
        return self.server.call("PATCH", self.path, {"ops": ops})

    def tier(self):
        """Takes what there is to the lake, and says how the lake is then."""
        return self.server.call("POST", self.path + "/lake/tier")

    def descriptor(self, suffix=""):
        return flight.FlightDescriptor.for_path(self.db, self.name + suffix)

    def scan(self, **request):
        return command(op="scan", table=self.full, **request)


def column(text):
    name, sql = text.split(" ", 1)
    bare = sql.removesuffix(" NOT NULL")
    return {"name": name, "type": bare, **({} if bare == sql else {"nullable": False})}


def command(**fields):
    return flight.FlightDescriptor.for_command(json.dumps(fields))


@pytest.fixture
def create(server):
    """Makes a table in a database of the test's own."""
    db = f"py{next(_numbers)}"
    server.call("POST", "/v1/databases", {"name": db})

    def make(name, columns, key=None, buckets=1, **more):
        body = {"name": name, "buckets": buckets, **more, "columns": [column(c) for c in columns]}
        if key:
            body["primary_key"] = key
        server.call("POST", f"/v1/databases/{db}/tables", body)
        return Table(server, db, name)

    make.db = db
    return make


@pytest.fixture(scope="session")
def pyiceberg(server):
    from lake_readers import PyIceberg

    return PyIceberg(server.http)


@pytest.fixture(scope="session")
def duck(server):
    from lake_readers import DuckDB

    return DuckDB(server.http)


@pytest.fixture(scope="session")
def spark(server):
    from lake_readers import Spark

    return Spark(server.http)


@pytest.fixture(params=["pyiceberg", "duck", pytest.param("spark", marks=pytest.mark.spark)])
def reader(request):
    """Each stock reader of the lake in turn."""
    return request.getfixturevalue(request.param)


def read(client, descriptor):
    """Plans and reads all endpoints, as any Flight client does."""
    import pyarrow as pa

    info = client.get_flight_info(descriptor)
    parts = []
    for endpoint in info.endpoints:
        table = client.do_get(endpoint.ticket).read_all()
        assert table.schema == info.schema
        parts.append(table)
    return pa.concat_tables(parts) if parts else info.schema.empty_table()
