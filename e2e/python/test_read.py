"""Planned and direct reads with stock pyarrow: endpoints, tickets, projection, filters, bytes on the wire."""

import json
import socket
import threading
import time

import pyarrow as pa
import pyarrow.flight as flight
import pytest
from conftest import read


def test_path_descriptors(create, client):
    """Both spellings of a path plan the same read, and the schema tells what the table is."""
    t = create("t", ["id BIGINT", "v STRING"], ["id"], 3)
    t.write([{"id": i, "v": str(i)} for i in range(100)])
    for descriptor in (t.descriptor(), flight.FlightDescriptor.for_path(t.full)):
        got = read(client, descriptor).sort_by("id")
        assert got.to_pydict() == {"id": list(range(100)), "v": [str(i) for i in range(100)]}
    schema = client.get_schema(t.descriptor()).schema
    assert schema.metadata[b"millrace.kind"] == b"keyed"
    assert json.loads(schema.metadata[b"millrace.primary_key"]) == ["id"]
    assert schema.field("v").metadata[b"millrace.type"] == b"STRING"
    assert not schema.field("id").nullable


def test_endpoints_cover_each_bucket_once(create, client):
    t = create("t", ["id BIGINT"], ["id"], 4)
    t.write([{"id": i} for i in range(200)])
    info = client.get_flight_info(t.descriptor())
    metas = [json.loads(e.app_metadata) for e in info.endpoints]
    assert sorted(m["bucket_key"] for m in metas) == ["0", "1", "2", "3"]
    assert all(e.expiration_time is not None and not e.locations for e in info.endpoints)
    rows = [client.do_get(e.ticket).read_all().num_rows for e in info.endpoints]
    assert sum(rows) == 200 and all(rows)


def test_tickets_are_repeatable(create, client):
    """A ticket gives the same rows in the same order again, whatever was written meanwhile, on another connection too."""
    t = create("t", ["id BIGINT", "v BIGINT"], ["id"], 2)
    t.write([{"id": i, "v": 0} for i in range(100)])
    info = client.get_flight_info(t.descriptor())
    first = [client.do_get(e.ticket).read_all() for e in info.endpoints]
    t.write([{"id": i, "v": 1} for i in range(50, 150)])
    with t.server.client() as other:
        again = [other.do_get(e.ticket).read_all() for e in info.endpoints]
    assert first == again
    assert read(client, t.descriptor()).num_rows == 150


def test_tampered_ticket(create, client):
    t = create("t", ["id BIGINT"])
    t.write([{"id": 1}])
    ticket = bytearray(client.get_flight_info(t.descriptor()).endpoints[0].ticket.ticket)
    for at in range(0, len(ticket), max(1, len(ticket) // 16)):
        broken = bytearray(ticket)
        broken[at] ^= 1
        with pytest.raises(pa.ArrowInvalid):
            client.do_get(flight.Ticket(bytes(broken))).read_all()


def test_scan_json_is_a_ticket(create, client):
    t = create("t", ["id BIGINT", "v STRING"])
    t.write([{"id": 1, "v": "a"}, {"id": 2, "v": "b"}])
    ticket = flight.Ticket(json.dumps({"op": "scan", "table": t.full, "columns": ["v"], "filter": "id = 2"}))
    assert client.do_get(ticket).read_all().to_pydict() == {"v": ["b"]}


def test_projection_and_filter(create, client):
    """Columns come in the order asked; filters are exact, with parameters; limit is of rows in all."""
    t = create("t", ["id BIGINT", "name STRING", "price DECIMAL(8,2)", "at TIMESTAMP(3)"], buckets=2)
    t.write([{"id": i, "name": f"n{i % 3}", "price": f"{i}.50", "at": f"2026-11-29T10:00:{i:02d}"} for i in range(30)])
    got = read(client, t.scan(columns=["price", "id"], filter="name = ? AND price > ?", params=["n1", "10.00"]))
    assert got.schema.names == ["price", "id"]
    assert sorted(got["id"].to_pylist()) == [10, 13, 16, 19, 22, 25, 28]
    assert got.schema.field("price").type == pa.decimal128(8, 2)
    assert read(client, t.scan(limit=7)).num_rows == 7
    assert read(client, t.scan(filter="at >= '2026-11-29T10:00:25'")).num_rows == 5
    assert read(client, t.scan(filter="name IS NULL")).num_rows == 0


def test_changelog(create, client):
    """X2 in pyarrow: the life of one order, with offsets in the rows and in each batch's metadata."""
    t = create("order_status", ["order_id BIGINT", "status STRING"], ["order_id"], 1)
    t.write([{"order_id": 1, "status": "pending"}])
    t.write([{"order_id": 1, "status": "paid"}])
    t.write([{"order_id": 1}], mode="delete")
    got = read(client, t.descriptor("$changelog"))
    assert got.schema.names[:5] == ["_change_type", "_log_offset", "_commit_timestamp", "order_id", "status"]
    assert got["_change_type"].to_pylist() == ["+I", "-U", "+U", "-D"]
    assert got["_log_offset"].to_pylist() == [0, 1, 2, 3]
    assert got["status"].to_pylist() == ["pending", "pending", "paid", "paid"]
    assert got.schema.field("_commit_timestamp").type == pa.timestamp("ms", "UTC")

    reader = client.do_get(client.get_flight_info(t.descriptor("$changelog")).endpoints[0].ticket)
    metas = [json.loads(chunk.app_metadata.to_pybytes()) for chunk in reader if chunk.data is not None and chunk.data.num_rows]
    assert metas[0]["base"] == 0 and metas[-1]["next"] == 4 and sum(m["rows"] for m in metas) == 4


class CountingProxy:
    """Forwards TCP connections and counts the bytes that come back."""

    def __init__(self, target):
        host, port = target.rsplit(":", 1)
        self.target = (host.rsplit("/", 1)[-1], int(port))
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.received = 0
        self.address = "grpc+tcp://127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            far = socket.create_connection(self.target)
            threading.Thread(target=self.pump, args=(near, far, False), daemon=True).start()
            threading.Thread(target=self.pump, args=(far, near, True), daemon=True).start()

    def pump(self, source, sink, back):
        try:
            while data := source.recv(1 << 16):
                if back:
                    self.received += len(data)
                sink.sendall(data)
        except OSError:
            pass
        for s in (source, sink):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        self.listener.close()


def test_narrow_read_on_the_wire(create, server, client):
    """X4: two of forty columns cost at most 8 % of the bytes of all, counted on the socket."""
    import numpy as np

    names = ["user_id", "amount_cents"] + [f"c{i}" for i in range(38)]
    t = create("events_wide", [n + " BIGINT" for n in names], buckets=4)
    random = np.random.default_rng(1)
    rows = 50_000
    data = pa.table({n: random.integers(-(2**62), 2**62, rows) for n in names})
    writer, reader = client.do_put(t.descriptor(), data.schema)
    with writer:
        writer.write_table(data, max_chunksize=5000)
        writer.done_writing()
        assert json.loads(reader.read().to_pybytes())["rows"] == rows

    def cost(descriptor):
        proxy = CountingProxy(server.flight)
        with flight.FlightClient(proxy.address) as c:
            start = time.perf_counter()
            got = read(c, descriptor)
            took = time.perf_counter() - start
        proxy.close()
        assert got.num_rows == rows
        return proxy.received, took

    full, full_time = cost(t.descriptor())
    narrow, narrow_time = cost(t.scan(columns=["user_id", "amount_cents"]))
    print(f"full {full} bytes in {full_time:.3f} s, narrow {narrow} bytes in {narrow_time:.3f} s")
    assert narrow <= 0.08 * full


def test_binlog_images(create, client):
    """pyarrow reads a change with the rows before and after it; NULL where there is none."""
    t = create("orders", ["id BIGINT", "status STRING"], key=["id"])
    t.write([{"id": 1, "status": "pending"}])
    t.write([{"id": 1, "status": "paid"}])
    t.write([{"id": 1}], mode="delete")
    got = read(client, t.descriptor("$binlog"))
    assert [(r["_change_type"], r["before"], r["after"]) for r in got.to_pylist()] == [
        ("insert", None, {"id": 1, "status": "pending"}),
        ("update", {"id": 1, "status": "pending"}, {"id": 1, "status": "paid"}),
        ("delete", {"id": 1, "status": "paid"}, None),
    ]
    got.validate(full=True)
    assert got.to_pandas()["after"][1]["status"] == "paid"
