"""What the stages of measuring a CPU share: how much is done, on what, and how far it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from ridgeline.machine.ceiling import Missing
from ridgeline.machine.cpu_conditions import Watch
from ridgeline.machine.cpu_kernels import Kernels
from ridgeline.machine.cpu_team import Team

DEVICE = "cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much is done; `steps` is how often progress is told."""

    curve_rounds: int
    per_octave: int
    rounds: int
    power_samples: int

    @property
    def steps(self) -> int:
        return sum(self.stages().values())

    def stages(self) -> dict[str, int]:
        """The steps of each stage, in order."""
        return {
            "kernels": 1,
            "memory curve": self.curve_rounds,
            "matrix shapes": 3,
            "ceilings": self.rounds,
            "launch": 2,
            "power": 3,
        }


@dataclass(slots=True, kw_only=True)
class Session:
    """What the stages of one measurement share."""

    plan: Plan
    quick: bool
    cpus: tuple[int, ...]
    team: Team
    kernels: Mapping[str, Kernels]
    sources: Sequence[Kernels]
    watch: Watch
    missing: list[Missing] = field(default_factory=list)

    @property
    def threads(self) -> int:
        return len(self.cpus)


@contextmanager
def stage(plan: Plan, name: str, progress: Callable[[str], None]) -> Iterator[Callable[[], None]]:
    """Tells progress as often as the plan says, whatever of the stage could be done."""
    left = plan.stages()[name]

    def step() -> None:
        nonlocal left
        if left > 0:
            left -= 1
            progress(f"CPU {name}")

    yield step
    while left > 0:
        step()
