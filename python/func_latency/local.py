"""The local runner: a process for each recording, or for each of its parts, a few at a time."""

import os
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

from .command import CommandFailed
from .recordings import Lost, Task

#: In the place of a part's number: the recording's parts are joined.
_JOIN = 0


class LocalRunner:
    """Runs tasks as processes of this machine, `jobs` at a time (default: one for each core)."""

    def __init__(self, jobs=None):
        if jobs is not None and jobs < 1:
            raise ValueError(f"jobs={jobs}: give 1 or more")
        self.jobs = jobs

    def summaries(self, tasks, directory, progress):
        """Runs the tasks and returns the summaries' files, in `directory`, and what is lost."""
        cores = len(os.sched_getaffinity(0))
        jobs = self.jobs or cores
        files, lost = {}, {}
        with ThreadPoolExecutor(jobs) as pool:
            plans = list(pool.map(Task.plan, tasks))
            workers = max(1, cores // min(jobs, sum(parts.of for parts in plans)))
            running = {}
            for number, parts in enumerate(plans):
                for part in range(1, parts.of + 1):
                    file = directory / f"{number}-{part}"
                    running[pool.submit(parts.make, part, file, workers)] = (number, part, file)
            while running:
                done = wait(running, return_when=FIRST_COMPLETED).done.pop()
                number, part, file = running.pop(done)
                parts, why = plans[number], _why(done)
                if part != _JOIN:
                    if not parts.take(part, file, why):
                        continue
                    lost[number] = parts.lost()
                    if parts.of > 1 and parts.found:
                        joined = directory / f"{number}.json"
                        join = pool.submit(parts.task.join, parts.in_order(), joined, workers)
                        running[join] = (number, _JOIN, joined)
                        continue
                elif why is not None:
                    lost[number] = [Lost(parts.task.recording.path, why)]
                if why is None:
                    files[number] = file
                progress(parts.task.recording, next(iter(lost[number]), None))
        return [files[number] for number in sorted(files)], [of for number in sorted(lost) for of in lost[number]]


def _why(done):
    """Returns why a step has no result; None: it has one."""
    try:
        done.result()
    except CommandFailed as why:
        return str(why)
    return None
