"""The command line: one module per command, in the order a newcomer uses them.

A command parses, calls one function of the library and prints. Results go to stdout;
progress, advice and errors go to stderr. Nothing heavy is imported before it is needed.

app.py      the commands put together; errors to exit codes
doctor.py   machine.py   count.py: the commands
machine_text.py  what `machine` prints
counted.py  the work behind `count`; show.py prints it, files.py keeps it; counted_files.py
            the options of ONNX files
render_onnx_comparison.py  what `count MODEL --compare-onnx FILE.onnx` shows
export.py   the command, exported.py the work behind it and what it shows
run.py      analyze.py   profile.py: the commands; step_options.py the options that they share;
            show_runs.py, show_analysis.py and show_profiles.py what they show
report.py   roofline.py: the commands; study_options.py the options that they share;
            show_study.py what they show
compare.py  the command, show_compare.py what it shows
train.py    the command, trained.py the work behind it, train_text.py what it shows
imports.py  the command `import`, show_captures.py what it shows
arguments.py  what users write after an option
tables.py   tables for a terminal of any width
progress.py the progress bar
choices.py  what options take, for tab completion
interrupts.py  Ctrl-C, which libraries may lose
stdout.py   standard output that may be full or closed
"""

from __future__ import annotations

import signal
import sys

INTERRUPTED = 130  # as shells report a command that Ctrl-C ended


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
