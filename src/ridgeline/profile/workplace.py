"""Where the processes of one profile work: what they are asked, their folder, and all of them."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ridgeline.profile.metrics import KINDS, is_of_tensors
from ridgeline.profile.ncu import Ncu
from ridgeline.profile.passes import Group
from ridgeline.profile.request import Request
from ridgeline.profile.sessions import Session, start, target_program
from ridgeline.profile.step_mark import Job

MOST_MEMORY = 0.8  # of the device's, for all processes together
Tell = Callable[[str], None]  # what is going on


@dataclass(slots=True)
class Workplace:
    """Of one profile."""

    request: Request
    folder: Path
    tell: Tell
    sessions: list[Session] = field(default_factory=list)  # all, for their end
    warnings: list[str] = field(default_factory=list)
    program: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.program = self.request.program
        if self.request.task is not None:
            path = self.folder / "task.pickle"
            path.write_bytes(pickle.dumps(self.request.task))
            self.program = tuple(target_program(path))

    def start(
        self, name: str, role: str, ncu: Ncu | None = None, group: Group | None = None
    ) -> Session:
        """A process for one job, under ncu if it counts a group for us."""
        request = self.request
        job = Job(
            name=name,
            role=role,
            folder=str(self.folder),
            warmup=request.warmup,
            steps=request.steps,
            has_marks=request.has_marks,
            products_only=group is not None and is_of_tensors(group.metrics),
            kinds=tuple(kind for kind in KINDS[request.precision] if kind != "fp8"),
            precision=request.precision,
            level=request.level,
        )
        # a user's program may be anything: ncu's usual way is left to it
        is_once = request.task is not None and group is not None and group.passes == 1
        session = start(self.program, job, ncu, group, is_once=is_once)
        self.sessions.append(session)
        return session

    def fits(self, processes: int) -> bool:
        """Whether so many fit side by side; a user's program runs alone."""
        request = self.request
        needed = processes * request.memory_bytes
        return request.task is not None and 0 < needed < MOST_MEMORY * request.device_bytes
