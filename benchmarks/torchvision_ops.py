"""Forward products of torchvision's classification models against what torchvision publishes."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.peers import ALL, FLOP_COUNTER, OURS, Answer, Counter, ask
from benchmarks.report import Report, Table, one_line

if TYPE_CHECKING:
    from torch import Tensor, nn

ROUNDING_GMACS = 0.0005 + 1e-9  # published with three decimals
CPU_LIMIT_GMACS = 4.5  # beyond it, only ridgeline and FlopCounterMode run on the CPU
ROUNDS = 2  # alternated; the best time counts
Answers = dict[str, list[Answer | None]]  # by counter, a place for every case


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A model at the resolution of some of its published weights."""

    name: str
    size: int
    gmacs: float

    def build(self, device: str) -> tuple[nn.Module, Tensor]:
        """The module with random weights, and one image."""
        import torch
        from torchvision import models

        options: dict[str, Any] = {"image_size": self.size} if self.name.startswith("vit_") else {}
        if self.name in ("googlenet", "inception_v3"):
            options["init_weights"] = False  # takes minutes, and changes no shape
        with torch.device(device):
            module = build(partial(models.get_model, self.name, weights=None, **options))
            return module.eval(), torch.zeros(1, 3, self.size, self.size)


def build(make: Callable[[], nn.Module]) -> nn.Module:
    """A module on the default device; RegNet works out its widths, which a CPU can do."""
    import torch

    try:
        return make()
    except (NotImplementedError, RuntimeError):
        with torch.device("cpu"):
            return make().to("meta")


def run() -> Report:
    """Every case on meta, then on the CPU, all counters one after another on each."""
    from rich.progress import track

    cases = find_cases()
    meta: Answers = {counter.name: [] for counter in ALL}
    cpu: Answers = {counter.name: [] for counter in ALL}
    for case in track(cases, "on meta"):
        add(meta, case, "meta", ALL, ROUNDS)
    for case in track(cases, "on the CPU"):
        small = case.gmacs <= CPU_LIMIT_GMACS
        add(cpu, case, "cpu", ALL if small else (OURS, FLOP_COUNTER), 1)
    rows = [row(counter, cases, meta[counter.name], cpu[counter.name], meta) for counter in ALL]
    return Report(
        title="Forward products against torchvision's published figures",
        summary=[summary(cases, meta, cpu)],
        tables=[
            Table(
                columns=("counter", "meta: exact", "median / max error", "CPU: exact",
                         "median / max error", "time on meta"),
                rows=rows,
            ),
            wrong("Not exact or not run: ridgeline and FlopCounterMode", cases, meta, cpu),
            errors(meta, cpu),
        ],
        notes=notes(cases, cpu),
        uses_peers=True,
    )  # fmt: skip


def find_cases() -> list[Case]:
    """Every classification model × resolution with a published `_ops`."""
    from torchvision import models

    found: dict[tuple[str, int], Case] = {}
    for name in models.list_models(module=models):
        for weights in models.get_model_weights(name):
            size = weights.transforms().crop_size[0]
            case = Case(name=name, size=size, gmacs=weights.meta["_ops"])
            found.setdefault((name, size), case)
    return list(found.values())


def add(answers: Answers, case: Case, device: str, asked: Sequence[Counter], rounds: int) -> None:
    """Ask each counter about one case; those that are not asked get None."""
    module, image = case.build(device)
    rounds_of = [{c.name: ask(c, module, (image,)) for c in asked} for _ in range(rounds)]
    for counter in ALL:
        given = [answered[counter.name] for answered in rounds_of if counter.name in answered]
        answers[counter.name].append(min(given, key=lambda a: a.time_s) if given else None)
    del module, image
    gc.collect()


def row(
    counter: Counter,
    cases: Sequence[Case],
    meta: Sequence[Answer | None],
    cpu: Sequence[Answer | None],
    all_meta: Answers,
) -> tuple[object, ...]:
    ratio = time_ratio(meta, all_meta[FLOP_COUNTER.name])
    return (counter.name, *exactness(cases, meta), *exactness(cases, cpu), ratio)


def exactness(cases: Sequence[Case], answers: Sequence[Answer | None]) -> tuple[str, str]:
    """`80/86`, and `0.004 / 1.2 %` over those that gave a number."""
    asked = [(case, answer) for case, answer in zip(cases, answers, strict=True) if answer]
    right = sum(is_exact(case, answer) for case, answer in asked)
    counted = [error_percent(c, a.macs) for c, a in asked if a.macs is not None]
    if not counted:
        return f"{right}/{len(asked)}", "cannot run"
    failed = len(asked) - len(counted)
    text = f"{median(counted):.2g} / {max(counted):.3g} %"
    return f"{right}/{len(asked)}", text + (f", {failed} not run" if failed else "")


def is_exact(case: Case, answer: Answer | None) -> bool:
    return (
        answer is not None
        and answer.macs is not None
        and abs(answer.macs / 1e9 - case.gmacs) <= ROUNDING_GMACS
    )


def error_percent(case: Case, macs: int) -> float:
    return 100 * abs(macs / 1e9 / case.gmacs - 1)


def time_ratio(answers: Sequence[Answer | None], base: Sequence[Answer | None]) -> str:
    """Geometric mean over the cases that ran, FlopCounterMode = 1."""
    ratios = [
        answer.time_s / other.time_s
        for answer, other in zip(answers, base, strict=True)
        if answer and other and answer.macs is not None and other.macs is not None
    ]
    if not ratios:
        return "–"
    return f"{math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f}"


def summary(cases: Sequence[Case], meta: Answers, cpu: Answers) -> str:
    ours = [f"{exactness(cases, a[OURS.name])[0]} {where}" for a, where in
            ((meta, "on meta"), (cpu, "on the CPU"))]  # fmt: skip
    theirs = [exactness(cases, a[FLOP_COUNTER.name])[0] for a in (meta, cpu)]
    return (
        f"**ridgeline is exact in {ours[0]} and {ours[1]}; FlopCounterMode in {theirs[0]} and "
        f"{theirs[1]}.** Exact means within the rounding of the published figure, 0.0005 GMACs; "
        "errors of exact counters are this rounding."
    )


def wrong(title: str, cases: Sequence[Case], meta: Answers, cpu: Answers) -> Table:
    rows = [
        (counter.name, f"{case.name} at {case.size}", where, case.gmacs, said(answer))
        for counter in (OURS, FLOP_COUNTER)
        for where, answers in (("meta", meta), ("CPU", cpu))
        for case, answer in zip(cases, answers[counter.name], strict=True)
        if not is_exact(case, answer)
    ]
    return Table(
        title=title,
        columns=("counter", "case", "on", "published GMACs", "found"),
        rows=rows or [("none", "", "", "", "")],
        text_columns=3,
    )


def said(answer: Answer | None) -> str:
    if answer is None:
        return "not asked"
    return one_line(answer.error, 100) if answer.macs is None else f"{answer.macs / 1e9:.3f}"


def errors(meta: Answers, cpu: Answers) -> Table:
    """Why a counter gave no number, an example each."""
    rows = []
    for where, answers in (("meta", meta), ("CPU", cpu)):
        for name, given in answers.items():
            failed = [a.error for a in given if a and a.macs is None]
            if failed:
                rows.append((name, where, one_line(failed[0], 200), len(failed)))
    return Table(
        title="Counters that raised",
        columns=("counter", "on", "the first error", "cases"),
        rows=rows or [("none", "", "", "")],
        text_columns=3,
    )


def notes(cases: Sequence[Case], cpu: Answers) -> list[str]:
    asked = sum(answer is not None for answer in cpu["ptflops"])
    return [
        f"{len({case.name for case in cases})} models, {len(cases)} model × resolution "
        "cases, batch "
        "1, eval mode. On the CPU the module is built with real weights and handed over as it is; "
        f"the {asked} cases of at most {CPU_LIMIT_GMACS} GMACs are given to every "
        "counter there, the "
        "larger ones to ridgeline and FlopCounterMode.",
        f"Time is the geometric mean of the ratio to FlopCounterMode, best of {ROUNDS} alternated "
        "calls, on meta. What ridgeline does in that time includes the bytes and all other "
        "operators.",
    ]
