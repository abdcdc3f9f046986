"""Runs the command `func_latency`, which the wheel brings along."""

import os
import shutil
import signal
import subprocess
import sysconfig
from pathlib import Path

#: Environment variable that names another command than that of the wheel.
VARIABLE = "FUNC_LATENCY_COMMAND"

#: Exit codes with a result: done, and no call of any status was seen.
WITH_RESULT = (0, 1)


class CommandFailed(Exception):
    """The command failed; the text says why, `exit_code` as what (None: it did not end by itself)."""

    def __init__(self, why, exit_code=None):
        super().__init__(why)
        self.exit_code = exit_code


def find():
    """Returns the path of the command: that of `FUNC_LATENCY_COMMAND`, of the wheel, or on the `PATH`."""
    named = os.environ.get(VARIABLE)
    if named:
        return named
    # `pip install`, `pip install --user` and `pip install --target` put programs in different places.
    beside = Path(__file__).resolve().parent.parent / "bin"
    user = sysconfig.get_preferred_scheme("user") if hasattr(sysconfig, "get_preferred_scheme") else "posix_user"
    for directory in (sysconfig.get_path("scripts"), beside, sysconfig.get_path("scripts", user)):
        program = shutil.which("func_latency", path=str(directory))
        if program:
            return program
    program = shutil.which("func_latency")
    if program:
        return program
    raise CommandFailed(
        f"there is no command func_latency: install the wheel func-latency, or name the command in {VARIABLE}"
    )


def run(words, memory_bytes=None, directory=None):
    """Runs the command with these arguments and returns what it printed on stdout, as bytes.

    `memory_bytes` bounds the memory that the command may allocate; files that it maps do not count.
    `directory` is where it runs. Raises `CommandFailed` where the command has no result.
    """
    line = [find(), *map(str, words)]
    if memory_bytes is not None:
        # The shell sets the bound before the command starts; in KiB, of its data (RLIMIT_DATA).
        line = ["sh", "-c", 'ulimit -d "$0" && exec "$@"', str(max(1, memory_bytes // 1024)), *line]
    environment = {**os.environ, "RUST_BACKTRACE": "0"}
    try:
        ended = subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, cwd=directory, env=environment)
    except OSError as error:
        raise CommandFailed(f"cannot run {find()}: {error}") from error
    if ended.returncode not in WITH_RESULT:
        raise CommandFailed(_why(ended, memory_bytes), ended.returncode if ended.returncode > 0 else None)
    return ended.stdout


#: What the command says where it cannot have memory, of its own or for a thread.
_NO_MEMORY = ("memory allocation of ", "Cannot allocate memory", "Resource temporarily unavailable")


def _why(ended, memory_bytes):
    """Says why a command has no result."""
    said = ended.stderr.decode(errors="replace").strip().splitlines()
    prefix = "func_latency: error: "
    errors = [line[len(prefix) :] for line in said if line.startswith(prefix)]
    if errors:
        return errors[0]
    refused = [line for line in said if any(text in line for text in _NO_MEMORY)]
    if refused:
        bound = "that there is" if memory_bytes is None else f"of memory_bytes={memory_bytes}"
        return f"out of memory, {bound}: {refused[0]}"
    if ended.returncode == -signal.SIGKILL:
        return "killed by SIGKILL, as the kernel does where memory runs out: run fewer at once"
    if ended.returncode < 0:
        return f"killed by {signal.strsignal(-ended.returncode) or f'signal {-ended.returncode}'}"
    return "; ".join(said[-3:]) or f"exit code {ended.returncode}"
