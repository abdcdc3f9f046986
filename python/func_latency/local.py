"""The local runner: a process for each recording, a few at a time."""

import os
from concurrent.futures import ThreadPoolExecutor, as_completed

from .command import CommandFailed
from .recordings import Lost


class LocalRunner:
    """Runs tasks as processes of this machine, `jobs` at a time (default: one for each core)."""

    def __init__(self, jobs=None):
        if jobs is not None and jobs < 1:
            raise ValueError(f"jobs={jobs}: give 1 or more")
        self.jobs = jobs

    def summaries(self, tasks, directory, progress):
        """Runs the tasks and returns the summaries' files, in `directory`, and the recordings that are lost."""
        cores = len(os.sched_getaffinity(0))
        jobs = min(self.jobs or cores, len(tasks))
        workers = max(1, cores // jobs)
        files, lost = {}, {}
        with ThreadPoolExecutor(jobs) as pool:
            waiting = {}
            for number, task in enumerate(tasks):
                file = directory / f"{number}.json"
                waiting[pool.submit(task.summarise, file, workers)] = (number, task, file)
            for done in as_completed(waiting):
                number, task, file = waiting[done]
                try:
                    done.result()
                    files[number] = file
                except CommandFailed as why:
                    lost[number] = Lost(task.recording.path, str(why))
                progress(task.recording, lost.get(number))
        return [files[number] for number in sorted(files)], [lost[number] for number in sorted(lost)]
