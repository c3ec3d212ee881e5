"""HTTP Arrow streams with requests and pyarrow.ipc; polars and pandas there and back."""

import io
import json

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.ipc
import pytest
import requests
from conftest import read
from test_put import put

ARROW = "application/vnd.apache.arrow.stream"


def test_http_arrow_there_and_back(create, server):
    t = create("t", ["id BIGINT", "v STRING", "x DOUBLE"], buckets=2)
    data = pa.table({"id": pa.array(range(10_000), pa.int64()), "v": [f"v{i % 7}" for i in range(10_000)], "x": [i / 3 for i in range(10_000)]})
    for options in (None, pa.ipc.IpcWriteOptions(compression="lz4"), pa.ipc.IpcWriteOptions(compression="zstd")):
        body = io.BytesIO()
        with pa.ipc.new_stream(body, data.schema, options=options) as w:
            w.write_table(data, max_chunksize=1000)
        answer = requests.post(server.http + t.path + "/records", data=body.getvalue(), headers={"Content-Type": ARROW}, timeout=60)
        assert answer.json()["accepted"] == 10_000, answer.text
    answer = requests.post(server.http + t.path + "/scan", json={"columns": ["x", "id"], "filter": "id < 100"},
                           headers={"Accept": ARROW}, stream=True, timeout=60)
    assert answer.headers["Content-Type"].startswith(ARROW)
    got = pa.ipc.open_stream(answer.raw).read_all()
    assert got.schema.names == ["x", "id"] and got.num_rows == 300
    assert sorted(set(got["id"].to_pylist())) == list(range(100))


def test_polars(create, client):
    """A polars frame goes in (its strings are views) and comes out with the same values and types."""
    t = create("t", ["id BIGINT", "name STRING", "at TIMESTAMP(6)", "tags ARRAY<STRING>", "price DECIMAL(10,2)"], ["id"], 2)
    frame = pl.DataFrame({
        "id": [1, 2, 3], "name": ["a", None, "c"], "tags": [["x"], [], None],
        "at": pl.Series(["2026-11-29T10:00:00"] * 3).str.to_datetime(time_unit="us"),
        "price": pl.Series(["1.10", "2.20", None]).cast(pl.Decimal(10, 2)),
    })
    put(client, t.descriptor(), frame.to_arrow(compat_level=pl.CompatLevel.newest()))
    back = pl.from_arrow(read(client, t.descriptor())).sort("id")
    assert back.equals(frame.select(back.columns))
    narrow = pl.from_arrow(read(client, t.scan(columns=["name"], filter="price > 2")))
    assert narrow.to_dicts() == [{"name": None}]


def test_pandas(create, client):
    """A pandas frame goes in, its index and metadata ignored, and comes out the same."""
    t = create("t", ["id BIGINT", "name STRING", "x DOUBLE", "at TIMESTAMP_LTZ(6)", "ok BOOLEAN"], buckets=1)
    frame = pd.DataFrame({
        "id": [1, 2, 3], "name": ["a", None, "c"], "x": [0.5, float("nan"), -1.0],
        "at": pd.to_datetime(["2026-11-29T10:00:00Z"] * 3).as_unit("us"), "ok": [True, False, True],
    }, index=[7, 8, 9])
    put(client, t.descriptor(), pa.Table.from_pandas(frame, preserve_index=True))
    back = read(client, t.descriptor()).to_pandas()
    assert list(back.columns) == ["id", "name", "x", "at", "ok"]
    assert back["id"].tolist() == [1, 2, 3] and back["ok"].tolist() == [True, False, True]
    assert back["name"].isna().tolist() == [False, True, False] and back["name"][[0, 2]].tolist() == ["a", "c"]
    assert back["x"].isna().tolist() == [False, True, False]
    assert (back["at"] == frame["at"].to_numpy()).all() or (back["at"].dt.tz_convert("UTC").tolist() == frame["at"].tolist())


def test_read_pandas_by_chunks(create, client):
    t = create("t", ["id BIGINT"], buckets=1)
    put(client, t.descriptor(), pa.table({"id": pa.array(range(100_000), pa.int64())}), max_chunksize=10_000)
    (endpoint,) = client.get_flight_info(t.descriptor()).endpoints
    total = 0
    for chunk in client.do_get(endpoint.ticket):
        total += len(chunk.data.to_pandas())
    assert total == 100_000


@pytest.mark.parametrize("accept", ["application/json", "application/x-ndjson"])
def test_json_reads_agree_with_arrow(create, client, server, accept):
    t = create("t", ["id BIGINT", "v STRING"], buckets=1)
    t.write([{"id": i, "v": f"ü{i}"} for i in range(50)])
    answer = requests.get(server.http + t.path + "/scan", headers={"Accept": accept}, timeout=60)
    rows = answer.json()["rows"] if accept == "application/json" else [json.loads(line) for line in answer.text.splitlines()]
    assert rows == read(client, t.descriptor()).to_pylist()
