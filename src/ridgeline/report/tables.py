"""The tables of a study: as CSV with every column in SI units, as Markdown and LaTeX for people.

runs              a row per completed run
throughput        a row per configuration: mean and standard deviation over its runs
complexity        a row per counted configuration: what it must do
roofline_points   a row per step and phase: where it stands under its roofs
layers            a row per layer (for people, the longest ten of each run)
reconcile         a row per step, phase and layer of each profiled run: model beside executed
kernels           a row per kernel of each profiled run and capture (for people, the longest ten)
captures          a row per imported capture, with the file that it is from
predictions       a row per predicted step, beside what was measured
trainings         a row per epoch of each training (for people, a row per training)
ceilings          a row per roof of each machine
findings          what to fix first
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ridgeline.findings import NO_BOUND, OVERLAPS, SYSTEM
from ridgeline.machine.passport import ONE_CORE
from ridgeline.records import Conditions
from ridgeline.report.configurations import WORK, describe_settings
from ridgeline.report.study import Machine, Study
from ridgeline.report.text import (
    MISSING,
    latex_table,
    markdown,
    markdown_table,
    number,
    plain,
    three_digits,
)
from ridgeline.report.views import throughput_summary
from ridgeline.roofline.roofs import LEVELS, flat_unit
from ridgeline.settings import WORK_SETTINGS
from ridgeline.store import IN_RESULTS, StoredTraining, atomic_write_text
from ridgeline.units import format_percent, format_time, si

if TYPE_CHECKING:
    import pandas as pd

SCOPES = ("step", "capture", "phase", "layer", "kernel")
LONGEST = 10  # layers of a run, for people
SEED_COLUMNS = (  # that scripts for other tools look for
    "label", "env", "arch", "backend", "batch_size", "precision", "elapsed_sec", "images_per_sec",
    "ai", "attained_gflops", "peak_gflops", "peak_gbps",
)  # fmt: skip
POINT_COLUMNS = (
    "grain", "name", "layer", "phase", "kind", "mode", "provenance", "device", "flops",
    "dram_bytes", "least_bytes", "fused_bytes", "l3_bytes", "l2_bytes", "l1_bytes", "launches",
    "ai_high", "time_s", "compute_s", "dram_s", "l3_s", "l2_s", "l1_s", "launch_s", "floor_s",
    "fused_floor_s", "bound", "efficiency", "headroom_s", "attained_flops_per_s",
    "peak_flops_per_s", "peak_bytes_per_s", "roof_source", "flag", "note", "run_id",
)  # fmt: skip
SUMMARY_COLUMNS = (
    *SEED_COLUMNS, "grain", "provenance", "launches", "flops", "dram_bytes", "time_s", "floor_s",
    "bound", "efficiency", "headroom_s", "roof_source", "flag", "note", "run_id",
)  # fmt: skip
COUNTED = (*WORK, *WORK_SETTINGS, "optimizer")  # the settings on which a count depends
APART = tuple(name for name in COUNTED if name not in ("model", "mode", "precision", "batch_size"))
CEILING_COLUMNS = (
    "env", "device", "kind", "roof", "rate_per_s", "time_s", "rate", "sustained", "spread",
    "source", "of_datasheet", "clock_hz", "conditions", "how", "measured_at", "is_quick",
)  # fmt: skip
TRAIN_SETTINGS = ("model", "data", "epochs", "batch_size", "lr", "precision")
COMPLEXITY = (
    "params", "macs", "flops", "moved_bytes", "fused_bytes", "counted_peak_bytes", "coverage",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column for people: what of the table, under which header, in which unit."""

    name: str
    header: str
    scale: float = 1.0  # the unit of the header, in SI
    is_share: bool = False
    is_text: bool = False
    most: int | None = None  # characters of a text

    def cell(self, value: Any) -> str:
        if self.is_text:
            shown = format_setting(value)
            if self.most is not None and len(shown) > self.most:
                return f"{shown[: self.most - 1]}…"
            return shown
        known = number(value)
        if known is None:
            return MISSING
        return format_percent(known) if self.is_share else three_digits(known / self.scale)


def format_setting(value: Any) -> str:
    """`yes`, `224`; nothing for what is not known."""
    known = plain(value)
    if isinstance(known, bool):
        return "yes" if known else "no"
    return "" if known is None else str(known)


def text(name: str, header: str | None = None, most: int | None = None) -> Column:
    return Column(name=name, header=header or name, is_text=True, most=most)


def share(name: str, header: str) -> Column:
    return Column(name=name, header=header, is_share=True)


def quantity(name: str, header: str, scale: float = 1.0) -> Column:
    return Column(name=name, header=header, scale=scale)


MS, GIGA, MEGA = 1e-3, 1e9, 1e6
WHO = (
    text("run"), text("env", "machine"), text("model"), text("mode"), text("precision"),
    text("batch_size", "batch"), text("settings"),
)  # fmt: skip
SHOWN: dict[str, tuple[Column, ...]] = {
    "runs": (
        *WHO, quantity("samples_per_s", "samples/s"),
        quantity("samples_per_s_low", "from"), quantity("samples_per_s_high", "to"),
        quantity("step_median_s", "step (ms)", MS), share("busy_fraction", "busy"),
        quantity("energy_j_per_sample", "energy (J/sample)"),
        quantity("peak_memory_bytes", "memory (GB)", GIGA), text("warnings"),
    ),
    "throughput": (
        text("env", "machine"), text("arch", "model"), text("mode"), text("precision"),
        text("batch_size", "batch"), text("input_size", "input"), text("label"), text("settings"),
        text("n", "runs"),
        quantity("samples_per_s_mean", "samples/s, mean"),
        quantity("samples_per_s_std", "standard deviation"),
        quantity("step_median_s_mean", "step (ms), mean", MS),
        quantity("step_median_s_std", "standard deviation", MS),
    ),
    "complexity": (
        text("model"), text("mode"), text("precision"), text("batch_size", "batch"),
        text("settings"), quantity("params", "parameters (M)", MEGA),
        quantity("macs", "MACs (G)", GIGA), quantity("flops", "FLOPs (G)", GIGA),
        quantity("moved_bytes", "bytes moved (GB)", GIGA),
        quantity("fused_bytes", "bytes, fused (GB)", GIGA),
        quantity("ai", "FLOP/B, moved"), quantity("ai_high", "FLOP/B, fused"),
        quantity("counted_peak_bytes", "memory (GB)", GIGA),
    ),
    "roofline_points": (
        *WHO, text("part"), text("provenance", "work"),
        quantity("ai", "FLOP/B"), quantity("attained_flops_per_s", "GFLOP/s", GIGA),
        quantity("time_s", "time (ms)", MS), quantity("floor_s", "floor (ms)", MS), text("bound"),
        share("efficiency", "efficiency"), quantity("headroom_s", "headroom (ms)", MS),
    ),
    "layers": (
        text("run"), text("model"), text("layer"), text("kind"),
        quantity("flops", "FLOPs (G)", GIGA), quantity("dram_bytes", "bytes (MB)", MEGA),
        quantity("ai", "FLOP/B"), quantity("time_s", "time (ms)", MS),
        quantity("floor_s", "floor (ms)", MS), text("bound"), share("efficiency", "efficiency"),
    ),
    "reconcile": (
        text("run"), text("configuration"), text("name", "part"),
        quantity("model_flops", "model (GFLOP)", GIGA),
        quantity("executed_flops", "executed (GFLOP)", GIGA), quantity("flops_ratio", "ratio"),
        quantity("products_ratio", "products"), text("cause"),
        quantity("model_bytes", "operators (MB)", MEGA), quantity("dram_bytes", "DRAM (MB)", MEGA),
        quantity("bytes_ratio", "ratio of bytes"), text("bytes_cause", "cause"),
    ),
    "kernels": (
        text("run"), text("kernel", most=60), text("family"), text("launches"),
        quantity("time_s", "time (ms)", MS), share("share", "of all kernels"),
        quantity("flops", "FLOPs (G)", GIGA), quantity("dram_bytes", "DRAM (MB)", MEGA),
    ),
    "captures": (
        text("label", "capture"), text("device_name", "device"), text("launches"),
        quantity("time_s", "kernels (ms)", MS), quantity("flops", "executed (GFLOP)", GIGA),
        *(quantity(f"{level}_bytes", f"{level.upper()} (MB)", MEGA) for level in LEVELS),
        quantity("ai", "FLOP/B"), quantity("attained_flops_per_s", "GFLOP/s", GIGA),
        quantity("floor_s", "floor (ms)", MS), text("bound"), share("efficiency", "efficiency"),
        text("files", "file or program"),
    ),
    "predictions": (
        text("model"), text("mode"), text("precision"), text("batch_size", "batch"),
        text("compile"), text("machine"), text("what_if", "what if"),
        quantity("time_s", "predicted (ms)", MS), quantity("low_s", "from (ms)", MS),
        quantity("high_s", "to (ms)", MS), quantity("measured_s", "measured (ms)", MS),
        share("error", "error"), text("is_inside", "inside"),
        quantity("samples_per_s", "samples/s"), text("bound", "bound by"),
        quantity("memory_bytes", "memory (GB)", GIGA), text("fits"),
        quantity("energy_j", "energy (J)"), text("basis", "operators"),
    ),
    "trainings": (
        text("training"), text("data"), text("device_name", "device"), text("epochs"), text("lr"),
        quantity("train_loss", "last loss"), share("train_accuracy", "training accuracy"),
        share("test_accuracy", "last test accuracy"), share("best_accuracy", "best"),
        text("best_epoch", "in epoch"), quantity("images_per_s", "images/s"),
        quantity("total_s", "time (s)"),
    ),
    "ceilings": (
        text("env", "machine"), text("roof"), text("rate"), text("source"),
        share("of_datasheet", "of the datasheet"), quantity("clock_hz", "clock (MHz)", MEGA),
        text("how", "measured with", most=60),
    ),
    "findings": (
        *WHO, text("layer"), text("bound"), quantity("time_s", "time (ms)", MS),
        quantity("floor_s", "floor (ms)", MS), quantity("headroom_s", "headroom (ms)", MS),
        share("share", "of the step"), text("advice", "what to try"),
    ),
}  # fmt: skip
CAPTIONS = {
    "runs": "Completed runs; samples/s with its 95 % interval, both of the median step",
    "throughput": "Configurations over their runs; samples/s and step are of the median step",
    "complexity": "What a step must do, counted",
    "roofline_points": "Steps and phases under their roofs",
    "layers": f"The {LONGEST} longest layers of each run",
    "reconcile": "Work of the model beside executed work, where counters were read",
    "kernels": f"The {LONGEST} longest kernels of each profiled run and each capture",
    "captures": "Captures; their time is the sum of their kernels' times",
    "predictions": "Predicted steps, with their interval, beside what was measured",
    "trainings": "Trainings; loss and training accuracy are means over the last epoch",
    "ceilings": "Roofs of the machines",
    "findings": f"What to fix first: the largest headrooms. {NO_BOUND} Of {SYSTEM}: {OVERLAPS}.",
}


def tables(study: Study) -> dict[str, pd.DataFrame]:
    """All tables, with every column they have."""
    points = points_table(study)
    return {
        "runs": name_runs(study, study.runs),
        "throughput": throughput_summary(study.runs),
        "complexity": complexity_table(study),
        "roofline_points": points[points["grain"].isin(["step", "capture", "phase"])],
        "layers": points[points["grain"].eq("layer")],
        "reconcile": name_runs(study, study.reconciled),
        "kernels": name_runs(study, study.kernels),
        "captures": study.captures,
        "predictions": study.predictions,
        "trainings": trainings_table(study.trainings),
        "ceilings": ceilings_table(study),
        "findings": findings_table(study),
    }


def name_runs(study: Study, table: pd.DataFrame) -> pd.DataFrame:
    """With `run` (a capture's label), the `configuration` of that run, and unusual `settings`."""
    new = table.drop(columns="settings", errors="ignore")
    ids = [str(run_id) for run_id in new.get("run_id", ())]
    used = {run_id: study.case_of.get(run_id) for run_id in dict.fromkeys(ids)}
    settings = {run_id: ", ".join(case.extras) if case else None for run_id, case in used.items()}
    titles = {run_id: case.title if case else None for run_id, case in used.items()}
    captures = study.captures.reindex(columns=["run_id", "label"]).to_numpy()
    names = {**study.names, **{str(run_id): label for run_id, label in captures}}
    new.insert(0, "run", [names.get(run_id) for run_id in ids])
    new.insert(1, "settings", [settings[run_id] for run_id in ids])
    new["configuration"] = [titles[run_id] for run_id in ids]
    return new


def trainings_table(trainings: Sequence[StoredTraining]) -> pd.DataFrame:
    """A row per epoch; `training` is a name that no other training has."""
    import pandas as pd

    rows = []
    for run, name in zip(trainings, name_trainings(trainings), strict=True):
        result = run.result
        same = {
            "training": name, "run_id": run.run_id,
            **{key: run.request.settings.get(key) for key in TRAIN_SETTINGS},
            "device_name": result.device_name, "best_accuracy": result.best_accuracy,
            "best_epoch": result.best_epoch, "total_s": result.time_s,
        }  # fmt: skip
        last_lr = {"peak_lr": same.pop("lr")}
        rows += [{**same, **last_lr, **epoch} for epoch in result.history]
    return pd.DataFrame(rows)


def name_trainings(trainings: Sequence[StoredTraining]) -> list[str]:
    """`resnet18_cifar, amp, batch 128`; those of one name are numbered."""
    names: list[str] = []
    seen: Counter[str] = Counter()
    for run in trainings:
        settings = run.request.settings
        model, batch = settings.get("model"), settings.get("batch_size")
        name = f"{model}, {run.result.precision}, batch {batch}"
        seen[name] += 1
        names.append(f"{name} ({seen[name]})" if seen[name] > 1 else name)
    return names


def findings_table(study: Study) -> pd.DataFrame:
    """study.findings with `rank`: among those to begin with, as on the page; none for others."""
    table = name_runs(study, study.findings)
    top = study.top_findings(len(table))
    rank = {index: n for n, index in enumerate(top.index, start=1)}
    table["rank"] = [rank.get(index) for index in table.index]
    return table


def complexity_table(study: Study) -> pd.DataFrame:
    """What was counted, once for each kind of step; `settings` distinguish those of a model."""
    import pandas as pd

    columns = ["settings", *COUNTED, *COMPLEXITY]
    if study.runs.empty:
        return pd.DataFrame(columns=[*columns, "ai", "ai_high"])
    counted = study.runs[study.runs["flops"].notna()]
    settings = [study.case_of[str(run_id)].settings for run_id in counted["run_id"]]
    kinds = pd.Series([tuple(one[name] for name in COUNTED) for one in settings], dtype=object)
    shown = counted.reindex(columns=columns)
    shown["settings"] = [", ".join(describe_settings(one, APART)) for one in settings]
    shown = shown[~kinds.duplicated().to_numpy()]
    order = ["model", "mode", "precision", "batch_size", "settings"]
    shown = shown.sort_values(order).reset_index(drop=True)
    for name, size in (("ai", "moved_bytes"), ("ai_high", "fused_bytes")):
        moved = pd.to_numeric(shown[size])
        shown[name] = pd.to_numeric(shown["flops"]) / moved.where(moved > 0)
    return shown


def points_table(study: Study, *, scopes: Sequence[str] = SCOPES) -> pd.DataFrame:
    """Points of some scopes, in the order of these, with the columns of their runs."""
    points = study.points
    points = name_runs(study, points[points["grain"].isin(scopes)])
    points["part"] = points["name"].mask(points["grain"].eq("step"), "step")
    rank = {scope: n for n, scope in enumerate(SCOPES)}
    order = points["grain"].map(rank).argsort(kind="stable")
    return points.iloc[order].reset_index(drop=True)


def points_csv(study: Study) -> pd.DataFrame:
    """Every point, steps first: the columns that are usual elsewhere, then ours in SI units.

    elapsed_sec and images_per_sec are those of the run that a point belongs to; of a capture, all
    that is known is the time of its kernels.
    """
    points = points_table(study)
    points["precision"] = points["precision"].where(points["precision"].ne(""))
    known = ["run_id", "backend", "elapsed_sec", "images_per_sec"]
    runs = study.runs.reindex(columns=known).set_index("run_id")
    for name in known[1:]:
        points[name] = points["run_id"].map(runs[name])
    if len(study.captures):
        kernels_s = study.captures.set_index("run_id")["time_s"]
        points["elapsed_sec"] = points["elapsed_sec"].fillna(points["run_id"].map(kernels_s))
    points["note"] = study.notes_on(points)
    points["arch"] = points["model"]
    points["attained_gflops"] = points["attained_flops_per_s"] / GIGA
    points["peak_gflops"] = points["peak_flops_per_s"] / GIGA
    points["peak_gbps"] = points["peak_bytes_per_s"] / GIGA
    columns = [*SEED_COLUMNS, *POINT_COLUMNS]
    by_roof = [c for c in study.points.columns if str(c).endswith(("_matrix", "_vector"))]
    return points.reindex(columns=[*columns, *by_roof])


def summary_csv(study: Study) -> pd.DataFrame:
    """Steps by count and, where there are counters, by these; captures. `time_s` of a capture is
    the sum of its kernels' times."""
    points = points_csv(study)
    return points.loc[points["grain"].isin(["step", "capture"]), list(SUMMARY_COLUMNS)]


def write_summary(study: Study, path: Path) -> Path:
    """Write the summary where the user says."""
    text = with_whole_numbers(summary_csv(study)).to_csv(index=False)
    atomic_write_text(path, text, elsewhere="--summary FILE")
    return path


def write_points(study: Study, path: Path) -> Path:
    """Write roofline_points.csv."""
    return _write(path, with_whole_numbers(points_csv(study)).to_csv(index=False))


def write_energies(study: Study, path: Path) -> Path:
    """Write energy_points.csv: the joules of steps, phases and layers."""
    return _write(path, with_whole_numbers(study.energies).to_csv(index=False))


def with_whole_numbers(table: pd.DataFrame) -> pd.DataFrame:
    """Sizes and launches as whole numbers, also where some rows have none."""
    whole = {
        name: table[name].astype("Int64")
        for name in ("batch_size", "launches")
        if name in table and (table[name].dropna().astype(float) % 1 == 0).all()
    }
    return table.assign(**whole)


def ceilings_table(study: Study) -> pd.DataFrame:
    """Every roof: its rate in SI units and in words, where it is from, under which conditions."""
    import pandas as pd

    rows = [row for machine in study.machines for row in list_ceilings(machine)]
    return pd.DataFrame(rows, columns=list(CEILING_COLUMNS))


def list_ceilings(machine: Machine) -> list[dict[str, Any]]:
    """Compute, bandwidth and launches; `rate` is in words, `rate_per_s` and `time_s` in SI."""
    roofs, sheet = machine.roofs, machine.datasheet
    published = {**sheet.flats, **sheet.bandwidth} if sheet else {}
    about = {"env": roofs.env, "device": roofs.device, "measured_at": roofs.measured_at,
             "is_quick": roofs.is_quick}  # fmt: skip
    kinds = [("compute", name, name, rate) for name, rate in roofs.flats.items()]
    kinds += [("bandwidth", name, name.upper(), rate) for name, rate in roofs.bandwidth.items()]
    kinds += [("launch", name, f"launch: {name}", s) for name, s in roofs.launch_s.items()]
    return [
        about
        | {
            "kind": kind,
            "roof": roof,
            "rate": _format_ceiling(kind, name, value),
            "time_s" if kind == "launch" else "rate_per_s": value,
            "of_datasheet": value / published[name] if published.get(name) else None,
            **_describe_measurement(machine, kind, name, value),
        }
        for kind, name, roof, value in kinds
    ]


def _format_ceiling(kind: str, name: str, value: float) -> str:
    if kind == "launch":
        return format_time(value)
    return si(value, flat_unit(name) if kind == "compute" else "B/s")


def _describe_measurement(machine: Machine, kind: str, name: str, value: float) -> dict[str, Any]:
    """Where a roof is from; a user-supplied roof may replace one that the passport has, too."""
    for c in machine.passport.ceilings if machine.passport else ():
        names = {"compute": f"{c.precision} {c.path}", "bandwidth": c.level, "launch": c.what}
        is_here = c.kind == kind and c.device == machine.roofs.device
        if is_here and c.best == value and names[kind] == name:
            return {
                "source": "measured",
                "clock_hz": c.conditions.clock_hz,
                "how": c.brief_how,
                "sustained": _format_ceiling(kind, name, c.sustained),
                "spread": c.spread,
                "conditions": _describe_conditions(c.conditions),
            }
    source = machine.roofs.source
    if source == ONE_CORE:  # and not among those that were measured
        source = "scaled"
    return {"source": source, "clock_hz": machine.roofs.clock_hz if source == "measured" else None}


def _describe_conditions(at: Conditions) -> str:
    """`1.98 GHz, 640 W, 62 °C, power cap`."""
    known = [si(value, unit) for value, unit in ((at.clock_hz, "Hz"), (at.power_w, "W")) if value]
    known += [f"{at.temperature_c:.0f} °C"] if at.temperature_c is not None else []
    return ", ".join([*known, *at.throttle_reasons])


def formatted(table: pd.DataFrame, columns: Sequence[Column]) -> list[list[str]]:
    """The cells of a table as people read them."""
    shown = table.reindex(columns=[column.name for column in columns])
    return [
        [column.cell(value) for column, value in zip(columns, row, strict=True)]
        for row in shown.itertuples(index=False, name=None)
    ]


def known_columns(table: pd.DataFrame, columns: Sequence[Column]) -> list[Column]:
    """Those of the columns in which something is known."""
    return [
        column
        for column in columns
        if column.name in table and any(plain(v) not in (None, "") for v in table[column.name])
    ]


def compact(columns: Sequence[Column]) -> list[Column]:
    """The same with one column that names the configuration instead of six."""
    if not set(WHO) <= set(columns):
        return list(columns)
    rest = [column for column in columns if column not in WHO]
    return [text("run"), text("env", "machine"), text("configuration"), *rest]


def sides(columns: Sequence[Column]) -> str:
    return "".join("l" if column.is_text else "r" for column in columns)


def as_markdown(table: pd.DataFrame, columns: Sequence[Column]) -> str:
    """A table for people, in Markdown."""
    headers = [column.header for column in columns]
    return markdown_table(headers, formatted(table, columns), sides(columns))


def write_tables(study: Study, folder: Path) -> list[Path]:
    """Write every table as CSV, Markdown and LaTeX into a folder."""
    written = []
    for name, table in tables(study).items():
        shown, columns = for_people(name, table), SHOWN[name]
        headers = [column.header for column in columns]
        contents = {
            "csv": with_whole_numbers(table).to_csv(index=False),
            "md": f"{markdown(CAPTIONS[name])}\n\n{as_markdown(shown, columns)}\n",
            "tex": latex_table(headers, formatted(shown, columns), caption=CAPTIONS[name],
                               label=name, numeric=sides(columns)),
        }  # fmt: skip
        written += [_write(folder / f"{name}.{end}", text) for end, text in contents.items()]
    return written


def for_people(name: str, table: pd.DataFrame) -> pd.DataFrame:
    """Without what nobody would read in a table of text."""
    if name == "layers" and len(table):
        whole = table[table["phase"].eq("all") & table["time_s"].notna()]
        longest = whole.sort_values("time_s", ascending=False).groupby("run_id").head(LONGEST)
        return longest.sort_values(["run_id", "time_s"], ascending=[True, False])
    if name == "kernels" and len(table):
        return table.groupby("run_id", sort=False).head(LONGEST)
    if name == "trainings" and len(table):
        last = table.groupby("training", sort=False).tail(1)
        return last.assign(lr=last["peak_lr"])
    if name == "findings" and len(table):
        return table[table["rank"].notna()].sort_values("rank")
    return table


def _write(path: Path, content: str) -> Path:
    atomic_write_text(path, content, elsewhere=IN_RESULTS)
    return path
