"""Reports of a local Ray cluster of three nodes, one of which dies in the middle.

    ray_cluster.py FUNCTION RECORDING...

`FUNC_LATENCY_COMMAND` or the installed wheel is the command. Prints a line for each check and fails at the first
that does not hold.
"""

import json
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import ray
from ray.cluster_utils import Cluster

import func_latency
from func_latency import command


def merged(recordings, function, directory, more=()):
    """Returns what `merge` prints of all recordings, and the summary that it writes, without any runner."""
    files = []
    for number, recording in enumerate(recordings):
        file = directory / f"{number}.json"
        command.run(["report", "-i", recording, "-f", function, "--format", "json", "--summary", file])
        files.append(file)
    whole = directory / "whole.json"
    return command.run(["merge", *files, "--format", "json", "--summary", whole, *more]), whole.read_bytes()


class Killer:
    """Kills the node that the first summaries were made on, once a third of the recordings is done.

    The summaries that the node has made are lost with it, as are the tasks that run there.
    """

    def __init__(self, cluster, nodes, third):
        self.cluster, self.nodes, self.third = cluster, nodes, third
        self.done, self.killed = [], None

    def __call__(self, recording, lost):
        self.done.append(recording.path)
        if len(self.done) == self.third:
            self.killed = self.nodes[0]
            self.cluster.remove_node(self.killed, allow_graceful=False)


def main(function, recordings):
    """Runs the checks."""
    cluster = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 1, "object_store_memory": 100 << 20, "include_dashboard": False},
    )
    nodes = [cluster.add_node(num_cpus=1, object_store_memory=100 << 20) for _ in range(2)]
    cluster.wait_for_nodes()
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    try:
        with TemporaryDirectory() as name:
            check_node_that_dies(function, recordings, cluster, nodes, Path(name))
            check_losses(function, recordings, Path(name))
            check_parts(Path(recordings[0]).parent / "sq50.data", Path(name))
            check_command(function, recordings, cluster, Path(name))
    finally:
        ray.shutdown()
        cluster.shutdown()


def check_node_that_dies(function, recordings, cluster, nodes, directory):
    expected = merged(recordings, function, directory)
    runner = func_latency.RayRunner(fan_in=3)
    began = time.monotonic()
    whole = func_latency.report(recordings, function, runner=runner)
    whole_s = time.monotonic() - began
    assert (whole.json, whole.summary) == expected, "a cluster's report is another one"
    print(f"ray: {len(recordings)} recordings on 3 nodes: same bytes as merge of all, {whole_s:.1f} s")

    killer = Killer(cluster, nodes, len(recordings) // 3)
    began = time.monotonic()
    made = func_latency.report(recordings, function, runner=runner, progress=killer)
    took_s = time.monotonic() - began
    assert killer.killed is not None, "no node was killed"
    wait_until_alive(2)
    assert sorted(killer.done) == sorted(recordings), "a recording was told twice, or not at all"
    assert made.lost == [], made.lost
    assert (made.json, made.summary) == expected, "the report of a cluster that lost a node is another one"
    print(f"ray: a node of 3 killed after {killer.third} of {len(recordings)}: same bytes, {took_s:.1f} s")


def wait_until_alive(nodes):
    """The cluster may take longer to notice a death than the report takes."""
    until = time.monotonic() + 60
    while (alive := sum(node["Alive"] for node in ray.nodes())) != nodes:
        assert time.monotonic() < until, f"{alive} nodes are alive, not {nodes}"
        time.sleep(0.1)


def check_losses(function, recordings, directory):
    """A missing file, a damaged recording and a task out of memory name themselves."""
    good, starved = recordings[:3], recordings[3]
    damaged, missing = directory / "damaged.data", directory / "missing.data"
    damaged.write_bytes(b"no recording" * 100)
    asked = [missing, *good, damaged, func_latency.Recording(starved, memory_bytes=8 << 20)]
    made = func_latency.report(asked, function, runner="ray")
    why = {lost.recording: lost.why for lost in made.lost}
    assert set(why) == {str(missing), str(damaged), starved}, why
    assert "No such file or directory" in why[str(missing)], why
    assert "is not a perf.data file" in why[str(damaged)], why
    assert why[starved].startswith("out of memory, of memory_bytes=8388608"), why
    more = [word for lost in made.lost for word in ("--missing", str(lost))]
    assert (made.json, made.summary) == merged(good, function, directory, more)
    problems = " ".join(made.loss.problems)
    assert all(path in problems for path in why), problems
    print(f"ray: {len(why)} of {len(asked)} recordings lost, each by name; the others' report has that among its losses")


def check_parts(recording, directory):
    """A recording that is large enough for parts has the same report in parts."""
    if not recording.exists():
        print(f"ray: skipped: no recording {recording}; run cargo xtask fixtures")
        return
    function = "sqlite3VdbeExec"
    plan = json.loads(command.run(["plan", recording, "-n", "4", "--format", "json"]))
    assert len(plan["parts"]) == 4, plan
    made = func_latency.report(recording, function, runner="ray", parts=4)
    assert (made.json, made.summary) == merged([recording], function, directory), "a report of parts is another one"
    print("ray: a recording in 4 parts: same bytes as its report")


def check_command(function, recordings, cluster, directory):
    program = Path(sys.executable).parent / "func-latency-ray"
    line = [program] if program.exists() else [sys.executable, "-m", "func_latency.ray_command"]
    line += ["--address", cluster.address, *recordings[:3], "-f", function, "--format", "json"]
    printed = subprocess.run(line, check=True, stdout=subprocess.PIPE).stdout
    assert printed == merged(recordings[:3], function, directory)[0]
    print("ray: func-latency-ray prints the same")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
