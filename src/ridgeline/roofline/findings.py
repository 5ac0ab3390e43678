"""What to fix first: the pieces with the largest headroom, what it means, and what to try."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ridgeline.roofline.roofs import Roofs
from ridgeline.units import format_percent, format_time

if TYPE_CHECKING:
    import pandas as pd

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
LAYERS_OFF = 0.2  # of the step: layers that add up to so much more or less are to be doubted
NO_BOUND = (
    "Headroom is an estimate of what can be saved, not a bound: advice that changes the work itself"
    " (another precision, fused operators, memory that is kept) can save more."
)
OVERLAPS = "this time is also part of the layers' times, so the two do not add up"
LOW_PRECISIONS = ("bf16", "fp16", "amp")
TENSOR_ROOFS = ("tf32 matrix", "fp16 matrix", "bf16 matrix")

COLUMNS = (
    "run_id", "env", "model", "mode", "precision", "batch_size", "layer", "kind", "bound",
    "time_s", "floor_s", "efficiency", "headroom_s", "share", "meaning", "advice",
)  # fmt: skip
OF_IMAGES = ("conv", "batchnorm", "groupnorm", "instancenorm")  # in the names of layers


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How a run was made: what has been tried already need not be advised."""

    precision: str
    is_compiled: bool = False
    is_channels_last: bool = False
    is_tuned: bool = False  # cuDNN may try its algorithms
    batch_size: int | None = None
    step_time_s: float = 0.0
    kernel_time_s: float | None = None
    kernel_launches: int | None = None
    layer_sum_s: float | None = None
    system_s: float | None = None  # of a step: what the operating system took, on all cores
    cores: float = 1.0  # that were at work


def find(points: pd.DataFrame, setting: Setting, roofs: Roofs, *, most: int = MOST) -> pd.DataFrame:
    """The findings of one run as a table, the largest headroom first."""
    import pandas as pd

    return pd.DataFrame(find_rows(_records(points), setting, roofs, most=most), columns=[*COLUMNS])


def find_rows(
    points: Sequence[dict[str, Any]],
    setting: Setting,
    roofs: Roofs,
    *,
    most: int = MOST,
    executed: Mapping[str, str] | None = None,
) -> list[dict[str, Any]]:
    """The findings of one run: layers by headroom, or phases where no layer was timed.

    `executed` says of a layer or phase, by name, how its executed work differs from the model's.
    """
    timed = [p for p in points if p["time_s"] == p["time_s"] and p["headroom_s"] > 0]
    pieces = [p for p in timed if p["grain"] == "layer" and p["phase"] == "all"]
    pieces = pieces or [p for p in timed if p["grain"] == "phase"]
    sides = {p["layer"]: p["product_sides"] for p in pieces if p.get("product_sides")}
    best: dict[tuple[str, str], dict[str, Any]] = {}
    for piece in sorted(pieces, key=lambda p: str(p["provenance"])):  # counters before counts
        known = {**piece, "product_sides": sides.get(piece["layer"], "")}  # which only a count has
        best.setdefault((piece["layer"], piece["phase"]), known)
    largest = sorted(best.values(), key=_headroom)[:most]
    rows = [_row(point, setting, roofs, executed or {}) for point in largest]
    rows += [row for row in (_host(points, setting), _system(points, setting)) if row is not None]
    return sorted(rows, key=_headroom)[:most]


def _headroom(row: dict[str, Any]) -> float:
    return -float(row["headroom_s"])


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(key): value for key, value in row.items()} for row in table.to_dict("records")]


def _row(
    point: dict[str, Any], setting: Setting, roofs: Roofs, executed: Mapping[str, str]
) -> dict[str, Any]:
    name = point["layer"] or point["phase"]
    why = f"; it {executed[name]}" if name in executed else ""
    whole_s = max(setting.step_time_s, setting.layer_sum_s or 0.0)
    return {
        **{key: point.get(key) for key in COLUMNS if key in point},
        "layer": name,
        "share": point["headroom_s"] / whole_s if whole_s else float("nan"),
        "meaning": meaning(point) + why + caution(setting),
        "advice": advice(point, setting, roofs),
    }


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


def caution(setting: Setting) -> str:
    """Said with a layer's numbers where the layers do not add up to their step."""
    sum_s, step_s = setting.layer_sum_s, setting.step_time_s
    is_off = sum_s is not None and step_s and sum_s > (1 + LAYERS_OFF) * step_s
    is_short = sum_s is not None and sum_s < (1 - LAYERS_OFF) * step_s
    if not is_off and not (is_short and setting.kernel_time_s is None):
        return ""
    return (
        f" (with caution: all layers took {format_time(sum_s or 0)} together, a step"
        f" {format_time(step_s)}: somebody disturbed one of the two)"
    )


def _host(points: Sequence[dict[str, Any]], setting: Setting) -> dict[str, Any] | None:
    """The part of a step in which a GPU waits for its host."""
    step = [point for point in points if point["grain"] == "step"]
    busy_s = setting.kernel_time_s
    if not step or busy_s is None or not setting.step_time_s:
        return None
    idle_s = setting.step_time_s - busy_s
    if idle_s < IDLE * setting.step_time_s:
        return None
    launches = setting.kernel_launches
    count = f"{launches} kernels" if launches else "its kernels"
    row = {key: step[0].get(key) for key in COLUMNS if key in step[0]}
    return row | {
        "layer": HOST,
        "kind": "waiting",
        "bound": "launch",
        "time_s": idle_s,
        "floor_s": 0.0,
        "efficiency": 0.0,
        "headroom_s": idle_s,
        "share": idle_s / setting.step_time_s,
        "meaning": f"for {format_time(idle_s)} of each step the GPU waits for the host, which"
        f" launches {count}",
        "advice": _launch_advice(setting, None),
    }


def _system(points: Sequence[dict[str, Any]], setting: Setting) -> dict[str, Any] | None:
    """The part of a step that the operating system takes, mostly to hand out memory."""
    step = [point for point in points if point["grain"] == "step"]
    if not step or not setting.system_s or not setting.step_time_s:
        return None
    taken_s = setting.system_s / max(setting.cores, 1.0)
    if taken_s < IDLE * setting.step_time_s:
        return None
    row = {key: step[0].get(key) for key in COLUMNS if key in step[0]}
    return row | {
        "layer": SYSTEM,
        "kind": "memory pages",
        "bound": "system",
        "time_s": taken_s,
        "floor_s": 0.0,
        "efficiency": 0.0,
        "headroom_s": taken_s,
        "share": taken_s / setting.step_time_s,
        "meaning": f"for about {format_time(taken_s)} of each step the operating system is at work,"
        " mostly handing out memory that the C library has given back;"
        f" {OVERLAPS}",
        "advice": ("" if setting.batch_size == 1 else "a smaller batch, or ")
        + "let the C library keep its memory: MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=-1"
        " MALLOC_TOP_PAD_=268435456 in the environment of the process (glibc)",
    }


def meaning(point: dict[str, Any]) -> str:
    """What the numbers of a piece say, in a sentence."""
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


def advice(point: dict[str, Any], setting: Setting, roofs: Roofs) -> str:
    """What to try for a piece, given what bounds it and what was tried."""
    efficiency = point.get("efficiency")
    if efficiency is not None and efficiency > GOOD:
        return _less_work(point, setting, roofs)
    if point.get("layer") == OPTIMIZER:
        return "a fused optimizer (torch's fused=True), which updates all weights in a few kernels"
    side = _unaligned_side(point, setting, roofs)
    if side is not None:
        return _padding_advice(side, setting)
    ways: dict[str, Callable[[dict[str, Any], Setting, Roofs], str]] = {
        "compute": _compute_advice,
        "launch": lambda _point, setting, roofs: _launch_advice(setting, roofs),
    }
    bound = point.get("bound")
    if not isinstance(bound, str):
        return "find out what it does: no operator with known work belongs to it"
    return ways.get(bound, _memory_advice)(point, setting, roofs)


def _unaligned_side(point: dict[str, Any], setting: Setting, roofs: Roofs) -> int | None:
    """The longest side of a product on tensor cores that makes libraries take a slow kernel.

    Only of a product that is far below its roof. A compiler pads by itself.
    """
    aligned, efficiency = ALIGNED.get(setting.precision), point.get("efficiency")
    if not roofs.device.startswith("cuda") or aligned is None or setting.is_compiled:
        return None
    if efficiency is None or not efficiency < FAR:
        return None
    texts = str(point.get("product_sides") or "").split("x")
    sides = [int(text) for text in texts if text.isdecimal()]
    return max((s for s in sides if s >= WIDE_SIDE and s % aligned), default=None)


def _padding_advice(side: int, setting: Setting) -> str:
    padded = -(-side // PADDED) * PADDED
    return (
        f"pad its side of {side} to {padded}, a multiple of {PADDED}: for what is no multiple of"
        f" {ALIGNED[setting.precision]} the library takes slow kernels; --compile-mode default pads"
        " by itself"
    )


def _compute_advice(point: dict[str, Any], setting: Setting, roofs: Roofs) -> str:
    kind = str(point.get("kind", "")).lower()
    tries = []
    if roofs.device.startswith("cuda"):
        if setting.precision == "fp32" and _has_tensor_cores(roofs):
            tries.append(
                f"use tensor cores: --precision tf32 or --precision amp{_gain(point, roofs)}"
            )
        if "conv" in kind and not setting.is_channels_last:
            tries.append("--channels-last gives convolutions faster kernels")
        if "conv" in kind and not setting.is_tuned:
            tries.append("--cudnn-benchmark lets cuDNN choose by trying")
        tries.append("a larger batch fills more of the GPU")
    else:
        if "conv" in kind and not setting.is_channels_last:
            tries.append("--channels-last often suits convolutions on a CPU")
        if not setting.is_compiled:
            tries.append("--compile-mode default merges what surrounds it")
        if not tries:
            tries.append("another batch size: compare a few by --batch-size")
    return "; ".join(tries)


def _memory_advice(point: dict[str, Any], setting: Setting, roofs: Roofs) -> str:
    kind = str(point.get("kind", "")).lower()
    tries = []
    if not setting.is_channels_last and any(one in kind for one in OF_IMAGES):
        tries.append("--channels-last, which spares convolutions and their neighbours copies")
    if not setting.is_compiled:
        tries.append("fuse it with its neighbours: --compile-mode default")
    if roofs.device.startswith("cuda") and setting.precision not in LOW_PRECISIONS:
        tries.append("halve its bytes: --precision amp")
    if not tries:
        tries.append("smaller activations: a smaller input, or recomputation instead of storing")
    return "; ".join(tries)


def _launch_advice(setting: Setting, roofs: Roofs | None) -> str:
    """`roofs` is None for a GPU that waits."""
    tries = ["a larger batch"]
    if roofs is not None and not roofs.device.startswith("cuda"):
        tries += [] if setting.is_compiled else ["--compile-mode default"]
        return "give each operator more to do: " + ", or ".join(tries)
    if not setting.is_compiled:
        tries.append("--compile-mode reduce-overhead, which replays the step as one graph")
    return "give each launch more to do: " + ", or ".join(tries)


def _less_work(point: dict[str, Any], setting: Setting, roofs: Roofs) -> str:
    """For a piece that is near its roof: only less work, or a higher roof, helps."""
    is_fp32_products = point.get("bound") == "compute" and setting.precision == "fp32"
    if is_fp32_products and _has_tensor_cores(roofs):
        gain = _gain(point, roofs)
        return f"it is near its roof; a higher one: --precision tf32 or --precision amp{gain}"
    if is_fp32_products and _bf16_is_faster(roofs):
        return "it is near its roof; a higher one: --precision bf16"
    return "it is near its roof: only less work helps, such as a smaller input or a leaner layer"


def _bf16_is_faster(roofs: Roofs) -> bool:
    low, full = roofs.compute.get("bf16 matrix"), roofs.peak("fp32", "matrix")
    return bool(low and full and low > 1.3 * full)


def _has_tensor_cores(roofs: Roofs) -> bool:
    return roofs.device.startswith("cuda") and any(name in roofs.compute for name in TENSOR_ROOFS)


def _gain(point: dict[str, Any], roofs: Roofs) -> str:
    """How far the floor of the arithmetic would fall if its products were in fp16."""
    now_s, products = point.get("compute_s"), point.get("flops_fp32_matrix")
    low, full = roofs.peak("fp16", "matrix"), roofs.peak("fp32", "matrix")
    if not now_s or not products or not low or not full or products != products:
        return ""
    then_s = now_s - products / full + products / low
    return f" (amp: floor of the arithmetic {format_time(now_s)} → {format_time(then_s)})"
