"""A study in a few sentences: how fast it could be and is, what holds it back, what to try.

The terminal, the page and report.md say the same because they take it from here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ridgeline.report.study import Study
from ridgeline.units import format_percent, format_time, si

if TYPE_CHECKING:
    import pandas as pd

MOST_SENTENCES = 6
TOP = 3
NEAR = 0.8  # of its floor: little is left
WORDS = {
    "compute": "arithmetic",
    "dram": "moving data from and to memory",
    "l3": "moving data through the L3 cache",
    "l2": "moving data through the L2 cache",
    "l1": "moving data through the L1 cache",
    "launch": "launching kernels",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """One run beside its roofs. What is not known is None."""

    run_id: str
    model: str
    env: str
    mode: str
    precision: str
    batch_size: int
    samples_per_s: float
    step_time_s: float
    floor_s: float | None
    fused_floor_s: float | None  # if each tensor moved once
    bound: str | None
    efficiency: float | None
    busy_fraction: float | None
    energy_j_per_sample: float | None
    flag: str = ""

    @property
    def title(self) -> str:
        kind = "training" if self.mode == "train" else "inference"
        return f"{self.model}, batch {self.batch_size}, {self.precision} {kind}"

    @property
    def possible_samples_per_s(self) -> float | None:
        """At the floor."""
        return self.samples_per_s / self.efficiency if self.efficiency else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The answer in words, and what it rests on."""

    headline: tuple[str, ...]
    configurations: tuple[Configuration, ...]
    findings: tuple[dict[str, Any], ...]  # the largest headrooms, with meaning and advice


def summary(study: Study, *, top: int = TOP) -> Summary:
    """What a study found."""
    found = configurations(study)
    findings = study.top_findings(top).to_dict("records") if len(study.findings) else []
    return Summary(
        headline=tuple(_headline(found)),
        configurations=tuple(found),
        findings=tuple({str(k): v for k, v in row.items()} for row in findings),
    )


def configurations(study: Study) -> list[Configuration]:
    """Every run beside its roofs, in the order they were made."""
    if study.runs.empty:
        return []
    steps = study.points[study.points["grain"].eq("step")] if len(study.points) else study.points
    by_run = {str(row["run_id"]): row for row in _records(steps.sort_values("provenance"))[::-1]}
    return [_configuration(row, by_run.get(str(row["run_id"]), {})) for row in _records(study.runs)]


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(k): v for k, v in row.items()} for row in table.to_dict("records")]


def _configuration(run: dict[str, Any], step: dict[str, Any]) -> Configuration:
    bound = step.get("bound")
    return Configuration(
        run_id=str(run["run_id"]),
        model=str(run["model"]),
        env=str(run["env"]),
        mode=str(run["mode"]),
        precision=str(run["precision"]),
        batch_size=int(run["batch_size"]),
        samples_per_s=_samples_per_s(run),
        step_time_s=float(run["step_median_s"]),
        floor_s=_number(step.get("floor_s")),
        fused_floor_s=_number(step.get("fused_floor_s")),
        bound=bound if isinstance(bound, str) else None,
        efficiency=_number(step.get("efficiency")),
        busy_fraction=_number(run.get("busy_fraction")),
        energy_j_per_sample=_number(run.get("energy_j_per_sample")),
        flag=str(step.get("flag") or ""),
    )


def _samples_per_s(run: dict[str, Any]) -> float:
    """Of the median step, as efficiency is; slow outliers are told by the interval beside it."""
    each = float(run["images_processed"]) / float(run["measured_iters"])
    return each / float(run["step_median_s"])


def _number(value: Any) -> float | None:
    if value is None or value != value:
        return None
    return float(value)


def _headline(found: list[Configuration]) -> list[str]:
    """A sentence or two about the fastest configuration of each model and machine."""
    best: dict[tuple[str, ...], Configuration] = {}
    for one in found:
        key = (one.model, one.env, one.mode)
        if key not in best or one.samples_per_s > best[key].samples_per_s:
            best[key] = one
    sentences = [sentence(one) for one in best.values()]
    if len(sentences) > MOST_SENTENCES:
        left = len(sentences) - MOST_SENTENCES
        sentences = [*sentences[:MOST_SENTENCES], f"And {left} more; the table has them all."]
    return sentences


def sentence(one: Configuration) -> str:
    """How fast a configuration is, how fast it could be, and what bounds it."""
    text = f"{one.title}, runs at {si(one.samples_per_s)} samples/s on {one.env}"
    possible = one.possible_samples_per_s
    if one.bound is None or possible is None or one.floor_s is None:
        return text + "; how fast it could be is not known: it has no count or no roofs."
    text += (
        f" ({format_time(one.step_time_s)} a step). The roofs would allow {si(possible)}"
        f" ({format_time(one.floor_s)}): it reaches {format_percent(one.efficiency or 0)}."
        f" What sets the floor is {WORDS.get(one.bound, one.bound)}."
    )
    if one.fused_floor_s and one.fused_floor_s < NEAR * one.floor_s:
        text += f" With all operators fused, it would be {format_time(one.fused_floor_s)}."
    if one.busy_fraction is not None and one.busy_fraction < NEAR:
        idle = format_percent(1 - one.busy_fraction)
        text += f" For {idle} of the step the GPU waits for the host."
    return text
