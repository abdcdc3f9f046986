"""The Ray runner: a Ray task for each recording, and a tree of tasks that merge.

    recording  recording  recording  recording
        |          |          |          |        summarise: `func_latency report --summary`
     summary    summary    summary    summary     objects of Ray, where they were made
         \\________/            \\________/
             merge                 merge          `func_latency merge`, of what is ready
                \\___________________/
                        merge                     the same bytes in any order and bracketing
                          |
                        driver
Ray runs a task again whose node has died, and makes an object again that died with it.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from .command import CommandFailed
from .recordings import Lost, merge


class RayRunner:
    """Runs tasks on a Ray cluster.

    `address` is that of the cluster, as `ray.init` takes it; None: the Ray that the program is connected to
    already, or else what `ray.init()` finds or starts. `retries` is how often Ray may run a task again.
    `fan_in` is the number of summaries that one task merges. `task_options` go to `.options(...)` of the tasks
    that read recordings: `num_cpus`, `memory`, `resources`.
    """

    def __init__(self, address=None, runtime_env=None, retries=3, fan_in=8, task_options=None):
        if fan_in < 2:
            raise ValueError(f"fan_in={fan_in}: give 2 or more")
        self.address = address
        self.runtime_env = runtime_env
        self.retries = retries
        self.fan_in = fan_in
        self.task_options = dict(task_options or {})

    def summaries(self, tasks, directory, progress):
        """Runs the tasks; returns the file of one summary of all, and the recordings that are lost."""
        ray = _ray()
        if self.address is not None or not ray.is_initialized():
            ray.init(
                address=self.address,
                runtime_env=self.runtime_env,
                ignore_reinit_error=True,
                log_to_driver=False,
                logging_level="ERROR",
            )
        root, lost = self._run(ray, tasks, progress)
        if root is None:
            return [], lost
        file = directory / "all.json"
        file.write_bytes(ray.get(root))
        return [file], lost

    def _run(self, ray, tasks, progress):
        """Runs tasks and merges what they come to; the reference of the only summary that is left."""
        read = ray.remote(_summarise).options(
            **{"max_retries": self.retries, "num_returns": 2, "num_cpus": 1, **self.task_options}
        )
        join = ray.remote(_merge).options(max_retries=self.retries, num_cpus=1)
        # By the reference to why a task has no summary: None if it has one.
        reading = {}
        for number, task in enumerate(tasks):
            why, summary = read.remote(task)
            reading[why] = (number, task, summary)
        ready, lost = [], {}
        while reading:
            [done], _ = ray.wait(list(reading), num_returns=1)
            number, task, summary = reading.pop(done)
            why = _outcome(ray, done)
            if why is None:
                ready.append(summary)
            else:
                lost[number] = Lost(task.recording.path, why)
            progress(task.recording, lost.get(number))
            if len(ready) >= self.fan_in:
                ready = ready[self.fan_in :] + [join.remote(*ready[: self.fan_in])]
        while len(ready) > 1:
            ready = ready[self.fan_in :] + [join.remote(*ready[: self.fan_in])]
        return (ready[0] if ready else None), [lost[number] for number in sorted(lost)]


def _ray():
    try:
        import ray
        from ray import init as _  # Ray's files in /tmp/ray look like a package to a Python that runs in /tmp
    except ImportError as error:
        raise CommandFailed("the runner 'ray' needs Ray: pip install 'func-latency[ray]'") from error
    return ray


def _outcome(ray, reference):
    """Returns why a task has no summary; None: it has one."""
    try:
        return ray.get(reference)
    except ray.exceptions.OutOfMemoryError:
        return "out of memory: Ray has ended its task on a node whose memory ran out: ask for more with memory"
    except ray.exceptions.RayError as error:
        return f"Ray: {str(error).strip().splitlines()[0]}"


def _summarise(task):
    """Runs on a node: why there is no summary (None: there is one), and the summary's bytes."""
    with TemporaryDirectory(prefix="func_latency-") as directory:
        file = Path(directory) / "summary.json"
        try:
            task.summarise(file, workers=1)
        except CommandFailed as why:
            return str(why), b""
        return None, file.read_bytes()


def _merge(*summaries):
    """Runs on a node: the summary of several."""
    with TemporaryDirectory(prefix="func_latency-") as directory:
        files = [Path(directory) / f"{number}.json" for number in range(len(summaries))]
        for file, summary in zip(files, summaries):
            file.write_bytes(summary)
        to = Path(directory) / "merged.json"
        merge(files, to)
        return to.read_bytes()
