"""The SQL subset against DuckDB: random queries over the same rows give the same answers, in both kinds of tables."""

import datetime
import decimal
import json
import math
import random

import duckdb
import pyarrow as pa
import pytest
import requests

D = decimal.Decimal
COLUMNS = {
    "id": ("BIGINT", pa.int64()), "g": ("STRING", pa.string()), "h": ("INT", pa.int32()), "small": ("TINYINT", pa.int8()),
    "big": ("BIGINT", pa.int64()), "price": ("DECIMAL(12,3)", pa.decimal128(12, 3)), "wide": ("DECIMAL(38,6)", pa.decimal128(38, 6)),
    "d": ("DOUBLE", pa.float64()), "f": ("FLOAT", pa.float32()), "flag": ("BOOLEAN", pa.bool_()), "day": ("DATE", pa.date32()),
    "ts": ("TIMESTAMP(6)", pa.timestamp("us")), "s": ("STRING", pa.string()),
}
GROUPS = ["g", "h", "small", "flag", "day", "price", "d"]
ORDERED = [c for c in COLUMNS if c != "wide"] + ["wide"]


def some(rng, value, nulls=0.2):
    return None if rng.random() < nulls else value


def make_rows(rng, n):
    rows = []
    for i in range(n):
        rows.append({
            "id": i, "g": some(rng, rng.choice(["a", "b", "ä", "", "it's", "B", "%"])), "h": some(rng, rng.randint(-3, 3)),
            "small": some(rng, rng.choice([-128, 127, 0, 1])), "big": some(rng, rng.choice([2**53 + 1, -(2**53) - 1, 10**15 + i, -i, 0])),
            "price": some(rng, D(rng.randint(-10**6, 10**6)).scaleb(-3) if i % 3 else D("1.500")),
            "wide": some(rng, D(rng.randint(-10**30, 10**30)).scaleb(-6)),
            "d": some(rng, rng.choice([0.1, -0.25, 1e10, 3.0, 0.0])), "f": some(rng, rng.choice([0.5, -2.0, 1.25])),
            "flag": some(rng, rng.random() < 0.5), "day": some(rng, datetime.date(2026, 1, 1) + datetime.timedelta(rng.randint(-2, 2))),
            "ts": some(rng, datetime.datetime(2026, 1, 1, 12, 0, 0, rng.randint(0, 3))), "s": some(rng, "s%d" % rng.randint(0, 40)),
        })
    return rows


def to_json(value):
    if isinstance(value, D):
        return str(value)
    if isinstance(value, datetime.datetime):
        return value.isoformat(timespec="microseconds")
    if isinstance(value, datetime.date):
        return value.isoformat()
    return value


@pytest.fixture
def engines(server, create):
    rng = random.Random(20261129)
    rows = make_rows(rng, 3000)
    columns = [f"{c} {sql}" for c, (sql, _) in COLUMNS.items()]
    tables = [create("keyed", columns, key=["id"], buckets=4), create("logged", columns, buckets=3)]
    for t in tables:
        for i in range(0, len(rows), 500):
            t.write([{c: to_json(v) for c, v in r.items()} for r in rows[i:i + 500]])
    arrow = pa.table({c: pa.array([r[c] for r in rows], typ) for c, (_, typ) in COLUMNS.items()})
    duck = duckdb.connect()
    duck.register("rows", arrow)
    duck.execute("CREATE TABLE t AS SELECT * FROM rows")
    return tables, duck, rng


def ask(server, sql, table):
    answer = requests.post(server.http + "/v1/sql", json={"sql": sql.replace("FROM t", "FROM " + table.full, 1)}, timeout=60)
    assert answer.ok, f"{sql}: {answer.text}"
    body = json.loads(answer.text)
    return [[of_json(v, c["type"]) for v, c in zip(row, body["columns"])] for row in body["rows"]]


def of_json(value, sql):
    if value is None:
        return None
    if sql.startswith("DECIMAL"):
        return D(value)
    if sql in ("DOUBLE", "FLOAT"):
        return float(value)
    if sql == "DATE":
        return datetime.date.fromisoformat(value)
    if sql.startswith("TIMESTAMP"):
        return datetime.datetime.fromisoformat(value)
    return value


def key(row):
    return [(v is not None, str(type(v)), v) if not isinstance(v, (float, D, int)) else (True, "number", float(v)) for v in row]


def same(a, b):
    """Exact, but for what DuckDB itself rounds: floats and its averages."""
    if isinstance(a, float) or isinstance(b, float):
        return a is not None and b is not None and math.isclose(float(a), float(b), rel_tol=1e-9, abs_tol=1e-6)
    return a == b


def check(server, tables, duck, sql, ordered):
    want = [list(r) for r in duck.execute(sql).fetchall()]
    for t in tables:
        got = ask(server, sql, t)
        a, b = (got, want) if ordered else (sorted(got, key=key), sorted(want, key=key))
        assert len(a) == len(b), f"{sql} on {t.name}: {len(a)} rows, DuckDB has {len(b)}"
        for x, y in zip(a, b):
            assert all(same(v, w) for v, w in zip(x, y)), f"{sql} on {t.name}: {x}, DuckDB says {y}"


def condition(rng, depth=0):
    if depth < 2 and rng.random() < 0.5:
        op = rng.choice([" AND ", " OR "])
        parts = op.join(condition(rng, depth + 1) for _ in range(rng.randint(2, 3)))
        return rng.choice(["(%s)", "NOT (%s)"]) % parts
    compare = rng.choice(["=", "<>", "<", "<=", ">", ">="])
    return rng.choice([
        lambda: f"id {compare} {rng.randint(0, 3000)}",
        lambda: "id IN (%s)" % ", ".join(str(rng.randint(0, 3100)) for _ in range(rng.randint(1, 5))),
        lambda: f"g {compare} '{rng.choice(['a', 'ä', '', 'b'])}'",
        lambda: "g = 'it''s'",
        lambda: f"h {compare} {rng.randint(-3, 3)}",
        lambda: f"h BETWEEN {rng.randint(-3, 0)} AND {rng.randint(-1, 3)}",
        lambda: f"big {compare} {rng.choice([2**53, -(2**53), 0])}",
        lambda: f"price {compare} {rng.choice(['1.5', '-100.25', '0.0005'])}",
        lambda: f"d {compare} {rng.choice(['0.25', '-0.25', '1e10'])}",
        lambda: "flag", lambda: "NOT flag", lambda: "flag IS NULL",
        lambda: f"day {compare} DATE '2026-01-01'",
        lambda: f"ts {compare} TIMESTAMP '2026-01-01 12:00:00.000001'",
        lambda: f"s LIKE '{rng.choice(['s1%', '%3', 's_', '%'])}'",
        lambda: f"{rng.choice(list(COLUMNS))} IS {rng.choice(['', 'NOT '])}NULL",
    ])()


def where(rng):
    return " WHERE " + condition(rng) if rng.random() < 0.7 else ""


def aggregate(rng):
    fn = rng.choice(["COUNT", "SUM", "MIN", "MAX", "AVG"])
    if fn == "COUNT":
        return "COUNT(%s)" % rng.choice(["*", *COLUMNS])
    if fn in ("SUM", "AVG"):
        return "%s(%s)" % (fn, rng.choice(["h", "small", "price", "d", "f", "id", "big", "wide"]))
    return "%s(%s)" % (fn, rng.choice(ORDERED))


def test_rows_as_duckdb(server, engines):
    tables, duck, rng = engines
    for _ in range(60):
        columns = rng.choice(["*", ", ".join(rng.sample(list(COLUMNS), rng.randint(1, 5)))])
        check(server, tables, duck, f"SELECT {columns} FROM t{where(rng)}", ordered=False)
    for _ in range(40):
        columns = ", ".join(rng.sample(list(COLUMNS), rng.randint(1, 5)))
        order = rng.choice(["", " DESC"])
        limit = rng.choice(["", " LIMIT 1", " LIMIT 17"])
        check(server, tables[:1], duck, f"SELECT {columns} FROM t{where(rng)} ORDER BY id{order}{limit}", ordered=True)


def test_aggregates_as_duckdb(server, engines):
    tables, duck, rng = engines
    for _ in range(80):
        items = ", ".join(f"{aggregate(rng)} AS x{i}" for i in range(rng.randint(1, 5)))
        check(server, tables, duck, f"SELECT {items} FROM t{where(rng)}", ordered=False)


def test_groups_as_duckdb(server, engines):
    tables, duck, rng = engines
    for _ in range(120):
        by = rng.sample(GROUPS, rng.randint(1, 3))
        items = [*by, *(f"{aggregate(rng)} AS x{i}" for i in range(rng.randint(0, 3)))]
        rng.shuffle(items)
        order = ""
        if rng.random() < 0.5:  # DuckDB: NULL last unless told otherwise
            terms, ours = [], []
            for c in by:
                desc = rng.random() < 0.5
                terms.append(c + (" DESC NULLS LAST" if desc else " ASC NULLS FIRST"))
                ours.append(c + (" DESC" if desc else ""))
            order = " ORDER BY " + ", ".join(ours)
            theirs = " ORDER BY " + ", ".join(terms)
        sql = f"SELECT {', '.join(items)} FROM t{where(rng)} GROUP BY {', '.join(by)}"
        if order:
            limit = rng.choice(["", " LIMIT 3"])
            want = [list(r) for r in duck.execute(sql + theirs + limit).fetchall()]
            for t in tables:
                got = ask(server, sql + order + limit, t)
                assert len(got) == len(want), sql
                assert all(same(v, w) for x, y in zip(got, want) for v, w in zip(x, y)), f"{sql}{order}: {got}, DuckDB says {want}"
        else:
            check(server, tables, duck, sql, ordered=False)


def test_sums_beyond_duckdb_types(server, create):
    """Sums are exact to their last digit, where DuckDB counts in 128 bits; beyond BIGINT there is an error, not a wrap."""
    t = create("s", ["g INT", "b BIGINT", "w DECIMAL(38,0)"], buckets=2)
    rng = random.Random(7)
    rows = [{"g": rng.randint(0, 4), "b": rng.randint(-2**63, 2**63 - 1), "w": str(rng.randint(-10**34, 10**34))} for _ in range(2000)]
    t.write(rows)
    got = {r[0]: r for r in ask(server, "SELECT g, SUM(w), AVG(b), COUNT(*) FROM t GROUP BY g", t)}
    for g in range(5):
        mine = [r for r in rows if r["g"] == g]
        assert got[g][1] == sum(int(r["w"]) for r in mine)
        assert got[g][2] == sum(r["b"] for r in mine) / len(mine)  # which Python rounds once, too
        assert got[g][3] == len(mine)
    t.write([{"g": 9, "b": 2**63 - 1}, {"g": 9, "b": 1}])
    answer = requests.post(server.http + "/v1/sql", json={"sql": f"SELECT SUM(b) FROM {t.full} WHERE g = 9"}, timeout=60)
    assert answer.status_code == 422 and answer.json()["code"] == "integer_overflow"
