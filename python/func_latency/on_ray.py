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
A recording that is divided has a task for each part (`report --part`), and one that makes its summary of them.
Ray runs a task again whose node has died, and makes an object again that died with it.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from .command import CommandFailed
from .recordings import Lost, Parts, merge


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
        """Runs the tasks; returns the file of one summary of all, and what is lost."""
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
        steps = _Steps(ray, self.retries, self.task_options)
        merge_some = ray.remote(_merge).options(max_retries=self.retries, num_cpus=1)
        for number, task in enumerate(tasks):
            steps.plan(number, task)
        ready, lost = [], {}
        while steps.running:
            [done], _ = ray.wait(list(steps.running), num_returns=1)
            ended = steps.take(done)
            if ended is None:
                continue
            number, summary, lost[number] = ended
            if summary is not None:
                ready.append(summary)
            progress(tasks[number].recording, next(iter(lost[number]), None))
            if len(ready) >= self.fan_in:
                ready = ready[self.fan_in :] + [merge_some.remote(*ready[: self.fan_in])]
        while len(ready) > 1:
            ready = ready[self.fan_in :] + [merge_some.remote(*ready[: self.fan_in])]
        return (ready[0] if ready else None), [of for number in sorted(lost) for of in lost[number]]


class _Steps:
    """The tasks of Ray that the summaries of recordings come from: of each a plan, its parts, their join."""

    def __init__(self, ray, retries, task_options):
        self.ray = ray
        options = {"max_retries": retries, "num_cpus": 1, **task_options}
        self._plan = ray.remote(_plan).options(**options)
        self._make = ray.remote(_make).options(**{**options, "num_returns": 2})
        self._join = ray.remote(_join).options(**{**options, "num_returns": 2})
        self._plans = {}
        #: By the reference to why a step has no result (None if it has one): recording, part, result.
        self.running = {}

    def plan(self, number, task):
        """Begins with a recording."""
        if task.parts > 1:
            self.running[self._plan.remote(task)] = (number, _PLAN, None)
        else:
            self._begin(number, Parts(task, 1))
        self._plans.setdefault(number, Parts(task, 1))

    def _begin(self, number, parts):
        self._plans[number] = parts
        for part in range(1, parts.of + 1):
            why, made = self._make.remote(parts, part)
            self.running[why] = (number, part, made)

    def take(self, done):
        """Takes a step that has ended; returns recording, summary and what is lost, where that is all of it."""
        number, part, result = self.running.pop(done)
        parts = self._plans[number]
        if part == _PLAN:
            self._begin(number, self._planned(parts.task, done))
            return None
        why = _outcome(self.ray, done)
        if part == _JOIN:
            lost = parts.lost() if why is None else [Lost(parts.task.recording.path, why)]
            return number, (result if why is None else None), lost
        if not parts.take(part, result, why):
            return None
        if parts.of > 1 and parts.found:
            why, joined = self._join.remote(parts.task, *parts.in_order())
            self.running[why] = (number, _JOIN, joined)
            return None
        return number, next(iter(parts.in_order()), None), parts.lost()

    def _planned(self, task, done):
        try:
            return self.ray.get(done)
        except self.ray.exceptions.RayError:
            return Parts(task, 1)  # making its only part says why


#: In the place of a part's number: the recording's plan, and the join of its parts.
_PLAN, _JOIN = -1, 0


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


def _plan(task):
    """Runs on a node that reads the recording: the parts that it is best divided into."""
    return task.plan()


def _make(parts, number):
    """Runs on a node: why there is no such part (None: there is one), and its bytes."""
    return _written(lambda _, file: parts.make(number, file, workers=1), ())


def _join(task, *parts):
    """Runs on a node: why there is no summary of these parts (None: there is one), and its bytes."""
    return _written(lambda files, file: task.join(files, file, workers=1), parts)


def _written(write, inputs):
    """Returns why a file is not written (None: it is), and its bytes; `write` takes the files of inputs."""
    with TemporaryDirectory(prefix="func_latency-") as directory:
        files = [Path(directory) / str(number) for number in range(len(inputs))]
        for file, content in zip(files, inputs):
            file.write_bytes(content)
        to = Path(directory) / "written"
        try:
            write(files, to)
        except CommandFailed as why:
            return str(why), b""
        return None, to.read_bytes()


def _merge(*summaries):
    """Runs on a node: the summary of several."""
    with TemporaryDirectory(prefix="func_latency-") as directory:
        files = [Path(directory) / f"{number}.json" for number in range(len(summaries))]
        for file, summary in zip(files, summaries):
            file.write_bytes(summary)
        to = Path(directory) / "merged.json"
        merge(files, to)
        return to.read_bytes()
