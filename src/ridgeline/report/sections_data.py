"""The sections of report.md that show numbers: complexity, measurement, roofline."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ridgeline.findings import NO_BOUND, OVERLAPS, SYSTEM
from ridgeline.records import BACKWARD, PHASES
from ridgeline.report.cases import NETWORK, largest
from ridgeline.report.markup import markdown
from ridgeline.report.sections import Material, figure_block, table
from ridgeline.report.tables import (
    MS,
    SHOWN,
    ceilings_table,
    compact,
    complexity_table,
    findings_table,
    for_people,
    points_table,
    quantity,
    runs_table,
    share,
    text,
)
from ridgeline.report.text import counted, number

if TYPE_CHECKING:
    import pandas as pd

GIGA = 1e9
SECTION_OF = {"throughput": "measurement", "runtime": "measurement", "training": "analysis",
              "batch": "analysis"}  # fmt: skip
LARGEST_LAYERS = 3
MOST_FINDINGS = 10
ONLY_CAPTURES = (
    "No run was timed here. The points are those of captures: what their kernels executed, over the"
    " time of these kernels."
)
MOST_WARNED = 40  # runs whose warnings are listed
CASE = (text("run"), text("env", "machine"), text("configuration"))


def complexity(material: Material) -> Iterator[str]:
    """What the steps must do."""
    counts = complexity_table(material.study)
    if counts.empty:
        yield "No model was counted, so nothing can be said about what its steps must do."
        return
    yield (
        "Counted from the operators of one step, without running it: a multiply-add is one MAC and"
        " two FLOPs, and FLOPs outside of products are included. Bytes are a range: *moved* lets"
        " every operator read and write all its operands, *fused* moves each tensor once. Intensity"
        " is FLOPs over bytes at either end. Memory is the peak that the tensors of a step need."
    )
    yield table(counts, SHOWN["complexity"])
    phases = _phases(material)
    if len(phases):
        yield (
            "The FLOPs (in G) by phase. Backward is made of the gradients of inputs and of weights,"
            " and of recomputation (activation checkpointing)."
        )
        names = [quantity(phase, phase, GIGA) for phase in PHASES if phases[phase].notna().any()]
        yield table(phases, [text("model"), text("mode"), text("precision"),
                             text("batch_size", "batch"), text("settings"), *names,
                             quantity("ratio", "backward / forward")])  # fmt: skip
    yield from _largest_layers(material)


def _phases(material: Material) -> pd.DataFrame:
    import pandas as pd

    points = material.study.points
    points = points[points["grain"].eq("phase") & points["provenance"].eq("static")]
    counted = points.set_index(["run_id", "phase"])["flops"].to_dict()
    rows = []
    for case in largest(material.cases, *NETWORK, "mode", "precision"):
        flops = {name: number(counted.get((case.run_id, name))) for name in PHASES}
        if not flops["forward"]:
            continue
        back = sum(flops[name] or 0 for name in BACKWARD)
        same = {name: case.settings[name] for name in ("model", "mode", "precision", "batch_size")}
        ratio = back / flops["forward"] if back else None
        rows.append({**same, "settings": ", ".join(case.extras), **flops, "ratio": ratio})
    return pd.DataFrame(rows)


def _largest_layers(material: Material) -> Iterator[str]:
    """Of each network, the layers with the most FLOPs."""
    chosen = {case.run_id: case for case in largest(material.cases, *NETWORK)}
    points = material.study.points
    points = points[points["grain"].eq("layer") & points["phase"].eq("all")]
    points = points[points["provenance"].eq("static") & points["run_id"].isin(chosen)]
    if points.empty:
        return
    share_of = points["flops"] / points.groupby("run_id")["flops"].transform("sum")
    order = {run_id: n for n, run_id in enumerate(chosen)}
    points = points.assign(share=share_of, place=points["run_id"].map(order))
    points = points.sort_values(["place", "flops"], ascending=[True, False], kind="stable")
    top = points.groupby("run_id", sort=False).head(LARGEST_LAYERS)
    top = top.assign(settings=[", ".join(chosen[run_id].extras) for run_id in top["run_id"]])
    yield f"The {LARGEST_LAYERS} layers of each model with the most FLOPs, at its largest batch:"
    columns = [text("model"), text("batch_size", "batch"), text("settings"), text("layer"),
               text("kind"), quantity("flops", "FLOPs (G)", GIGA), share("share", "of the step"),
               quantity("dram_bytes", "bytes moved (MB)", 1e6),
               quantity("ai", "FLOP/B, moved")]  # fmt: skip
    yield table(top, columns)


def measurement(material: Material) -> Iterator[str]:
    """What was measured, run by run."""
    runs = runs_table(material.study, material.cases)
    if runs.empty:
        yield "No run was timed here."
        return
    yield (
        "Each run warmed up first and then timed a number of steps. The step is their median, and"
        " samples/s is that of the median step, with its 95 % interval (bootstrap). The interval is"
        " about other steps of the same run: other runs may differ by more."
    )
    yield table(runs, compact(SHOWN["runs"]))
    yield (
        "Memory is the peak that the framework allocated on a GPU, and the resident memory of the"
        " whole process on a CPU; the two do not compare."
    )
    yield from _split(runs)
    yield from _conditions(runs)
    yield from figures(material, "measurement")
    yield from _warnings(material)


def _split(runs: pd.DataFrame) -> Iterator[str]:
    phases = ("data", "copy", "forward", "backward", "optimizer")
    parts = [quantity(f"{phase}_s", f"{phase} (ms)", MS) for phase in phases]
    ratio = runs.reindex(columns=["forward_s", "backward_s"]).astype(float)
    split = runs.assign(ratio=ratio["backward_s"] / ratio["forward_s"])
    yield "Where the time of a step goes (medians of each part, so they need not add up exactly):"
    yield table(split, [*CASE, quantity("step_median_s", "step (ms)", MS), *parts,
                        quantity("ratio", "backward / forward"),
                        share("busy_fraction", "device busy")])  # fmt: skip


def _conditions(runs: pd.DataFrame) -> Iterator[str]:
    columns = [
        quantity("energy_j_per_step", "energy (J/step)"),
        quantity("energy_j_per_sample", "energy (J/sample)"),
        quantity("mean_power_w", "power (W)"), quantity("idle_power_w", "idle (W)"),
        quantity("clock_hz", "clock (MHz)", 1e6),
        quantity("memory_clock_hz", "memory clock (MHz)", 1e6),
        quantity("temperature_c", "temperature (°C)"), text("throttle_reasons", "held down by"),
    ]  # fmt: skip
    told = [column.name for column in columns if column.name in runs]
    known = runs[runs[told].replace("", None).notna().any(axis=1)]
    if len(known):
        yield "Energy, clocks and temperature while the steps ran, where there was a meter:"
        yield table(known, [*CASE, *columns])


def _warnings(material: Material) -> Iterator[str]:
    """What the runs said about themselves, without the advice that follows it."""
    lines = []
    for run in material.study.raw_runs:
        said = [str(warning).partition("; ")[0] for warning in run.found.get("warnings") or ()]
        if said and run.run_id in material.names:
            lines.append(f"- {material.names[run.run_id]}: {markdown('; '.join(said))}")
    if not lines:
        return
    yield "What the runs warned of:"
    left = len(lines) - MOST_WARNED
    if left > 0:
        lines = [*lines[:MOST_WARNED], f"- and {counted(left, 'more run')}"]
    yield "\n".join(lines)


def roofline(material: Material) -> Iterator[str]:
    """Roofs, points, pictures and what to fix first."""
    study = material.study
    yield (
        "The floor of a piece of work is the largest of three times: its FLOPs over the arithmetic"
        " roofs of their precisions, its bytes over the bandwidth of each memory level, and its"
        " launches times the cost of one. No run that does this work can be faster on this machine,"
        " as far as the roofs are right; caches and fusion may spare some of the bytes."
        " The DRAM floor takes the least bytes: those of operators whose operands do not fit the"
        " last cache. They may be below the fused bytes, because a cache may keep a tensor between"
        " two uses."
        " *Bound* names the largest of the three, *efficiency* is floor over time,"
        " *headroom* the time above the floor. Points are never placed by dividing a rate by a"
        " bandwidth: work and time are known separately, or there is no point."
    )
    ceilings = ceilings_table(study)
    if len(ceilings):
        yield "The roofs, with the clock that was seen while they were measured:"
        yield table(ceilings, SHOWN["ceilings"])
    points = points_table(study, material.cases, grains=("step", "phase"))
    steps = points[points["grain"].eq("step")]
    if steps.empty:
        has_captures = not study.captures.empty
        yield ONLY_CAPTURES if has_captures else "No run has both a count and roofs: no point."
        yield from figures(material, "roofline")
        return
    yield (
        "The steps under these roofs. Work is *static* (counted from the graph: what the"
        " mathematics needs) or *counter* (read from the hardware). FLOP/B is over the bytes moved."
    )
    columns = compact(SHOWN["roofline_points"])
    yield table(steps, [column for column in columns if column.name != "piece"])
    timed = points[points["grain"].eq("phase") & points["time_s"].notna()]
    timed = timed[timed["run_id"].isin([case.run_id for case in material.cases])]
    if len(timed):
        yield "Their phases, as far as these have a time of their own (one run a configuration):"
        yield table(timed, columns)
    yield from figures(material, "roofline")
    yield from _findings(material)


def _findings(material: Material) -> Iterator[str]:
    """In the order of the page and of the terminal."""
    first = for_people("findings", findings_table(material.study, material.cases))
    if first.empty:
        return
    yield (
        "What to fix first: the largest headrooms, a layer of a model once and waiting for the host"
        f" once. {NO_BOUND}"
    )
    yield table(first.head(MOST_FINDINGS), compact(SHOWN["findings"]))
    if first.head(MOST_FINDINGS)["layer"].eq(SYSTEM).any():
        yield f"Of {SYSTEM}: {OVERLAPS}."


def figures(material: Material, section: str) -> Iterator[str]:
    """The figures of a section, numbered through the report."""
    order = {"measurement": 0, "roofline": 1, "analysis": 2}
    placed = sorted(material.figures, key=lambda figure: order[section_of(figure.kind)])
    for n, figure in enumerate(placed, start=1):
        if section_of(figure.kind) == section:
            yield figure_block(figure, n, material.folder)


def section_of(kind: str) -> str:
    return SECTION_OF.get(kind, "roofline")
