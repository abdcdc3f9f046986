"""Reports as objects."""

import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

from . import command, tables
from .local import LocalRunner
from .on_ray import RayRunner
from .recordings import NothingLeft, Recording, Task

#: Runners by name.
RUNNERS = {"local": LocalRunner, "ray": RayRunner}


class Report:
    """The report of all recordings together: that of `func_latency merge`.

    Figures are attributes as well: `report.functions[0].latency_ns.p99`. What is not known is None.
    """

    def __init__(self, json_bytes, summary, lost):
        #: What `func_latency merge --format json` prints, byte by byte.
        self.json = json_bytes
        #: The summary of all recordings, as a file of `merge --summary` has it.
        self.summary = summary
        #: The recordings, and parts of recordings, that are not in the report. Its `loss.problems` name them, too.
        self.lost = lost
        #: The report as dictionaries; `docs/report.schema.json` describes it.
        self.document = json.loads(json_bytes)
        objects = json.loads(json_bytes, object_hook=lambda of: SimpleNamespace(**of))
        self.schema, self.trace, self.loss = objects.schema, objects.trace, objects.loss
        self.functions = objects.functions
        #: The figures of each host; of one host, none.
        self.hosts = getattr(objects, "hosts", [])

    def text(self, *options):
        """Returns the report as text; `options` are those of `func_latency merge`, like `--all`."""
        with TemporaryDirectory(prefix="func_latency-") as directory:
            file = Path(directory) / "summary.json"
            file.write_bytes(self.summary)
            return command.run(["merge", file, *options]).decode()

    def tables(self):
        """Returns the report as Arrow tables, by name: functions, histograms, children, callers, hosts, losses."""
        return tables.of(self.document)

    def __repr__(self):
        names = ", ".join(function.name for function in self.functions)
        return f"<func_latency.Report of {names}; {len(self.lost)} recordings lost>"


def report(recordings, function, *, runner="local", options=(), parts=1, rows=None, summary=None, progress=None):
    """Returns the report of all calls of a function in these recordings.

    `recordings`: a path, a URL or a `Recording`, or several of these.
    `function`: a name as `-f` takes it, or several.
    `runner`: "local" (processes of this machine), "ray", or a `LocalRunner` or `RayRunner` with its settings.
    `options`: further arguments of `func_latency report` for each recording, like `["--srcline"]`.
    `parts`: divide each recording into so many parts at most, a task each; small ones have fewer, as `func_latency
    plan` says. The report is the same, byte for byte.
    `rows`: a directory; Parquet tables of all calls are written below it, where the tasks run.
    `summary`: a file that the summary of all is written to.
    `progress`: called with each recording that is done, and None or how it was lost.

    A recording, or part of one, that cannot be reported is in `lost` of the report and named among its losses. Raises
    `NothingLeft` if none can be, and `CommandFailed` if those that can do not add up.
    """
    tasks = _tasks(recordings, function, options, rows, parts)
    if isinstance(runner, str):
        if runner not in RUNNERS:
            raise ValueError(f"runner={runner!r}: there are {', '.join(RUNNERS)}")
        runner = RUNNERS[runner]()
    with TemporaryDirectory(prefix="func_latency-") as name:
        directory = Path(name)
        files, lost = runner.summaries(tasks, directory, progress or (lambda recording, lost: None))
        if not files:
            raise NothingLeft(lost)
        merged = directory / "report.json"
        words = ["merge", *files, "--format", "json", "--summary", merged]
        for of in lost:
            words += ["--missing", str(of)]
        json_bytes = command.run(words)
        if summary is not None:
            command.run(["merge", merged, "--format", "json", "--summary", summary])
        return Report(json_bytes, merged.read_bytes(), lost)


def _tasks(recordings, function, options, rows, parts):
    if parts < 1:
        raise ValueError(f"parts={parts}: give 1 or more")
    if parts > 1 and rows is not None:
        raise ValueError("rows are of whole recordings: leave out rows, or parts")
    if isinstance(recordings, (str, os.PathLike, Recording)):
        recordings = [recordings]
    functions = (function,) if isinstance(function, str) else tuple(function)
    recordings = [Recording.of(named) for named in recordings]
    if not recordings:
        raise ValueError("no recording is named")
    paths = [recording.path for recording in recordings]
    for path in paths:
        if paths.count(path) > 1:
            raise ValueError(f"{path} is named twice, and would count twice")
    rows = None if rows is None else os.fspath(rows)
    return [Task(recording, functions, tuple(options), rows, parts) for recording in recordings]
