"""Reads rows with DuckDB: how many there are; of those that count, how many, their latency and their time off the CPU.

Numbers must be read as such, unquoted or not, and be so still in Parquet.
"""

import sys
import tempfile

import duckdb

NUMBERS = ["tid", "pid", "cpu", "start_ns", "end_ns", "latency_ns", "off_cpu_ns"]


def check_types(source):
    types = {column[0]: column[1] for column in duckdb.sql(f"DESCRIBE SELECT * FROM {source}").fetchall()}
    assert all(types[name] == "BIGINT" for name in NUMBERS), types
    assert types["id"] == types["thread"] == "VARCHAR", types


path = sys.argv[1]
rows = f"read_json('{path}')" if path.endswith(".jsonl") else f"read_csv('{path}')"
check_types(rows)
with tempfile.NamedTemporaryFile(suffix=".parquet") as parquet:
    duckdb.sql(f"COPY (SELECT * FROM {rows}) TO '{parquet.name}'")
    check_types(f"read_parquet('{parquet.name}')")
whole = "status IN ('complete', 'unwound')"
of_whole = f"sum({{}}) FILTER ({whole})"
figures = ["count(*)", f"count(*) FILTER ({whole})", of_whole.format("latency_ns"), of_whole.format("off_cpu_ns")]
print(*duckdb.sql(f"SELECT {', '.join(figures)} FROM {rows}").fetchall()[0])
