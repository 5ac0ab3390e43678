"""All ceilings of one machine, as a passport; those of an Apple GPU are measured here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

from ridgeline.errors import RidgelineError
from ridgeline.machine.describe import Description
from ridgeline.machine.passport import Ceiling, Missing, Passport
from ridgeline.machine.sampling import Clock, host_clock, sample_seconds
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


def choose_devices(names: Sequence[str]) -> list[str]:
    """The devices of these names; by default all accelerators, or the CPU alone."""
    there = find_devices()
    if not names:
        return [d for d in there if d != "cpu"] or ["cpu"]
    devices = ["cuda:0" if name == "cuda" else name for name in names]
    unknown = [d for d in devices if d not in there]
    if unknown:
        raise RidgelineError(
            f"there is no device {unknown[0]!r} here",
            hint=f"devices here: {', '.join(there)}; `ridgeline doctor` says what is missing",
        )
    return list(dict.fromkeys(devices))


def count_steps(devices: Sequence[str], *, quick: bool) -> int:
    """How often `progress` will be called."""
    from ridgeline.machine.ceilings_cpu import cpu_steps
    from ridgeline.machine.ceilings_cuda import cuda_steps

    steps = {"cpu": cpu_steps(quick), "cuda": cuda_steps(), "mps": len(PRECISIONS) + 2}
    return sum(steps[device.partition(":")[0]] for device in devices)


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
            measured, absent = _measure(device, quick=quick, progress=progress)
        except RidgelineError as error:
            failed, measured, absent = error, [], [Missing(what=device, reason=error.problem)]
        ceilings += measured
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
        return measure_mps(quick=quick, progress=progress)
    from ridgeline.machine.ceilings_cpu import measure_cpu

    return measure_cpu(quick=quick, progress=progress)


# ---------------------------------------------------------------- Apple GPUs
# Products and memory through torch. Written without such a machine at hand; the tests replace the
# device's calls.

SHAPES = ((4096, 4096, 4096), (2048, 4096, 4096), (4096, 4096, 8192))
PRECISIONS = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
BUFFER_BYTES = 1 << 30  # far larger than the system-level cache
NOT_REACHED = (
    ("fp64 products", "the Metal back end of torch has no fp64"),
    ("cache bandwidth", "torch offers no kernel that stays in a cache"),
    ("power and clocks", "macOS shows them to root only: sudo powermetrics"),
)


def measure_mps(
    *, quick: bool = False, progress: Progress = lambda _what: None, torch: Any = None
) -> tuple[list[Ceiling], list[Missing]]:
    """Measure an Apple GPU through Metal."""
    if torch is None:
        import torch
    if not torch.backends.mps.is_available():
        raise RidgelineError(
            "there is no Apple GPU here that torch can use",
            hint="`ridgeline doctor` says what is missing; --device cpu measures the CPU",
        )
    how = (torch, host_clock(torch.mps.synchronize), 5 if quick else 15)
    parts: dict[str, Callable[[], list[Ceiling]]] = {
        **{f"{name} products": partial(_measure_product, *how, name) for name in PRECISIONS},
        "memory": partial(_measure_memory, *how),
        "launches": partial(_measure_dispatch, *how),
    }
    ceilings: list[Ceiling] = []
    missing = [Missing(what=what, reason=reason) for what, reason in NOT_REACHED]
    for what, part in parts.items():
        progress(what)
        try:
            ceilings += part()
        except (RuntimeError, TypeError) as error:
            missing.append(Missing(what=what, reason=str(error)[:200]))
    return ceilings, missing


def _measure_product(torch: Any, clock: Clock, samples: int, precision: str) -> list[Ceiling]:
    dtype = getattr(torch, PRECISIONS[precision])

    def make(shape: tuple[int, int, int]) -> Callable[[], object]:
        m, n, k = shape
        a = torch.randn(m, k, device="mps").to(dtype)
        b = torch.randn(k, n, device="mps").to(dtype)
        return lambda: torch.mm(a, b)

    best = max(
        SHAPES, key=lambda shape: prod(shape) / min(sample_seconds(make(shape), clock, samples=3))
    )
    times_s = sample_seconds(make(best), clock, samples=samples)
    return [
        Ceiling(kind="compute", device="mps", path="matrix", precision=precision,
                accumulator="fp32", samples=tuple(2 * prod(best) / s for s in times_s),
                how=f"torch.mm {'x'.join(map(str, best))}, random data")
    ]  # fmt: skip


def _measure_memory(torch: Any, clock: Clock, samples: int) -> list[Ceiling]:
    a, b, c = (torch.zeros(BUFFER_BYTES // 4, device="mps") for _ in range(3))
    patterns = {
        "read": (lambda: a.sum(), BUFFER_BYTES),
        "copy": (lambda: b.copy_(a), 2 * BUFFER_BYTES),
        "triad": (lambda: torch.add(b, c, alpha=1.5, out=a), 3 * BUFFER_BYTES),
    }
    return [
        Ceiling(kind="bandwidth", device="mps", level="dram", pattern=pattern,
                working_set_bytes=BUFFER_BYTES, how=f"torch {pattern} of {BUFFER_BYTES} B",
                samples=tuple(moved / s for s in sample_seconds(call, clock, samples=samples)))
        for pattern, (call, moved) in patterns.items()
    ]  # fmt: skip


def _measure_dispatch(torch: Any, clock: Clock, samples: int) -> list[Ceiling]:
    x = torch.zeros(32, device="mps")

    def add_often() -> None:
        for _ in range(100):
            x.add_(1)

    times_s = sample_seconds(add_often, clock, samples=samples, sample_s=0.005)
    return [
        Ceiling(kind="launch", device="mps", what="eager dispatch",
                samples=tuple(s / 100 for s in times_s), how="100 additions of 32 numbers")
    ]  # fmt: skip
