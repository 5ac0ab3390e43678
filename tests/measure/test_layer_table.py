"""Layer times as a table: a small network with times of whole seconds."""

from __future__ import annotations

import pandas as pd
import pytest
from torch import nn

from ridgeline.measure.layers import LayerTimes, Seen, layer_table

NET = nn.Sequential()
NET.add_module("features", nn.Sequential(nn.Conv2d(3, 8, (3, 5), 2, 1, groups=1), nn.ReLU()))
NET.add_module("features2", nn.MaxPool2d(3, 2))
NET.add_module("shortcut", nn.Sequential(nn.Sequential()))
NET.add_module("head", nn.Linear(8, 10))
NET.add_module("unused", nn.Linear(1, 1))

TIMES = LayerTimes(
    samples_s={
        ("(data)", "data"): (1.0, 1.0, 1.0),
        ("(model)", "forward"): (0.5, 0.5, 0.5),
        ("features", "forward"): (0.25, 0.25, 0.25),
        ("features.0", "forward"): (2.0, 2.0, 5.0),
        ("features.0", "backward"): (4.0, 6.0, 5.0),
        ("features.1", "forward"): (1.0, 1.0, 1.0),
        ("features2", "forward"): (3.0, 3.0, 3.0),
        ("head", "backward"): (1.0, 1.0, 1.0),
        ("(optimizer)", "optimizer"): (2.0, 2.0, 2.0),
    },
    seen={
        "(model)": Seen(calls=1, input_shape=(2, 3, 8, 8), output_shape=(2, 10)),
        "features": Seen(calls=1, input_shape=(2, 3, 8, 8), output_shape=(2, 8, 4, 3)),
        "features.0": Seen(calls=1, input_shape=(2, 3, 8, 8), output_shape=(2, 8, 4, 3)),
        "features.1": Seen(calls=2, input_shape=(2, 8, 4, 3), output_shape=(2, 8, 4, 3)),
        "features2": Seen(calls=1, input_shape=(2, 8, 4, 3), output_shape=(2, 8, 1, 1)),
        "shortcut": Seen(calls=1),
        "head": Seen(calls=1, input_shape=(2, 8), output_shape=(2, 10)),
    },
    steps_s=(14.75, 16.75, 18.75),
    is_held_back=False,
)


@pytest.fixture
def table() -> pd.DataFrame:
    return layer_table(NET, TIMES).set_index("layer")


def test_a_row_per_module_that_was_called_then_what_belongs_to_none(table: pd.DataFrame) -> None:
    assert list(table.index) == [
        "(model)", "features", "features.0", "features.1", "features2", "shortcut", "head",
        "(data)", "(optimizer)",
    ]  # fmt: skip
    assert list(table.columns) == [
        "kind", "depth", "is_leaf", "calls", "input_shape", "output_shape", "in_channels",
        "out_channels", "groups", "kernel_size", "stride", "padding", "parameters", "forward_s",
        "backward_s", "time_s", "mean_s", "std_s", "forward_samples_s", "backward_samples_s",
        "percentage", "total_time_s",
    ]  # fmt: skip


def test_one_row_in_full(table: pd.DataFrame) -> None:
    assert table.loc["features.0"].to_dict() == {
        "kind": "Conv2d",
        "depth": 2,
        "is_leaf": True,
        "calls": 1,
        "input_shape": "2x3x8x8",
        "output_shape": "2x8x4x3",
        "in_channels": 3,
        "out_channels": 8,
        "groups": 1,
        "kernel_size": "3x5",
        "stride": "2x2",
        "padding": "1x1",
        "parameters": 3 * 8 * 15 + 8,
        "forward_s": 2.0,
        "backward_s": 5.0,
        "time_s": 7.0,  # the medians of forward and backward
        "mean_s": 8.0,  # of 6, 8 and 10
        "std_s": 2.0,
        "forward_samples_s": [2.0, 2.0, 5.0],
        "backward_samples_s": [4.0, 6.0, 5.0],
        "percentage": 100 * 7.0 / 15.75,  # of all medians together
        "total_time_s": 7.0,
    }


def test_own_times_add_up_to_the_whole_and_containers_have_a_total(table: pd.DataFrame) -> None:
    assert table["time_s"].sum() == TIMES.sum_s == 15.75
    assert table["mean_s"].sum() == 16.75  # and so do means, to the mean step of the pass
    assert table.loc["(data)", "percentage"] == 100 * 1.0 / 15.75
    assert table["percentage"].sum() == pytest.approx(100.0)
    assert table["total_time_s"].to_dict() == {
        "(model)": 12.75,  # all but data and optimizer
        "features": 8.25,  # 0.25 of its own, 7 and 1; features2 is another module
        "features.0": 7.0,
        "features.1": 1.0,
        "features2": 3.0,
        "shortcut": 0.0,
        "head": 1.0,
        "(data)": 1.0,
        "(optimizer)": 2.0,
    }
