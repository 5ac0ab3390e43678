"""The stages of a matrix as cases: each with an id, in the order in which they run.

The id is a hash of what defines a case, so the same case in another file, stage or order is the
same case, and is run once. The order shows the whole range early: ends first, then the middles.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

from ridgeline.errors import RidgelineError
from ridgeline.records import CountRequest, WorkloadSpec
from ridgeline.report.configurations import word
from ridgeline.report.stored import count_key
from ridgeline.sensors.power_mode import POWER_KEYS
from ridgeline.settings import DEFAULT_BATCH, MEASURING, Settings
from ridgeline.sweep.matrix import OF_WHAT, WHAT, Stage
from ridgeline.workloads.sources import file_digest, workload_spec

ID_LENGTH = 12  # hexadecimal digits: two of a million cases are the same once in 600 sweeps
RANGES = ("batch_size", "input_size", "seq_len")  # dimensions with an order, and ends
SHOWN = ("model", "batch_size", "input_size", "seq_len", "mode", "precision")  # of a name, first
UNNAMED = ("config", "digest", "what", *MEASURING)
SETTINGS = {part.name: part.default for part in fields(Settings)}


@dataclass(frozen=True, kw_only=True)
class SweepCase:
    """One configuration of a sweep, and what is done with it."""

    spec: WorkloadSpec
    settings: Settings
    what: tuple[str, ...] = ("run",)
    repeat: int = 1
    digest: str | None = None  # of the Python file that the model comes from
    gpu: str = ""  # the kind that Slurm is to choose
    power: Mapping[str, float] = field(default_factory=dict)  # by POWER_KEYS, while it runs
    timeout_s: float | None = None

    @cached_property
    def definition(self) -> dict[str, Any]:
        """What defines the case: settings at their defaults are left out, so that new ones do not
        change the ids of old cases."""
        spec, settings = self.spec, vars(self.settings)
        values: dict[str, Any] = {
            "model": spec.model, "batch_size": spec.batch_size, "mode": spec.mode,
            "input_size": list(spec.input_size) if spec.input_size else None,
            "seq_len": spec.seq_len, "config": dict(spec.config) or None,
            "digest": self.digest, "gpu": self.gpu or None, **self.power,
            "repeat": self.repeat if self.repeat > 1 else None,
            **{name: settings[name] for name, usual in SETTINGS.items()
               if settings[name] != usual and name not in OF_WHAT},
        }  # fmt: skip
        return {k: v for k, v in values.items() if v is not None} | {"what": list(self.what)}

    @cached_property
    def case_id(self) -> str:
        text = json.dumps(self.definition, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:ID_LENGTH]

    @property
    def count_request(self) -> CountRequest:
        """What counts the step of the case."""
        settings = self.settings
        return CountRequest(**vars(self.spec), digest=self.digest, optimizer=settings.optimizer,
                            precision=settings.precision)  # fmt: skip

    @property
    def step_key(self) -> str:
        return count_key(self.count_request, self.settings.precision)

    @property
    def comparison(self) -> tuple[str, ...]:
        """Cases with the same one are compared with each other, so one device runs them all."""
        return (self.spec.model, self.spec.mode, self.gpu)

    @property
    def name(self) -> str:
        """`resnet50, batch 8, input 224, train, amp, channels last`."""
        known = {"precision": self.settings.precision} | self.definition
        size = {"input_size": "x".join(map(str, self.spec.input_size or ())) or None}
        shown = {name: known.get(name) for name in SHOWN} | {**known, **size}
        return ", ".join(filter(None, (word(name, value) for name, value in shown.items()
                                       if name not in UNNAMED)))  # fmt: skip


def plan_stage(stage: Stage, digests: Mapping[str, str] | None = None) -> list[SweepCase]:
    """The cases of a stage, each once, in the order in which they run.

    `digests` are those of models from Python files whose files are not looked into.
    """
    known: dict[str, str | None] = {**(digests or {})}
    chosen = list(stage.combinations())
    for model in {values["models"]: None for values in chosen}:
        known.setdefault(model, file_digest(model))
    made = [make_case(stage, values, repeat=repeat, digest=known[values["models"]])
            for repeat in range(1, stage.repeats + 1)
            for values in chosen]  # fmt: skip
    return list({case.case_id: case for case in order_cases(made)}.values())


def make_case(
    stage: Stage, values: Mapping[str, Any], *, repeat: int = 1, digest: str | None = None
) -> SweepCase:
    """The case of one combination; one that cannot be is an error that names it."""
    rest = dict(values)
    model = rest.pop("models")
    what = stage.what
    if "profile" in what and "run" not in what:
        what = tuple(one for one in WHAT if one in (*what, "run"))  # counters are of a run
    try:
        spec = workload_spec(
            model,
            rest.pop("batch_size", DEFAULT_BATCH),
            rest.pop("input_size", None),
            rest.pop("seq_len", None),
            rest.pop("config", None) or {},
            mode=rest.pop("mode", "train"),
        )
        gpu = rest.pop("gpu", "")
        power = {key: rest.pop(key) for key in POWER_KEYS if key in rest}
        settings = Settings(
            **rest,
            layers="layers" in what,
            energy=True if "energy" in what else None,
        )
    except RidgelineError as error:
        shown = ", ".join(f"{name}: {value}" for name, value in values.items())
        raise RidgelineError(
            f"{stage.place}: the stage {stage.name} has a combination that is not possible"
            f" ({shown}): {error.problem}",
            hint=f"{error.hint}; leave it out with `exclude`",
        ) from error
    return SweepCase(spec=spec, settings=settings, what=what, repeat=repeat, digest=digest,
                     gpu=gpu, power=power, timeout_s=stage.timeout_s)  # fmt: skip


# ---------------------------------------------------------------- order


def order_cases(cases: Sequence[SweepCase]) -> list[SweepCase]:
    """Cases of one comparison together; first repeats, ends and middles of ranges before the rest.

    Within a comparison a case comes as late as the most of its values on a range comes.
    """
    ranks = {name: rank_values(_read_range(case, name) for case in cases) for name in RANGES}
    groups = {case.comparison: None for case in cases}
    order = {group: place for place, group in enumerate(groups)}

    def key(place_and_case: tuple[int, SweepCase]) -> tuple[Any, ...]:
        place, case = place_and_case
        late = [ranks[name][_read_range(case, name)] for name in RANGES]
        return (order[case.comparison], case.repeat, max(late), sum(late), place)

    return [case for _, case in sorted(enumerate(cases), key=key)]


def _read_range(case: SweepCase, name: str) -> tuple[int, ...]:
    value = getattr(case.spec, name)
    return () if value is None else value if isinstance(value, tuple) else (value,)


def rank_values(values: Iterable[tuple[int, ...]]) -> dict[tuple[int, ...], int]:
    """When each value of a range has its turn: the ends, the middle, the middles of halves…"""
    several = sorted(set(values))
    ranks: dict[tuple[int, ...], int] = {}
    steps = [(0, len(several) - 1)]
    for end in (several[:1], several[-1:]):
        for value in end:
            ranks.setdefault(value, len(ranks))
    while steps:
        low, high = steps.pop(0)
        if high - low < 2:
            continue
        middle = (low + high) // 2
        ranks.setdefault(several[middle], len(ranks))
        steps += [(low, middle), (middle, high)]
    return ranks


def split_into_shards(cases: Sequence[SweepCase], most: int = 0) -> list[list[SweepCase]]:
    """Shards of whole comparisons, as even as they come; of one kind of GPU each."""
    groups: dict[tuple[str, ...], list[SweepCase]] = {}
    for case in cases:
        groups.setdefault(case.comparison, []).append(case)
    kinds = list(dict.fromkeys(case.gpu for case in cases))
    shards: list[list[SweepCase]] = []
    for kind in kinds:
        mine = [group for group in groups.values() if group[0].gpu == kind]
        share = max(1, most // len(kinds)) if most else len(mine)
        parts: list[list[SweepCase]] = [[] for _ in range(min(share, len(mine)))]
        for group in sorted(mine, key=len, reverse=True):
            min(parts, key=len).extend(group)
        shards += parts
    return shards
