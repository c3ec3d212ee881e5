"""Writes every Arrow value of e2e/testdata/types.json with pyarrow.

One column a case: "<vector>" has the values of a vector in its own Arrow type,
"<vector>.<cast>" the value of one of its casts. All columns are as long as the
longest, with their last value repeated. Run it again when the vector file changes:

    pip install pyarrow==26.0.1
    python pyarrow_streams.py
"""

import decimal  # noqa: F401, used by the expressions
import json
import pathlib

import pyarrow as pa

here = pathlib.Path(__file__).parent
vectors = json.loads((here / "../../../e2e/testdata/types.json").read_text())["vectors"]
rows = max(len(v["values"]) for v in vectors)

names, arrays = [], []


def add(name, arrow_type, values):
    values = [eval(v) for v in values]
    values += values[-1:] * (rows - len(values))
    names.append(name)
    arrays.append(pa.array(values, type=eval(arrow_type)))


for i, vector in enumerate(vectors):
    add(str(i), vector["arrow_type"], [v["arrow"] for v in vector["values"]])
    for j, cast in enumerate(vector.get("casts", [])):
        add(f"{i}.{j}", cast["arrow_type"], [cast["arrow"]])

table = pa.table(arrays, names=names)
for codec in (None, "lz4", "zstd"):
    with pa.OSFile(str(here / f"pyarrow_{codec or 'plain'}.arrows"), "wb") as f:
        options = pa.ipc.IpcWriteOptions(compression=codec)
        with pa.ipc.new_stream(f, table.schema, options=options) as w:
            w.write_table(table)
