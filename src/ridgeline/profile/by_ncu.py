"""Counting by Nsight Compute: a process for every group of counters, with ncu around it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from ridgeline.captures.ncu_errors import NO_KERNELS, explained
from ridgeline.captures.quantities import NO_BYTES, NO_FLOPS, NO_TENSORS, NO_TIME
from ridgeline.profile.metrics import NCU, choose_metrics, is_of_tensors
from ridgeline.profile.ncu import Ncu, find_ncu, known_metrics, passes_of
from ridgeline.profile.passes import Group, Remembered, cache_path, grouped, remembered_names
from ridgeline.profile.plan import Plan, fitting, planned
from ridgeline.profile.sessions import Session, wait_ready
from ridgeline.profile.step_mark import ALL, COUNTERS, DISTINCT
from ridgeline.profile.traced import TracedSteps
from ridgeline.profile.workplace import Workplace

if TYPE_CHECKING:
    import pandas as pd

OF_ONE_GROUP = (NO_TIME, NO_FLOPS, NO_BYTES, NO_TENSORS)  # which another group has
NOT_TOLD_APART = "--deduplicate was left out: operators cannot be told apart here"


@dataclass(slots=True)
class ByNcu:
    """What it can count here, in groups of one pass, and the processes that have loaded for it."""

    tool: ClassVar[str] = NCU
    place: Workplace
    ncu: Ncu
    groups: tuple[Group, ...]
    missing: tuple[str, ...]  # on this chip
    not_by_cupti: str = ""  # why it is asked, where that was tried
    loaded: list[Session] = field(default_factory=list)

    @classmethod
    def asked(cls, place: Workplace) -> ByNcu:
        """Ask ncu what the chip has; it must not count for anybody else meanwhile."""
        place.tell("asking ncu")
        request, ncu = place.request, find_ncu()
        device = request.task.settings.device if request.task is not None else 0

        names = remembered_names(
            cache_path("metrics", version=ncu.version, device=request.device),
            lambda: known_metrics(ncu),
        )
        chosen = choose_metrics(names, request.precision, request.level)
        known = Remembered(cache_path("passes", version=ncu.version, device=request.device))
        ask = known.asking(lambda metrics: passes_of(ncu, metrics, device))
        if request.deduplicate:
            groups = grouped(chosen.atoms, ask, chosen.parts, is_of_few=is_of_tensors)
        else:
            groups = grouped(chosen.atoms, ask, chosen.parts)
        return cls(place, ncu, groups, chosen.missing)

    def load(self) -> None:
        """Have a process for each group load what it needs."""
        self.loaded = [self.start(number) for number in range(len(self.groups))]

    def start(self, number: int) -> Session:
        """The process for a group."""
        return self.place.start(f"group{number}", COUNTERS, self.ncu, self.groups[number])

    @property
    def is_parallel(self) -> bool:
        return self.place.fits(1 + len(self.groups))

    def begin(self) -> None:
        """They warm up, if there is room for all of them."""
        for session in self.loaded if self.is_parallel else ():
            session.begin()

    def wait_ready(self) -> None:
        if self.is_parallel:
            wait_ready(self.loaded)

    def plan(self, traced: TracedSteps, ready_s: float) -> Plan:
        """Every kernel, or where that is wished or all that fits, each kind of work once."""
        request = self.place.request
        plans = [
            planned(
                traced, groups=self.groups, picks=picks, missing=self.missing, tool=NCU,
                memory_bytes=request.memory_bytes, start_s=ready_s, is_parallel=self.is_parallel,
                not_by_cupti=self.not_by_cupti,
            )
            for picks in ((ALL, DISTINCT) if traced.calls else (ALL,))
        ]  # fmt: skip
        if request.deduplicate and not traced.calls:
            self.place.warnings.append(NOT_TOLD_APART)
        return fitting(plans[-1:] if request.deduplicate else plans, request.budget_s)

    def count(self, plan: Plan, _: TracedSteps) -> list[pd.DataFrame]:
        """The kernels with their counters, a table for each group."""
        counted = []
        for number in range(len(self.groups)):
            self.place.tell(f"counting, {number + 1} of {len(self.groups)}")
            session = self.loaded[number] if self.loaded else self.start(number)
            session.begin()
            wait_ready([session])
            session.go(plan.picks)
            session.wait_done(plan.time_s)
            session.wait()  # which frees the counters, and its memory
            counted.append(session)
        return [self.read(session) for session in counted]

    def count_unmarked(self) -> list[pd.DataFrame]:
        """What a program launches between cudaProfilerStart and Stop."""
        captures = []
        for number in range(len(self.groups)):
            self.place.tell(f"counting, {number + 1} of {len(self.groups)}")
            session = self.start(number)
            session.wait()
            captures.append(self.read(session))
        return captures

    def read(self, session: Session) -> pd.DataFrame:
        """What ncu wrote."""
        from ridgeline.captures import read_capture

        assert session.log is not None
        if NO_KERNELS in session.said:
            raise explained(session.said, "ncu profiled nothing")
        capture = read_capture(session.log)
        warnings = self.place.warnings
        of_all = [text for text in capture.warnings if not text.startswith(OF_ONE_GROUP)]
        warnings += [text for text in of_all if text not in warnings]
        return capture.kernels

    @property
    def version(self) -> str:
        return self.ncu.version

    def of_products(self, plan: Plan) -> list[int]:
        """The groups that looked only at operators which tensor cores may do."""
        groups = enumerate(self.groups) if plan.picks == DISTINCT else ()
        return [number for number, group in groups if is_of_tensors(group.metrics)]
