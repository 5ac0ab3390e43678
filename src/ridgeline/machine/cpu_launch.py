"""What it costs to start work on the CPU: one operator of torch, one region of OpenMP."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

from ridgeline.machine.ceiling import Ceiling, Missing
from ridgeline.machine.cpu_kernels import CKernels
from ridgeline.machine.cpu_session import DEVICE, Session
from ridgeline.machine.sampling import LEAST_SAMPLES, time_calls

LAUNCH_LIMIT_S = 3.0

Launch = tuple[str, str, Callable[[], float] | None]  # what; how, or why not; seconds of one


def launches(session: Session, step: Callable[[], None]) -> list[Ceiling]:
    """Seconds to start something that has nothing to do; what cannot be had is noted."""
    ceilings = []
    for what, how, sample in (_eager_dispatch(), _parallel_region(session)):
        if sample is not None:
            samples = _timed_samples(sample)
            session.watch.note(what)
            ceilings.append(
                Ceiling(kind="launch", device=DEVICE, samples=samples, how=how, what=what,
                        threads=1 if what == "eager dispatch" else session.threads,
                        conditions=session.watch.conditions(what))
            )  # fmt: skip
        else:
            session.missing.append(Missing(what=f"CPU {what}", reason=how))
        step()
    return ceilings


def _eager_dispatch() -> Launch:
    try:
        import torch
    except ImportError:
        return "eager dispatch", "needs torch (`pip install 'ridgeline[torch]'`)", None
    a, b, c = (torch.zeros(1) for _ in range(3))
    calls = 500
    how = f"torch.add of one element, out given, mean of {calls} calls"
    return (
        "eager dispatch",
        how,
        lambda: time_calls(lambda: torch.add(a, b, out=c), calls) / calls,
    )


def _parallel_region(session: Session) -> Launch:
    what, regions = "parallel region", 20
    source = next((s for s in session.sources if isinstance(s, CKernels)), None)
    if source is None:
        return what, "needs a C compiler", None
    if source.parallel_region_s(session.threads, 1) is None:
        return what, "the C compiler has no OpenMP", None
    how = f"empty OpenMP region of {session.threads} threads, mean of {regions}"
    return what, how, lambda: source.parallel_region_s(session.threads, regions) or 0.0


def _timed_samples(sample: Callable[[], float]) -> tuple[float, ...]:
    """A hundred samples, or as many as fit in some seconds, but never too few."""
    start_s = perf_counter()
    taken: list[float] = []
    while len(taken) < LEAST_SAMPLES or (
        len(taken) < 100 and perf_counter() - start_s < LAUNCH_LIMIT_S
    ):
        taken.append(sample())
    return tuple(taken)
