"""The command line: one module per command, in the order a newcomer uses them.

A command parses, calls one function of the library and prints. Results go to stdout;
progress, advice and errors go to stderr. Nothing heavy is imported before it is needed.

app.py          the commands put together; errors to exit codes
options.py      options that several commands have; step_options.py those of a step
render_count.py and show_*.py   what commands print
tables.py       tables for a terminal of any width
messages.py     notes and errors on stderr, and how commands end
progress.py     the progress bar
interrupts.py   Ctrl-C, which libraries may lose
All others are named after their command.
"""

from __future__ import annotations

import signal
import sys

from ridgeline.signals import INTERRUPTED


def main(argv: list[str] | None = None) -> None:
    """Run a command; Ctrl-C at any moment ends it without a traceback.

    With `argv` it is run inside of somebody's program, whose signals are left alone.
    """
    is_own_process = argv is None
    try:
        try:
            from ridgeline.cli.interrupts import was_pressed, watch

            if is_own_process:
                watch()
            from ridgeline.cli.app import run  # takes a while itself, and Ctrl-C may come then

            run(sys.argv[1:] if argv is None else argv)
        finally:
            if is_own_process:  # all is done: what is left is the end of large libraries
                signal.signal(signal.SIGINT, signal.SIG_IGN)
    except KeyboardInterrupt:
        _end_interrupted()
    except SystemExit as end:
        if is_own_process and was_pressed() and end.code != INTERRUPTED:  # it was thrown away
            _end_interrupted()
        raise


def _end_interrupted() -> None:
    print("ridgeline: interrupted", file=sys.stderr)
    sys.exit(INTERRUPTED)
