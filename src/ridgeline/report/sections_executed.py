"""The section of report.md about hardware counters: what was executed beside what was needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ridgeline.report.configurations import Case
from ridgeline.report.executed import Profiled, describe_gap, describe_trust, profiled, programs
from ridgeline.report.markup import markdown, markdown_line
from ridgeline.report.sections import Material, table
from ridgeline.report.tables import GIGA, MS, SHOWN, quantity, share, text
from ridgeline.report.tables import kernels_table as all_kernels
from ridgeline.report.text import capped, records
from ridgeline.roofline.causes import AGREE, CAUSES
from ridgeline.roofline.roofs import LEVELS, work_unit

if TYPE_CHECKING:
    import pandas as pd

MOST_LAYERS = 10  # of a run: those that differ most
MOST_KERNELS = 10
NONE = (
    "No hardware counters were read, so what was executed is not known: all FLOPs and bytes in this"
    " report are counted from the graph of the model. `ridgeline profile` reads counters, and"
    " `ridgeline import` takes captures made elsewhere."
)


def executed(material: Material) -> Iterator[str]:
    """Totals, phases, layers and kernels of each profiled run; captures from elsewhere."""
    found = profiled(material.study)
    if not found and material.study.captures.empty:
        yield NONE
        return
    if found:
        yield (
            "Model work is what the mathematics needs; executed work is what hardware counters saw."
            " Both leave transcendental functions out, and no counter sees comparisons and"
            " divisions, so *products* (convolutions, matrix products, attention) are also compared"
            " alone. Bytes are those that all operators touch, beside those that DRAM delivered."
        )
        yield table(_totals(material, found), _total_columns(found))
        yield "\n".join(_told(material, found))
    yield from _reconciled(material)
    yield from _captures(material)
    yield from _kernels(material, found)


def _titles(cases: Sequence[Case]) -> dict[str, str]:
    return {run_id: case.title for case in cases for run_id in case.run_ids}


def _totals(material: Material, found: Sequence[Profiled]) -> pd.DataFrame:
    import pandas as pd

    titles = _titles(material.cases)
    rows: list[dict[str, Any]] = [
        {
            "run": material.names.get(one.run_id),
            "configuration": titles.get(one.run_id),
            "launches": one.launches,
            "kernel_time_s": one.kernel_time_s,
            "step_time_s": one.step_time_s,
            "gap": None if one.gap_s is None else one.gap_s / one.step_time_s,
            "dram_bytes": one.dram_bytes,
            "l2_bytes": one.l2_bytes,
            "l1_bytes": one.l1_bytes,
            **one.flops_by_roof,
        }
        for one in found
    ]
    return pd.DataFrame(rows)


def _total_columns(found: Sequence[Profiled]) -> list[Any]:
    roofs = dict.fromkeys(roof for one in found for roof in one.flops_by_roof)
    return [
        text("run"), text("configuration"), text("launches"),
        quantity("kernel_time_s", "kernels (ms)", MS), quantity("step_time_s", "step (ms)", MS),
        share("gap", "device idle"),
        *(quantity(roof, f"{roof} (G{work_unit(roof)})", GIGA) for roof in roofs),
        *(quantity(f"{level}_bytes", f"{level.upper()} (GB)", GIGA) for level in LEVELS),
    ]  # fmt: skip


def _told(material: Material, found: Sequence[Profiled]) -> Iterator[str]:
    """The launch gap and how far the counters can be trusted, run by run."""
    titles = _titles(material.cases)
    for one in found:
        name = f"{material.names.get(one.run_id)}, {titles.get(one.run_id)}"
        said = [part for part in (describe_gap(one), describe_trust(one), *one.warnings) if part]
        yield f"- {markdown_line(f'{name}: ' + '. '.join(capped(part) for part in said))}"


def _reconciled(material: Material) -> Iterator[str]:
    from ridgeline.report.tables import reconcile_table

    rows = reconcile_table(material.study, material.cases)
    if rows.empty:
        return
    coarse = rows[rows["grain"].isin(["step", "phase"])]
    yield "Steps and phases. The cause is that of the largest part of the difference:"
    yield table(coarse, [*SHOWN["reconcile"], text("where", "mostly in")])
    layers = rows[rows["grain"].eq("layer")]
    off = layers[layers["cause"].ne(AGREE) | layers["bytes_cause"].ne(AGREE)]
    apart = (off["executed_flops"].fillna(0) - off["model_flops"]).abs()
    most = off.assign(apart=apart).sort_values("apart", ascending=False, kind="stable")
    most = most.groupby("run_id", sort=False).head(MOST_LAYERS).sort_values("run_id", kind="stable")
    if len(most):
        yield f"The layers of each run that differ most, up to {MOST_LAYERS}:"
        yield table(most, SHOWN["reconcile"])
    named = dict.fromkeys([*coarse["cause"], *coarse["bytes_cause"],
                           *most["cause"], *most["bytes_cause"]])  # fmt: skip
    told = [f"*{markdown(cause)}*: {markdown(CAUSES[cause])}" for cause in named if cause in CAUSES]
    yield f"Causes: {'; '.join(told)}."


def _captures(material: Material) -> Iterator[str]:
    captures = material.study.captures
    if captures.empty:
        return
    yield (
        "Captures: from elsewhere, or of programs that were profiled here. Their time is the sum of"
        " their kernels' times, so waiting for the host is not in it. The appendix says from which"
        " file or program each is."
    )
    yield table(captures, [column for column in SHOWN["captures"] if column.name != "files"])
    own = programs(material.study)
    for row in records(captures):
        one = own.get(str(row["run_id"]))
        said = (
            [capped(part) for part in (describe_gap(one), describe_trust(one)) if part]
            if one
            else []
        )
        if said:
            yield f"{markdown_line(str(row['label']))}: {markdown_line('. '.join(said))}."
        notes = material.study.notes.get(row["run_id"], ())
        if notes:
            yield f"On {markdown_line(str(row['label']))}: {markdown_line('; '.join(notes))}."


def _kernels(material: Material, found: Sequence[Profiled]) -> Iterator[str]:
    """The kernels of the slowest profiled run, and of each capture."""
    kernels = all_kernels(material.study, material.cases)
    if kernels.empty:
        return
    slowest = max(found, key=lambda one: one.step_time_s).run_id if found else None
    captured = () if material.study.captures.empty else material.study.captures["run_id"]
    shown = kernels[kernels["run_id"].isin([slowest, *captured])]
    of = ["of the slowest profiled run"] if found else []
    of += ["of each capture"] if len(captured) else []
    yield (
        f"The {MOST_KERNELS} kernels that take longest ({', and '.join(of)}). A kernel is a name"
        " here: all its launches are added up, whatever their grids and blocks, which the figure of"
        " kernels tells apart. Kernels without FLOPs are here, too."
    )
    yield table(shown.groupby("run_id", sort=False).head(MOST_KERNELS), SHOWN["kernels"])
