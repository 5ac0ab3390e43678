"""Stored tables as the report takes them.

Whoever copies, edits or damages a results folder can put anything into it. A table that is not as
ridgeline writes it is refused here, with the name of the column.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ridgeline.serialize import LARGEST, FieldError, is_number, show_value

if TYPE_CHECKING:
    import pandas as pd

COUNTED = "counted layers"  # `layers` of a count has other columns than that of a run
TEXT_COLUMNS = {
    "ops": ("path", "op", "kind", "phase", "dtype", "input_shapes"),
    "layers": ("layer", "kind", "input_shape"),
    COUNTED: ("path",),
    "kernels": ("kernel", "layer", "phase", "op", "input_shapes", "grid", "block"),
    "copies": ("kind", "layer", "phase", "op"),
}
NUMBER_COLUMNS = {
    "ops": ("macs", "other_flops", "flops", "read_bytes", "written_bytes"),
    "layers": ("time_s", "forward_s", "backward_s", "mean_s", "std_s"),
    COUNTED: ("own_fused_bytes",),
    "kernels": ("time_s", "launches", "dram_bytes", "l3_bytes", "l2_bytes", "l1_bytes"),
    "copies": ("launches", "time_s", "moved_bytes"),
}
LIST_COLUMNS = {"layers": ("forward_samples_s", "backward_samples_s")}
NEEDED_COLUMNS = {
    "ops": (*TEXT_COLUMNS["ops"], *NUMBER_COLUMNS["ops"]),
    "layers": (*TEXT_COLUMNS["layers"], "time_s", "forward_s", "backward_s"),
    COUNTED: ("path", "own_fused_bytes"),
    "kernels": ("kernel", "time_s"),
    "copies": ("layer", "phase", "moved_bytes"),
}
KEYS = {"layers": "layer", "kernels": "kernel"}  # never empty
NAMED_ONCE = ("layers",)
MAY_BE_NEGATIVE = ("layers",)  # a layer's own time is a difference of two


def check_table(
    name: str, table: pd.DataFrame, *, needs: Sequence[str] | None = None
) -> pd.DataFrame:
    """The table with numbers where numbers belong; FieldError if it is not one of its name.

    `needs` are the columns that a reader uses, where it does with fewer than others.
    """
    if not table.columns.is_unique:
        raise FieldError("it has two columns of the same name")
    wanted = NEEDED_COLUMNS[name] if needs is None else needs
    missing = [column for column in wanted if column not in table]
    if missing:
        raise FieldError(f"it has no column {missing[0]!r}")
    for column in TEXT_COLUMNS[name]:
        if column in table:
            _check_texts(column, table[column])
    for column in LIST_COLUMNS.get(name, ()):
        if column in table:
            _check_lists(column, table[column])
    _check_key(name, table)
    least = None if name in MAY_BE_NEGATIVE else 0.0
    numbers = {c: _numbers(c, table[c], least) for c in _number_columns(name, table)}
    return table.assign(**numbers)


def _number_columns(name: str, table: pd.DataFrame) -> list[str]:
    from ridgeline.roofline.floors import flops_columns

    found = [column for column in NUMBER_COLUMNS[name] if column in table]
    return [*found, *flops_columns(table)] if name == "kernels" else found


def _check_texts(column: str, values: pd.Series) -> None:
    import pandas as pd

    if isinstance(values.dtype, pd.StringDtype):
        return
    for value in values:
        if not isinstance(value, str) and not _is_nothing(value):
            raise FieldError(f"column {column!r} has {show_value(value)}, not a text")


def _is_nothing(value: Any) -> bool:
    import pandas as pd

    return value is None or value is pd.NA or (isinstance(value, float) and value != value)


def _check_key(name: str, table: pd.DataFrame) -> None:
    key = KEYS.get(name)
    if key is None or key not in table:
        return
    if table[key].isna().any():
        raise FieldError(f"column {key!r} has an empty cell")
    twice = table[key][table[key].duplicated()]
    if name in NAMED_ONCE and len(twice):
        raise FieldError(f"column {key!r} has {show_value(twice.iloc[0])} twice")


def _numbers(column: str, values: pd.Series, least: float | None) -> pd.Series:
    """The column as numbers; what is not known stays so."""
    import numpy as np
    import pandas as pd

    try:
        found = pd.to_numeric(values)
        plain = found.to_numpy(dtype=float, na_value=np.nan)
    except (TypeError, ValueError, OverflowError) as error:
        wrong = next((v for v in values if not is_number(v)), None)
        raise FieldError(f"column {column!r} has {show_value(wrong)}, not a number") from error
    known = plain[~np.isnan(plain)]
    for value in known[~(np.abs(known) <= LARGEST)][:1]:
        raise FieldError(f"column {column!r} has {value}, which is too large")
    if least is not None and len(known) and known.min() < least:
        raise FieldError(f"column {column!r} has {known.min()}, which is below zero")
    return found


def _check_lists(column: str, values: pd.Series) -> None:
    for value in values:
        items = value.tolist() if hasattr(value, "tolist") else value
        if items is not None and not _are_numbers(items):
            raise FieldError(f"column {column!r} has {show_value(items)}, not a list of numbers")


def _are_numbers(values: Any) -> bool:
    return isinstance(values, list | tuple) and all(is_number(value) for value in values)
