"""Arguments to command to exit code: 0 no errors, 1 errors, 2 could not run. Findings to stdout, the rest to stderr."""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from chunkdsl import __version__, commands, streams


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="chunkdsl", description="Overlap of communication and compute, proven.")
    top.add_argument("--version", action="version", version=f"chunkdsl {__version__}")
    subparsers = top.add_subparsers(prog=top.prog, dest="command", metavar="COMMAND", required=True)
    for name in commands.NAMES:
        import_module(f"{commands.__name__}.{name}").configure(subparsers)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; `argv` without the program's name, None for the process's own. Returns the exit code."""
    try:
        args = parser().parse_args(argv)
    except SystemExit as stop:  # --help, --version, or a usage error that argparse has printed
        return stop.code or 0
    try:
        return args.run(args)
    except SystemExit as stop:  # a usage error that only the command can see
        return stop.code
    except BrokenPipeError:  # the reader of our output has seen enough
        raise
    except Exception as error:
        if streams.lost_output(error):  # a finding about it could not be printed either
            raise
        return _crashed(error, getattr(args, "output_format", "text"))


def _crashed(error: Exception, output_format: str) -> int:
    from chunkdsl.crash import explain_crash
    from chunkdsl.diagnostics import Report
    from chunkdsl.report.output import write
    from chunkdsl.source import Source

    report = Report(Source("chunkdsl", ""))
    report.add(explain_crash(error))
    write([report], output_format)
    return 2


def _complete() -> None:
    """Answers a shell that argcomplete has set up, and ends the process; does nothing where it is not installed."""
    with contextlib.suppress(ModuleNotFoundError):
        from argcomplete import autocomplete

        autocomplete(parser())


def entry() -> None:
    """The console script: `main`, with output that any terminal and any pipe can take."""
    streams.open_streams()
    if "_ARGCOMPLETE" in os.environ:  # a shell asks what may come next
        _complete()
    try:
        gc.set_threshold(100_000)  # trees and tables that live until the end: looking for rubbish finds none
        code = main()
        sys.stdout.flush()
    except BrokenPipeError as error:
        streams.give_up(error, tell=False)
        code = 1
    except OSError as error:
        streams.give_up(error, tell=True)
        code = 2
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)


if __name__ == "__main__":
    entry()
