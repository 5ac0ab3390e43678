"""A study in a few sentences: how fast it could be and is, what holds it back, what to try.

The terminal, the page and report.md say the same because they take it from here.
"""

from __future__ import annotations

from collections.abc import Iterable

from ridgeline.report.configurations import NETWORK, Case
from ridgeline.report.study import BUSY, Study
from ridgeline.report.text import counted, group_by, listed, number, three_digits
from ridgeline.units import format_percent, format_time

MOST_SENTENCES = 6
MOST_NAMES = 3  # in a title
TASK = ("env", "backend", *NETWORK, "mode", "input_size", "seq_len")
NEAR = 0.8  # of its floor: little is left
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


def name_study(study: Study) -> str:
    """`resnet50 and vgg16 on nvidia-h200`: the title of what is written about a study."""
    if study.runs.empty and study.captures.empty:
        return "no runs"
    if study.runs.empty:
        return _name_few(study.captures["label"], "capture")
    machines = _name_few(study.runs["env"], "machine")
    return f"{_name_few(study.runs['model'], 'model')} on {machines}"


def _name_few(names: Iterable[str], kind: str) -> str:
    """Up to three names; of more, how many there are."""
    unique = list(dict.fromkeys(map(str, names)))
    return listed(unique) if len(unique) <= MOST_NAMES else counted(len(unique), kind)


def write_headline(study: Study) -> list[str]:
    """A sentence or two about the fastest configuration of each task."""
    sentences = [describe_case(case) for case in find_fastest(study)]
    if len(sentences) > MOST_SENTENCES:
        left = len(sentences) - MOST_SENTENCES
        sentences = [*sentences[:MOST_SENTENCES], f"And {left} more; the table has them all."]
    return sentences


def find_fastest(study: Study) -> list[Case]:
    """The fastest configuration of each task: a network on a machine, trained or run."""
    keys = (tuple(case.settings[name] for name in TASK) for case in study.cases)
    tasks = group_by(study.cases, keys).values()
    return [max(same, key=lambda case: case.samples_per_s) for same in tasks]


def describe_case(case: Case) -> str:
    """How fast a configuration is, how fast it could be, and what bounds it."""
    text = f"{case.title}, runs at {three_digits(case.samples_per_s)} samples/s on {case.env}"
    floor_s, efficiency = case.floor_s, case.efficiency
    if case.bound is None or not efficiency or floor_s is None:
        return text + "; how fast it could be is not known: it has no count or no roofs."
    text += (
        f" ({format_time(case.step_s)} a step). The roofs would allow"
        f" {three_digits(case.samples_per_s / efficiency)} ({format_time(floor_s)}): it reaches"
        f" {format_percent(efficiency)}."
        f" What sets the floor is {WORDS.get(case.bound, case.bound)}."
    )
    fused_floor_s = number(case.step.get("fused_floor_s"))  # if each tensor moved once
    if fused_floor_s and fused_floor_s < NEAR * floor_s:
        text += f" With all operators fused, it would be {format_time(fused_floor_s)}."
    busy_fraction = number(case.run.get("busy_fraction"))
    if busy_fraction is not None and busy_fraction < NEAR:
        text += f" For {format_percent(1 - busy_fraction)} of the step the GPU waits for the host."
    caution = describe_caution(case)
    return f"{text} Caution: {caution}." if caution else text


def describe_caution(case: Case) -> str:
    """What is to be said with the numbers where the steps were not steady."""
    if disturbed := case.run.get("disturbed"):
        return f"{BUSY} ({disturbed}); measure again when it is quiet"
    low, high = (number(case.run.get(f"step_interval_{end}_s")) for end in ("low", "high"))
    if low is None or high is None:
        return "too few steps to say how sure that is"
    if high - low <= UNSTEADY * case.step_s:
        return ""
    return (
        f"unsteady: the median step is between {format_time(low)} and {format_time(high)}"
        " (95 %); measure again when the machine is quiet"
    )
