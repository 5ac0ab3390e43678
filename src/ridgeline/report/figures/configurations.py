"""Runs of the same settings are repeats of one configuration, which has a short name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ridgeline.report.configuration import (
    CIRCUMSTANCES,
    NETWORK,
    PLACE,
    SETTINGS,
    all_settings,
    in_words,
    key,
    numbered,
    telling_each,
)
from ridgeline.roofline.captured import CAPTURE

if TYPE_CHECKING:
    import pandas as pd

NAMED = ("model", "precision", "batch_size")  # colour, mark and number tell these apart
FURTHER = tuple(name for name in SETTINGS if name not in (*NAMED, *PLACE))


def configured(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs of all machines with columns that say which belong together.

    configuration  a number for each set of settings
    anywhere       the same number on every machine, where nothing but the machine differs
    network        what its model is, with its sizes
    is_chosen      whether it stands for its repeats: the one with the median step time
    variant        what tells it from others of the same model, precision and batch: "infer"
    """
    if not len(runs):
        return runs
    settings = all_settings(runs)
    number = numbered(settings)
    ordered = runs.assign(configuration=number).sort_values(["step_median_s", "run_id"])
    place = ordered.groupby("configuration").cumcount()
    repeats = ordered.groupby("configuration")["run_id"].transform("size")
    chosen = place.eq((repeats - 1) // 2)
    told = telling_each(settings, by=NAMED, among=FURTHER)
    return runs.assign(
        configuration=number,
        anywhere=_anywhere(settings, told),
        is_chosen=chosen.reindex(runs.index),
        network=[repr([one[name] for name in NETWORK]) for one in settings],
        variant=[", ".join(in_words(one, by)) for one, by in zip(settings, told, strict=True)],
    )


def _anywhere(settings: Iterable[Mapping[str, Any]], told: Iterable[Sequence[str]]) -> list[int]:
    numbers: dict[tuple[Any, ...], int] = {}
    found = []
    for one, names in zip(settings, told, strict=True):
        circumstances = [one[name] for name in CIRCUMSTANCES if name in names]
        same = (*key(one, but=(*PLACE, *CIRCUMSTANCES)), *circumstances)
        found.append(numbers.setdefault(same, len(numbers)))
    return found


def lines_of(runs: pd.DataFrame) -> pd.DataFrame:
    """For each run which line through the batches it is on, and what tells the lines apart.

    line     a number for runs that differ in nothing but the batch
    setting  in words, beside model and precision; "default" where nothing is unusual
    """
    settings = all_settings(runs)
    each = telling_each(settings, by=("model", "precision"), among=FURTHER)
    told = {name for names in each for name in names}
    names = [name for name in FURTHER if name in told]
    kept = [(one["model"], one["precision"], *(one[name] for name in names)) for one in settings]
    numbers = {line: number for number, line in enumerate(dict.fromkeys(kept))}
    return runs[["run_id"]].assign(
        line=[numbers[line] for line in kept],
        setting=[", ".join(in_words(one, names)) or "default" for one in settings],
    )


def short_name(row: Any, *, with_precision: bool = False) -> str:
    """`resnet50, 128` or `resnet50, amp, 32, compiled` of a run or a joined point; of a capture its
    label."""
    if row.get("mode") == CAPTURE:
        return str(row["model"])
    parts = [str(row["model"]), str(row["precision"]) if with_precision else ""]
    parts += [f"{row['batch_size']:.0f}", str(row.get("variant") or "")]
    return ", ".join(part for part in parts if part)


def names_of(points: pd.DataFrame) -> dict[Any, str]:
    """Short names by row, with the precision where there are several."""
    several = points["precision"].nunique() > 1
    return {index: short_name(row, with_precision=several) for index, row in points.iterrows()}


def chosen_points(points: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Points of the runs that stand for their configuration, with what tells it apart."""
    if not len(points) or not len(runs):
        return points.iloc[:0].assign(configuration=0, network=None, variant="")
    wanted = runs.loc[runs["is_chosen"], ["run_id", "configuration", "network", "variant"]]
    return points.merge(wanted, on="run_id", how="inner")


def chosen_steps(points: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Steps with a rate, with `is_first`: a step counted both ways needs its name once."""
    found = chosen_points(points, runs)
    found = found[found["grain"].eq("step") & found["attained_flops_per_s"].gt(0)]
    return found.assign(is_first=~found.duplicated("configuration"))


def with_captures(steps: pd.DataFrame, captures: pd.DataFrame) -> pd.DataFrame:
    """Steps, and after them whole captures with a rate, each a configuration of its own."""
    import pandas as pd

    whole = captures[captures["grain"].eq(CAPTURE)] if len(captures) else captures
    whole = whole[whole["attained_flops_per_s"].gt(0)] if len(whole) else whole
    if not len(whole):
        return steps
    own = range(-1, -1 - len(whole), -1)  # no run has a number below zero
    whole = whole.assign(configuration=own, network="", variant="", is_first=True)
    return pd.concat([steps, whole], ignore_index=True) if len(steps) else whole


def repeat_range(points: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Lowest and highest rate of each configuration's repeats, by configuration and provenance."""
    steps = points[points["grain"].eq("step") & points["attained_flops_per_s"].gt(0)]
    joined = steps.merge(runs[["run_id", "configuration"]], on="run_id", how="inner")
    rates = joined.groupby(["configuration", "provenance"])["attained_flops_per_s"]
    return rates.agg(["min", "max"])
