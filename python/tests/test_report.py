"""Reports by the local runner. `FUNC_LATENCY_FIXTURES` names the directory of recordings."""

import functools
import http.server
import os
import threading
import unittest
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

import func_latency
from func_latency import CommandFailed, LocalRunner, NothingLeft, Recording, Task, command
from func_latency.recordings import Parts

FIXTURES = Path(os.environ["FUNC_LATENCY_FIXTURES"])
FUNCTION = "round_fn"
RECORDINGS = [str(FIXTURES / f"{name}.data") for name in ("demo", "demo-cpu2-ovf", "demo-noswitch")]


def merged(recordings, directory, more=()):
    """Returns what `merge` prints of all recordings, and the summary that it writes, without any runner."""
    files = []
    for number, recording in enumerate(recordings):
        files.append(Path(directory) / f"{number}.json")
        command.run(["report", "-i", recording, "-f", FUNCTION, "--format", "json", "--summary", files[-1]])
    whole = Path(directory) / "whole.json"
    return command.run(["merge", *files, "--format", "json", "--summary", whole, *more]), whole.read_bytes()


def in_parts(count):
    """Divides all recordings into so many parts, however small."""
    return mock.patch.object(Task, "plan", lambda task: Parts(task, count))


class Reports(unittest.TestCase):
    def setUp(self):
        directory = TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = Path(directory.name)

    def test_report_is_that_of_merge_in_any_order_and_number_of_processes(self):
        expected = merged(RECORDINGS, self.directory)
        for recordings, runner in ((RECORDINGS, "local"), (RECORDINGS[::-1], LocalRunner(jobs=1))):
            kept = self.directory / "kept.json"
            made = func_latency.report(recordings, FUNCTION, runner=runner, summary=kept)
            self.assertEqual((made.json, made.summary), expected)
            self.assertEqual((kept.read_bytes(), made.lost), (expected[1], []))

    def test_figures_are_attributes(self):
        made = func_latency.report(RECORDINGS[0], FUNCTION)
        [function] = made.functions
        self.assertEqual((function.name, function.calls.complete), (FUNCTION, 750))
        self.assertEqual(function.latency_ns.p99, made.document["functions"][0]["latency_ns"]["p99"])
        self.assertIn(b"Latency of [round_fn]", made.text().encode())
        self.assertEqual(made.json, command.run(["report", "-i", RECORDINGS[0], "-f", FUNCTION, "--format", "json"]))

    def test_what_is_lost_is_named_and_leaves_the_others(self):
        missing, damaged = self.directory / "missing.data", self.directory / "damaged.data"
        damaged.write_bytes(b"no recording" * 100)
        starved = Recording(str(FIXTURES / "demo-skew.data"), memory_bytes=4 << 20)
        told = {}
        made = func_latency.report(
            [missing, *RECORDINGS[:2], damaged, starved, "s3://bucket/a.data"],
            FUNCTION,
            progress=lambda recording, lost: told.update({recording.path: lost}),
        )
        why = {lost.recording: lost.why for lost in made.lost}
        self.assertEqual(list(why), [str(missing), str(damaged), starved.path, "s3://bucket/a.data"])
        self.assertIn("No such file or directory", why[str(missing)])
        self.assertIn("is not a perf.data file", why[str(damaged)])
        self.assertTrue(why[starved.path].startswith("out of memory, of memory_bytes=4194304"), why)
        self.assertEqual({path for path, lost in told.items() if lost is None}, set(RECORDINGS[:2]))
        more = [word for lost in made.lost for word in ("--missing", str(lost))]
        self.assertEqual((made.json, made.summary), merged(RECORDINGS[:2], self.directory, more))
        for path in why:
            self.assertEqual(sum(path in problem for problem in made.loss.problems), 1, path)
            self.assertIn(path, made.text())

    def test_parts_make_the_same_report(self):
        expected = merged(RECORDINGS, self.directory)
        with in_parts(3):
            made = func_latency.report(RECORDINGS, FUNCTION, parts=3)
        self.assertEqual((made.json, made.summary, made.lost), (*expected, []))
        # As `func_latency plan` divides them, which is not at all.
        made = func_latency.report(RECORDINGS, FUNCTION, parts=64)
        self.assertEqual((made.json, made.summary), expected)

    def test_a_part_that_is_lost_is_named_and_leaves_the_others(self):
        failing = self.directory / "failing"
        failing.write_text(
            '#!/bin/sh\ncase "$*" in\n*demo.data*"--part 2/3"*) echo "func_latency: error: no disk" >&2; exit 3;;\n'
            f'esac\nexec "{command.find()}" "$@"\n'
        )
        failing.chmod(0o755)
        told = []
        with in_parts(3), mock.patch.dict(os.environ, {command.VARIABLE: str(failing)}):
            made = func_latency.report(RECORDINGS[:2], FUNCTION, parts=3, progress=lambda _, lost: told.append(lost))
        [lost] = made.lost
        self.assertEqual((lost.recording, lost.why), (f"{RECORDINGS[0]}, part 2 of 3", "no disk"))
        self.assertEqual({lost, None}, set(told))
        self.assertIn("not decoded", [cause.cause for cause in made.loss.by_cause])
        self.assertIn(str(lost), " ".join(made.loss.problems))
        whole = func_latency.report(RECORDINGS[:2], FUNCTION).functions[0].calls.complete
        self.assertTrue(0 < made.functions[0].calls.complete < whole)

    def test_nothing_left_says_why(self):
        with self.assertRaisesRegex(NothingLeft, "cannot open .*missing.data"):
            func_latency.report(self.directory / "missing.data", FUNCTION)

    def test_no_recording_counts_twice(self):
        with self.assertRaisesRegex(ValueError, "is named twice"):
            func_latency.report([RECORDINGS[0], RECORDINGS[0]], FUNCTION)
        copy = self.directory / "copy.data"
        copy.write_bytes(Path(RECORDINGS[0]).read_bytes())
        with self.assertRaisesRegex(CommandFailed, "is in another summary, too"):
            func_latency.report([RECORDINGS[0], copy], FUNCTION)

    def test_a_url_is_copied(self):
        handler = functools.partial(Quiet, directory=FIXTURES)
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            address = f"http://127.0.0.1:{server.server_address[1]}"
            made = func_latency.report([f"{address}/demo.data", f"{address}/none.data", RECORDINGS[1]], FUNCTION)
            server.shutdown()
        [lost] = made.lost
        self.assertEqual((lost.recording, "404" in lost.why), (f"{address}/none.data", True), lost)
        by_path = func_latency.report(RECORDINGS[:2], FUNCTION)
        self.assertEqual(made.document["functions"], by_path.document["functions"])

    def test_rows_and_labels(self):
        labelled = Recording(RECORDINGS[0], labels={"build": "v2"})
        rows = self.directory / "rows"
        made = func_latency.report([labelled, RECORDINGS[1]], FUNCTION, rows=rows)
        self.assertIn(b'"label_build":"v2"', made.summary)
        self.assertEqual(len(list(rows.glob("calls/recording=*/calls.parquet"))), 2)

    def test_tables_have_the_figures_of_the_json(self):
        try:
            import pyarrow.compute as compute
        except ImportError:
            self.skipTest("no pyarrow")
        made = func_latency.report(RECORDINGS, FUNCTION)
        tables, [function] = made.tables(), made.document["functions"]
        [row] = tables["functions"].to_pylist()
        self.assertEqual(row["latency_ns_sum"], function["latency_ns"]["sum"])
        # One of the recordings has no context switches: not known, and no 0.
        self.assertEqual((function["off_cpu_ns"], row["off_cpu_ns_sum"]), (None, None))
        for table, column in (("histograms", "count"), ("callers", "latency_ns_count")):
            total = compute.sum(tables[table][column]).as_py()
            self.assertEqual(total, function["latency_ns"]["count"], table)
        self.assertEqual(compute.sum(tables["children"]["sum"]).as_py(), function["latency_ns"]["sum"])
        self.assertEqual(tables["losses"].to_pylist()[0]["cause"], "overflow")
        one = func_latency.report(RECORDINGS[0], FUNCTION).tables()
        for name, table in tables.items():
            self.assertEqual(table.schema, one[name].schema, name)

    def test_wrong_arguments_say_what_is_right(self):
        with self.assertRaisesRegex(ValueError, "there are local, ray"):
            func_latency.report(RECORDINGS, FUNCTION, runner="spark")
        with self.assertRaisesRegex(ValueError, "no recording is named"):
            func_latency.report([], FUNCTION)
        for more in ({"parts": 0}, {"parts": 2, "rows": self.directory}):
            with self.assertRaisesRegex(ValueError, "parts"):
                func_latency.report(RECORDINGS, FUNCTION, **more)
        with mock.patch.dict(os.environ, {"PATH": "/nowhere"}):
            del os.environ[command.VARIABLE]
            with mock.patch("sysconfig.get_path", return_value="/nowhere"):
                with self.assertRaisesRegex(CommandFailed, "install the wheel func-latency"):
                    command.find()


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


if __name__ == "__main__":
    unittest.main()
