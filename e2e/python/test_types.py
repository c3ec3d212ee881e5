"""Every type vector through pyarrow: DoPut and DoGet, with NULL, casts and refusals, beside what REST says."""

import datetime  # noqa: F401 (used by eval)
import decimal  # noqa: F401 (used by eval)
import json
import math
import pathlib

import pyarrow as pa
import pytest
from conftest import read
from test_put import put

VECTORS = json.loads((pathlib.Path(__file__).parents[1] / "testdata" / "types.json").read_text())["vectors"]


def value(text):
    """Values are written as Python expressions; times are integers in the Arrow type's unit."""
    return eval(text, {"pa": pa, "decimal": decimal, "datetime": datetime, "float": float, "None": None})


def array(values, arrow_type):
    if pa.types.is_temporal(arrow_type):
        width = pa.int32() if arrow_type.bit_width == 32 else pa.int64()
        return pa.array(values, width).cast(arrow_type) if not pa.types.is_time(arrow_type) else pa.array(values, width).view(arrow_type)
    if pa.types.is_dictionary(arrow_type):
        return pa.array(values, arrow_type.value_type).dictionary_encode().cast(arrow_type)
    return pa.array(values, arrow_type)


def plain(x):
    """Makes NaN equal to itself."""
    if isinstance(x, float) and math.isnan(x):
        return "NaN"
    if isinstance(x, (list, tuple)):
        return [plain(v) for v in x]
    if isinstance(x, dict):
        return {k: plain(v) for k, v in x.items()}
    return x


def raw(column):
    """Values as Python objects; times as integers."""
    if pa.types.is_temporal(column.type):
        column = column.combine_chunks()
        column = column.view(pa.int32() if column.type.bit_width == 32 else pa.int64())
    return plain(column.to_pylist())


@pytest.mark.parametrize("key", [None, ["id"]], ids=["log", "keyed"])
@pytest.mark.parametrize("vector", VECTORS, ids=[v["type"] for v in VECTORS])
def test_vector(create, client, vector, key):
    t = create("t", ["id INT", "v " + vector["type"]], key)
    arrow_type = value(vector["arrow_type"])
    values = [value(v["arrow"]) for v in vector["values"]]
    ids = pa.array(range(len(values)), pa.int32())
    put(client, t.descriptor(), pa.table({"id": ids, "v": array(values, arrow_type)}))
    got = read(client, t.descriptor()).sort_by("id")
    assert got.schema.field("v").metadata[b"millrace.type"].decode() == vector["type"]
    assert got["id"].to_pylist() == list(range(len(values)))
    assert got.schema.field("v").type.id == arrow_type.id
    in_time_units = pa.types.is_temporal(arrow_type)
    assert raw(got["v"]) == plain(values if in_time_units else pa.array(values, arrow_type).to_pylist())
    page = t.server.call("GET", t.path + "/scan?page_size=1000")["rows"]
    seen = {r["id"]: r["v"] for r in page}
    assert plain([seen[i] for i in range(len(values))]) == plain([v["json"] for v in vector["values"]])


@pytest.mark.parametrize("vector", [v for v in VECTORS if v.get("casts")], ids=[v["type"] for v in VECTORS if v.get("casts")])
def test_casts(create, client, vector):
    """What loses nothing is cast; anything else is refused with its code, and nothing is written."""
    t = create("t", ["v " + vector["type"]])
    for cast in vector["casts"]:
        table = pa.table({"v": array([value(cast["arrow"])], value(cast["arrow_type"]))})
        before = t.count()
        if "code" in cast:
            with pytest.raises((pa.ArrowInvalid, pa.ArrowNotImplementedError)) as caught:
                put(client, t.descriptor(), table)
            assert t.count() == before, cast
            assert "v" in str(caught.value), cast
        else:
            put(client, t.descriptor(), table)
            (row,) = t.server.call("GET", t.path + f"/changelog?from=%7B%220%22:{before}%7D")["rows"]
            assert plain(row["v"]) == plain(cast["json"]), cast
