"""Runs each query of docs/queries.md as it stands there, and holds the results against the reports.

No recording of the fixtures tells of wake-ups: the tables get made-up ones, by the number of the row.

Arguments: docs/queries.md, the directory that has `rows/`, the report of label build=v1, that of build=v2. Prints the
number of queries.
"""

import contextlib
import datetime
import glob
import io
import json
import os
import re
import sys
from collections import Counter

import duckdb
import polars
import pyarrow
import pyarrow.parquet


def blocks(path):
    """The queries by the number of their section; 0: what comes before all."""
    number, language, lines, found = 0, None, [], {}
    for line in open(path):
        if language is None:
            section = re.match(r"## (\d+)\. ", line)
            number = int(section[1]) if section else number
            fence = re.match(r"```(sql|python)$", line)
            language, lines = (fence[1], []) if fence else (None, lines)
        elif line.startswith("```"):
            assert number not in found, f"two queries in section {number}"
            found[number], language = (language, "".join(lines)), None
        else:
            lines.append(line)
    return found


document, directory, *reports = sys.argv[1:]
queries = blocks(document)
reports = {f"v{number}": json.load(open(report)) for number, report in enumerate(reports, 1)}
functions = {build: report["functions"][0] for build, report in reports.items()}
os.chdir(directory)


def made_up(path):
    """Gives each wait a reason and a waker, and each call a time of the day: what is there is not changed."""
    table = pyarrow.parquet.read_table(path)
    rows = range(len(table))
    columns = {
        "reason": [["futex", "read", None][row % 3] for row in rows],
        "waker": [["worker", None, "[interrupt]"][row % 3] for row in rows],
        "start_realtime_ns": [1_700_000_000_000_000_000 + row * 600_000_000_000 for row in rows],
    }
    for name in set(columns) & set(table.column_names):
        at, kind = table.column_names.index(name), table.schema.field(name).type
        known = table[name].to_pylist()
        values = [made if value is None else value for value, made in zip(known, columns[name])]
        table = table.set_column(at, name, pyarrow.array(values, kind))
    pyarrow.parquet.write_table(table, path)
    return table.to_pylist()


waits = [row for path in glob.glob("rows/off_cpu/*/*.parquet") for row in made_up(path)]
rows = [row for path in glob.glob("rows/calls/*/*.parquet") for row in made_up(path)]
results = {}
duckdb.sql(queries.pop(0)[1])
for number, (language, text) in queries.items():
    if language == "sql":
        relation = duckdb.sql(text)
        results[number] = [dict(zip(relation.columns, row)) for row in relation.fetchall()]
    else:
        names, printed = {}, io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(text, f"query {number}", "exec"), names)
        assert printed.getvalue() != "", number
        results[number] = names

latency = {build: function["latency_ns"] for build, function in functions.items()}
calls = sum(of["count"] for of in latency.values())

by_build = {row["label_build"]: row for row in results[1]}
for build, of in latency.items():
    row = by_build.pop(build)
    assert [row["calls"], row["p50_ns"], row["p99_ns"], row["max_ns"]] == [of[k] for k in ["count", "p50", "p99", "max"]]
assert by_build == {}

callers = Counter()
for function in functions.values():
    for caller in function["callers"]:
        callers[(caller["name"], caller["site"])] += caller["latency_ns"]["sum"]
assert {(row["caller"], row["site"]): row["sum_ns"] for row in results[2]} == callers

slowest = [row["latency_ns"] for row in results[3]]
assert len(slowest) == min(20, calls) and slowest == sorted(slowest, reverse=True)
assert slowest[0] == max(of["max"] for of in latency.values())
assert re.fullmatch(r"func_latency show \d+-\d+ -f .+", results[3][0]["command"])

# What slow calls spend more is what they take more.
assert {row["child"] for row in results[4]} >= {"*self"}
counted = duckdb.sql("SELECT latency_ns FROM counted").fetchall()
limit = duckdb.sql("SELECT quantile_disc(latency_ns, 0.99) FROM counted").fetchall()[0][0]
slow, others = [ns for (ns,) in counted if ns >= limit], [ns for (ns,) in counted if ns < limit]
more = sum(row["mean_in_slow_ns"] - row["mean_in_others_ns"] for row in results[4])
assert abs(more - (sum(slow) / len(slow) - sum(others) / len(others))) < 1, more

counted_waits = [row for row in waits if row["depth"] == 0 and row["status"] in ("complete", "unwound")]
assert len(counted_waits) > 2
blocked_ns = sum(function["off_cpu_causes"]["blocked_ns"] for function in functions.values())
assert sum(row["blocked_ns"] for row in results[6]) == blocked_ns
wakers, reasons = Counter(), Counter()
for row in counted_waits:
    if row["waker"] is not None:
        wakers[row["waker"]] += row["blocked_ns"]
    reasons[row["reason"] or "not known"] += 1
assert len(wakers) == 2 and {row["waker"]: row["blocked_ns"] for row in results[5]} == wakers
assert len(reasons) > 2 and {row["reason"]: row["waits"] for row in results[6]} == reasons

hours = Counter(
    row["start_realtime_ns"] // 3_600_000_000_000 for row in rows if row["status"] in ("complete", "unwound")
)
epoch = datetime.datetime(1970, 1, 1)
assert len(hours) > 2
assert {(row["hour"] - epoch) // datetime.timedelta(hours=1): row["calls"] for row in results[7]} == hours

for row in results[8]:
    of, bounds = latency[row["label_build"]], functions[row["label_build"]]["bounds_ns"]
    assert (row["low_ns"], row["p99_ns"], row["high_ns"]) == (bounds["low"]["p99"], of["p99"], bounds["high"]["p99"])
assert len(results[8]) == len(latency)

histogram = results[9]["histogram"]
assert isinstance(histogram, polars.DataFrame)
for build, function in functions.items():
    found = {row["low_ns"]: row["calls"] for row in histogram.filter(label_build=build).to_dicts()}
    assert found == {slot["low"]: slot["count"] for slot in function["histogram"] if slot["count"] > 0}

lost = Counter()
for row in results[10]["lost"].to_pylist():
    lost[row["cause"]] += row["lost_ns_sum"]
expect = Counter()
for report in reports.values():
    for cause in report["loss"]["by_cause"]:
        expect[cause["cause"]] += cause["lost_ns"]
assert lost == expect, (lost, expect)

print(len(results))
