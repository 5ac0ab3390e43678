"""A study as tables in the terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from ridgeline.cli.tables import Grid, print_grid, print_text, screen
from ridgeline.report.configurations import describe_differences, read_all_settings
from ridgeline.report.study import BUSY
from ridgeline.report.summary import floor_notes
from ridgeline.report.text import number
from ridgeline.roofline.work import short_kernel
from ridgeline.units import format_percent, format_time, si

if TYPE_CHECKING:
    import pandas as pd

    from ridgeline.report.study import Study

MOST_FLAGS = 5
MARK = "*"


def rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a table for JSON: what is not a number is null."""
    clean = table.astype(object).where(table.notna(), None)
    return [{str(k): plain(v) for k, v in row.items()} for row in clean.to_dict("records")]


def plain(value: Any) -> Any:
    """numpy's numbers as Python's; what is not finite as null."""
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and (value != value or value in (float("inf"), -float("inf"))):
        return None
    return value


def print_steps(study: Study) -> None:
    """A row per run: where its step stands."""
    steps = study.points[study.points["grain"].eq("step")] if len(study.points) else study.points
    if steps.empty:
        return
    header = ["model", "batch", "precision", "machine", "FLOP/B", "attained", "step", "floor",
              "bound", "efficiency", "headroom"]  # fmt: skip
    busy = study.disturbed
    body = [_step_row(point, str(point["run_id"]) in busy) for point in steps.to_dict("records")]
    if steps["provenance"].eq("counter").any():  # else all of it is counted from the graph
        header.insert(3, "work")
        for row, source in zip(body, steps["provenance"], strict=True):
            row.insert(3, str(source))
    settings = _settings_by_run(study)
    if any(settings.values()):
        header.insert(3, "settings")
        for row, run_id in zip(body, steps["run_id"], strict=True):
            row.insert(3, settings.get(str(run_id), ""))
    spare = (("FLOP/B",), ("attained",), ("machine",), ("headroom",), ("precision",))
    print_grid(screen(), Grid(header=header, rows=body, spare=spare))
    for reason in dict.fromkeys(busy[run_id] for run_id in steps["run_id"] if run_id in busy):
        print_text(screen(), f"{MARK} {BUSY}: {reason}")


def _settings_by_run(study: Study) -> dict[str, str]:
    """In which settings each run differs from others, label and threads included."""
    words = describe_differences(read_all_settings(study.runs))
    return dict(zip(map(str, study.runs["run_id"]), words, strict=True))


def _step_row(point: dict[Any, Any], is_busy: bool) -> list[str]:
    return [
        str(point["model"]),
        str(point["batch_size"]),
        f"{point['precision']} {point['mode']}",
        str(point["env"]),
        intensity(point["ai"], point["ai_high"]),
        _rate(point["attained_flops_per_s"]),
        time_text(point["time_s"]) + (MARK if is_busy else ""),
        time_text(point["floor_s"]),
        str(point["bound"] or "–"),
        percent_text(point["efficiency"]),
        time_text(point["headroom_s"]),
    ]


def print_captures(study: Study) -> None:
    """A row per imported capture: where all its kernels stand together."""
    if study.captures.empty:
        return
    header = ["capture", "device", "kernels", "machine", "FLOP/B", "attained", "kernel time",
              "floor", "bound", "efficiency"]  # fmt: skip
    body = [
        [
            str(row["label"]),
            str(row["device_name"] or "–"),
            f"{row['launches']:.0f}",
            str(row["env"]),
            intensity(row["ai"], row["ai"]),
            _rate(row["attained_flops_per_s"]),
            time_text(row["time_s"]),
            time_text(row["floor_s"]),
            str(row["bound"] or "–"),
            percent_text(row["efficiency"]),
        ]
        for row in study.captures.to_dict("records")
    ]
    spare = (("FLOP/B",), ("attained",), ("machine",), ("device",))
    print_grid(screen(), Grid(header=header, rows=body, text_columns=2, spare=spare))
    print_text(screen(), "The time of a capture is the sum of its kernels' times.")


def print_layers(study: Study, top: int) -> None:
    """The layers with the largest headroom, of all runs; by counters, where there are any."""
    points = study.points
    layers = points[points["grain"].eq("layer") & points["phase"].eq("all")]
    layers = layers[layers["headroom_s"].notna()]
    if layers.empty:
        print(
            "note: no run has layers that were timed and counted (ridgeline run --layers)",
            file=sys.stderr,
        )
        return
    best = layers.sort_values("provenance").drop_duplicates(["run_id", "layer"])  # counters first
    shown = best.sort_values("headroom_s", ascending=False).head(top)
    header = ["model", "layer", "kind", "work", "time", "floor", "bound", "efficiency", "headroom"]
    body = [
        [
            f"{p['model']}, batch {p['batch_size']}",
            str(p["layer"]),
            str(p["kind"]),
            str(p["provenance"]),
            time_text(p["time_s"]),
            time_text(p["floor_s"]),
            str(p["bound"] or "–"),
            percent_text(p["efficiency"]),
            time_text(p["headroom_s"]),
        ]
        for p in shown.to_dict("records")
    ]
    print_grid(
        screen(),
        Grid(header=header, rows=body, text_columns=4, spare=(("kind",), ("floor",), ("work",))),
    )
    notes = floor_notes(study)
    for run_id, p in shown.drop_duplicates("run_id").set_index("run_id").iterrows():
        if run_id in notes:
            print_text(screen(), f"{p['model']}, batch {p['batch_size']}: {notes[str(run_id)]}")


def print_flags(study: Study) -> None:
    """What physics forbids, in words."""
    lines = flag_lines(study)
    console = screen()
    for line in lines[:MOST_FLAGS]:
        print_text(console, f"flag: {line}")
    if len(lines) > MOST_FLAGS:
        print_text(console, f"flag: and {len(lines) - MOST_FLAGS} more, in roofline_points.csv")


def flag_lines(study: Study) -> list[str]:
    """Flags of the same cause as one line; the largest piece stands for them."""
    groups: dict[tuple[str, str], list[dict[Any, Any]]] = {}
    points = study.every_point
    if len(points):
        for point in points[points["flag"].ne("")].to_dict("records"):
            batch = number(point["batch_size"])  # a capture has none
            what = str(point["model"]) if batch is None else f"{point['model']}, batch {batch:.0f}"
            cause = str(point["flag"]).partition("likely cause: ")[2]
            groups.setdefault((what, cause), []).append(point)
    found = [_flag_line(what, group) for (what, _), group in groups.items()]
    if len(study.runs):
        for column in ("flag", "clock_flag"):
            flagged = study.runs[study.runs[column].ne("")]
            found += [
                f"{r['model']}, batch {r['batch_size']}: {r[column]}"
                for r in flagged.to_dict("records")
            ]
    return list(dict.fromkeys(found))


def _flag_line(what: str, group: list[dict[Any, Any]]) -> str:
    first = max(group, key=lambda point: float(point["time_s"]))
    names = {str(point["name"]) for point in group}
    others = f" and {len(names) - 1} more like it" if len(names) > 1 else ""
    way = "" if first["phase"] in ("", "all", first["name"]) else f", {first['phase']}"
    name = str(first["name"])
    if first["grain"] == "kernel":
        name = short_kernel(name)
    part = "" if name == what or first["grain"] == "step" else f", {name}"
    return f"{what}{part}{way}{others}: {first['flag']}"


def intensity(low: float, high: float) -> str:
    """A range where there is one."""
    if low != low:
        return "–"
    return f"{low:.3g}" if high != high or high <= low * 1.01 else f"{low:.3g}…{high:.3g}"


def _rate(value: float) -> str:
    return si(value, "FLOP/s") if value == value else "–"


def time_text(value: float) -> str:
    return format_time(value) if value == value else "–"


def percent_text(value: float) -> str:
    return format_percent(value) if value == value else "–"
