"""Reports as Arrow tables. Needs pyarrow."""

_FIGURES = ("count", "sum", "min", "mean", "stddev", "p50", "p90", "p99", "p999", "max")
_ERRORS = ("p50_error", "p90_error", "p99_error", "p999_error", "mean_error")
_COUNTS = ("complete", "unwound", "open_start", "open_end", "cut")
_OUTERMOST = ("count", "sum", "error_sum", "off_cpu_sum", "nested")


def _under(name, keys):
    return tuple((name, key) for key in keys)


_LATENCY = _under("latency_ns", _FIGURES + _ERRORS)
_OFF_CPU = _under("off_cpu_ns", _FIGURES)
_OF_FUNCTION = (("function",), ("object",))

#: The columns of each table, by their keys in the JSON; the name of a column is its keys with `_` between.
COLUMNS = {
    "functions": (
        *_OF_FUNCTION,
        *_under("calls", _COUNTS),
        *_LATENCY,
        *_OFF_CPU,
        ("cpu_percent",),
        *_under("outermost", _OUTERMOST),
    ),
    "histograms": (*_OF_FUNCTION, ("low",), ("high",), ("count",), ("off_cpu_count",)),
    "children": (
        *_OF_FUNCTION,
        *((key,) for key in ("name", "kind", "site", "line", "count", "sum", "mean", "error_sum")),
        ("off_cpu_sum",),
        ("cpu_percent",),
    ),
    "callers": (*_OF_FUNCTION, ("name",), ("site",), ("line",), ("calls",), *_LATENCY),
    "hosts": (
        ("host",),
        ("recordings",),
        ("coverage",),
        *_OF_FUNCTION,
        *_under("calls", _COUNTS),
        *_LATENCY,
        *_OFF_CPU,
    ),
    "losses": tuple((key,) for key in ("cause", "object", "count", "bytes", "lost_ns", "calls")),
    "problems": (("problem",),),
}

_TEXT = {"function", "object", "name", "kind", "site", "line", "host", "cause", "problem"}
_FLOAT = {"mean", "stddev", "mean_error", "cpu_percent", "coverage"}


def of(document):
    """Returns the Arrow tables of a report's JSON, by name."""
    try:
        import pyarrow
    except ImportError as error:
        raise ImportError("tables need pyarrow: pip install 'func-latency[arrow]'") from error
    return {name: _table(pyarrow, COLUMNS[name], rows) for name, rows in _rows(document).items()}


def _rows(document):
    """Returns the rows of each table, as dictionaries of the JSON."""
    rows = {name: [] for name in COLUMNS}
    for function in document["functions"]:
        which = {"function": function["name"], "object": function["object"]}
        rows["functions"].append({**function, **which})
        for table, key in (("histograms", "histogram"), ("children", "children"), ("callers", "callers")):
            rows[table] += [{**row, **which} for row in function[key] or []]
    for host in document.get("hosts", []):
        for function in host["functions"]:
            which = {"function": function["name"], "object": function["object"]}
            rows["hosts"].append({**host, **function, **which})
    rows["losses"] = document["loss"]["by_cause"]
    rows["problems"] = [{"problem": problem} for problem in document["loss"]["problems"]]
    return rows


def _table(pyarrow, columns, rows):
    fields = [pyarrow.field("_".join(keys), _type(pyarrow, keys[-1])) for keys in columns]
    arrays = [
        pyarrow.array([_cell(row, keys) for row in rows], type=field.type) for keys, field in zip(columns, fields)
    ]
    return pyarrow.Table.from_arrays(arrays, schema=pyarrow.schema(fields))


def _type(pyarrow, key):
    if key in _TEXT:
        return pyarrow.string()
    return pyarrow.float64() if key in _FLOAT else pyarrow.int64()


def _cell(row, keys):
    """Returns what is below the keys; None also where what is above it is not known."""
    for key in keys:
        if row is None:
            return None
        row = row[key]
    return row
