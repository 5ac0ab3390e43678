"""What the hardware did, for the page: profiles, model beside executed work, kernels by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ridgeline.report.executed import (
    Profiled,
    describe_gap,
    describe_trust,
    flops_by_roof,
    profiled,
    programs,
    whole,
)
from ridgeline.report.page.captures import capture_sentences
from ridgeline.report.page.columns import Words, numbers, rounded
from ridgeline.report.study import Study
from ridgeline.report.text import capped, records
from ridgeline.roofline.causes import CAUSES
from ridgeline.roofline.kernel_names import short_kernel

if TYPE_CHECKING:
    import pandas as pd

MOST_KERNELS = 60  # of a run
MOST_ROWS = 6_000  # of the reconciliation
TILES = ("dram", "l2", "l1")  # memory levels with a total
TEXTS = ("grain", "name", "kind", "cause", "where", "bytes_cause", "bytes_where")
NUMBERS = (
    "launches", "time_s", "model_flops", "executed_flops", "model_products", "executed_products",
    "model_bytes", "dram_bytes",
)  # fmt: skip


def executed_payload(study: Study, runs: Mapping[str, int], words: Words) -> dict[str, Any]:
    """The part of the payload that is about counters; `runs` are the rows of the runs."""
    return {
        "profiles": [*(_profile(one, runs) for one in profiled(study)), *_captures(study, runs)],
        "reconciled": _columns(study.reconciled.head(MOST_ROWS), TEXTS, NUMBERS, runs, words),
        "kernels": _kernels(study.kernels, runs, words),
        "causes": CAUSES,
    }


def _profile(one: Profiled, runs: Mapping[str, int]) -> dict[str, Any]:
    told = [f"{capped(text)}." for text in (describe_gap(one), describe_trust(one)) if text]
    return {
        "run": runs[one.run_id],
        "id": one.profile_id,
        "has_counters": bool(one.flops_by_roof) or one.dram_bytes is not None,
        "told": told,
        "warnings": list(one.warnings),
        "is_trusted": one.is_trusted is not False,
        "flops": [[roof, rounded(flops)] for roof, flops in one.flops_by_roof.items()],
        "bytes": [[level.upper(), rounded(getattr(one, f"{level}_bytes"))] for level in TILES],
        "kernel_s": rounded(one.kernel_time_s),
        "step_s": rounded(one.step_time_s),
        "gap_s": rounded(one.gap_s),
        "launches": one.launches,
    }


def _captures(study: Study, runs: Mapping[str, int]) -> list[dict[str, Any]]:
    """The same of captures, which have no step around them."""
    found = []
    own = programs(study)
    for row, told in zip(records(study.captures), capture_sentences(study), strict=True):
        one = own.get(str(row["run_id"]))
        trusted = (
            f"{capped(describe_trust(one))}." if one is not None and describe_trust(one) else ""
        )
        points = study.capture_points
        mine = points[points["run_id"].eq(row["run_id"]) & points["grain"].eq("capture")]
        flops = flops_by_roof(mine)
        found.append(
            {
                "run": runs[str(row["run_id"])],
                "id": str(row["run_id"]),
                "has_counters": bool(flops),
                "told": [part for part in (told, trusted) if part],
                "warnings": list(study.notes.get(str(row["run_id"]), ())),
                "is_trusted": one is None or one.is_trusted is not False,
                "flops": [[roof, rounded(amount)] for roof, amount in flops.items()],
                "bytes": [[level.upper(), rounded(row[f"{level}_bytes"])] for level in TILES],
                "kernel_s": rounded(row["time_s"]),
                "step_s": rounded(row["step_time_s"]),
                "gap_s": None,
                "launches": whole(row["launches"]),
            }
        )
    return found


def _kernels(kernels: pd.DataFrame, runs: Mapping[str, int], words: Words) -> dict[str, Any]:
    """The longest kernels of each run and capture, with how many there are in all."""
    if kernels.empty:
        return {"count": 0}
    first = kernels.groupby("run_id", sort=False).head(MOST_KERNELS)
    first = first.assign(short=[short_kernel(str(name)) for name in first["kernel"]])
    texts = ("kernel", "short", "family")
    amounts = ("launches", "time_s", "share", "flops", "dram_bytes", "l2_bytes", "l1_bytes")
    found = _columns(first, texts, amounts, runs, words)
    sizes = kernels.groupby("run_id", sort=False).size()
    return found | {"all": {runs[str(run_id)]: int(size) for run_id, size in sizes.items()}}


def _columns(
    table: pd.DataFrame,
    texts: tuple[str, ...],
    amounts: tuple[str, ...],
    runs: Mapping[str, int],
    words: Words,
) -> dict[str, Any]:
    if table.empty:
        return {"count": 0}
    columns: dict[str, Any] = {"count": len(table), "run": [runs[r] for r in table["run_id"]]}
    for name in texts:
        columns[name] = words.column(table[name]) if name in table else None
    for name in amounts:
        columns[name] = numbers(table[name]) if name in table else None
    return columns
