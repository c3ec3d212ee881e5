"""Stock clients with a token, at a server that wants one: pyarrow and polars over Flight, pyiceberg over the lake's catalog."""

import pathlib
import subprocess
import tempfile

import polars
import pyarrow as pa
import pyarrow.flight as flight
import pytest
import requests
from pyiceberg.catalog.rest import RestCatalog

from conftest import LAKE, Server, build, command

pytestmark = pytest.mark.alone


@pytest.fixture(scope="module")
def locked():
    with tempfile.TemporaryDirectory(prefix="millrace-tokens-") as folder:
        data = pathlib.Path(folder) / "data"
        data.mkdir()
        s = Server(build(folder), data, "--auth-jwks", "dev", "--admin-principal", "user:ann", "--log-level", "debug").start()
        try:
            s.token = subprocess.run(
                [str(s.binary), "token", "--user", "ann", "--group", "dev", "--data-dir", str(data)], check=True, capture_output=True, text=True,
            ).stdout.strip()
            bearer = {"headers": {"Authorization": "Bearer " + s.token}}
            s.call("POST", "/v1/databases", {"name": "d"}, **bearer)
            s.call("POST", "/v1/databases/d/tables", {"name": "t", "columns": [{"name": "a", "type": "BIGINT"}], "buckets": 1, "properties": LAKE}, **bearer)
            yield s
            assert s.token not in pathlib.Path(s.log.name).read_text()
            assert s.token not in requests.get(s.http + "/metrics", timeout=30, **bearer).text
        finally:
            s.kill()


def options(locked):
    return flight.FlightCallOptions(headers=[(b"authorization", b"Bearer " + locked.token.encode())])


def test_pyarrow_with_a_bearer(locked):
    with locked.client() as c:
        rows = pa.table({"a": pa.array([1, 2, 3], pa.int64())})
        writer, reader = c.do_put(flight.FlightDescriptor.for_path("d", "t"), rows.schema, options=options(locked))
        writer.write_table(rows)
        writer.done_writing()
        assert b'"rows":3' in reader.read().to_pybytes()
        writer.close()
        info = c.get_flight_info(command(op="scan", table="d.t"), options(locked))
        got = pa.concat_tables(c.do_get(e.ticket, options(locked)).read_all() for e in info.endpoints)
        assert sorted(polars.from_arrow(got)["a"].to_list()) == [1, 2, 3]
        with pytest.raises(flight.FlightUnauthenticatedError):
            c.do_get(info.endpoints[0].ticket).read_all()  # a ticket is no credential


def test_pyarrow_with_user_and_password(locked):
    with locked.client() as c:
        header = c.authenticate_basic_token("token", locked.token)
        assert header == (b"authorization", b"Bearer " + locked.token.encode())
        assert c.get_schema(flight.FlightDescriptor.for_path("d", "t"), flight.FlightCallOptions(headers=[header])).schema.names == ["a"]
        for user, password in [("ann", locked.token), ("token", "x"), ("", "")]:
            with pytest.raises(flight.FlightUnauthenticatedError):
                c.authenticate_basic_token(user, password)


def test_without_a_token(locked):
    with locked.client() as c:
        with pytest.raises(flight.FlightUnauthenticatedError, match="a valid token is needed"):
            c.get_flight_info(command(op="scan", table="d.t"))
        with pytest.raises(flight.FlightUnauthenticatedError):
            list(c.list_flights())
    assert requests.get(locked.http + "/v1/databases", timeout=30).status_code == 401


def test_pyiceberg(locked):
    bearer = {"headers": {"Authorization": "Bearer " + locked.token}}
    locked.call("POST", "/v1/databases/d/tables/t/lake/tier", **bearer)
    catalog = RestCatalog("m", uri=locked.http + "/iceberg", token=locked.token)
    assert catalog.load_table("d.t").scan().to_arrow().num_rows == 3
    with pytest.raises(Exception, match="Unauthorized|NotAuthorized|401"):
        RestCatalog("m", uri=locked.http + "/iceberg", token="x").list_namespaces()
