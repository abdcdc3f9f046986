"""Latency of a function's calls, from Intel PT recordings of one machine or of many.

    recordings -> a summary of each, by `func_latency report`, where the runner has it made; or parts of each, by
                  `report --part`, and a summary of these
               -> one summary, by `func_latency merge`  -> Report
"""

from .command import CommandFailed
from .local import LocalRunner
from .on_ray import RayRunner
from .recordings import Lost, NothingLeft, Recording, Task
from .result import Report, report

__all__ = [
    "CommandFailed",
    "LocalRunner",
    "Lost",
    "NothingLeft",
    "RayRunner",
    "Recording",
    "Report",
    "Task",
    "report",
]
