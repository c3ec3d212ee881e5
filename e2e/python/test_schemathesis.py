"""Schemathesis makes requests of the document by itself, good ones and bad ones, with a token and without: no answer is a fault of the server's, and each is what the document says."""

import pathlib
import re
import subprocess
import sys
import tempfile

import pytest

from conftest import Server, build

pytestmark = pytest.mark.alone

SECONDS = 35  # of each run


@pytest.fixture(scope="module")
def locked():
    with tempfile.TemporaryDirectory(prefix="millrace-schemathesis-") as folder:
        data = pathlib.Path(folder) / "data"
        data.mkdir()
        s = Server(build(folder), data, "--auth-jwks", "dev", "--admin-principal", "user:ann").start()
        try:
            s.token = subprocess.run(
                [str(s.binary), "token", "--user", "ann", "--data-dir", str(data)], check=True, capture_output=True, text=True,
            ).stdout.strip()
            bearer = {"headers": {"Authorization": "Bearer " + s.token}}
            s.call("POST", "/v1/databases", {"name": "d"}, **bearer)
            s.call("POST", "/v1/databases/d/tables", {"name": "t", "columns": [{"name": "a", "type": "BIGINT"}], "primary_key": ["a"], "buckets": 1}, **bearer)
            yield s
            assert s.process.poll() is None, "the server ended: " + s.tail()
            assert "panic" not in s.tail()
        finally:
            s.kill()


# Most of what is made up would be of tables that are not there, and two operations would take away the one that is.
CONFIG = """[parameters]
"path.database" = "d"
"path.table" = "t"
"path.namespace" = "d"
"""
LEFT_OUT = ["drop_table", "drop_database"]


@pytest.mark.parametrize("known", [True, False], ids=["with a token", "without"])
def test_the_document_is_kept(locked, known):
    config = locked.folder.parent / "schemathesis.toml"
    config.write_text(CONFIG)
    run = [
        str(pathlib.Path(sys.executable).parent / "st"), "--config-file", str(config), "--no-color", "run", locked.http + "/openapi.json", "--url", locked.http,
        "--checks", "not_a_server_error,content_type_conformance,response_schema_conformance", "--phases", "examples,coverage,fuzzing",
        "--max-time", str(SECONDS), "--max-examples", "20", "--continue-on-failure", "--suppress-health-check", "all", "--request-timeout", "60", "--seed", "1",
    ]
    for operation in LEFT_OUT:
        run += ["--exclude-operation-id", operation]
    if known:
        run += ["--header", "Authorization: Bearer " + locked.token]
    done = subprocess.run(run, capture_output=True, text=True, timeout=4 * SECONDS + 60, cwd=locked.folder.parent)
    said = done.stdout.replace(locked.token, "…")
    # What it calls errors are requests that it could not make: bodies of NDJSON, and headers that are too long, at which
    # the server closes the connection.
    cases = re.search(r"(\d+) generated", said)
    assert cases and int(cases[1]) > 100, said[-5000:] + done.stderr[-2000:]
    assert "= FAILURES =" not in said, said[:20000]
