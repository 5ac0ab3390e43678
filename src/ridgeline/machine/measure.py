"""All ceilings of one machine; those that torch alone can measure, too."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any

from ridgeline.errors import RidgelineError
from ridgeline.machine.passport import Ceiling, Missing
from ridgeline.machine.sampling import Clock, host_clock, sample_seconds

Progress = Callable[[str], None]


def find_devices() -> list[str]:
    """What can be measured here: the CPU always, and every accelerator that torch sees."""
    try:
        import torch
    except ImportError:
        return ["cpu"]
    apple = ["mps"] if torch.backends.mps.is_available() else []
    return [*(f"cuda:{n}" for n in range(torch.cuda.device_count())), *apple, "cpu"]


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

    steps = {"cpu": cpu_steps(quick), "cuda": cuda_steps(), "mps": len(APPLE.precisions) + 2}
    return sum(steps[device.partition(":")[0]] for device in devices)


def measure_devices(
    devices: Sequence[str], *, quick: bool, progress: Progress
) -> tuple[list[Ceiling], list[Missing]]:
    """Measure the devices one after the other.

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
    return ceilings, missing


def _measure(
    device: str, *, quick: bool, progress: Progress
) -> tuple[list[Ceiling], list[Missing]]:
    kind, _, number = device.partition(":")
    if kind == "cuda":
        from ridgeline.machine.ceilings_cuda import measure_cuda

        return measure_cuda(int(number or 0), quick=quick, progress=progress)
    if kind == "mps":
        return measure_with_torch("mps", APPLE, quick=quick, progress=progress)
    from ridgeline.machine.ceilings_cpu import measure_cpu
    from ridgeline.machine.cpu_kernels import BuildError

    try:
        return measure_cpu(quick=quick, progress=progress)
    except BuildError as error:
        reason = f"{error}; needs a C compiler: install gcc or clang"
        plan = replace(UNCOMPILED, not_reached=(("CPU vectors and caches", reason),))
        return measure_with_torch("cpu", plan, quick=quick, progress=progress)


# ---------------------------------------------------------------- through torch alone
# Products, memory and dispatch of Apple GPUs, and of a CPU without a C compiler. The first was
# written without such a machine at hand; the tests replace the device's calls.


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchPlan:
    """What to measure of a device, and what torch does not reach there."""

    shapes: tuple[tuple[int, int, int], ...]
    precisions: Mapping[str, str]  # with the names of torch
    buffer_bytes: int = 1 << 30  # far larger than the last cache
    not_reached: tuple[tuple[str, str], ...] = ()


APPLE = TorchPlan(
    shapes=((4096, 4096, 4096), (2048, 4096, 4096), (4096, 4096, 8192)),
    precisions={"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"},
    not_reached=(
        ("fp64 products", "the Metal back end of torch has no fp64"),
        ("cache bandwidth", "torch offers no kernel that stays in a cache"),
        ("power and clocks", "macOS shows them to root only: sudo powermetrics"),
    ),
)
UNCOMPILED = TorchPlan(
    shapes=((1024, 1024, 1024), (2048, 2048, 2048)),
    precisions={"fp32": "float32", "fp64": "float64"},
)


def measure_with_torch(
    device: str,
    plan: TorchPlan,
    *,
    quick: bool = False,
    progress: Progress = lambda _what: None,
    torch: Any = None,
) -> tuple[list[Ceiling], list[Missing]]:
    """Measure an Apple GPU, through Metal, or a CPU."""
    if torch is None:
        torch = _import_torch()
    sync = torch.mps.synchronize if device == "mps" else lambda: None
    how = (torch, device, host_clock(sync), 5 if quick else 15)
    parts: dict[str, Callable[[], list[Ceiling]]] = {
        **{
            f"{name} products": partial(_measure_product, *how, name, dtype, plan.shapes)
            for name, dtype in plan.precisions.items()
        },
        "memory": partial(_measure_memory, *how, plan.buffer_bytes),
        "launches": partial(_measure_dispatch, *how),
    }
    ceilings: list[Ceiling] = []
    missing = [Missing(what=what, reason=reason) for what, reason in plan.not_reached]
    for what, part in parts.items():
        progress(what)
        try:
            ceilings += part()
        except (RuntimeError, TypeError) as error:
            missing.append(Missing(what=what, reason=str(error)[:200]))
    return ceilings, missing


def _import_torch() -> Any:
    try:
        import torch
    except ImportError:
        raise RidgelineError(
            "there is neither a C compiler nor torch to measure with",
            hint="install gcc or clang, or pip install 'ridgeline[torch]'",
        ) from None
    return torch


def _measure_product(
    torch: Any, device: str, clock: Clock, samples: int, precision: str, dtype: str,
    shapes: Sequence[tuple[int, int, int]],
) -> list[Ceiling]:  # fmt: skip
    def make(shape: tuple[int, int, int]) -> Callable[[], object]:
        m, n, k = shape
        a = torch.randn(m, k, device=device).to(getattr(torch, dtype))
        b = torch.randn(k, n, device=device).to(getattr(torch, dtype))
        return lambda: torch.mm(a, b)

    best = max(
        shapes, key=lambda shape: prod(shape) / min(sample_seconds(make(shape), clock, samples=3))
    )
    times_s = sample_seconds(make(best), clock, samples=samples)
    accumulator = "fp64" if precision == "fp64" else "fp32"
    return [
        Ceiling(kind="compute", device=device, path="matrix", precision=precision,
                accumulator=accumulator, samples=tuple(2 * prod(best) / s for s in times_s),
                how=f"torch.mm {'x'.join(map(str, best))}, random data")
    ]  # fmt: skip


def _measure_memory(
    torch: Any, device: str, clock: Clock, samples: int, size_bytes: int
) -> list[Ceiling]:
    a, b, c = (torch.ones(size_bytes // 4, device=device) for _ in range(3))
    patterns = {
        "read": (lambda: a.sum(), size_bytes),
        "copy": (lambda: b.copy_(a), 2 * size_bytes),
        "triad": (lambda: torch.add(b, c, alpha=1.5, out=a), 3 * size_bytes),
    }
    return [
        Ceiling(kind="bandwidth", device=device, level="dram", pattern=pattern,
                working_set_bytes=size_bytes, how=f"torch {pattern} of {size_bytes} B",
                samples=tuple(moved / s for s in sample_seconds(call, clock, samples=samples)))
        for pattern, (call, moved) in patterns.items()
    ]  # fmt: skip


def _measure_dispatch(torch: Any, device: str, clock: Clock, samples: int) -> list[Ceiling]:
    x = torch.zeros(32, device=device)

    def add_often() -> None:
        for _ in range(100):
            x.add_(1)

    times_s = sample_seconds(add_often, clock, samples=samples, sample_s=0.005)
    return [
        Ceiling(kind="launch", device=device, what="eager dispatch",
                samples=tuple(s / 100 for s in times_s), how="100 additions of 32 numbers")
    ]  # fmt: skip
