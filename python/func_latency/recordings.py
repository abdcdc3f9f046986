"""Recordings, and the work that a report of them is made of: one task for each recording, or for each of its parts."""

import json
import os
import shutil
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Mapping, Optional, Tuple

from . import command

#: Schemes of URLs that are copied to the machine that reads the recording.
SCHEMES = ("http", "https", "file")


@dataclass(frozen=True)
class Recording:
    """A recording, by the path or URL at which the machine that reads it finds it."""

    #: Path, or a URL of `SCHEMES`.
    path: str
    #: What `--label` says of it.
    labels: Mapping[str, str] = field(default_factory=dict)
    #: Directory with the objects, if they are not at their own places; that of a URL is a path.
    symfs: Optional[str] = None
    #: Bytes that the command may allocate for it; None: all that there are.
    memory_bytes: Optional[int] = None

    @classmethod
    def of(cls, named):
        """Returns the recording that a path, a URL or a `Recording` names."""
        return named if isinstance(named, cls) else cls(os.fspath(named))

    @property
    def is_url(self):
        """Tells whether the recording has to be copied first."""
        return "://" in self.path


@dataclass(frozen=True)
class Lost:
    """A recording that is not in the report, and why."""

    recording: str
    why: str

    def __str__(self):
        return self.why if self.recording in self.why else f"{self.recording}: {self.why}"


class NothingLeft(Exception):
    """No recording could be reported; `lost` says why."""

    def __init__(self, lost):
        super().__init__("no recording could be reported:\n  " + "\n  ".join(map(str, lost)))
        self.lost = lost


@dataclass(frozen=True)
class Task:
    """The summary of one recording, which does not depend on that of any other.

    A task is pickled to where it runs. What more it is to do of its recording is a field of its own here.
    """

    recording: Recording
    functions: Tuple[str, ...]
    #: Further arguments of `func_latency report`.
    options: Tuple[str, ...] = ()
    #: Directory of Parquet tables, which all tasks write to; None: no rows are written.
    rows: Optional[str] = None
    #: Parts that the recording is divided into, at most.
    parts: int = 1

    def plan(self):
        """Returns into how many parts the recording is best divided: `Parts` that have not come yet."""
        # Each part would need a copy of what a URL names.
        if self.parts > 1 and not self.recording.is_url:
            words = ["plan", "--input", self.recording.path, "-n", self.parts, "--format", "json"]
            try:
                return Parts(self, len(json.loads(command.run(words, self.recording.memory_bytes))["parts"]))
            except command.CommandFailed:
                pass  # making its only part says why
        return Parts(self, 1)

    def summarise(self, to, workers=None):
        """Writes the summary to the file `to`, with so many decoding threads; raises `CommandFailed`."""
        out = ["--format", "json", "--summary", os.path.abspath(to)]
        if not self.recording.is_url:
            command.run(self._words(self.recording.path, out, workers), self.recording.memory_bytes)
            return
        with TemporaryDirectory(prefix="func_latency-") as directory:
            # The copy is named without its directory, whose name differs from run to run.
            name = _fetch(self.recording.path, Path(directory))
            command.run(self._words(name, out, workers), self.recording.memory_bytes, directory)

    def decode(self, number, of, to, workers=None):
        """Writes part `number` of `of` to the file `to`; raises `CommandFailed`."""
        out = ["--part", f"{number}/{of}", "--part-out", os.path.abspath(to)]
        command.run(self._words(self.recording.path, out, workers), self.recording.memory_bytes)

    def join(self, files, to, workers=None):
        """Writes the summary of the recording, whose parts these files have, to the file `to`."""
        words = ["merge", *files, "--format", "json", "--summary", os.path.abspath(to)]
        if workers is not None:
            words += ["-w", workers]
        command.run(words, self.recording.memory_bytes)

    def _words(self, path, out, workers):
        words = ["report", "--input", path, *out]
        for name in self.functions:
            words += ["-f", name]
        for key, value in sorted(self.recording.labels.items()):
            words += ["--label", f"{key}={value}"]
        if self.recording.symfs is not None:
            words += ["--symfs", os.path.abspath(self.recording.symfs)]
        if self.rows is not None:
            words += ["--rows", os.path.join(os.path.abspath(self.rows), "")]
        if workers is not None:
            words += ["-w", workers]
        return [*words, *self.options]


@dataclass
class Parts:
    """The parts of one recording as they come: what each has come to, or why it is lost.

    A recording that is not divided has one part, which is its summary.
    """

    task: Task
    #: How many there are.
    of: int
    #: By the number of the part.
    found: dict = field(default_factory=dict)
    why: dict = field(default_factory=dict)

    def make(self, number, to, workers=None):
        """Writes a part to the file `to`; raises `CommandFailed`."""
        if self.of == 1:
            self.task.summarise(to, workers)
        else:
            self.task.decode(number, self.of, to, workers)

    def take(self, number, what, why):
        """Takes what has come of a part (`why`: None, or how it was lost); tells whether no other is to come."""
        if why is None:
            self.found[number] = what
        else:
            self.why[number] = why
        return len(self.found) + len(self.why) == self.of

    def in_order(self):
        """Returns what has come of the parts that are not lost."""
        return [self.found[number] for number in sorted(self.found)]

    def lost(self):
        """Returns what is lost: nothing, parts of the recording, or all of it."""
        path = self.task.recording.path
        if not self.found:
            return [Lost(path, self.why[min(self.why)])]
        return [Lost(f"{path}, part {number} of {self.of}", self.why[number]) for number in sorted(self.why)]


def _fetch(url, directory):
    """Copies what a URL names to a directory and returns its name there; raises `CommandFailed`."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in SCHEMES:
        known = ", ".join(SCHEMES)
        raise command.CommandFailed(f"cannot copy from {parts.scheme}://: {known} can be; name a path instead")
    name = Path(urllib.parse.unquote(parts.path)).name or "perf.data"
    try:
        with urllib.request.urlopen(url, timeout=60) as source, open(directory / name, "wb") as copy:
            shutil.copyfileobj(source, copy, 1 << 20)
            expected = source.headers.get("Content-Length")
            if expected is not None and int(expected) != copy.tell():
                raise command.CommandFailed(f"{copy.tell()} of {expected} bytes came: try again")
    except OSError as error:
        is_of_url = type(error) is urllib.error.URLError
        if isinstance(error, urllib.error.HTTPError):
            error.close()
        why = error.reason if is_of_url else error
        raise command.CommandFailed(f"cannot copy it: {why}") from error
    return name


def merge(files, to):
    """Writes the summary of several summaries; raises `CommandFailed`."""
    command.run(["merge", *files, "--format", "json", "--summary", to])
