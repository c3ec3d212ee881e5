"""The guides in Python are true: their python blocks run in order in one namespace, and print what the text block after says."""

import contextlib
import io
import os
import pathlib
import re
import subprocess
import sys

import pytest

pytestmark = pytest.mark.alone

GUIDE = pathlib.Path(__file__).parents[2] / "docs" / "guides" / "pyarrow.md"
LAKE_READERS = GUIDE.with_name("lake-readers.md")


def blocks(page):
    return re.findall(r"^```(\w+)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def run_python(server, text, names):
    """Runs a block against the server and returns what it printed."""
    text = text.replace("grpc://127.0.0.1:8815", server.flight).replace("http://127.0.0.1:8080", server.http)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(text, "<block>", "exec"), names)
    return printed.getvalue()


def run_bash(server, text):
    subprocess.run(["bash", "-euc", text], env={**os.environ, "MILLRACE_SERVER": server.http}, check=True, stdout=subprocess.DEVNULL, timeout=180)


def test_guide(server):
    names = {}
    found = blocks(GUIDE)
    ran = 0
    for i, (language, text) in enumerate(found):
        if language != "python":
            continue
        want = found[i + 1][1] if i + 1 < len(found) and found[i + 1][0] == "text" else ""
        assert run_python(server, text, names) == want, text
        ran += 1
    assert ran > 10
    names["client"].close()


def test_lake_readers(server, duck):
    """The guide to stock readers of the lake: bash blocks make the table, python blocks read it; DuckDB has its extensions from PyPI."""
    duck.connection.execute("DETACH millrace")
    names, found, ran = {"connection": duck.connection}, blocks(LAKE_READERS), 0
    for (language, text), (_, want) in zip(found, found[1:]):
        if language == "bash":
            run_bash(server, text)
        elif language == "python":
            assert run_python(server, text, names) == want, text
            ran += 1
    assert ran == 4


def test_readme(server):
    """The README's tour: the table is made with curl and read with pyarrow."""
    found = blocks(GUIDE.parents[2] / "README.md")
    (setup,) = [text for language, text in found if language == "bash"]
    run_bash(server, setup)
    at = next(i for i, (language, _) in enumerate(found) if language == "python")
    names = {}
    assert run_python(server, found[at][1], names) == found[at + 1][1]
    names["client"].close()


def test_demo_tour(server, tmp_path):
    """The demo with its Python part: run loads the flights, tour.py reads them through Flight."""
    root = GUIDE.parents[2]
    env = {**os.environ, "E2E_MILLRACE": str(server.binary), "DEMO_DATA": str(tmp_path / "demo"), "DEMO_PYTHON": sys.executable}
    env.pop("MILLRACE_SERVER", None)
    done = subprocess.run([str(root / "demo" / "run"), "--check"], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert "a live tail saw" in done.stdout and "one plane has its new seats" in done.stdout
