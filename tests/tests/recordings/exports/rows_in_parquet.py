"""Reads the tables of `--rows DIR/` with DuckDB, Polars and pyarrow, and holds them against the report and the JSON lines.

Arguments: the directory, the report as JSON, the rows as JSON lines. Prints the number of rows of each table: calls,
children, off_cpu, gaps.
"""

import json
import sys
from collections import defaultdict

import duckdb
import polars
import pyarrow.compute
import pyarrow.dataset
import pyarrow.parquet

TABLES = ["calls", "children", "off_cpu", "gaps"]
COUNTED = ("complete", "unwound")


def read(directory, table):
    """The rows of a table, the same by each reader, with the types of its columns."""
    path = f"{directory}/{table}"
    relation = duckdb.sql(f"SELECT * FROM read_parquet('{path}/*/*.parquet', hive_partitioning = true)")
    by_duckdb = [dict(zip(relation.columns, row)) for row in relation.fetchall()]
    frame = polars.scan_parquet(f"{path}/*/*.parquet", hive_partitioning=True).collect()
    arrow = pyarrow.dataset.dataset(path, partitioning="hive").to_table()
    assert by_duckdb == [{name: row[name] for name in relation.columns} for row in frame.to_dicts()], table
    assert by_duckdb == [{name: row[name] for name in relation.columns} for row in arrow.to_pylist()], table
    return by_duckdb, {field.name: str(field.type) for field in arrow.schema}


def check_engines(directory, table, column, where, expect):
    """DuckDB, Polars and pyarrow add up a column of the rows of these statuses (all, if none are named)."""
    path = f"{directory}/{table}"
    words = ", ".join(f"'{status}'" for status in where)
    condition = f"WHERE status IN ({words})" if where else ""
    [(by_duckdb,)] = duckdb.sql(f"SELECT sum({column}) FROM read_parquet('{path}/*/*.parquet') {condition}").fetchall()
    frame = polars.scan_parquet(f"{path}/*/*.parquet")
    frame = frame.filter(polars.col("status").is_in(where)) if where else frame
    by_polars = frame.select(polars.col(column).sum()).collect().item()
    chosen = pyarrow.dataset.field("status").isin(where) if where else None
    arrow = pyarrow.dataset.dataset(path).to_table(columns=[column], filter=chosen)
    by_pyarrow = pyarrow.compute.sum(arrow[column]).as_py()
    # Of no row the sum is null in some engines, and 0 in others.
    assert [by_duckdb or 0, by_polars or 0, by_pyarrow or 0] == [expect] * 3, (table, column, expect)


def sums(rows, keys, figures):
    """The number of rows and the sums of figures, by keys; of figures that are null, null."""
    found = {}
    for row in rows:
        known = found.setdefault(tuple(row[key] for key in keys), [0] * (len(figures) + 1))
        known[0] += 1
        for at, figure in enumerate(figures, 1):
            value = row[figure]
            known[at] = None if value is None or known[at] is None else known[at] + value
    return found


def check_calls(function, calls):
    statuses = defaultdict(int)
    for row in calls:
        statuses[row["status"]] += 1
    assert dict(statuses) == {status: n for status, n in function["calls"].items() if n > 0}, statuses
    counted = [row for row in calls if row["status"] in COUNTED]
    for figure, column in [("latency_ns", "latency_ns"), ("off_cpu_ns", "off_cpu_ns")]:
        of = function[figure]
        expect = None if of is None else (of["sum"] or 0)
        found = [row[column] for row in counted]
        assert (sum(found) if None not in found else None) == expect, (figure, expect)
    callers = sums(counted, ["caller", "site"], ["latency_ns"])
    expect = defaultdict(lambda: [0, 0])
    for caller in function["callers"]:
        known = expect[(caller["name"], caller["site"])]
        known[0] += caller["calls"]
        known[1] += caller["latency_ns"]["sum"]
    assert callers == expect, (callers, expect)


def check_children(function, children):
    counted = [row for row in children if row["status"] in COUNTED]
    found = sums(counted, ["child", "kind", "site"], ["count", "sum_ns", "off_cpu_ns"])
    expect = defaultdict(lambda: [0, 0, 0])
    for child in function["children"]:
        known = expect[(child["name"], child["kind"], child["site"])]
        for at, figure in enumerate(["count", "sum", "off_cpu_sum"]):
            known[at] = None if child[figure] is None else known[at] + child[figure]
    assert {key: figures[1:] for key, figures in found.items()} == expect, (found, expect)


def check_waits(function, waits):
    causes = function["off_cpu_causes"]
    if causes is None:
        assert waits == []
        return
    counted = [row for row in waits if row["status"] in COUNTED and row["depth"] == 0]
    figures = ["blocked_ns", "runnable_ns", "preempted_ns"]
    for figure in figures:
        values = [row[figure] for row in counted]
        # Of no wait there is no null.
        assert not values or (None if None in values else sum(values)) == causes[figure], figure
    if causes["told_by"] == "switch records":
        return
    found = sums(counted, ["reason"], figures)
    named = {None if reason["kind"] == "unknown" else reason["name"]: reason for reason in causes["reasons"]}
    expect = {(name,): [of["count"]] + [of[figure] for figure in figures] for name, of in named.items()}
    assert found == expect, (found, expect)
    woken = [row for row in counted if row["waker"] is not None]
    found = sums(woken, ["waker", "waker_tid"], ["blocked_ns"])
    name = lambda waker: waker["name"].removesuffix(f" ({waker['tid']})")
    expect = {(name(waker), waker["tid"]): [waker["count"], waker["blocked_ns"]] for waker in causes["wakers"]}
    assert found == expect, (found, expect)


def check_gaps(loss, gaps):
    found = sums(gaps, ["cause", "object"], ["bytes", "lost_ns"])
    expect = {(of["cause"], of["object"]): [of["count"], of["bytes"], of["lost_ns"]] for of in loss["by_cause"]}
    assert found == expect, (found, expect)


def check_types(table, types):
    """Ids and addresses are strings, numbers of threads and CPUs 32 bits, times and counts 64."""
    for column, kind in types.items():
        if column.endswith("_ns") or column in ("bytes", "count", "instructions", "cycles"):
            expect = "int64"
        elif column in ("tid", "pid", "cpu", "depth", "aux_buffer", "waker_pid", "waker_tid"):
            expect = "int32"
        elif column in ("undecided", "ended_by_jump"):
            expect = "bool"
        elif column in ("id", "aux_offset", "function", "host", "recording", "label_rack"):
            expect = "string"
        else:
            continue
        assert kind == expect, (table, column, kind)


def check_lines(calls, path, host):
    """The rows of the JSON lines are the same, in another order; only Parquet has counters that were not asked for."""
    lines = [json.loads(line) for line in open(path)]
    key = lambda row: (row["tid"], row["function"], int(row["id"].split("-")[1]))
    assert len(lines) == len(calls)
    for line, row in zip(sorted(lines, key=key), sorted(calls, key=key)):
        assert list(line) == [column for column in row if column in line]
        assert line == {column: value for column, value in row.items() if column in line}, (line, row)
        assert all(value is None for column, value in row.items() if column not in line)
        assert row["label_rack"] == "r7" and row["host"] == host


directory, report, lines = sys.argv[1:]
report = json.load(open(report))
[function] = report["functions"]
tables = {}
for table in TABLES:
    tables[table], types = read(directory, table)
    check_types(table, types)
[calls_file] = pyarrow.dataset.dataset(f"{directory}/calls").files
metadata = pyarrow.parquet.ParquetFile(calls_file).metadata
assert metadata.metadata[b"schema"] == b"func_latency.rows/1"
latency = metadata.row_group(0).column(4)
assert latency.path_in_schema == "latency_ns" and latency.statistics.has_min_max
check_calls(function, tables["calls"])
check_children(function, tables["children"])
check_waits(function, tables["off_cpu"])
check_gaps(report["loss"], tables["gaps"])
check_lines(tables["calls"], lines, "tracegen")
for column in ("latency_ns", "off_cpu_ns"):
    if function[column] is not None:
        check_engines(directory, "calls", column, COUNTED, function[column]["sum"] or 0)
check_engines(directory, "children", "sum_ns", COUNTED, sum(child["sum"] for child in function["children"]))
check_engines(directory, "gaps", "lost_ns", (), sum(of["lost_ns"] for of in report["loss"]["by_cause"]))
print(*(len(tables[table]) for table in TABLES))
