"""What to fix first: the work with the largest headroom, what it means, and what to try.

A layer (or a phase, where no layer was timed) is a finding by its headroom; two rules look at the
whole step: a GPU that waits for its host, and memory that the operating system hands out. What to
try is a list of rules per bound: each says when it applies, and leaves out what was tried.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ridgeline.roofline.points import MeasuredStep
from ridgeline.roofline.roofs import Roofs
from ridgeline.units import format_percent, format_ratio, format_time, si

MOST = 10  # findings of a run
HOST = "(host)"
SYSTEM = "(system)"
OPTIMIZER = "(optimizer)"
FAR = 0.5  # of its roof: another kernel may be faster
WIDE_SIDE = 512  # of a matrix: below it, padding to a multiple of PADDED adds much work
PADDED = 64
ALIGNED = {"fp16": 8, "bf16": 8, "amp": 8, "tf32": 4}  # numbers that fast kernels load at once
GOOD = 0.8  # of its roof: hardly anything to gain below it
IDLE = 0.1  # of a step without kernels, or in the operating system, is worth a finding
LAYERS_OFF = 0.2  # of the step, or its kernels: layers that are so far from it are to be doubted
SHORT_S = 1e-4  # work with a shorter floor may leave a part of a GPU idle
FASTER = 1.3  # bf16 over fp32: worth a try
MUCH = 0.4  # of the joules of a step, for one purpose
OVER_CAP = 1.1  # times the power cap: no step draws so much
LITTLE = 0.05  # of them: not worth saving
TRAINED_IN = ("fp32", "tf32", "bf16", "fp16")  # precisions that a run may have
NO_BOUND = (
    "Headroom is an estimate of what can be saved, not a bound: advice that changes the work itself"
    " (another precision, fused operators, memory that is kept) can save more."
)
OVERLAPS = "this time is also part of the layers' times, so the two do not add up"
LOW_PRECISIONS = ("bf16", "fp16", "amp")
TENSOR_ROOFS = ("tf32 matrix", "fp16 matrix", "bf16 matrix")
IMAGE_LAYERS = ("batchnorm", "groupnorm", "instancenorm")  # in the names of layers

COLUMNS = (
    "run_id", "env", "model", "mode", "precision", "batch_size", "layer", "kind", "bound",
    "time_s", "floor_s", "efficiency", "headroom_s", "share", "meaning", "advice",
)  # fmt: skip


def find_rows(
    points: Sequence[Mapping[str, Any]],
    run: MeasuredStep,
    roofs: Roofs,
    *,
    most: int = MOST,
    executed: Mapping[str, str] | None = None,
) -> list[dict[str, Any]]:
    """The findings of one run, the largest headroom first; rows with COLUMNS.

    `executed` says of a layer or phase, by name, how its executed work differs from the model's.
    """
    timed = [p for p in points if p["time_s"] == p["time_s"] and p["headroom_s"] > 0]
    work = [p for p in timed if p["grain"] == "layer" and p["phase"] == "all"]
    work = work or [p for p in timed if p["grain"] == "phase"]
    sides = {p["layer"]: p["product_sides"] for p in work if p.get("product_sides")}
    best: dict[tuple[str, str], dict[str, Any]] = {}
    for point in sorted(work, key=lambda p: str(p["provenance"])):  # counters before counts
        known = {**point, "product_sides": sides.get(point["layer"], "")}  # which only a count has
        best.setdefault((point["layer"], point["phase"]), known)
    largest = sorted(best.values(), key=_order_by_headroom)[:most]
    rows = [_make_row(point, run, roofs, executed or {}) for point in largest]
    step = next((point for point in points if point["grain"] == "step"), None)
    if step is not None and run.step_time_s:
        known = {key: step[key] for key in COLUMNS if key in step}
        for row in filter(None, (_find_waiting(run), _find_system_time(run))):
            time_s = row["time_s"]  # all of it could be saved
            rows.append({**known, **row, "floor_s": 0.0, "efficiency": 0.0, "headroom_s": time_s,
                         "share": time_s / run.step_time_s})  # fmt: skip
    return sorted(rows, key=_order_by_headroom)[:most]


def _order_by_headroom(row: Mapping[str, Any]) -> float:
    return -float(row["headroom_s"])


def _make_row(
    point: Mapping[str, Any], run: MeasuredStep, roofs: Roofs, executed: Mapping[str, str]
) -> dict[str, Any]:
    name = point["layer"] or point["phase"]
    why = f"; it {executed[name]}" if name in executed else ""
    is_longer = (run.layer_sum_s or 0.0) > (1 + LAYERS_OFF) * run.step_time_s
    return {
        **{key: point[key] for key in COLUMNS if key in point},
        "layer": name,
        "share": float("nan") if is_longer else point["headroom_s"] / run.step_time_s,
        "meaning": describe_point(point) + why + describe_doubt(run),
        "advice": advise(point, run, roofs),
    }


def _find_waiting(run: MeasuredStep) -> dict[str, Any] | None:
    """The part of a step in which a GPU waits for its host."""
    if run.kernel_time_s is None:
        return None
    idle_s = run.step_time_s - run.kernel_time_s
    if idle_s < IDLE * run.step_time_s:
        return None
    launches = run.kernel_launches
    count = f"{launches} kernels" if launches else "its kernels"
    return {
        "layer": HOST,
        "kind": "waiting",
        "bound": "launch",
        "time_s": idle_s,
        "meaning": f"for {format_time(idle_s)} of each step the GPU waits for the host, which"
        f" launches {count}",
        "advice": _advise_launches(run, is_cuda=True),
    }


def _find_system_time(run: MeasuredStep) -> dict[str, Any] | None:
    """The part of a step that the operating system takes, mostly to hand out memory."""
    taken_s = (run.system_s or 0.0) / max(run.cores, 1.0)
    if not taken_s or taken_s < IDLE * run.step_time_s:
        return None
    return {
        "layer": SYSTEM,
        "kind": "memory pages",
        "bound": "system",
        "time_s": taken_s,
        "meaning": f"for about {format_time(taken_s)} of each step the operating system is at work,"
        f" mostly handing out memory that the C library has given back; {OVERLAPS}",
        "advice": ("" if run.batch_size == 1 else "a smaller batch, or ")
        + "let the C library keep its memory: MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=-1"
        " MALLOC_TOP_PAD_=268435456 in the environment of the process (glibc)",
    }


# ---------------------------------------------------------------- what it means


def saving(finding: Mapping[str, Any]) -> str:
    """How much time a finding is about: `about 140 ms, 12.0 % of the step`."""
    share = finding["share"]
    of_step = f", {format_percent(share)} of the step" if share == share else ""
    return f"about {format_time(finding['headroom_s'])}{of_step}"


def saving_basis(finding: Mapping[str, Any]) -> str:
    """Under which condition that would be saved."""
    conditions = {
        HOST: "if the GPU never waited for the host",
        SYSTEM: "if the operating system had nothing to do",
    }
    return conditions.get(str(finding["layer"]), "if it ran at its floor")


def describe_joules(
    step: Mapping[str, Any], prices: Mapping[str, float], cap_w: float | None = None
) -> str:
    """What most joules of a step are for, and what would save some; empty if nothing stands out.

    `prices` are joules per FLOP by precision.
    """
    if cap_w and step["power_w"] > OVER_CAP * cap_w:
        return (
            f"{si(step['power_w'], 'W')} are more than the power cap of {si(cap_w, 'W')} allows:"
            " likely a wrong reading, measure it again"
        )
    if step["energy_efficiency"] > OVER_CAP:
        return (
            "it takes fewer joules than its floor: likely a wrong reading, or coefficients that do"
            " not fit"
        )
    share = {name: step[f"{name}_share"] for name in ("constant", "bytes", "flops")}
    name = max(share, key=lambda one: share[one] if share[one] == share[one] else 0.0)
    if not share[name] >= MUCH:
        return ""
    part = format_percent(min(share[name], 1.0))
    if name == "bytes":
        return (
            f"{part} of the joules move bytes: fused operators, memory that is kept or operands of"
            " half the size save up to that"
        )
    if name == "flops":
        return f"{part} of the joules are FLOPs{_describe_cheaper(str(step['precision']), prices)}"
    saving = share[name] * (1 - step["floor_s"] / step["time_s"])
    if not saving >= LITTLE:
        return f"{part} of the joules are constant power, and the step is near its floor of time"
    return (
        f"{part} of the joules are constant power: a larger batch, or whatever brings the step to"
        f" its floor of time, saves up to {format_percent(saving)} of them all"
    )


def _describe_cheaper(precision: str, prices: Mapping[str, float]) -> str:
    """The precision whose FLOPs cost least, if they cost less."""
    known = {name: price for name, price in prices.items() if price and name in TRAINED_IN}
    least = min(known, key=lambda name: known[name], default="")
    now = prices.get(precision)
    if now is None or not least or known[least] * FASTER > now:
        return ": only less work saves them"
    factor = format_ratio(now / known[least])
    return (
        f": one of {least} costs {si(known[least], 'J')}, {factor} times less than of {precision}"
    )


def describe_doubt(run: MeasuredStep) -> str:
    """A caution for layers that do not add up to their step, or to its kernels.

    On a GPU they are the device's own times, which add up to those of its kernels. Where they are
    more, the GPU waited within a layer, as behind an operator that waits for the device itself.
    """
    if run.layer_sum_s is None:
        return ""
    together = f" (with caution: all layers took {format_time(run.layer_sum_s)} together"
    if run.kernel_time_s is not None:
        if run.layer_sum_s <= (1 + LAYERS_OFF) * run.kernel_time_s:
            return ""
        kernels = format_time(run.kernel_time_s)
        return f"{together}, their kernels {kernels}: layers include waiting)"
    step_s = run.step_time_s
    if not step_s or abs(run.layer_sum_s - step_s) <= LAYERS_OFF * step_s:
        return ""
    return (
        f"{together}, a step {format_time(step_s)}: these timings disagree; was the machine busy?)"
    )


def describe_point(point: Mapping[str, Any]) -> str:
    """What the numbers of a work item say, in a sentence."""
    time_s, floor_s, bound = point["time_s"], point["floor_s"], point["bound"]
    if not isinstance(bound, str) or not floor_s or floor_s != floor_s:
        return f"takes {format_time(time_s)}; nothing is known that it would have to do"
    limit = {
        "compute": "the arithmetic alone would take",
        "launch": "launching it alone would take",
    }.get(bound, f"moving its data ({bound.upper()}) alone would take")
    return (
        f"takes {format_time(time_s)}; {limit} {format_time(floor_s)}:"
        f" {format_percent(point['efficiency'])} of what is possible"
    )


# ---------------------------------------------------------------- what to try


def advise(point: Mapping[str, Any], run: MeasuredStep, roofs: Roofs) -> str:
    """What to try for a work item, given what bounds it and what was tried."""
    efficiency, bound = point.get("efficiency"), point.get("bound")
    if efficiency is not None and efficiency > GOOD:
        return _advise_less_work(point, run, roofs)
    if point.get("layer") == OPTIMIZER:
        return "a fused optimizer (torch's fused=True), which updates all weights in a few kernels"
    side = _find_unaligned_side(point, run, roofs)
    if side is not None:
        return _advise_padding(side, run)
    if not isinstance(bound, str):
        return "find out what it does: no operator with known work belongs to it"
    is_cuda = roofs.device.startswith("cuda")
    if bound == "launch":
        return _advise_launches(run, is_cuda=is_cuda)
    if bound == "compute":
        return _advise_compute(point, run, roofs, is_cuda=is_cuda)
    return _advise_memory(point, run, is_cuda=is_cuda)


def _find_unaligned_side(point: Mapping[str, Any], run: MeasuredStep, roofs: Roofs) -> int | None:
    """The longest side of a product on tensor cores that makes libraries take a slow kernel.

    Only of a product that is far below its roof. A compiler pads by itself.
    """
    aligned, efficiency = ALIGNED.get(run.precision), point.get("efficiency")
    if not roofs.device.startswith("cuda") or aligned is None or run.is_compiled:
        return None
    if efficiency is None or not efficiency < FAR:
        return None
    texts = str(point.get("product_sides") or "").split("x")
    sides = [int(text) for text in texts if text.isdecimal()]
    return max((s for s in sides if s >= WIDE_SIDE and s % aligned), default=None)


def _advise_padding(side: int, run: MeasuredStep) -> str:
    padded = -(-side // PADDED) * PADDED
    return (
        f"pad its side of {side} to {padded}, a multiple of {PADDED}: for what is no multiple of"
        f" {ALIGNED[run.precision]} the library takes slow kernels; --compile-mode default pads"
        " by itself"
    )


def _advise_compute(
    point: Mapping[str, Any], run: MeasuredStep, roofs: Roofs, *, is_cuda: bool
) -> str:
    is_conv = _is_convolution(point)
    has_other_layout = is_conv and not run.is_channels_last
    if is_cuda:
        tensor_cores = (
            f"use tensor cores: --precision tf32 or --precision amp{_describe_gain(point, roofs)}"
        )
        rules = {
            tensor_cores: run.precision == "fp32" and _has_tensor_cores(roofs),
            "--channels-last gives convolutions faster kernels": has_other_layout,
            "--cudnn-benchmark lets cuDNN choose by trying": is_conv and not run.is_tuned,
        }
        larger = {"a larger batch fills more of the GPU": (point.get("floor_s") or 0.0) < SHORT_S}
        tuned = "--compile-mode max-autotune, which tries other kernels"
        last = "another shape of the layer" if run.is_compiled else tuned
        return _join_tries(rules | larger, last)
    rules = {
        "--channels-last often suits convolutions on a CPU": has_other_layout,
        "--compile-mode default merges what surrounds it": not run.is_compiled,
    }
    return _join_tries(rules, "another batch size: compare a few by --batch-size")


def _is_convolution(point: Mapping[str, Any]) -> bool:
    """By the name of the module's class; transformers' Conv1D is a linear layer."""
    kind = str(point.get("kind", ""))
    return "conv" in kind.lower() and kind != "Conv1D"


def _advise_memory(point: Mapping[str, Any], run: MeasuredStep, *, is_cuda: bool) -> str:
    kind = str(point.get("kind", "")).lower()
    is_of_images = _is_convolution(point) or any(one in kind for one in IMAGE_LAYERS)
    rules = {
        "--channels-last, which spares convolutions and their neighbours copies": is_of_images
        and not run.is_channels_last,
        "fuse it with its neighbours: --compile-mode default": not run.is_compiled,
        "halve its bytes: --precision amp": is_cuda and run.precision not in LOW_PRECISIONS,
    }
    return _join_tries(
        rules, "smaller activations: a smaller input, or recomputation instead of storing"
    )


def _join_tries(rules: Mapping[str, bool], last: str) -> str:
    """What applies; the last resort where nothing else does."""
    return "; ".join(text for text, applies in rules.items() if applies) or last


def _advise_launches(run: MeasuredStep, *, is_cuda: bool) -> str:
    graph = "--compile-mode reduce-overhead, which replays the step as one graph"
    compiler = graph if is_cuda else "--compile-mode default"
    tries = ["a larger batch", *([] if run.is_compiled else [compiler])]
    return f"give each {'launch' if is_cuda else 'operator'} more to do: {', or '.join(tries)}"


def _advise_less_work(point: Mapping[str, Any], run: MeasuredStep, roofs: Roofs) -> str:
    """For work that is near its roof: only less work, or a higher roof, helps."""
    if point.get("bound") == "compute" and run.precision == "fp32":
        if _has_tensor_cores(roofs):
            gain = _describe_gain(point, roofs)
            return f"it is near its roof; a higher one: --precision tf32 or --precision amp{gain}"
        low, full = roofs.compute.get("bf16 matrix"), roofs.peak("fp32", "matrix")
        if low and full and low > FASTER * full:
            return "it is near its roof; a higher one: --precision bf16"
    return "it is near its roof: only less work helps, such as a smaller input or a leaner layer"


def _has_tensor_cores(roofs: Roofs) -> bool:
    return roofs.device.startswith("cuda") and any(name in roofs.compute for name in TENSOR_ROOFS)


def _describe_gain(point: Mapping[str, Any], roofs: Roofs) -> str:
    """How far the floor of the arithmetic would fall if its products were in fp16."""
    now_s, products = point.get("compute_s"), point.get("flops_fp32_matrix")
    low, full = roofs.peak("fp16", "matrix"), roofs.peak("fp32", "matrix")
    if not now_s or not products or not low or not full or products != products:
        return ""
    then_s = now_s - products / full + products / low
    return f" (amp: floor of the arithmetic {format_time(now_s)} → {format_time(then_s)})"
