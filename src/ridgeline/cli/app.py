"""All commands put together, and the one place where an error becomes two lines and a code."""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from ridgeline.cli import (
    analyze,
    compare,
    conv,
    count,
    doctor,
    export,
    imports,
    machine,
    predict,
    profile,
    report,
    roofline,
    sweep,
    train,
)
from ridgeline.cli import run as run_command
from ridgeline.cli.interrupts import interrupts_raised
from ridgeline.cli.messages import end_interrupted, show_message, show_problem
from ridgeline.errors import RidgelineError
from ridgeline.plain import plain_text
from ridgeline.version import __version__

USER_ERROR = 2
WORKFLOW = (
    "analyze", "doctor", "machine", "count", "export", "run", "train", "profile", "import",
    "conv", "predict", "sweep", "status", "roofline", "compare", "report",
)  # fmt: skip


NAMED_PLAINLY = "names stand without an option: ridgeline {} resnet18"
LISTED = "`ridgeline count --list` shows all models, and `ridgeline count --list 'resnet*'` some"
OTHER_NAMES = {  # options that people know from elsewhere, and what they are here
    **dict.fromkeys(("--arch", "--model", "--models", "--network"), NAMED_PLAINLY),
    **dict.fromkeys(("--list-models", "--list"), LISTED),
    "--synthetic": "--data synthetic, where a command has --data; all others make their data",
    "--amp": "--precision amp",
    **dict.fromkeys(("--gpu", "--cuda"), "--backend cuda, and --device N of several"),
    "--cpu": "--backend cpu",
}


def _explain_option(error: Exception) -> RidgelineError | None:
    """For an option that a command does not have, and that has another name here."""
    name, context = getattr(error, "option_name", ""), getattr(error, "ctx", None)
    if name not in OTHER_NAMES or context is None or not hasattr(error, "possibilities"):
        return None
    hint = OTHER_NAMES[name].format(context.info_name)
    if OTHER_NAMES[name] == NAMED_PLAINLY:
        arguments = {one.name for one in context.command.params} & {"model", "models", "names"}
        hint = hint if arguments else "it is about no model: `ridgeline --help` lists the commands"
    return RidgelineError(f"`{context.command_path}` has no option {name}", hint=hint)


class InWorkflowOrder(TyperGroup):
    """Lists the commands in the order a newcomer uses them."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(super().list_commands(ctx), key=WORKFLOW.index)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:  # typer would end without a word
            end_interrupted()
        except Exception as error:
            raise _explain_option(error) or error from None


app = typer.Typer(
    name="ridgeline",
    cls=InWorkflowOrder,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("analyze", epilog=analyze.EXAMPLES)(analyze.analyze)
app.command("doctor", epilog=doctor.EXAMPLES)(doctor.doctor)
app.add_typer(machine.app, name="machine")
app.command("count", epilog=count.EXAMPLES)(count.count)
app.command("export", epilog=export.EXAMPLES)(export.export)
app.command("run", epilog=run_command.EXAMPLES)(run_command.run)
app.command("train", epilog=train.EXAMPLES)(train.train)
app.command("profile", epilog=profile.EXAMPLES, cls=profile.WithProgram)(profile.profile)
app.command("import", epilog=imports.EXAMPLES)(imports.import_files)
app.command("conv", epilog=conv.EXAMPLES)(conv.conv)
app.command("predict", epilog=predict.EXAMPLES)(predict.predict)
app.command("sweep", epilog=sweep.EXAMPLES)(sweep.sweep)
app.command("status", epilog=sweep.STATUS_EXAMPLES)(sweep.status)
app.command("roofline", epilog=roofline.EXAMPLES)(roofline.roofline)
app.command("compare", epilog=compare.EXAMPLES)(compare.compare)
app.command("report", epilog=report.EXAMPLES)(report.report)


def _show_version(is_set: bool) -> None:
    if is_set:
        print(f"ridgeline {__version__}")
        raise typer.Exit


@app.callback(
    epilog="Start with [bold]ridgeline analyze resnet18[/]."
    " Each command has examples: ridgeline analyze --help"
)
def ridgeline(
    version: bool = typer.Option(
        False,
        "--version",
        callback=_show_version,
        is_eager=True,
        help="Print the version and exit.",
    ),
) -> None:
    """How fast a network could run on a machine, how fast it does run, and why there is a gap."""


def run(arguments: list[str]) -> None:
    """Run a command. The one place that turns an error into two lines and an exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # `\xe9` in an ASCII terminal
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        with interrupts_raised():
            try:
                app(args=arguments, prog_name="ridgeline", standalone_mode=True)
            finally:  # a command ends in SystemExit
                sys.stdout.flush()
    except Exception as error:
        if isinstance(error, OSError) and error.errno in (errno.EPIPE, errno.ENOSPC):
            _end_without_stdout(error)
        if "--debug" in arguments:
            raise
        if isinstance(error, RidgelineError):
            show_problem(error)
            sys.exit(USER_ERROR)
        text = plain_text(" ".join(str(error).split())[:300])
        show_problem(f"internal error: {type(error).__name__}: {text}")
        show_message("  hint: this is a bug in ridgeline; --debug shows where")
        sys.exit(1)


def _end_without_stdout(error: OSError) -> NoReturn:
    """End where standard output takes no more: a full disk, or `ridgeline … | head`."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes it again
    if error.errno == errno.EPIPE:
        sys.exit(1)
    show_problem(f"cannot write: {error.strerror}\n  hint: make room, or write elsewhere")
    sys.exit(USER_ERROR)
