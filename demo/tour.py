#!/usr/bin/env python3
"""The demo's tour of Arrow Flight: stock pyarrow against the tables that demo/run has loaded.

Usage: tour.py grpc://127.0.0.1:8815
"""

import json
import sys
import time

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.flight as flight


def command(**fields):
    return flight.FlightDescriptor.for_command(json.dumps(fields))


def read(client, **request):
    """Plans a scan and reads its endpoints, one a bucket."""
    info = client.get_flight_info(command(op="scan", **request))
    return pa.concat_tables(client.do_get(e.ticket).read_all() for e in info.endpoints).combine_chunks()


def timed(label, work):
    start = time.perf_counter()
    result = work()
    print(f"{label}: {1000 * (time.perf_counter() - start):.0f} ms")
    return result


def check(what, ok):
    if not ok:
        sys.exit(f"the tour failed: {what}")
    print("✓", what)


def main():
    client = flight.FlightClient(sys.argv[1])

    everything = timed("all columns of all flights", lambda: read(client, table="nyc.flights"))
    narrow = timed("two columns", lambda: read(client, table="nyc.flights", columns=["carrier", "dep_delay"]))
    check(f"{narrow.num_rows:,} flights, {narrow.nbytes:,} of {everything.nbytes:,} bytes", narrow.num_rows == everything.num_rows == 80_789)

    delays = narrow.group_by("carrier").aggregate([("dep_delay", "mean"), ("dep_delay", "count")]).sort_by([("dep_delay_mean", "descending")])
    late = delays.slice(0, 3).to_pylist()
    writer, answers = client.do_exchange(command(op="lookup", table="nyc.airlines", columns=["name"]))
    keys = pa.schema([("carrier", pa.string())])
    with writer:
        writer.begin(keys)
        writer.write_batch(pa.record_batch([pa.array([r["carrier"] for r in late])], schema=keys))
        names = answers.read_chunk().data["name"].to_pylist()
        writer.done_writing()
    for row, name in zip(late, names):
        print(f"  {name:<28} {row['dep_delay_mean']:5.1f} minutes late on average, {row['dep_delay_count']:,} flights")
    check("each airline was found by its key", all(names))

    cold = timed("a filter", lambda: read(client, table="nyc.weather", columns=["origin", "time_hour", "temp"], filter="temp < 12"))
    check(f"{cold.num_rows} hours below 12 °F, the coldest {pc.min(cold['temp']).as_py()} °F", 0 < cold.num_rows < 1000)

    tail = client.do_get(flight.Ticket(json.dumps({
        "op": "scan", "table": "nyc.airlines", "view": "changelog", "from": "latest", "until": "never", "heartbeat_ms": 500})))
    tail.read_chunk()  # where the one bucket stands: from here on, nothing is missed
    renamed = pa.table({"carrier": ["OO"], "name": ["SkyWest Airlines"]})
    writer, results = client.do_put(command(op="put", table="nyc.airlines", acks="final"), renamed.schema)
    with writer:
        writer.write_table(renamed)
        writer.done_writing()
        results.read()
    seen = []
    while len(seen) < 2:
        seen += [(r["_change_type"], r["name"]) for r in tail.read_chunk().data.to_pylist()]
    tail.cancel()
    check(f"a live tail saw {seen}", [c for c, _ in seen] == ["-U", "+U"] and seen[1][1] == "SkyWest Airlines")
    print("done")


if __name__ == "__main__":
    main()
