"""What commands say on stderr beside their results, JSON on stdout, and how they end."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from ridgeline.errors import RidgelineError
from ridgeline.plain import plain_text
from ridgeline.signals import INTERRUPTED

if TYPE_CHECKING:
    from ridgeline.pipeline.cases import CaseRunner
    from ridgeline.store import Run

SOME_FAILED = 3  # the exit code
OnMessage = Callable[[str], None]


def print_json(content: Any) -> None:
    print(json.dumps(content, indent=2))


def show_message(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def messages_unless(quiet: bool) -> OnMessage:
    return (lambda text: None) if quiet else show_message


def show_notes(texts: Iterable[str]) -> None:
    for text in texts:
        show_message(f"note: {plain_text(text)}")


def show_problem(problem: object) -> None:
    show_message(f"ridgeline: {problem}")


def name_run(run: Run) -> str:
    request = run.request
    size = f", input {'x'.join(map(str, request.input_size))}" if request.input_size else ""
    precision = getattr(run.result, "precision", request.precision)  # that was used, if it ran
    return f"{request.model}, batch {request.batch_size}{size}, {precision}"


def raise_last(errors: Sequence[RidgelineError]) -> None:
    """The last error, if there is any, ends the command; those before it are printed."""
    for error in errors[:-1]:
        show_problem(error)
    if errors:
        raise errors[-1]


def end_runs(runner: CaseRunner) -> None:
    """End the command where an input was wrong or a run failed, with the reasons."""
    raise_last(runner.errors)
    for run in runner.failed:
        show_problem(f"{name_run(run)}: failed: {run.result.reason}\n  hint: {run.result.hint}")
    if runner.failed:
        sys.exit(SOME_FAILED)


def end_interrupted(kept: str = "") -> NoReturn:
    """End the command as one that Ctrl-C ended; `kept` says what there is."""
    show_problem(f"interrupted{kept}")
    sys.exit(INTERRUPTED)


def show_models(patterns: list[str], *, as_json: bool) -> None:
    """Print the known models, a line each."""
    from ridgeline.workloads import list_models

    models = [model for pattern in patterns or [""] for model in list_models(pattern or None)]
    if as_json:
        keys = ("model", "source", "about")
        print_json([dict(zip(keys, model, strict=True)) for model in models])
    if not models:
        raise RidgelineError(
            f"no model matches {' '.join(patterns)!r}",
            hint="try a part of the name, or a pattern in quotes: --list '*net*'",
        )
    if as_json:
        return
    width = max(len(name) for name, _, _ in models)
    for name, source, about in models:
        print(f"{name:<{width}}  {source:<12}  {about}".rstrip())
    show_message(f"{len(models)} models")
