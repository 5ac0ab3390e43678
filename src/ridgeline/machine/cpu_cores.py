"""Which CPUs to work on: one for each core that this process may use."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ridgeline.errors import RidgelineError
from ridgeline.machine.cpu_levels import CPUS
from ridgeline.machine.limits import Limits, find_limits, parse_cpu_list


def cpus_to_use(
    threads: int | None = None, *, root: Path = CPUS, limits: Limits | None = None
) -> tuple[int, ...]:
    """As many CPUs as `threads`; by default one a core, and no more than a container may use."""
    allowed = allowed_cpus()
    if threads is not None and not 1 <= threads <= len(allowed):
        raise RidgelineError(
            f"cannot measure with {threads} threads",
            hint=f"this process may use {len(allowed)} CPUs; choose between 1 and {len(allowed)}",
        )
    cores = first_of_each_core(allowed, root)
    if threads is None:
        threads = (limits or find_limits()).whole_cpus(len(cores))
    others = [cpu for cpu in allowed if cpu not in cores]
    return tuple([*cores, *others][:threads])


def allowed_cpus() -> list[int]:
    """The CPUs that the scheduler gives to this process."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def first_of_each_core(allowed: Sequence[int], root: Path = CPUS) -> list[int]:
    """Threads of one core share its units, so one of them is enough."""
    taken: set[int] = set()
    first = []
    for cpu in allowed:
        if cpu in taken:
            continue
        first.append(cpu)
        try:
            topology = root / f"cpu{cpu}" / "topology"
            siblings = (topology / "thread_siblings_list").read_text(encoding="utf-8")
            taken |= set(parse_cpu_list(siblings))
        except OSError:
            continue
    return first
