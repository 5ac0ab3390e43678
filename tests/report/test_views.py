"""The CSV files of a results folder, from runs that were written by hand."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from tests.cli.small_runs import folder, run_here
from tests.report.hand_study import run_row
from tests.stored import write_run

from ridgeline.report.views import (
    layers,
    metrics,
    overall,
    repeat_command,
    throughput_summary,
    write_views,
)
from ridgeline.store import ResultsFolder, Run, to_run

__all__ = ["folder"]  # a fixture

DATA = Path(__file__).parents[1] / "data"

METRICS = [
    "timestamp", "hostname", "arch", "backend", "device_name", "batch_size", "warmup_iters",
    "measured_iters", "precision", "lr", "momentum", "weight_decay", "elapsed_sec",
    "images_per_sec", "images_processed", "data_root", "label", "torch_version", "channels_last",
    "grad_accum_steps", "deterministic", "cudnn_benchmark",
]  # fmt: skip
OVERALL = [
    "model", "algorithm", "batch_size", "input_size", "mean", "std", "min", "max", "median",
    "power_mean_w", "power_std_w", "power_min_w", "power_max_w", "energy_total_j",
    "energy_per_inference_j", "power_samples",
]  # fmt: skip
LAYERS = [
    "model", "algorithm", "input_size", "layer", "in_channels", "out_channels", "kernel_size",
    "stride", "padding", "mean_ms", "std_ms", "percentage", "power_mean_w", "power_std_w",
    "energy_per_layer_j", "power_samples", "energy_attribution",
]  # fmt: skip

ASKED = {
    "command": "run", "model": "resnet50", "batch_size": 32, "mode": "train",
    "precision": "amp", "lr": None, "momentum": None, "weight_decay": None, "data": "synthetic",
    "label": "first", "channels_last": True, "grad_accum_steps": 2, "deterministic": False,
    "cudnn_benchmark": True, "repeat": 1, "input_size": None, "seq_len": None,
    "optimizer": "sgd", "compile": None, "seed": 0,
}  # fmt: skip
ENERGY = {
    "meter": "a counter", "energy_j_per_step": 24.0, "energy_j_per_sample": 0.375,
    "mean_power_w": 600.0, "idle_power_w": 100.0, "energy_total_j": 2400.0,
    "power_mean_w": 601.0, "power_std_w": 2.0, "power_min_w": 590.0, "power_max_w": 610.0,
    "power_samples": 50,
}  # fmt: skip
FOUND = {
    "status": "ok", "describe": {"input_size": [224, 224]}, "backend": "cuda",
    "device_name": "a GPU", "precision": "fp32", "iters": 10, "elapsed_s": 0.4,
    "samples_per_s": 1600.0, "samples_processed": 640, "warmup": {"times_s": [0.5, 0.25, 0.25]},
    "step_time_s": {
        "median": 0.04, "mean": 0.05, "std": 0.002, "min": 0.03, "max": 0.06,
        "interval": [0.035, 0.045],
    },
    "split_s": {"forward": {"median": 0.01}, "backward": {"median": 0.02}},
    "busy_fraction": 0.5, "kernels": {"time_s": 0.02}, "energy": ENERGY,
    "peak_memory_bytes": 1000, "memory": {"reserved_bytes": 2000},
    "process": {
        "user_time_s": 1.0, "system_time_s": 0.5, "peak_rss_bytes": 3000, "minor_faults": 4,
        "major_faults": 5, "voluntary_switches": 6, "involuntary_switches": 7,
    },
    "conditions": {
        "during": {
            "clock_hz": 1.98e9, "memory_clock_hz": 3.2e9, "temperature_c": 50.0,
            "throttle_reasons": ["power cap", "heat"],
        }
    },
    "layers": None, "warnings": ["one", "two"],
    "optimizer_settings": {"lr": 0.1, "weight_decay": 0.0},
}  # fmt: skip
PROVENANCE = {
    "time": "2026-11-15T06:00:00Z", "host": {"name": "node7"}, "libraries": {"torch": "2.15.0"},
}  # fmt: skip
TABLE = pd.DataFrame(
    {
        "layer": ["conv", "fc", "(optimizer)"],
        "input_shape": ["32x3x224x224", "32x2048", None],
        "in_channels": pd.array([3, 2048, None], dtype="Int64"),
        "out_channels": pd.array([64, 1000, None], dtype="Int64"),
        "kernel_size": ["7x7", None, None],
        "stride": ["2x2", None, None],
        "padding": ["3x3", None, None],
        "time_s": [0.003, 0.0005, 0.0005],
        "mean_s": [0.002, 0.0005, 0.001],
        "std_s": [0.0001, 0.0, 0.0],
        "percentage": [5.0, 1.25, 2.5],  # of means, as earlier versions stored them
        "energy_per_layer_j": [1.5, None, None],
        "energy_interval_j": [[1.4, 1.6], None, None],
        "energy_attribution": ["repeated alone", None, None],
        "power_mean_w": [500.0, None, None],
        "power_std_w": [1.0, None, None],
        "power_samples": [20, None, None],
        "forward_samples_s": [[0.001], [0.001], []],
        "backward_samples_s": [[0.001], [0.001], []],
    }
)


def write(folder: ResultsFolder, table: pd.DataFrame | None = None, **changes: Any) -> Run:
    asked = {**ASKED, **{key: value for key, value in changes.items() if key in ASKED}}
    found = {**FOUND, **{key: value for key, value in changes.items() if key not in ASKED}}
    if table is not None:
        found["layers"] = {"sum_s": 0.04}
    return write_run(folder,
        label="x", asked=asked, found=found, provenance=PROVENANCE,
        tables={} if table is None else {"layers": table},
    )  # fmt: skip


@pytest.fixture
def results(tmp_path: Path) -> ResultsFolder:
    return ResultsFolder(tmp_path)


def test_a_row_of_metrics_begins_with_the_usual_columns(results: ResultsFolder) -> None:
    write(results)

    write_views(results)

    table = pd.read_csv(results.path / "metrics.csv")
    assert list(table.columns[: len(METRICS)]) == METRICS
    assert table.loc[0, METRICS].dropna().to_dict() == {
        "timestamp": "2026-11-15T06:00:00Z",
        "hostname": "node7",
        "arch": "resnet50",
        "backend": "cuda",
        "device_name": "a GPU",
        "batch_size": 32,
        "warmup_iters": 3,
        "measured_iters": 10,
        "precision": "fp32",  # what was used; what was asked is in a column of its own
        "lr": 0.1,
        "weight_decay": 0.0,
        "elapsed_sec": 0.4,
        "images_per_sec": 1600.0,
        "images_processed": 640,
        "data_root": "synthetic",
        "label": "first",
        "torch_version": "2.15.0",
        "channels_last": True,
        "grad_accum_steps": 2,
        "deterministic": False,
        "cudnn_benchmark": True,
    }


def test_steps_that_vary_much_are_marked(results: ResultsFolder) -> None:
    # given steps whose middle 80 % span more than half of their median, and no outliers
    step = {"median": 0.04, "mean": 0.041, "min": 0.03, "max": 0.06, "spread": 0.6}
    run = write(results, step_time_s=step)

    assert metrics([run]).loc[0, "disturbed"] == (
        "steps vary: the middle 80 % of them span 60.0 % of the median"
    )


def test_variables_of_the_environment_are_a_column(results: ResultsFolder) -> None:
    recorded = {"OMP_NUM_THREADS": "1", "LD_PRELOAD": "/a b.so", "CUDA_VISIBLE_DEVICES": "3"}
    run = write_run(
        results,
        label="x",
        asked=ASKED,
        found=FOUND,
        provenance={**PROVENANCE, "environment": recorded},
    )

    # which GPU of several was used is no setting
    assert metrics([run]).loc[0, "environment"] == "LD_PRELOAD='/a b.so' OMP_NUM_THREADS=1"


def test_what_was_not_measured_is_empty(results: ResultsFolder) -> None:
    run = write(
        results, mode="infer", energy=None, kernels=None, process=None, conditions={},
        step_time_s={**FOUND["step_time_s"], "interval": None},  # type: ignore[dict-item]
    )  # fmt: skip

    row = metrics([run]).loc[0]

    assert row[["optimizer", "energy_j_per_step", "kernel_time_s", "user_time_s", "clock_hz",
                "step_interval_low_s", "data_s", "copy_s", "optimizer_s"]].isna().all()  # fmt: skip
    assert row["throttle_reasons"] == ""


def test_times_of_a_model_are_in_milliseconds(results: ResultsFolder) -> None:
    run = write(results)

    row = overall([run]).loc[0]

    assert list(row.index[: len(OVERALL)]) == OVERALL
    assert row[OVERALL].to_dict() == {
        "model": "resnet50", "algorithm": "default", "batch_size": 32, "input_size": "224",
        "mean": 50.0, "std": 2.0, "min": 30.0, "max": 60.0, "median": 40.0,
        "power_mean_w": 601.0, "power_std_w": 2.0, "power_min_w": 590.0, "power_max_w": 610.0,
        "energy_total_j": 2400.0, "energy_per_inference_j": 0.375, "power_samples": 50,
    }  # fmt: skip
    assert row["energy_per_step_j"] == 24.0


def test_layers_of_a_model_have_their_own_input_sizes(results: ResultsFolder) -> None:
    run = write(results, TABLE)

    table = layers(run, results.read_table(run.run_id, "layers"))

    assert list(table.columns[: len(LAYERS)]) == LAYERS
    assert table.loc[0, LAYERS].to_dict() == {
        "model": "resnet50", "algorithm": "default", "input_size": "224x224", "layer": "conv",
        "in_channels": 3, "out_channels": 64, "kernel_size": "7x7", "stride": "2x2",
        "padding": "3x3", "mean_ms": 2.0, "std_ms": 0.1, "percentage": 75.0,
        "power_mean_w": 500.0, "power_std_w": 1.0, "energy_per_layer_j": 1.5,
        "power_samples": 20, "energy_attribution": "repeated alone",
    }  # fmt: skip
    assert table["input_size"].tolist()[:2] == ["224x224", "2048"]
    assert table["mean_ms"].tolist() == [2.0, 0.5, 1.0]
    assert table["percentage"].tolist() == [75.0, 12.5, 12.5]  # of medians, whatever was stored
    assert set(table["network_input_size"]) == {"224"}


def test_a_file_per_model_and_layers_where_they_were_timed(results: ResultsFolder) -> None:
    write(results, TABLE)
    write(results, batch_size=64)
    write(results, model="timm:vit/tiny")

    written, problems = write_views(results)

    assert problems == []
    assert [path.name for path in written] == [
        "metrics.csv", "throughput_summary.csv", "resnet50_overall.csv", "resnet50_layers.csv",
        "timm-vit-tiny_overall.csv",
    ]  # fmt: skip
    assert pd.read_csv(written[0])["batch_size"].tolist() == [32, 64, 32]
    assert pd.read_csv(written[2])["batch_size"].tolist() == [32, 64]
    text = written[3].read_text().splitlines()
    assert text[0].split(",")[: len(LAYERS)] == LAYERS
    assert text[1].startswith("resnet50,default,224x224,conv,3,64,7x7,2x2,3x3,2.0,0.1,75.0,")
    assert len(text) == 4


@pytest.mark.parametrize(
    ("describe", "asked", "text"),
    [
        ({"input_size": [224, 224]}, None, "224"),
        ({"input_size": [480, 640]}, None, "480x640"),
        ({}, [3, 64, 64], "3x64x64"),
        ({}, [64], "64"),
        ({"seq_len": 35}, None, None),
    ],
)
def test_the_size_that_a_network_was_given(
    results: ResultsFolder, describe: Any, asked: Any, text: str | None
) -> None:
    run = write(results, describe=describe, input_size=asked)

    assert overall([run]).loc[0, "input_size"] == text


# ---------------------------------------------------------------- the command that repeats a run


def recorded(**changes: dict[str, Any]) -> Run:
    """A recorded run of VGG-16, with other `asked`, `found` or `provenance`."""
    content = json.loads((DATA / "run-h200-vgg16.json").read_text())
    content |= {name: {**content[name], **part} for name, part in changes.items()}
    return to_run(Path("r"), content)


@pytest.mark.parametrize(
    ("asked", "command"),
    [
        ({}, "ridgeline run vgg16 -b 128 --mode train --precision tf32 --energy-time 10.0"),
        (
            {"model": "my net.py:make", "lr": 0.1, "config": {"width": 8}},
            "ridgeline run 'my net.py:make' -b 128 --mode train --precision tf32 --config width=8"
            " --lr 0.1 --energy-time 10.0",
        ),
    ],
)
def test_only_what_is_not_usual_is_said(asked: dict[str, Any], command: str) -> None:
    assert repeat_command(recorded(asked=asked)) == command


def test_the_command_makes_the_same_run_again(folder: Path) -> None:
    arguments = ("net.py:make", "--input-size", "4", "-b", "2", "--iters", "5", "--warmup-iters",
                 "1", "--no-energy", "--channels-last", "--lr", "0.5")  # fmt: skip
    assert run_here(*arguments) == 0
    (first,) = ResultsFolder().read_runs()
    assert run_here(*shlex.split(repeat_command(first))[2:]) == 0
    assert ResultsFolder().read_runs()[1].request == first.request


def test_throughput_over_repeats() -> None:
    rows = [
        run_row(run_id="a", hostname="h", images_per_sec=400.0),
        run_row(run_id="b", hostname="h", images_per_sec=500.0),
        run_row(run_id="c", hostname="h", images_per_sec=900.0, batch_size=16),
    ]
    table = throughput_summary(pd.DataFrame(rows))
    columns = ["arch", "batch_size", "n", "images_per_sec_mean", "run_ids"]
    assert table[columns].to_numpy().tolist() == [
        ["net", 8, 2, 450.0, "a b"],
        ["net", 16, 1, 900.0, "c"],
    ]
    # the sample's standard deviation, and none of a single run
    assert table["images_per_sec_std"][0] == pytest.approx(70.7107, rel=1e-5)
    assert pd.isna(table["images_per_sec_std"][1])
