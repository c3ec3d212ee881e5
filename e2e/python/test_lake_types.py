"""Every type vector through the lake, as stock readers give it."""

import pyarrow as pa
import pytest
from conftest import LAKE
from lake_readers import raw
from test_put import put
from test_types import VECTORS, array, plain, value

IN_LAKE = [v for v in VECTORS if not v["type"].endswith("(9)")]


@pytest.mark.parametrize("key", [None, ["id"]], ids=["log", "keyed"])
@pytest.mark.parametrize("vector", IN_LAKE, ids=[v["type"] for v in IN_LAKE])
def test_vector_in_the_lake(create, client, reader, vector, key):
    if reader.name == "spark" and vector["type"].startswith("TIME("):
        with pytest.raises(Exception, match="(?i)time"):  # Spark 4.0 has no such type
            reader.read(create("t", ["id INT", "v " + vector["type"]], key, properties=LAKE))
        return
    t = create("t", ["id INT", "v " + vector["type"]], key, properties=LAKE)
    arrow_type = value(vector["arrow_type"])
    values = [value(v["arrow"]) for v in vector["values"]]
    put(client, t.descriptor(), pa.table({"id": pa.array(range(len(values)), pa.int32()), "v": array(values, arrow_type)}))
    t.tier()
    got = reader.read(t).sort_by("id")
    assert got["id"].to_pylist() == list(range(len(values)))
    in_time_units = pa.types.is_temporal(arrow_type)
    want = plain(values if in_time_units else pa.array(values, arrow_type).to_pylist())
    if reader.name == "pyiceberg" and "ARRAY<ROW" in vector["type"]:
        want = [[] if v is None else v for v in want]  # pyiceberg 0.12 gives NULL lists of structs as empty ones
    assert raw(got["v"], arrow_type) == want
