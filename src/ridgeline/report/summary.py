"""A study in a few sentences: how fast it could be and is, what holds it back, what to try.

The terminal, the page and report.md say the same because they take it from here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ridgeline.report.cases import NETWORK, Case, cases, samples_per_s
from ridgeline.report.study import BUSY, Study
from ridgeline.report.text import number, records
from ridgeline.units import format_percent, format_time, si

MOST_SENTENCES = 6
TOP = 3
TASK = ("env", "backend", *NETWORK, "mode", "input_size", "seq_len")
NEAR = 0.8  # of its floor: little is left
SAME_FLOOR = 0.005  # of the step's floor: a difference that no table shows
UNSTEADY = 0.1  # of the step: an interval wider than that is told
WORDS = {
    "compute": "arithmetic",
    "dram": "moving data from and to memory",
    "l3": "moving data through the L3 cache",
    "l2": "moving data through the L2 cache",
    "l1": "moving data through the L1 cache",
    "launch": "launching kernels",
    "system": "the operating system",
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
    title: str  # "resnet50, batch 32, amp training"
    task: tuple[Any, ...]  # equal for those that do the same, however fast
    samples_per_s: float
    step_time_s: float
    floor_s: float | None
    fused_floor_s: float | None  # if each tensor moved once
    bound: str | None
    efficiency: float | None
    work: str | None  # where its FLOPs and bytes are from: "static" or "counter"
    busy_fraction: float | None
    energy_j_per_sample: float | None
    interval_s: tuple[float, float] | None = None  # 95 %, of the step's median
    flag: str = ""
    disturbed: str = ""  # how it shows that the machine was busy

    @property
    def caution(self) -> str:
        """Said with the numbers where the steps were not steady."""
        if self.disturbed:
            return f"{BUSY} ({self.disturbed}); measure again when it is quiet"
        if self.interval_s is None:
            return "too few steps to say how sure that is"
        low, high = self.interval_s
        if high - low <= UNSTEADY * self.step_time_s:
            return ""
        return (
            f"unsteady: the median step is between {format_time(low)} and {format_time(high)}"
            " (95 %); measure again when the machine is quiet"
        )

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
    findings = records(study.top_findings(top)) if len(study.findings) else []
    return Summary(
        headline=tuple(_headline(found)),
        configurations=tuple(found),
        findings=tuple(findings),
    )


def floor_notes(study: Study) -> dict[str, str]:
    """By run: why the floors of its layers add up to more than that of its step, where they do."""
    if study.points.empty:
        return {}
    ranked = study.points.sort_values("provenance", kind="stable")  # counters before counts
    layers = ranked[ranked["grain"].eq("layer") & ranked["phase"].eq("all")]
    sums = layers.drop_duplicates(["run_id", "layer"]).groupby("run_id")["floor_s"].sum()
    steps = ranked[ranked["grain"].eq("step")].drop_duplicates("run_id").set_index("run_id")
    floors = steps["floor_s"].reindex(sums.index)
    return {
        str(run_id): _floor_note(float(sum_s), float(floor_s))
        for run_id, sum_s, floor_s in zip(sums.index, sums, floors, strict=True)
        if sum_s > (1 + SAME_FLOOR) * floor_s
    }


def _floor_note(sum_s: float, floor_s: float) -> str:
    return (
        f"The floors of the layers add up to {format_time(sum_s)}, more than the"
        f" {format_time(floor_s)} of the step: a layer's floor is the largest of its own terms"
        " (arithmetic, memory, launches), and the step's is the largest of their sums."
    )


def configurations(study: Study) -> list[Configuration]:
    """Every run beside its roofs, in the order they were made."""
    if study.runs.empty:
        return []
    steps = study.points[study.points["grain"].eq("step")] if len(study.points) else study.points
    by_run = {str(row["run_id"]): row for row in records(steps.sort_values("provenance"))[::-1]}
    of_run = {run_id: case for case in cases(study) for run_id in case.run_ids}
    return [
        _configuration(row, of_run[run_id], by_run.get(run_id, {}))
        for row in records(study.runs)
        if (run_id := str(row["run_id"]))
    ]


def _configuration(run: dict[str, Any], case: Case, step: dict[str, Any]) -> Configuration:
    bound = step.get("bound")
    return Configuration(
        run_id=str(run["run_id"]),
        model=str(run["model"]),
        env=str(run["env"]),
        mode=str(run["mode"]),
        precision=str(run["precision"]),
        batch_size=int(run["batch_size"]),
        title=case.title,
        task=tuple(case.settings[name] for name in TASK),
        samples_per_s=samples_per_s(run),
        step_time_s=float(run["step_median_s"]),
        floor_s=number(step.get("floor_s")),
        fused_floor_s=number(step.get("fused_floor_s")),
        bound=bound if isinstance(bound, str) else None,
        efficiency=number(step.get("efficiency")),
        work=str(step["provenance"]) if step else None,
        busy_fraction=number(run.get("busy_fraction")),
        energy_j_per_sample=number(run.get("energy_j_per_sample")),
        interval_s=_interval(run),
        flag=str(step.get("flag") or ""),
        disturbed=str(run.get("disturbed") or ""),
    )


def _headline(found: list[Configuration]) -> list[str]:
    """A sentence or two about the fastest configuration of each task."""
    best: dict[tuple[Any, ...], Configuration] = {}
    for one in found:
        if one.task not in best or one.samples_per_s > best[one.task].samples_per_s:
            best[one.task] = one
    sentences = [sentence(one) for one in best.values()]
    if len(sentences) > MOST_SENTENCES:
        left = len(sentences) - MOST_SENTENCES
        sentences = [*sentences[:MOST_SENTENCES], f"And {left} more; the table has them all."]
    return sentences


def _interval(run: dict[str, Any]) -> tuple[float, float] | None:
    low, high = (run.get(f"step_interval_{end}_s") for end in ("low", "high"))
    if low is None or high is None or low != low or high != high:
        return None
    return float(low), float(high)


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
    return f"{text} Caution: {one.caution}." if one.caution else text
