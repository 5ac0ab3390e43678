"""Statements about a study made by hand: every number can be checked by eye."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.report.hand_study import (
    NAN,
    TOY,
    batches,
    layer_row,
    make_study,
    run_row,
    step_row,
    stored,
)

from ridgeline.report.configurations import cases
from ridgeline.report.statements import Statement, analyse, find_gaps
from ridgeline.report.study import Machine, Study

GPU = {"backend": "cuda"}
FLAG = "above its compute roof: {} % faster than its floor; likely cause: Winograd"
NET = "net, batch 8, fp32 training"


def write_topic(study: Study, topic: str) -> list[str]:
    return [statement.text for statement in analyse(study) if statement.topic == topic]


def two_machines() -> Study:
    return make_study(
        [run_row(), run_row(run_id="b", env="big", threads=64, step_median_s=0.004)],
        [step_row(), step_row(run_id="b", env="big", floor_s=0.002)],
        machines=(Machine(roofs=TOY), Machine(roofs=replace(TOY, env="big"))),
    )


def two_precisions() -> Study:
    return make_study(
        [run_row(run_id="amp", precision="amp", step_median_s=0.008), run_row(run_id="full")],
        [
            step_row(run_id="full"),
            step_row(run_id="amp", precision="amp", floor_s=0.0025, bound="dram"),
        ],
    )


def gap_of_a_gpu() -> Study:
    return make_study(
        [run_row(kernel_time_s=0.012, **GPU)],
        [step_row(compute_s=0.009, launch_s=0.01, bound="launch")],
    )


def timed_layers() -> Study:
    layers = [
        layer_row("conv1", time_s=0.006),
        layer_row("conv2", time_s=0.002),
        layer_row("norm", time_s=0.0015, bound="dram", kind="BatchNorm2d"),
        layer_row("relu", time_s=0.0005, bound="dram", kind="ReLU"),
        layer_row("unused", time_s=NAN),
    ]
    return make_study([run_row()], [*layers])


def flagged() -> Study:
    return make_study(
        [run_row(clock_flag="ran at 1500 MHz")],
        [
            layer_row("c1", efficiency=1.05, flag=FLAG.format(5)),
            layer_row("c2", efficiency=1.2, flag=FLAG.format(20)),
        ],
    )


def repeats() -> Study:
    times = (("a", 0.02, 0.03), ("b", 0.04, 0.04), ("c", 0.01, 0.01))
    return make_study([run_row(run_id=r, step_median_s=t, step_mean_s=m) for r, t, m in times])


# fmt: off
STATEMENTS: list[tuple[Callable[[], Study], str, list[str]]] = [
    (lambda: batches((8, 0.08), (16, 0.08), (64, 0.32)), "settings", [
     "net, fp32 training on toy: from batch 8 to 64, throughput rises from 100 to 200"
     " samples/s, 2.00 times for 8 times the batch. Beyond batch 16 nothing is gained. Intensity"
     " goes from 20 to 20 FLOP/B, efficiency from 50.0 % to 50.0 %."]),
    (two_precisions, "settings", [
     "net (training) on toy, amp against fp32: speed-up 2.50 at batch 8 (20.0 ms → 8.00"
     " ms); the ratio of the floors is 4.00, set by arithmetic for fp32 and by moving data"
     " from and to memory for amp."]),
    (two_machines, "settings", [
     "net, fp32 training, big against toy: speed-up 5.00 at batch 8 (20.0 ms → 4.00 ms);"
     " the ratio of the floors is 5.00, both set by arithmetic."]),
    (gap_of_a_gpu, "gap", [
     "On toy, kernels take 15.0 % of the step beyond the floor of their work (most in"
     f" {NET}). The device is idle, and waits for the host, for 40.0 % of the step, most in"
     f" {NET}. Waiting is the larger part of the gap in the one configuration: {NET}. There,"
     " better kernels would gain less than fewer or larger ones."]),
    (timed_layers, "gap", [
     f"{NET} on toy: of 4 timed layers, the longest 3 take 95.0 % of the layers' time: conv1"
     " (Conv2d, 60.0 %), conv2 (Conv2d, 20.0 %) and norm (BatchNorm2d, 15.0 %);"
     " by what sets the floors of the layers, their time is"
     " 80.0 % arithmetic and 20.0 % moving data from and to memory."]),
    (flagged, "trust", [
     "On toy, 2 points are flagged; the farthest out is c2 of net, batch 8 (above its"
     " compute roof: 20 % faster than its floor). Likely cause: Winograd."]),
    (repeats, "trust", [
     f"3 runs of {NET} on toy took 10.0 ms to 40.0 ms a step, 4.00 times apart; this report"
     " uses 20.0 ms."]),
    (lambda: make_study([run_row(disturbed="others")]), "trust", [
     f"{NET} on toy: the machine was busy (others). Differences from other runs may come"
     " from that, and no hypothesis is tested on it."]),
]
# fmt: on


@pytest.mark.parametrize(("study", "topic", "expected"), STATEMENTS)
def test_sentences(study: Callable[[], Study], topic: str, expected: list[str]) -> None:
    assert write_topic(study(), topic) == expected


def test_what_sets_the_floor() -> None:
    study = make_study(
        [run_row(run_id="a"), run_row(run_id="b", model="thin")],
        [step_row(run_id="a"), step_row(run_id="b", bound="dram", efficiency=0.25)],
    )
    first, second = analyse(study)[:2]
    assert first == Statement(
        topic="bound",
        text="On toy, arithmetic sets the floor of the step in 1 of 2 configurations (efficiency"
        f" in brackets): {NET} (50.0 %).",
        provenance="measured and static",
        run_ids=("a",),
    )
    assert second.text.startswith("On toy, moving data from and to memory sets the floor")


@pytest.mark.parametrize(
    ("sum_s", "kernel_time_s", "is_used"),
    [
        (1.1, None, True),  # of a step of 1 s
        (2.55, None, False),
        (0.6, None, False),
        (0.6, 0.6, True),  # the times of a device, without the gaps between its kernels
        (0.8, 0.6, False),  # which add up to more than its kernels take
        (None, None, True),
    ],
)
def test_layers_that_do_not_add_up_are_not_used(
    sum_s: float | None, kernel_time_s: float | None, is_used: bool
) -> None:
    found: dict[str, Any] = {"step_time_s": {"median": 1.0, "mean": 1.0, "min": 1.0, "max": 1.0}}
    found["layers"] = {"sum_s": sum_s} if sum_s else None
    found["kernels"] = {"time_s": kernel_time_s} if kernel_time_s else None
    study = make_study(
        [run_row()], [layer_row(name) for name in "pqrs"], raw_runs=(stored("a", found=found),)
    )
    assert bool(write_topic(study, "gap")) == is_used


def test_the_parts_of_a_step() -> None:
    unknown = {"data_s": NAN, "copy_s": NAN, "optimizer_s": NAN}
    (gap,) = find_gaps(cases(make_study([run_row(**unknown)], [step_row()])))
    assert (gap.data_s, gap.optimizer_s) == (None, None)  # not known is not zero
    (gap,) = find_gaps(cases(make_study([run_row(data_s=1e-3, copy_s=2e-3)], [step_row()])))
    assert (gap.floor_s, gap.rest_s, gap.data_s, gap.optimizer_s) == (0.01, 0.01, 3e-3, 2e-3)


def test_kernels_that_take_longer_than_the_step_do_not_make_it_negative() -> None:
    study = make_study([run_row(kernel_time_s=0.021, **GPU)], [step_row()])
    assert "for 0.0 % of the step." in write_topic(study, "gap")[0]


def test_what_is_not_known_is_not_said() -> None:
    measured = {"run_id", "env", "model", "arch", "mode", "precision", "batch_size",
                "step_median_s", "images_processed", "measured_iters"}  # fmt: skip
    bare = {name: value if name in measured else None for name, value in run_row().items()}
    numbers = (
        "flops", "dram_bytes", "fused_bytes", "ai", "ai_high", "time_s", "compute_s", "dram_s",
        "launch_s", "floor_s", "efficiency", "headroom_s", "peak_flops_per_s",
    )  # fmt: skip
    nothing = step_row(**dict.fromkeys(numbers, NAN), bound=None)
    for study in (make_study(), make_study([bare]), make_study([bare], [nothing])):
        assert analyse(study) == ()


def test_the_middle_run_stands_for_its_repeats() -> None:
    times = {"a": 0.03, "b": 0.01, "c": 0.02, "d": 0.04}
    (case,) = cases(make_study([run_row(run_id=r, step_median_s=t) for r, t in times.items()]))
    assert (case.run_id, case.run_ids) == ("c", ("a", "b", "c", "d"))
