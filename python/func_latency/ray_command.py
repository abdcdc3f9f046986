"""The command `func-latency-ray`: the report of recordings that a Ray cluster reads."""

import argparse
import sys

from .command import CommandFailed
from .on_ray import RayRunner
from .recordings import NothingLeft, Recording
from .result import report

#: Exit codes, as those of `func_latency`.
DONE, NOTHING, USAGE, BAD_INPUT = 0, 1, 2, 4


def _parser():
    parser = argparse.ArgumentParser(
        prog="func-latency-ray",
        description="Report a function's calls in recordings that the nodes of a Ray cluster read.",
    )
    parser.add_argument("recordings", metavar="REC", nargs="+", help="path on the nodes, or URL that is copied there")
    parser.add_argument("-f", "--func", metavar="FUNC", action="append", required=True, help="function; repeatable")
    parser.add_argument("--address", help="the cluster's address, 'auto' for that of this machine")
    parser.add_argument("--label", metavar="KEY=VALUE", action="append", default=[], help="label of all recordings")
    parser.add_argument("--symfs", metavar="DIR", help="directory on the nodes with the objects")
    parser.add_argument("--parts", type=int, default=1, metavar="N", help="divide each recording into up to N tasks [1]")
    parser.add_argument("--rows", metavar="DIR", help="write Parquet tables of all calls below this directory")
    parser.add_argument("--summary", metavar="FILE", help="write the summary of all, too")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="form of the report")
    parser.add_argument("--retries", type=int, default=3, metavar="N", help="how often Ray may repeat a task [3]")
    parser.add_argument("--memory-bytes", type=int, metavar="N", help="memory that one recording may take")
    return parser


def main(arguments=None):
    """Runs the command and returns its exit code."""
    parser = _parser()
    args = parser.parse_args(arguments)
    labels = dict(label.partition("=")[::2] for label in args.label)
    recordings = [
        Recording(path, labels=labels, symfs=args.symfs, memory_bytes=args.memory_bytes) for path in args.recordings
    ]
    options = {} if args.memory_bytes is None else {"memory": args.memory_bytes}
    runner = RayRunner(args.address, retries=args.retries, task_options=options)
    try:
        to = {"rows": args.rows, "summary": args.summary}
        made = report(recordings, args.func, runner=runner, parts=args.parts, progress=_tell, **to)
        sys.stdout.buffer.write(made.json if args.format == "json" else made.text().encode())
        sys.stdout.buffer.flush()
    except NothingLeft as error:
        return _fail(error, BAD_INPUT)
    except CommandFailed as error:
        return _fail(error, error.exit_code or BAD_INPUT)
    except ValueError as error:
        return _fail(error, USAGE)
    is_any_seen = any(any(vars(function.calls).values()) for function in made.functions)
    return DONE if is_any_seen else NOTHING


def _tell(_, lost):
    if lost is not None:
        print(f"func-latency-ray: warning: not in the report: {lost}", file=sys.stderr)


def _fail(error, code):
    print(f"func-latency-ray: error: {error}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
