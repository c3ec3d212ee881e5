"""The pyarrow guide is true: its python blocks run in order in one namespace, and print what the text block after says."""

import contextlib
import io
import pathlib
import re

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
