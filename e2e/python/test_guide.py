"""The pyarrow guide is true: its python blocks run in order in one namespace, and print what the text block after says."""

import contextlib
import io
import os
import pathlib
import re
import subprocess
import sys

GUIDE = pathlib.Path(__file__).parents[2] / "docs" / "guides" / "pyarrow.md"


def blocks():
    return re.findall(r"^```(\w+)\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)


def test_guide(server):
    names = {}
    found = blocks()
    ran = 0
    for i, (language, text) in enumerate(found):
        if language != "python":
            continue
        text = text.replace("grpc://127.0.0.1:8815", server.flight).replace("http://127.0.0.1:8080", server.http)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(text, f"{GUIDE.name} block {i}", "exec"), names)
        want = found[i + 1][1] if i + 1 < len(found) and found[i + 1][0] == "text" else ""
        assert printed.getvalue() == want, text
        ran += 1
    assert ran > 10
    names["client"].close()


def test_demo_tour(server, tmp_path):
    """The demo with its Python part: run loads the flights, tour.py reads them through Flight."""
    root = GUIDE.parents[2]
    env = {**os.environ, "E2E_MILLRACE": str(server.binary), "DEMO_DATA": str(tmp_path / "demo"), "DEMO_PYTHON": sys.executable}
    env.pop("MILLRACE_SERVER", None)
    done = subprocess.run([str(root / "demo" / "run"), "--check"], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert "a live tail saw" in done.stdout
