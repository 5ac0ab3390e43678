"""Threads that work at once, each on its own core with its own memory; the conditions meanwhile."""

from __future__ import annotations

import mmap
import os
import threading
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from time import perf_counter
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ridgeline.errors import RidgelineError
from ridgeline.machine.cpu import find_core
from ridgeline.machine.system import SystemIO, find_limits
from ridgeline.records import Conditions
from ridgeline.sensors.cpu import (
    PROC,
    SYS,
    RaplMeter,
    cpufreq_hz,
    read_clock_hz,
    temperature_c,
    text_of,
)
from ridgeline.sensors.sampler import summarise_conditions


def choose_cpus(threads: int | None = None, io: SystemIO | None = None) -> tuple[int, ...]:
    """As many CPUs as `threads`; by default one a core, and no more than a container may use."""
    io, allowed = io or SystemIO(), list_allowed_cpus()
    if threads is not None and not 1 <= threads <= len(allowed):
        raise RidgelineError(
            f"cannot measure with {threads} threads",
            hint=f"this process may use {len(allowed)} CPUs; choose between 1 and {len(allowed)}",
        )
    first: dict[str, int] = {}  # threads of one core share its units, so one of them is enough
    for cpu in allowed:
        first.setdefault(find_core(io, cpu), cpu)
    cores = list(first.values())
    if threads is None:
        threads = find_limits(io).whole_cpus(len(cores))
    others = [cpu for cpu in allowed if cpu not in cores]
    return tuple([*cores, *others][:threads])


def list_allowed_cpus() -> list[int]:
    """The CPUs that the scheduler gives to this process."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


T = TypeVar("T")

HUGE_PAGE_BYTES = 2**21


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """One thread of a team, as a kernel sees it."""

    index: int
    memory: NDArray[np.uint8]  # touched first by this thread, so on its side of the machine
    address: int


class Team:
    """A context manager: the threads live from its start to its end.

    Each is pinned to one of `cpus` where the system can do that; the calling thread is not.
    """

    def __init__(
        self, cpus: Sequence[int], bytes_per_thread: int, bytes_of_first: int | None = None
    ) -> None:
        self.cpus = tuple(cpus)
        self.bytes_per_thread = bytes_per_thread
        self.bytes_of_first = max(bytes_per_thread, bytes_of_first or 0)  # it also works alone
        self._tasks: list[SimpleQueue[Any]] = [SimpleQueue() for _ in self.cpus]
        self._threads = [
            threading.Thread(target=self._work, args=(i,), daemon=True, name=f"ceiling-{i}")
            for i in range(len(self.cpus))
        ]

    def __enter__(self) -> Team:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        for tasks in self._tasks:
            tasks.put(None)
        for thread in self._threads:
            thread.join(timeout=30)

    def run(self, body: Callable[[Worker], T], threads: int) -> list[T]:
        """What `body` returned in each of the first `threads` threads; its error if it failed."""
        futures: list[Future[T]] = [Future() for _ in range(threads)]
        for tasks, future in zip(self._tasks, futures, strict=False):
            tasks.put((body, future))
        return [future.result() for future in futures]

    def _work(self, index: int) -> None:
        pin(self.cpus[index])
        worker: Worker | BaseException  # without memory, every task gets to know why
        try:
            worker = self._make_worker(index)
        except BaseException as error:
            worker = error
        while (task := self._tasks[index].get()) is not None:
            body, future = task
            try:
                if isinstance(worker, BaseException):
                    raise worker
                future.set_result(body(worker))
            except BaseException as error:
                future.set_exception(error)

    def _make_worker(self, index: int) -> Worker:
        memory = huge_memory(self.bytes_per_thread if index else self.bytes_of_first)
        memory[:] = 0  # zeros: no denormal numbers, and every page is there before it is timed
        return Worker(index=index, memory=memory, address=memory.ctypes.data)


def pin(cpu: int) -> None:
    """Keep the calling thread on one CPU; where that is not possible it stays free."""
    try:
        os.sched_setaffinity(0, {cpu})
    except (AttributeError, OSError):
        return


def huge_memory(size_bytes: int) -> NDArray[np.uint8]:
    """Memory that starts at a huge page and asks for such pages: fewer misses of the TLB."""
    area = mmap.mmap(-1, size_bytes + HUGE_PAGE_BYTES)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel without them
            area.madvise(mmap.MADV_HUGEPAGE)
    whole = np.frombuffer(area, dtype=np.uint8)
    offset = -whole.ctypes.data % HUGE_PAGE_BYTES
    return whole[offset : offset + size_bytes]


class Watch:
    """Notes the conditions of each thing that is measured, sample by sample."""

    def __init__(
        self,
        cpus: Sequence[int],
        *,
        cycles_per_s: Callable[[], float] | None = None,
        root: Path = SYS,
        proc: Path = PROC,
    ) -> None:
        self.meter = RaplMeter(root)
        self._cpus, self._cycles_per_s, self._root, self._proc = cpus, cycles_per_s, root, proc
        self._notes: dict[Hashable, list[Conditions]] = defaultdict(list)
        self._joules: defaultdict[Hashable, float] = defaultdict(float)
        self._seconds: defaultdict[Hashable, float] = defaultdict(float)
        self._start()

    def note(self, key: Hashable) -> None:
        """What happened since the last note, and how things are now, belongs to `key`."""
        energy_j, time_s = self.meter.energy_j(), perf_counter() - self._start_s
        if energy_j is not None and self._energy_j is not None:
            self._joules[key] += energy_j - self._energy_j
            self._seconds[key] += time_s
        is_throttled = self._throttles() > self._throttle_count
        seen = Conditions(
            clock_hz=self.clock_hz(),
            temperature_c=temperature_c(self._root),
            throttle_reasons=("thermal",) if is_throttled else (),
        )
        self._notes[key].append(seen)
        self._start()

    def conditions(self, key: Hashable) -> Conditions:
        """The middle of what was noted for `key`, and the mean power."""
        seconds = self._seconds[key]
        power_w = self._joules[key] / seconds if seconds else None
        return replace(summarise_conditions(self._notes[key]), power_w=power_w)

    def clock_hz(self) -> float | None:
        """By cpufreq, or measured, or as /proc/cpuinfo has it; None where nothing tells."""
        clock_hz = cpufreq_hz(self._cpus, self._root)
        if clock_hz is None and self._cycles_per_s is not None:
            return self._cycles_per_s()
        return clock_hz or read_clock_hz(self._cpus, self._root, self._proc)

    def _start(self) -> None:
        self._energy_j = self.meter.energy_j()
        self._start_s = perf_counter()
        self._throttle_count = self._throttles()

    def _throttles(self) -> int:
        """How often the package was too hot, since the machine was started."""
        folder = self._root / "devices" / "system" / "cpu" / f"cpu{self._cpus[0]}"
        text = text_of(folder / "thermal_throttle" / "package_throttle_count").strip()
        return int(text) if text.isdigit() else 0
