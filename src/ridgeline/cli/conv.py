"""`ridgeline conv`: every convolution under every algorithm."""

from __future__ import annotations

import sys
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from ridgeline.cli import messages
from ridgeline.cli import options as opt
from ridgeline.cli.step_options import InProcess, Step
from ridgeline.cli.tables import NOT_KNOWN, Grid, print_grid, print_text
from ridgeline.errors import RidgelineError
from ridgeline.settings import ALGORITHMS, check_mode
from ridgeline.signals import interrupts_later, interrupts_noted
from ridgeline.units import format_time

if TYPE_CHECKING:
    import pandas as pd

    from ridgeline.pipeline.convolutions import ConvStudy
    from ridgeline.report.convolutions import Convolutions

EXAMPLES = """
[bold]Examples[/]

  ridgeline conv resnet18
  ridgeline conv resnet50 -b 16 --precision tf32 --mode train --engines
  ridgeline conv --shape 1,64,56,56,64,3,3,1,1       (n,c,h,w,k,r,s[,stride,pad,dilation,groups])
  ridgeline conv --list-algorithms
  ridgeline conv resnet18 --json | jq '.losses[] | {layer, best, lost}'

[bold]Exit code[/]: 0 all went well; 2 something asked for is not possible; 3 a measurement failed;
130 interrupted. What was measured is kept and not measured again.
"""
UNSTEADY_NOTE = (
    "in doubt: samples vary much, so the machine was busy; --again when it is quiet, or one thread"
    " (OMP_NUM_THREADS=1)"
)
PRECISIONS = ("fp32", "tf32", "fp16", "bf16")
WHAT, NETWORK = "What is measured", "Whole networks"
what = partial(opt.option, rich_help_panel=WHAT)
ABOUT = {
    "default": "what PyTorch does; on a CPU with the implementation that oneDNN names",
    "benchmark": "PyTorch's benchmark mode: it tries cuDNN's plans first",
    "direct": "multiply-adds one after the other; on a GPU a Triton kernel of our own",
    "gemm": "im2col, then a matrix product",
    "implicit gemm": "a matrix product that reads the windows itself",
    "implicit precomp gemm": "the same with addresses computed beforehand",
    "fft": "a product of spectra",
    "fft tiling": "the same in tiles",
    "winograd": "F(2x2,3x3); on a GPU cuDNN's fused kernel, which refuses all shapes today",
    "winograd 4x4": "F(4x4,3x3): fewer products, more error",
    "winograd nonfused": "cuDNN's, with transforms in kernels of their own",
    "guess": "what cuDNN's heuristic of the legacy interface names",
    "find": "the fastest of the others, measured at the first call",
}


@opt.takes_groups
def conv(
    step: Step,
    models: opt.Models = None,
    shape: list[str] | None = what(
        None, "n,c,h,w,k,r,s[,stride,pad,dilation,groups]; may be repeated.", "--shape"
    ),
    batch_sizes: Any = opt.batch_sizes(show_default="1", rich_help_panel=WHAT),
    input_sizes: opt.InputSizes = None,
    algorithm: str = what("all", "all, or names separated by commas.", choices=ALGORITHMS),
    precision: str = what("fp32", "fp32, tf32, fp16 or bf16.", choices=PRECISIONS),
    mode: opt.Mode = "infer",
    layers: str = what("", "Only layers whose name has this text.", metavar="NAME"),
    engines: bool = what(False, "Also every plan of cuDNN's graph interface.", "--engines"),
    network: bool = opt.option(True, "Also run the whole models.", "--network/--no-network",
                           rich_help_panel=NETWORK),
    again: bool = what(False, "Measure again what is stored.", "--again"),
    list_algorithms: bool = opt.option(False, "Show the algorithms.", "--list-algorithms"),
    list_models: bool = opt.option(False, "Show the models.", "--list-models"),
    in_process: InProcess = False,
    *,
    output: opt.Output,
) -> None:  # fmt: skip
    """Measure every convolution of a model under every algorithm, verified against float64.

    Each distinct shape is measured once and weighted by its use. Then the whole model runs under
    each algorithm. The answer: which algorithm is best for which layer, and what PyTorch's choice
    costs.
    """
    if list_models:
        return messages.show_models([], as_json=output.as_json)
    if list_algorithms:
        return _list_algorithms(output)
    check_mode(mode)
    if not models and not shape:
        raise RidgelineError(
            "no model and no shape was named",
            hint="for example: ridgeline conv resnet18, or --shape 1,64,56,56,64,3,3,1,1",
        )
    from ridgeline.pipeline.cases import Executor
    from ridgeline.pipeline.convolutions import ConvSelection, ConvStudy, make_shape
    from ridgeline.store import ResultsFolder

    (settings,) = step.settings(precision)
    selection = ConvSelection(
        models=tuple(dict.fromkeys(models or ())),
        shapes=tuple(make_shape(text.split(",")) for text in shape or ()),
        batch_sizes=batch_sizes or (1,),
        input_sizes=input_sizes or (None,),
        algorithms=parse_algorithms(algorithm),
        mode=mode,
        settings=settings,
        layers=layers,
        engines=engines,
        in_network=network,
        again=again,
    )
    results = ResultsFolder(output.results)
    results.check_writable()
    executor = Executor(in_process=in_process)
    study = ConvStudy(results=results, selection=selection, executor=executor)
    _measure(study, output)


def _measure(study: ConvStudy, output: opt.Output) -> None:
    """Measure, with what was measured shown also after an interrupt."""
    from ridgeline.cli.interrupts import stopped_at_once
    from ridgeline.cli.progress import progress_bar

    interrupts: list[int] = []
    with stopped_at_once(), suppress(ImportError, OSError):
        import pandas  # noqa: F401
    with interrupts_noted(interrupts):
        with progress_bar(1, quiet=output.quiet) as progress:
            study.progress = progress
            total = study.prepare()
        with progress_bar(total, quiet=output.quiet) as progress:
            study.progress = progress
            study.run()
    with interrupts_noted(interrupts), interrupts_later():
        show(study, output)
    if interrupts:
        messages.end_interrupted(f"; passes kept: {study.measured + study.kept}")
    study.check_possible()
    if study.runner is not None:
        messages.end_runs(study.runner)
    if study.failures:
        sys.exit(messages.SOME_FAILED)


# ---------------------------------------------------------------- options


def parse_algorithms(text: str) -> tuple[str, ...]:
    """`gemm,winograd 4x4` as names; `all` stands for those of the device."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in names:
        if name not in (*ALGORITHMS, "all"):
            raise RidgelineError(
                f"unknown algorithm {name!r}", hint=f"choose all, {', '.join(ALGORITHMS)}"
            )
    return names


def _list_algorithms(output: opt.Output) -> None:
    rows = [{"algorithm": name, "about": about} for name, about in ABOUT.items()]
    if output.as_json:
        messages.print_json(rows)
    else:
        _print_texts(rows, names=2)


# ---------------------------------------------------------------- what is shown


def show(study: ConvStudy, output: opt.Output) -> None:
    """The answer of what is measured: tables for people, JSON for programs."""
    from ridgeline.report.convolutions import to_json
    from ridgeline.report.views import write_views

    found = study.answer()
    if output.as_json:
        messages.print_json(to_json(found.rows, found.networks, found.losses))
    else:
        _show_tables(found)
    messages.show_notes(study.problems)
    for text in study.failures:
        messages.show_problem(f"{text}\n  hint: the other algorithms and shapes were measured")
    if study.runner is not None and study.runner.completed:
        write_views(study.results)
    if not output.quiet:
        kept = f", {study.kept} were stored before" if study.kept else ""
        messages.show_message(
            f"{study.measured} passes measured{kept}; runs are in {study.results.runs_path}"
        )


def _show_tables(found: Convolutions) -> None:
    from ridgeline.report.convolutions import describe_totals, largest_losses, whole_networks

    if found.rows.empty:
        return
    for model, of_model in found.rows.groupby("model", sort=False):
        print_text(f"{str(model) or 'Single convolutions'}: time of a call", style="bold")
        print_grid(_times_grid(of_model))
    losses = found.losses
    if len(losses):
        print_text("What PyTorch's choice costs", style="bold")
        _print_texts(largest_losses(found), names=3)
        for sentence in describe_totals(found):
            print_text(sentence)
        if losses["doubt"].ne("").any():
            print_text(UNSTEADY_NOTE)
    if len(found.networks):
        print_text("Whole networks", style="bold")
        _print_texts(whole_networks(found), names=2)
    _print_reasons(found.rows)


def _print_texts(rows: list[dict[str, str]], *, names: int) -> None:
    if rows:
        cells = [[*row.values()] for row in rows]
        print_grid(Grid(header=[*rows[0]], rows=cells, text_columns=names))


def _times_grid(rows: pd.DataFrame) -> Grid:
    """A row per layer and pass, a column per algorithm; the best one is marked."""
    from ridgeline.report.text import records

    names = [name for name in ALGORITHMS if name in set(rows["algorithm"])]
    names += [name for name in rows["algorithm"].unique() if name not in names]
    cells = []
    keys = ["batch_size", "input_size", "layer", "uses", "shape", "phase"]
    for key, group in rows.groupby(keys, sort=False, dropna=False):
        of = {str(row["algorithm"]): row for row in records(group)}
        right = {name: row["time_s"] for name, row in of.items()
                 if row["status"] == "ok" and row["time_s"]}  # fmt: skip
        best = min(right, key=lambda name: right[name], default="")
        times = [_cell(of.get(name)) + ("*" if name == best else "")
                 for name in names]  # fmt: skip
        _, size, layer, uses, shape, phase = map(str, key)
        cells.append([layer or NOT_KNOWN, size, shape, phase, f"{uses}x", *times])
    header = ["layer", "input", "shape", "pass", "uses", *names]
    return Grid(header=header, rows=cells, text_columns=4)


def _cell(row: dict[str, Any] | None) -> str:
    """A time; of what is not ranked, why."""
    if row is None or row["status"] == "refused":
        return NOT_KNOWN
    if row["status"] == "ok":
        return format_time(row["time_s"])
    return str(row["precision_computed"] or row["status"])


def _print_reasons(rows: pd.DataFrame) -> None:
    """Why algorithms are not in the comparison, each reason once."""
    others = rows[rows["status"].ne("ok")]
    for (name, status), group in others.groupby(["algorithm", "status"], sort=False):
        reasons = list(dict.fromkeys(group["reason"]))
        more = f"; and {len(reasons) - 2} more reasons" if len(reasons) > 2 else ""
        print_text(f"{name}, {status}: {'; '.join(reasons[:2])}{more}", style="dim")
