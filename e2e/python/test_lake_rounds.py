"""Stock readers after each of many rounds, row by row, beside a model that is kept here: log and keyed tables, with deletes, partitions, schema changes and both ways of deleting."""

import datetime
import decimal
import random

import pytest
from conftest import LAKE
from lake_readers import in_order, rows

COLUMNS = ["id BIGINT", "day STRING", "name STRING", "n INT", "amount DECIMAL(10,2)", "seen TIMESTAMP(6)", "tags ARRAY<STRING>"]
DAYS = ["2026-11-27", "2026-11-28", "2026-11-29"]
START = datetime.datetime(2026, 11, 29)


class Model:
    """What a table holds: a list of rows, or of a keyed table the last row of each key."""

    def __init__(self, table, key, seed):
        self.table, self.key, self.random = table, key, random.Random(seed)
        self.log, self.keyed = [], {}
        self.columns = [c.split(" ")[0] for c in COLUMNS]
        self.next = 0

    def value(self, column, row_id):
        r = self.random
        if column == "id":
            return row_id
        if column == "day":
            return r.choice(DAYS)
        if r.random() < 0.15:
            return None
        if column in ("n", "added"):
            return r.randrange(-2**31, 2**31)
        if column == "amount":
            return decimal.Decimal(r.randrange(-10**9, 10**9)) / 100
        if column == "seen":
            return START + datetime.timedelta(microseconds=r.randrange(10**12))
        if column == "tags":
            return [r.choice(["a", "b", None, "ü"]) for _ in range(r.randrange(3))]
        return f"v{r.randrange(1000)}"

    def row(self, row_id):
        return {c: self.value(c, row_id) for c in self.columns}

    @staticmethod
    def sent(row):
        def text(v):
            if isinstance(v, decimal.Decimal):
                return str(v)
            return v.isoformat() if isinstance(v, datetime.datetime) else v

        return {c: text(v) for c, v in row.items()}

    def identity(self, row):
        return tuple(row[c] for c in self.key)

    def write(self, rows, mode=None):
        for at in range(0, len(rows), 500):
            part = rows[at:at + 500]
            self.table.write([self.sent(r) for r in part], **({"mode": mode} if mode else {}))

    def append(self, n):
        new = [self.row(self.next + i) for i in range(n)]
        self.next += n
        self.write(new)
        if not self.key:
            self.log += new
        for r in new if self.key else ():
            self.keyed[self.identity(r)] = r

    def change(self, n):
        """Updates of rows that are there, some of them twice, deletes, and rows that come and go within the round."""
        if not self.key or not self.keyed:
            return
        there = self.random.sample(list(self.keyed.values()), min(n, len(self.keyed)))
        for _ in range(2):
            changed = [{**self.row(r["id"]), **{c: r[c] for c in self.key}} for r in there[:max(1, len(there) // 2)]]
            self.write(changed)
            self.keyed.update({self.identity(r): r for r in changed})
        gone = there[len(there) // 3:len(there) // 3 * 2]
        brief = [self.row(self.next + i) for i in range(3)]
        self.next += 3
        self.write(brief)
        if gone or brief:
            self.write([{c: r[c] for c in self.key} for r in gone + brief], mode="delete")
        for r in gone:
            del self.keyed[self.identity(r)]
        for r in gone[:2]:  # and back again
            again = {**self.row(r["id"]), **{c: r[c] for c in self.key}}
            self.write([again])
            self.keyed[self.identity(again)] = again

    def alter(self, step):
        if step == "add":
            self.table.alter({"op": "add_column", "column": {"name": "added", "type": "BIGINT"}})
            self.columns.append("added")
            self.each(lambda r: r.update(added=None))
        if step == "rename":
            self.table.alter({"op": "rename_column", "name": "name", "to": "title"})
            self.columns = ["title" if c == "name" else c for c in self.columns]
            self.each(lambda r: r.update(title=r.pop("name")))
        if step == "widen":
            self.table.alter({"op": "alter_type", "name": "n", "type": "BIGINT"}, {"op": "alter_type", "name": "amount", "type": "DECIMAL(14,2)"})
        if step == "drop":
            self.table.alter({"op": "drop_column", "name": "tags"})
            self.columns.remove("tags")
            self.each(lambda r: r.pop("tags"))

    def each(self, change):
        for r in list(self.keyed.values()) + self.log:
            change(r)

    def rows(self):
        return in_order([{c: r[c] for c in self.columns} for r in (self.keyed.values() if self.key else self.log)])


def same(reader, table, model):
    got, want = rows(reader.read(table)), model.rows()
    assert len(got) == len(want), f"{reader.name} has {len(got)} rows, not {len(want)}"
    for g, w in zip(got, want, strict=True):
        assert g == w, reader.name


KINDS = {
    "log": {},
    "log-partitioned": {"partition_by": ["day"]},
    "keyed": {"key": ["id"]},
    "keyed-partitioned": {"key": ["id", "day"], "partition_by": ["day"]},
    "keyed-rewritten": {"key": ["id"], "rewrite": True},
    "keyed-by-two": {"key": ["id", "day"]},
}


@pytest.fixture(params=KINDS)
def modelled(request, create):
    more = dict(KINDS[request.param])
    key = more.pop("key", None)
    properties = {**LAKE, "table.datalake.freshness": "1h"}
    if more.pop("rewrite", False):
        properties["table.datalake.iceberg.delete-mode"] = "rewrite"
    table = create("t", COLUMNS, key, buckets=3, properties=properties, **more)
    return table, Model(table, key or [], seed=request.param)


def rounds(table, model, readers, count, size):
    steps = {2: "add", 4: "rename", 5: "widen", 6: "drop"}
    for n in range(count):
        if n != 3:  # a round without new rows
            model.append(model.random.randrange(1, size))
        model.change(size // 4)
        if n in steps:
            model.alter(steps[n])
            model.append(3)
        status = table.tier()
        assert status["state"] == "ok" and status["pending_rows"] == 0, status
        for reader in readers:
            same(reader, table, model)


def test_each_round(modelled, pyiceberg, duck):
    table, model = modelled
    rounds(table, model, [pyiceberg, duck], count=10, size=400)
    before = model.rows()
    snapshot = pyiceberg.load(table).current_snapshot().snapshot_id
    model.append(50)
    table.tier()
    assert rows(pyiceberg.load(table).scan(snapshot_id=snapshot).to_arrow()) == before  # a snapshot stays what it was


@pytest.mark.spark
def test_each_round_spark(modelled, spark):
    table, model = modelled
    rounds(table, model, [spark], count=7, size=200)


def test_filters(modelled, pyiceberg, duck):
    """Readers that skip files by their statistics and partitions find all rows that pass."""
    table, model = modelled
    for _ in range(3):
        model.append(200)
        model.change(40)
        table.tier()
    for where, passes in {
        "id < 20": lambda r: r["id"] < 20,
        "day = '2026-11-28'": lambda r: r["day"] == "2026-11-28",
        "amount > 0 AND day > '2026-11-27'": lambda r: r["amount"] is not None and r["amount"] > 0 and r["day"] > "2026-11-27",
        "name IS NULL": lambda r: r["name"] is None,
        "seen >= '2026-12-05T00:00:00'": lambda r: r["seen"] is not None and r["seen"] >= datetime.datetime(2026, 12, 5),
    }.items():
        want = [r for r in model.rows() if passes(r)]
        for reader in (pyiceberg, duck):
            assert rows(reader.read(table, where)) == want, (reader.name, where)
