"""Reads rows with DuckDB: how many there are; of those that count, how many, their latency and their time off the CPU."""

import sys

import duckdb

path = sys.argv[1]
read = "read_json" if path.endswith(".jsonl") else "read_csv"
whole = "status IN ('complete', 'unwound')"
of_whole = f"sum({{}}) FILTER ({whole})"
figures = ["count(*)", f"count(*) FILTER ({whole})", of_whole.format("latency_ns"), of_whole.format("off_cpu_ns")]
print(*duckdb.sql(f"SELECT {', '.join(figures)} FROM {read}('{path}')").fetchall()[0])
