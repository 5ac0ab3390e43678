"""What the CPU draws while it is idle, computing and moving memory."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter, sleep

from ridgeline.machine.ceiling import Ceiling, Missing
from ridgeline.machine.cpu_kernels import Probe
from ridgeline.machine.cpu_session import DEVICE, Session
from ridgeline.sensors.conditions import Conditions


def powers(session: Session, step: Callable[[], None]) -> list[Ceiling]:
    """Watts while idle, computing and moving memory; nothing where there is no meter."""
    meter = session.watch.meter
    if meter.reason is not None:
        session.missing.append(Missing(what="CPU power", reason=meter.reason))
        return []
    loads: dict[str, tuple[str, Callable[[], object]]] = {"idle": ("sleeping", lambda: sleep(0.01))}
    for what, name in (("compute", "vector_fp32"), ("memory", "memory_read")):
        kernels = session.kernels.get(name)
        if kernels is not None:
            size_bytes = session.team.bytes_per_thread if what == "memory" else 0
            probe = Probe(session.team, kernels, name, threads=session.threads,
                          size_bytes=size_bytes, sample_s=0.01)  # fmt: skip
            loads[what] = (f"{name}, {kernels.how}", probe)
    ceilings = []
    for what, (how, load) in loads.items():
        samples = _watts(meter.energy_j, load, session.plan.power_samples)
        session.watch.note(what)
        if samples:
            ceilings.append(
                Ceiling(kind="power", device=DEVICE, samples=samples, what=what,
                        how=f"RAPL, all packages, without the memory; {how}",
                        threads=None if what == "idle" else session.threads,
                        conditions=Conditions(clock_hz=session.watch.conditions(what).clock_hz))
            )  # fmt: skip
        step()
    return ceilings


def _watts(
    energy_j: Callable[[], float | None], load: Callable[[], object], samples: int
) -> tuple[float, ...]:
    """Mean power of one tenth of a second each, under the load."""
    watts = []
    for _ in range(samples):
        start_j, start_s = energy_j(), perf_counter()
        while perf_counter() - start_s < 0.1:
            load()
        end_j, end_s = energy_j(), perf_counter()
        if start_j is not None and end_j is not None:
            watts.append((end_j - start_j) / (end_s - start_s))
    return tuple(watts)
