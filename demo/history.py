#!/usr/bin/env python3
"""The demo's stock reader: pyiceberg against the lake tables of demo/run, through the server's catalog.

Usage: history.py http://127.0.0.1:8080/iceberg
"""

import sys
import time

from pyiceberg.catalog import load_catalog


def check(what, ok):
    if not ok:
        sys.exit(f"the stock reader failed: {what}")
    print("✓", what)


def main():
    catalog = load_catalog("millrace", type="rest", uri=sys.argv[1])
    print("tables:", *(".".join(name) for name in catalog.list_tables("nyc")))

    start = time.perf_counter()
    delays = catalog.load_table("nyc.flights").scan(selected_fields=("carrier", "dep_delay")).to_arrow()
    print(f"carrier and delay of {delays.num_rows:,} flights: {1000 * (time.perf_counter() - start):.0f} ms")
    check("every flight that is in the lake", delays.num_rows == 80_789)
    late = delays.group_by("carrier").aggregate([("dep_delay", "mean")]).sort_by([("dep_delay_mean", "descending")])
    print("  latest on average:", *(f"{r['carrier']} {r['dep_delay_mean']:.1f} min" for r in late.slice(0, 3).to_pylist()))

    planes = catalog.load_table("nyc.planes")
    seats = {r["tailnum"]: r["seats"] for r in planes.scan(selected_fields=("tailnum", "seats")).to_arrow().to_pylist()}
    check("one plane has its new seats, the scrapped one is gone", len(seats) == 3321 and seats["N14228"] == 151 and "N24211" not in seats)
    print("done")


if __name__ == "__main__":
    main()
