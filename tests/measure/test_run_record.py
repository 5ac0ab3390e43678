"""The record of a measurement: every key of its file, and tables that Parquet can hold."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.measure.fakes import workload
from tests.measure.measured import measured, timing_of
from torch import nn

from ridgeline.measure.layers import LayerTimes, Seen
from ridgeline.measure.measure_workload import measure_workload
from ridgeline.measure.run_record import Measurement, make_tables
from ridgeline.measure.timing import StepTimes
from ridgeline.records import EnergyResult, KernelTime, WorkloadSpec
from ridgeline.serialize import to_dict
from ridgeline.settings import Settings
from ridgeline.store import ResultsFolder

SPEC = WorkloadSpec(model="line", batch_size=4, mode="train")


def stored(measured: Measurement) -> dict[str, Any]:
    """What is written to run.json."""
    content: dict[str, Any] = to_dict(measured.result)
    return content


@pytest.fixture(scope="module")
def tiny() -> Any:
    """A real run on the CPU, of three steps of two batches each, with layers."""
    asked = Settings(
        backend="cpu", warmup_iters=2, iters=3, energy=False, layers=True, grad_accum_steps=2
    )
    told: list[str] = []
    made, stepper = measure_workload(
        workload(make=lambda: nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)),
                 describe={"input_size": (8, 8)}),
        SPEC, asked, lambda what, done, total: told.append(what),
    )  # fmt: skip
    assert list(dict.fromkeys(told)) == ["building", "warming up", "layers"]
    return made, stepper


def test_every_key_of_a_run(tiny: Any) -> None:
    plain = stored(tiny[0])

    assert list(plain) == [
        "status", "provenance", "model", "source", "describe", "backend", "device_name",
        "device_uuid", "precision", "data", "optimizer_settings", "iters", "samples_per_step",
        "samples_processed", "elapsed_s", "clock", "step_time_s", "split_s", "host", "warmup",
        "busy_fraction", "kernels", "memory", "peak_memory_bytes", "process", "threads",
        "timed_usage", "conditions", "energy", "energy_reasons", "layers", "warnings",
        "max_batch",
    ]  # fmt: skip
    assert plain["describe"] == {"input_size": [8, 8]}


def test_samples_of_a_real_run_belong_together(tiny: Any) -> None:
    plain = stored(tiny[0])

    assert (plain["status"], plain["provenance"], plain["clock"]) == (
        "ok", "measured", "host, monotonic",
    )  # fmt: skip
    assert (plain["iters"], plain["samples_per_step"], plain["samples_processed"]) == (3, 8, 24)
    steps_s, split = plain["step_time_s"]["samples"], plain["split_s"]
    assert len(steps_s) == 3
    phases_s = [[part["samples"][step] for part in split.values()] for step in range(3)]
    assert [sum(one) for one in phases_s] == pytest.approx(steps_s)  # the phases tile the step
    means_s = [part["mean"] for part in split.values()]
    assert sum(means_s) == pytest.approx(plain["step_time_s"]["mean"])
    assert plain["threads"] == torch.get_num_threads()
    assert sum(steps_s) <= plain["elapsed_s"]
    assert len(plain["warmup"]["times_s"]) == 2
    assert (plain["energy"], plain["kernels"], plain["busy_fraction"]) == (None, None, None)
    assert plain["peak_memory_bytes"] == plain["process"]["peak_rss_bytes"] > 0


def test_tables_of_a_real_run_can_be_stored(tiny: Any, tmp_path: Path) -> None:
    made, stepper = tiny
    kept = make_tables(made, stepper.module)

    run_id = ResultsFolder(tmp_path).save_run("x", {}, made.result, {}, tables=kept)

    back = ResultsFolder(tmp_path).read_table(run_id, "layers")
    assert list(back["layer"][:4]) == ["(model)", "0", "1", "2"]
    assert list(back.columns[-7:]) == [
        "energy_per_layer_j", "energy_interval_j", "energy_attribution", "is_energy_narrow",
        "power_mean_w", "power_std_w", "power_samples",
    ]  # fmt: skip
    assert back["energy_per_layer_j"].isna().all()
    assert back["time_s"].sum() == pytest.approx(made.layers.sum_s)


def test_the_means_of_phases_add_up_where_their_medians_do_not() -> None:
    # given three steps of 4 s, in each of which another phase is the slow one
    times = StepTimes(
        steps_s=(4.0, 4.0, 4.0),
        phases_s={
            "data": (2.0, 1.0, 1.0), "forward": (1.0, 2.0, 1.0), "backward": (1.0, 1.0, 2.0),
        },
    )  # fmt: skip

    plain = stored(measured(timing=replace(timing_of(4.0, 4.0, 4.0), device=times)))

    assert plain["split_s"] == {
        "data": {"median": 1.0, "mean": 4 / 3, "samples": [2.0, 1.0, 1.0]},
        "forward": {"median": 1.0, "mean": 4 / 3, "samples": [1.0, 2.0, 1.0]},
        "backward": {"median": 1.0, "mean": 4 / 3, "samples": [1.0, 1.0, 2.0]},
    }
    assert plain["step_time_s"]["mean"] == 4.0


def test_throughput_is_that_of_the_median_step() -> None:
    result = measured(timing=timing_of(1.0, 1.0, 4.0, elapsed_s=6.0)).result

    assert (result.samples_per_step, result.samples_per_s) == (2, 2.0)


def test_how_busy_a_gpu_was() -> None:
    plain = stored(measured("cuda", kernels=KernelTime(time_s=0.5, kernels=10.0, steps=3)))

    assert plain["busy_fraction"] == 0.5
    assert plain["kernels"] == {"time_s": 0.5, "kernels": 10.0, "steps": 3}


def test_how_layers_add_up() -> None:
    layers = LayerTimes(
        samples_s={("(model)", "forward"): (1.25,)}, seen={}, steps_s=(1.25,), is_held_back=True,
        mark_cost_s=1e-6,
    )  # fmt: skip

    assert stored(measured(layers=layers))["layers"] == {
        "sum_s": 1.25, "step_time_s": 1.0, "difference_s": 0.25, "difference": 0.25,
        "pass_times_s": [1.25], "mark_cost_s": 1e-6,
        "clock": "device, without gaps between kernels",
    }  # fmt: skip


def energy_of_a_call(energy_j: float, interval_j: tuple[float, float] | None) -> EnergyResult:
    return EnergyResult(
        energy_j_per_step=energy_j, interval_j_per_step=interval_j, power_samples=3,
        power_mean_w=10.0, power_std_w=1.0,
    )  # fmt: skip


LARGE = energy_of_a_call(5.0, (4.95, 5.05))
SMALL = energy_of_a_call(2.0, (1.9, 2.1))  # less certain


@pytest.mark.parametrize(
    ("energies", "expected"),
    [
        ((LARGE, SMALL, LARGE), [12.0, pytest.approx([11.8, 12.2]), False, 10.0, 3.0]),
        ((LARGE, LARGE), [10.0, [9.9, 10.1], True, 10.0, 3.0]),
        ((LARGE, energy_of_a_call(5.0, None)), [10.0, None, False, 10.0, 3.0]),
    ],
)
def test_a_layers_energy_is_that_of_all_its_calls(
    energies: tuple[EnergyResult, ...], expected: list[Any]
) -> None:
    layers = LayerTimes(
        samples_s={("0", "forward"): (1.0,)},
        seen={"(model)": Seen(calls=1), "0": Seen(calls=3)}, steps_s=(1.0,), is_held_back=False,
    )  # fmt: skip
    made = measured(layers=layers, layer_energies={"0": energies})

    table = make_tables(made, nn.Sequential(nn.Linear(1, 1)))["layers"].set_index("layer")

    columns = [
        "energy_per_layer_j", "energy_interval_j", "is_energy_narrow", "power_mean_w",
        "power_samples",
    ]  # fmt: skip
    assert list(table.loc["0", columns]) == expected
    assert table.loc["0", "energy_attribution"] == "repeated alone"
    assert table.loc[["(model)"], columns].isna().all(axis=None)
