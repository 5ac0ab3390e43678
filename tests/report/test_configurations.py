"""What makes a configuration: the same answer in cases, figures, tables, the page and report.md."""

from __future__ import annotations

from typing import Any

import pytest
from tests.report.hand_study import make_study, run_row

from ridgeline.report.configurations import alike, key, read_settings, word

SMALL, LARGE = '{"hidden_size": 64}', '{"hidden_size": 1024}'


@pytest.mark.parametrize(
    "other",
    [
        {"compile": ""},
        {"compile": False},
        {"grad_accum_steps": None},
        {"grad_accum_steps": 1.0},
        {"data_root": None},
        {"config": ""},
        {"environment": ""},  # none is set; runs by earlier versions have no such record
        {"environment": None},
        {"channels_last": float("nan")},
        {"workers": 4, "pin_memory": True},  # nothing is read
        {"run_id": "other", "step_median_s": 1.0, "seed": 7},
    ],
)
def test_what_is_as_usual_is_the_same_however_it_is_written(other: dict[str, Any]) -> None:
    assert key(read_settings(run_row(**other))) == key(read_settings(run_row()))


@pytest.mark.parametrize(
    "other",
    [
        {"model": "other"}, {"digest": "a1"}, {"config": SMALL}, {"mode": "infer"},
        {"precision": "amp"}, {"batch_size": 16}, {"input_size": "64"}, {"seq_len": 5},
        {"optimizer": "adamw"}, {"compile": "default"}, {"channels_last": True},
        {"grad_accum_steps": 2}, {"deterministic": True}, {"cudnn_benchmark": True},
        {"data_root": "synthetic-host"}, {"data_root": "/data", "workers": 2}, {"env": "big"},
        {"backend": "cuda"}, {"device_name": "Toy 2"}, {"threads": 4}, {"torch_version": "3"},
        {"label": "after"}, {"environment": "OMP_NUM_THREADS=1"},
    ],
)  # fmt: skip
def test_each_setting_makes_another_configuration(other: dict[str, Any]) -> None:
    runs = [run_row(), run_row(**other)]

    assert len(make_study(runs).cases) == 2


def test_labels_do_not_keep_runs_from_being_compared() -> None:
    runs = [run_row(run_id="a", label="full"), run_row(run_id="b", label="half", precision="amp")]
    (group,) = alike(make_study(runs).cases, but=("precision",))
    assert [case.run_id for case in group] == ["a", "b"]

    runs.append(run_row(run_id="c", label="half"))  # now half is another state of the code
    (group,) = alike(make_study(runs).cases, but=("precision",))
    assert [case.run_id for case in group] == ["b", "c"]


def test_settings_in_words() -> None:
    said = {
        "compile": "max-autotune", "channels_last": True, "grad_accum_steps": 4,
        "input_size": "224x160", "seq_len": 128, "optimizer": "adamw", "workers": 0,
        "digest": "0123456789abcdef", "config": '{"a": 1, "b": "x"}', "cudnn_benchmark": None,
    }  # fmt: skip
    assert [word(name, value) for name, value in said.items()] == [
        "compile max-autotune", "channels last", "4 batches a step", "input 224x160", "length 128",
        "adamw", "0 workers", "version 012345", "a=1 b=x", "",
    ]  # fmt: skip


def test_the_middle_run_stands_for_its_repeats() -> None:
    times = {"a": 0.03, "b": 0.01, "c": 0.02, "d": 0.04}
    study = make_study([run_row(run_id=r, step_median_s=t) for r, t in times.items()])
    assert [(case.run_id, case.run_ids) for case in study.cases] == [("c", ("a", "b", "c", "d"))]
