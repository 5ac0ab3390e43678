"""All ceilings of one machine, as a passport."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ridgeline.errors import RidgelineError
from ridgeline.machine.describe import Description
from ridgeline.machine.passport import Ceiling, Missing, Passport
from ridgeline.records import Provenance

Progress = Callable[[str], None]


def find_devices() -> list[str]:
    """What can be measured here: the CPU always, and every accelerator that torch sees."""
    try:
        import torch
    except ImportError:
        return ["cpu"]
    devices = [f"cuda:{n}" for n in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        devices.append("mps")
    return [*devices, "cpu"]


def choose_devices(asked: Sequence[str]) -> list[str]:
    """The devices that were asked for; by default all accelerators, or the CPU alone."""
    there = find_devices()
    if not asked:
        return [d for d in there if d != "cpu"] or ["cpu"]
    wanted = [f"{d}:0" if d == "cuda" else d for d in asked]
    unknown = [d for d in wanted if d not in there]
    if unknown:
        raise RidgelineError(
            f"there is no device {unknown[0]!r} here",
            hint=f"devices here: {', '.join(there)}; `ridgeline doctor` says what is missing",
        )
    return list(dict.fromkeys(wanted))


def count_steps(devices: Sequence[str], *, quick: bool) -> int:
    """How often `progress` will be called."""
    from ridgeline.machine.ceilings_cpu import cpu_steps
    from ridgeline.machine.ceilings_cuda import cuda_steps
    from ridgeline.machine.ceilings_mps import mps_steps

    count = {"cpu": lambda: cpu_steps(quick), "cuda": cuda_steps, "mps": mps_steps}
    return sum(count[device.partition(":")[0]]() for device in devices)


def measure_machine(
    name: str,
    devices: Sequence[str],
    *,
    quick: bool,
    progress: Progress,
    description: Description,
    provenance: Provenance,
    measured_at: str,
) -> Passport:
    """Measure the devices one after the other and put everything into one passport.

    A device that fails is listed as missing, unless nothing else was measured.
    """
    ceilings: list[Ceiling] = []
    missing: list[Missing] = []
    failed: RidgelineError | None = None
    for device in devices:
        try:
            found, absent = _measure(device, quick=quick, progress=progress)
        except RidgelineError as error:
            failed, found, absent = error, [], [Missing(what=device, reason=error.problem)]
        ceilings += found
        missing += absent
    if failed is not None and not ceilings:
        raise failed
    return Passport(
        name=name,
        measured_at=measured_at,
        is_quick=quick,
        ceilings=tuple(ceilings),
        missing=tuple(missing),
        description=description,
        provenance=provenance,
    )


def _measure(
    device: str, *, quick: bool, progress: Progress
) -> tuple[list[Ceiling], list[Missing]]:
    kind, _, number = device.partition(":")
    if kind == "cuda":
        from ridgeline.machine.ceilings_cuda import measure_cuda

        return measure_cuda(int(number or 0), quick=quick, progress=progress)
    if kind == "mps":
        from ridgeline.machine.ceilings_mps import measure_mps

        return measure_mps(quick=quick, progress=progress)
    from ridgeline.machine.ceilings_cpu import measure_cpu

    return measure_cpu(quick=quick, progress=progress)
