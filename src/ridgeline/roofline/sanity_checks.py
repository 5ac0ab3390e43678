"""What physics forbids, or what does not fit its neighbours: flagged with the likely cause."""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING, Any

from ridgeline.roofline.floors import flops_columns
from ridgeline.settings import STEP_SETTINGS

if TYPE_CHECKING:
    import pandas as pd

TOLERANCE = {  # above a roof
    "static": 0.03,  # a clock and a roof are each known about so well
    "counter": 0.1,  # counters and times are of two runs
}
HOT = 0.05  # of the step
LEAST_TIME_S = 5e-6  # below that, a layer's time is as much the timer's as its own …
FAR = 2.0  # … but counters that make it so much faster than its floor are wrong at any time
EXECUTED_BAND = (0.4, 1.5)  # executed over model FLOPs, of a step: not all of it is Winograd
LAYER_BAND = (0.1, 10.0)  # of a layer: Winograd saves 4 times, a few channels are padded to many
PRODUCTS = 0.5  # of the model's FLOPs: conventions differ too much for the others
ENERGY_FACTOR = 1.5  # joules per sample against what the batches beside it suggest
CLOCK_BAND = 0.05
ENERGY_KEYS = (  # runs that differ in the batch size alone make a line
    "env", "model", "mode", "precision", "input_size", "seq_len", "config", "optimizer", "compile",
    *STEP_SETTINGS, "data_root",
)  # fmt: skip

ABOVE_ITS = "above its"  # so begins the flag of a point that is faster than it can be
ABOVE = {
    ("static", "compute"): "fewer FLOPs may be executed than the model has (Winograd, FFT, masked"
    " attention), or the roof was measured at a lower clock",
    ("static", "dram"): "part of its data stayed in a cache, or operators were fused",
    ("static", "launch"): "several operators share a kernel, or the host is faster than it was",
    ("counter", "compute"): "the roof is too low: measure the machine again",
    ("counter", "dram"): "the roof is too low, or the time is of another run than the counters",
}
OTHER_UNIT = "; or times or counters are in another unit than they say"
ABOVE_ELSE = "the roof is too low, or its data stayed nearer to the cores"
TOO_LOW = {"datasheet": "measure this device", "given": "check the value that was given for it"}
NO_FLOPS = {
    True: "it only moves or compares data, or no formula and no counter tells its work",
    False: "no work was counted for it: it waits, or its operators belong to another row",
}
EXECUTED = {
    True: "counters of a precision are missing, or part of the step was not captured",
    False: "padding to tiles, recomputation, or another workload than was counted",
}


def find_flags(points: pd.DataFrame) -> pd.Series:
    """What is wrong with each point, in words; empty where nothing is."""
    import pandas as pd

    flags = pd.Series("", index=points.index, dtype=object)
    for mask, texts in (_check_roofs(points), _check_hot_work(points), _check_executed(points)):
        text = pd.Series(texts, index=points.index, dtype=object)
        flags = flags.where(~mask, flags.str.cat(text, sep="; ").str.removeprefix("; "))
    return flags


def _check_roofs(points: pd.DataFrame) -> tuple[pd.Series, list[str]]:
    most = 1 + points["provenance"].map(TOLERANCE)
    is_far = points["efficiency"].gt(FAR) & points["provenance"].eq("counter")
    is_far &= points["bound"].ne("launch")
    mask = points["efficiency"].gt(most) & (points["time_s"].gt(LEAST_TIME_S) | is_far)
    rows = points.reindex(columns=["provenance", "bound", "efficiency", "roof_source"])
    texts = []
    for provenance, bound, efficiency, source in rows.itertuples(index=False, name=None):
        cause = ABOVE.get((provenance, bound), ABOVE_ELSE)
        if provenance == "counter" and bound in ("compute", "dram") and source in TOO_LOW:
            cause = f"the roof is too low: {TOO_LOW[source]}"
        if provenance == "counter" and efficiency > FAR:
            cause += OTHER_UNIT
        texts.append(f"{ABOVE_ITS} {bound} roof: {100 * (efficiency - 1):.0f} % faster than its"
                     f" floor; likely cause: {cause}")  # fmt: skip
    return mask, texts


def _check_hot_work(points: pd.DataFrame) -> tuple[pd.Series, list[str]]:
    """Hot work for which no FLOPs are known."""
    steps = points[points["grain"].isin(["step", "capture"])].drop_duplicates("run_id")
    whole = points["run_id"].map(steps.set_index("run_id")["time_s"])
    share = points["time_s"] / whole
    is_layer = points["grain"].eq("layer") & points["phase"].eq("all")
    is_item = is_layer | (points["grain"].eq("kernel") & points["flops"].notna())
    mask = is_item & share.gt(HOT) & points["flops"].fillna(0).eq(0)
    moves = points["dram_bytes"].fillna(0).gt(0)
    return mask, [
        f"{100 * part:.0f} % of the step without FLOPs; likely cause: {NO_FLOPS[is_moving]}"
        for part, is_moving in zip(share.tolist(), moves.tolist(), strict=True)
    ]


def _check_executed(points: pd.DataFrame) -> tuple[pd.Series, list[str]]:
    """Executed FLOPs against those of the model, where both are known and mostly of products.

    That a layer differs has its cause in the reconciliation; here is what no cause explains.
    """
    keys = ["run_id", "grain", "layer", "phase"]
    static = points[points["provenance"].eq("static") & points["flops"].gt(0)]
    matrix = [name for name in flops_columns(points) if name.endswith("_matrix")]
    if matrix:
        static = static[static[matrix].sum(axis=1).gt(PRODUCTS * static["flops"])]
    model = static.drop_duplicates(keys).set_index(keys)["flops"]
    index = points.set_index(keys).index
    ratio = points["flops"].set_axis(index) / model.reindex(index)
    ratio = ratio.set_axis(points.index)
    is_out = ~ratio.between(*EXECUTED_BAND).where(points["grain"].ne("layer"),
                                                  ratio.between(*LAYER_BAND))  # fmt: skip
    mask = points["provenance"].eq("counter") & ratio.notna() & is_out
    return mask, [
        f"executes {times:.2f} times the model's FLOPs; likely cause: {EXECUTED[times < 1]}"
        for times in ratio.tolist()
    ]


def find_energy_flags(runs: pd.DataFrame) -> pd.Series:
    """Runs whose joules per sample do not fit those of the batch sizes beside them."""
    import pandas as pd

    flags = pd.Series("", index=runs.index, dtype=object)
    if "energy_j_per_sample" not in runs:
        return flags
    keys = [name for name in ENERGY_KEYS if name in runs]
    known = runs[runs["energy_j_per_sample"].gt(0)]
    for _, group in known.groupby(keys, dropna=False):
        line = group.groupby("batch_size")["energy_j_per_sample"].median().sort_index()
        for batch, text in _find_outliers(line.to_dict()).items():
            flags.loc[group.index[group["batch_size"].eq(batch)]] = text
    return flags


def _find_outliers(line: dict[Any, float]) -> dict[int, str]:
    """By batch size; the worst one first: the others are judged without it, not by it."""
    flags: dict[int, str] = {}
    while len(line) > 2:
        sizes = sorted(line)
        neighbours = {mid: (low, high) for low, mid, high in zip(sizes, sizes[1:], sizes[2:],
                                                             strict=False)}  # fmt: skip
        expected = {
            mid: line[low] * (line[high] / line[low]) ** (log(mid / low) / log(high / low))
            for mid, (low, high) in neighbours.items()
        }  # on the line through both points of a log-log plot
        worst = max(expected, key=lambda size: abs(log(line[size] / expected[size])))
        if abs(log(line[worst] / expected[worst])) <= log(ENERGY_FACTOR):
            break
        low, high = neighbours[worst]
        flags[worst] = (
            f"{line.pop(worst):.3g} J per sample where batches {low} and {high} suggest"
            f" {expected[worst]:.3g}; likely cause: a wrong power reading: measure it again"
        )
    return flags


def describe_clock(run_clock_hz: float | None, roof_clock_hz: float | None) -> str:
    """A run at a lower clock than its roof was measured at.

    A higher one is usual: large products draw so much power that it takes the clock down.
    """
    if not run_clock_hz or not roof_clock_hz:
        return ""
    ratio = run_clock_hz / roof_clock_hz
    if ratio >= 1 - CLOCK_BAND:
        return ""
    return (
        f"ran at {run_clock_hz / 1e6:.0f} MHz, its roof is of {roof_clock_hz / 1e6:.0f} MHz:"
        f" at the run's clock, that roof is {100 * ratio:.0f} % of the one drawn"
    )
