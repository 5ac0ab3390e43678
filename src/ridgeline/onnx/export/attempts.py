"""The ways to export a model, best first, until one of them passes the checks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from ridgeline.errors import RidgelineError
from ridgeline.onnx.export import recorded
from ridgeline.onnx.export.dimensions import BATCH, SEQUENCE, Axes, joined, names_in, open_axes
from ridgeline.onnx.export.result import Checked, Exported, data_file
from ridgeline.onnx.export.settings import ExportSettings, check_opset
from ridgeline.onnx.export.subject import Call, Subject, call
from ridgeline.onnx.export.tracing import (
    DYNAMO,
    DYNAMO_OLDEST_OPSET,
    TORCHSCRIPT,
    Traced,
    ports,
    run,
    trace,
    write,
)
from ridgeline.workloads.workload import one_line

if TYPE_CHECKING:
    from ridgeline.onnx.export.checking import Runner

Tell = Callable[[str], None]

LEAST_OPEN = 2  # torch takes a size of 1 for a constant
SEED = 0
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
RANDOM = {"Dropout", "RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike",
          "Bernoulli", "Multinomial"}  # fmt: skip
WORDS = {DYNAMO: "torch's exporter", TORCHSCRIPT: "torch's older exporter"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One way: an exporter, and the axes it is to leave open."""

    exporter: str
    axes: Axes

    def __str__(self) -> str:
        names = names_in(self.axes)
        return f"{WORDS[self.exporter]}, " + (" and ".join(names) + " open" if names else "static")


def export(subject: Subject, settings: ExportSettings, path: Path, tell: Tell) -> Exported:
    """Write `subject` to `path` in the best way that works, and say what was not possible."""
    check_opset(settings)
    with torch.random.fork_rng(devices=[]):  # the caller's random numbers are left alone
        torch.manual_seed(SEED)
        return _export(subject, settings, path, tell)


def _export(subject: Subject, settings: ExportSettings, path: Path, tell: Tell) -> Exported:
    tell("building the model")
    module = subject.build()
    axes, notes = find_axes(module, subject, settings)
    example = traced_call(module, subject, settings)
    tell("running it in torch")
    outputs = list(run(module, example))
    if not outputs:
        raise RidgelineError(
            f"{subject.name} returns no tensor",
            hint="its forward has to return a tensor, or a list or dictionary of tensors",
        )
    failures: list[tuple[Attempt, Exception]] = []
    for attempt in attempts(module, subject, settings, axes):
        try:
            tell(f"exporting: {attempt}")
            traced = trace(
                attempt.exporter, module, example, attempt.axes,
                outputs=outputs, opset=settings.opset, mode=subject.mode,
            )  # fmt: skip
            tell("writing")
            write(traced, path, inline_bytes=settings.inline_bytes)
            checks, said = checked(module, subject, settings, attempt, traced, path, tell)
        except Exception as error:  # torch's exporters raise anything; the next way may work
            failures.append((attempt, error))
            continue
        fixed = recorded.notes(traced.fixed, has_open=bool(names_in(attempt.axes)))
        notes = [*notes, *_fallen_back(failures), *fixed, *said, *_mode_notes(subject)]
        return _exported(subject, traced, path, checks, notes)
    raise _nothing_worked(subject, failures)


def attempts(
    module: nn.Module, subject: Subject, settings: ExportSettings, axes: list[Axes]
) -> Iterator[Attempt]:
    """Best first: the newer exporter with all axes open; last the older one with none."""
    exporters = exporters_for(module, subject.mode, settings.opset)
    for open_ in axes:
        for exporter in exporters:
            yield Attempt(exporter=exporter, axes=open_)


def exporters_for(module: nn.Module, mode: str, opset: int | None) -> tuple[str, ...]:
    """In training the older one first: the newer takes batch norms for those of inference."""
    if opset is not None and opset < DYNAMO_OLDEST_OPSET:
        return (TORCHSCRIPT,)
    if mode == "infer":
        return (DYNAMO, TORCHSCRIPT)
    has_norms = any(isinstance(part, _BatchNorm) for part in module.modules())
    return (TORCHSCRIPT,) if has_norms else (TORCHSCRIPT, DYNAMO)


def find_axes(
    module: nn.Module, subject: Subject, settings: ExportSettings
) -> tuple[list[Axes], list[str]]:
    """What may be left open, most first and nothing last; and what cannot be, in words."""
    if settings.is_static:
        return [{}], []
    size = _traced_batch(subject)
    shapes = call(module, subject.feed(size, None)).shapes()
    larger = call(module, subject.feed(size + 1, None)).shapes()
    batch = open_axes(shapes, larger, name=BATCH, size=size)
    if batch is None or not names_in(batch):
        return [{}], ["the batch is fixed: the model takes a list of samples"]
    if subject.other_seq_len is None or subject.seq_len is None:
        return [batch, {}], []
    shorter = call(module, subject.feed(size, subject.other_seq_len)).shapes()
    sequence = open_axes(shapes, shorter, name=SEQUENCE, size=subject.seq_len)
    if sequence is None or not names_in(sequence):
        return [batch, {}], []
    return [joined(batch, sequence), batch, {}], []


def traced_call(module: nn.Module, subject: Subject, settings: ExportSettings) -> Call:
    size = subject.batch_size if settings.is_static else _traced_batch(subject)
    return call(module, subject.feed(size, None))


def _traced_batch(subject: Subject) -> int:
    return max(subject.batch_size, LEAST_OPEN)


# ---------------------------------------------------------------- checks


def checked(
    module: nn.Module, subject: Subject, settings: ExportSettings, attempt: Attempt,
    traced: Traced, path: Path, tell: Tell,
) -> tuple[tuple[Checked, ...], list[str]]:  # fmt: skip
    """Both checks: the file's form, and its answers at each size; and what could not be checked."""
    if not settings.is_checked:
        return (), ["not checked"]
    from ridgeline.onnx.export import checking

    tell("onnx.checker")
    checking.check_valid(path)
    runner = checking.Runner(path)
    random = sorted(traced.operators() & RANDOM)
    if subject.mode == "train" and random:
        return (), [f"not compared with torch: {', '.join(random)} draws random numbers"]
    found = []
    for batch, tokens in sizes_to_check(subject, attempt.axes, is_static=settings.is_static):
        tell(f"onnxruntime and torch, batch {batch}")
        given = call(module, subject.feed(batch, tokens))
        expected, answers = run(module, given), runner.run(given.tensors())
        tokens = tokens or subject.seq_len
        with _explained(traced):
            found.append(checking.compared(expected, answers, batch_size=batch, seq_len=tokens))
        if recorded.has_values(traced.fixed):
            tell("onnxruntime and torch, other inputs")
            _check_others(module, given, runner, batch, traced)
    return tuple(found), []


def _check_others(
    module: nn.Module, given: Call, runner: Runner, batch: int, traced: Traced
) -> None:
    """Inputs that may take another way than the one that was traced."""
    from ridgeline.onnx.export import checking

    for words, other in checking.others(given):
        try:
            expected = run(module, other)
        except Exception:  # the model need not take any input
            continue
        with _explained(traced, words):
            answers = runner.run(other.tensors())
            checking.compared(expected, answers, batch_size=batch, seq_len=None)


@contextmanager
def _explained(traced: Traced, words: str = "") -> Iterator[None]:
    """Where something was fixed, that is why the answers differ."""
    try:
        yield
    except RidgelineError as error:
        why = "; ".join(recorded.notes(traced.fixed, has_open=False))
        if not why:
            raise
        problem = f"the file does not compute what the model does{words}: {why}"
        raise RidgelineError(problem, hint=error.hint) from error


def sizes_to_check(
    subject: Subject, axes: Axes, *, is_static: bool
) -> list[tuple[int, int | None]]:
    """Batch and tokens: as asked, and if they are open another of each that was not traced."""
    names = names_in(axes)
    if BATCH not in names:
        return [(subject.batch_size if is_static else _traced_batch(subject), None)]
    other = subject.other_seq_len if SEQUENCE in names else None
    untraced = subject.batch_size + 2  # one more could be the batch that was traced
    return [(subject.batch_size, None), (untraced, other)]


# ---------------------------------------------------------------- words


def _fallen_back(failures: list[tuple[Attempt, Exception]]) -> list[str]:
    """What was tried before; a reason that several have in common is told once."""
    tried: dict[str, list[str]] = {}
    for attempt, error in failures:
        tried.setdefault(_reason(error), []).append(str(attempt))
    return [f"not by {'; '.join(ways)}: {reason}" for reason, ways in tried.items()]


def _reason(error: BaseException) -> str:
    """What went wrong first, without the colours that torch writes."""
    if isinstance(error, RidgelineError):
        return error.problem
    while error.__cause__ is not None:
        error = error.__cause__
    return COLOURS.sub("", one_line(error, 200))


def _mode_notes(subject: Subject) -> list[str]:
    if subject.mode != "train":
        return []
    return [
        "the forward pass as in training: torch's exporters write no backward pass and no optimizer"
    ]


def _exported(
    subject: Subject, traced: Traced, path: Path, checks: tuple[Checked, ...], notes: list[str]
) -> Exported:
    data = data_file(path)
    return Exported(
        model=subject.name,
        path=path,
        mode=subject.mode,
        exporter=traced.exporter,
        opset=traced.opset,
        nodes=traced.nodes,
        inputs=ports(traced.graph.graph.inputs),
        outputs=ports(traced.graph.graph.outputs),
        file_bytes=path.stat().st_size,
        data_bytes=data.stat().st_size if data.exists() else 0,
        checks=checks,
        notes=tuple(notes),
    )


def _nothing_worked(subject: Subject, failures: list[tuple[Attempt, Exception]]) -> RidgelineError:
    tried = "; ".join(_fallen_back(failures))
    first = failures[0][1]
    hints = [error.hint for _, error in failures if isinstance(error, RidgelineError)]
    hint = hints[-1] if hints else "--debug shows where it happened"
    error = RidgelineError(f"{subject.name} cannot be exported: {tried}", hint=hint)
    error.__cause__ = first
    return error
