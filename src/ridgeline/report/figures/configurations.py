"""Runs of the same settings are repeats of one configuration, which has a short name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

NAMED = ("model", "precision", "batch_size")  # colour, mark and number tell these apart
FURTHER = (
    "mode", "compile", "channels_last", "grad_accum_steps", "optimizer", "input_size", "seq_len",
    "label", "threads", "deterministic", "cudnn_benchmark", "data_root",
)  # fmt: skip


def configured(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs with columns that say which belong together.

    configuration  a number for each set of settings
    is_chosen      whether it stands for its repeats: the one with the median step time
    variant        what tells it from others of the same model, precision and batch: "compiled"
    """
    if not len(runs):
        return runs
    settings = runs[[name for name in (*NAMED, *FURTHER) if name in runs]].astype(object)
    settings = settings.where(settings.notna(), "").map(str)
    number = settings.groupby(list(settings.columns), sort=False).ngroup()
    ordered = runs.assign(configuration=number).sort_values(["step_median_s", "run_id"])
    place = ordered.groupby("configuration").cumcount()
    repeats = ordered.groupby("configuration")["run_id"].transform("size")
    chosen = place.eq((repeats - 1) // 2)
    return runs.assign(
        configuration=number,
        is_chosen=chosen.reindex(runs.index),
        variant=_variants(runs),
    )


def _variants(runs: pd.DataFrame) -> pd.Series:
    """What differs among runs of the same model, precision and batch."""
    import pandas as pd

    found = pd.Series("", index=runs.index, dtype=object)
    further = [name for name in FURTHER if name in runs]
    for _, same in runs.groupby(list(NAMED), dropna=False):
        differing = [name for name in further if differs(same, name)]
        found = found.mask(found.index.isin(same.index), in_words(same, differing))
    return found


def differs(runs: pd.DataFrame, name: str) -> bool:
    """Whether a setting takes several values; inference has no optimizer, which is no value."""
    values = runs[name].dropna() if name == "optimizer" else runs[name]
    return bool(values.map(str).nunique() > 1)


def in_words(runs: pd.DataFrame, names: Sequence[str]) -> pd.Series:
    """Some settings of each run, in words: `infer, compiled`."""
    import pandas as pd

    found = []
    for _, row in runs.iterrows():
        words = [setting_word(name, row[name]) for name in names]
        found.append(", ".join(word for word in words if word))
    return pd.Series(found, index=runs.index, dtype=object)


def setting_word(name: str, value: Any) -> str:
    """A setting in a word; what is usual needs none."""
    if value is None or value != value or value is False or value == "":
        return ""
    if name in ("mode", "label", "optimizer"):
        return str(value)
    if name == "compile":
        return "compiled"
    if name == "grad_accum_steps":
        return f"{value} parts" if value != 1 else ""
    text = name.replace("_", " ")
    return text if value is True else f"{text} {value}"


def short_name(row: Any, *, with_precision: bool = False) -> str:
    """`resnet50, 128` or `resnet50, amp, 32, compiled` of a run or a joined point."""
    parts = [str(row["model"]), str(row["precision"]) if with_precision else ""]
    parts += [f"{row['batch_size']:.0f}", str(row.get("variant") or "")]
    return ", ".join(part for part in parts if part)


def names_of(points: pd.DataFrame) -> dict[Any, str]:
    """Short names by row, with the precision where there are several."""
    several = points["precision"].nunique() > 1
    return {index: short_name(row, with_precision=several) for index, row in points.iterrows()}


def chosen_points(points: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Points of the runs that stand for their configuration, with its number and variant."""
    if not len(points) or not len(runs):
        return points.iloc[:0].assign(configuration=0, variant="")
    wanted = runs.loc[runs["is_chosen"], ["run_id", "configuration", "variant"]]
    return points.merge(wanted, on="run_id", how="inner")


def chosen_steps(points: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Steps with a rate, with `is_first`: a step counted both ways needs its name once."""
    found = chosen_points(points, runs)
    found = found[found["grain"].eq("step") & found["attained_flops_per_s"].gt(0)]
    return found.assign(is_first=~found.duplicated("configuration"))


def repeat_range(points: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Lowest and highest rate of each configuration's repeats, by configuration and provenance."""
    steps = points[points["grain"].eq("step") & points["attained_flops_per_s"].gt(0)]
    joined = steps.merge(runs[["run_id", "configuration"]], on="run_id", how="inner")
    rates = joined.groupby(["configuration", "provenance"])["attained_flops_per_s"]
    return rates.agg(["min", "max"])
