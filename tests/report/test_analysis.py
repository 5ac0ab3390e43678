"""Statements about a study made by hand: every number can be checked by eye."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.report.hand_study import (
    NAN,
    TOY,
    batches,
    layer_row,
    make_study,
    phase_row,
    run_row,
    step_row,
    stored,
)

from ridgeline.report.analysis import Statement
from ridgeline.report.analysis_gap import gaps
from ridgeline.report.configurations import cases
from ridgeline.report.statements import analyse
from ridgeline.report.study import Machine, Study


def told(study: Study, topic: str) -> list[str]:
    return [statement.text for statement in analyse(study) if statement.topic == topic]


def test_nothing_is_said_about_nothing() -> None:
    assert analyse(make_study()) == ()


def test_what_sets_the_floor() -> None:
    study = make_study(
        [run_row(run_id="a"), run_row(run_id="b", model="thin")],
        [step_row(run_id="a"), step_row(run_id="b", bound="dram", efficiency=0.25)],
    )
    first, second = analyse(study)[:2]

    assert first == Statement(
        topic="bound",
        text="On toy, arithmetic sets the floor of the step in 1 of 2 configurations (efficiency"
        " in brackets): net, batch 8, fp32 training (50.0 %).",
        provenance="measured and static",
        run_ids=("a",),
    )
    assert second.text == (
        "On toy, moving data from and to memory sets the floor of the step in 1 of 2"
        " configurations (efficiency in brackets): thin, batch 8, fp32 training (25.0 %)."
    )


def test_a_phase_with_another_bound() -> None:
    study = make_study(
        [run_row()],
        [step_row(), phase_row("forward"), phase_row("optimizer", bound="dram")],
    )

    assert told(study, "bound")[1] == (
        "On toy, a phase of a training step can have another bound than the whole: moving data"
        " from and to memory for the optimizer in the one configuration."
    )


def test_layers_by_bound_and_the_longest_of_them() -> None:
    layers = [
        layer_row("conv1", time_s=0.006),
        layer_row("conv2", time_s=0.002),
        layer_row("norm", time_s=0.0015, bound="dram", kind="BatchNorm2d"),
        layer_row("relu", time_s=0.0005, bound="dram", kind="ReLU"),
        layer_row("unused", time_s=NAN),
    ]
    study = make_study([run_row()], [step_row(), *layers])

    assert told(study, "layer-bounds") == [
        "net, batch 8, fp32 training on toy: 80.0 % arithmetic and 20.0 % moving data from and to"
        " memory."
    ]
    assert told(study, "layers") == [
        "net, batch 8, fp32 training on toy: of 4 timed layers, the longest 3 take 95.0 % of the"
        " layers' time: conv1 (Conv2d, 60.0 %), conv2 (Conv2d, 20.0 %) and norm (BatchNorm2d,"
        " 15.0 %); by kind, Conv2d has the most, 80.0 %."
    ]


@pytest.mark.parametrize(
    ("layers", "is_used"),
    [
        ({"difference": 0.1, "clock": "host"}, True),
        ({"difference": 1.55, "clock": "host"}, False),
        ({"difference": -0.4, "clock": "host"}, False),
        ({"difference": -0.4, "clock": "device, without gaps between kernels"}, True),
        (None, True),
    ],
)
def test_layers_that_do_not_add_up_are_not_used(layers: Any, is_used: bool) -> None:
    study = make_study(
        [run_row()],
        [step_row(), *(layer_row(name) for name in "pqrs")],
        raw_runs=(stored("a", found={"layers": layers}),),
    )

    assert bool(told(study, "layers")) == is_used
    assert (
        "Nothing is said here about the layers of net, batch 8, fp32 training: their times do not"
        " add up to the step that they are part of." in told(study, "stability")
    ) != is_used


def test_a_batch_that_saturates() -> None:
    study = batches((8, 0.08), (16, 0.08), (64, 0.32))

    assert told(study, "batch") == [
        "net, fp32 training on toy: from batch 8 to 64, throughput rises from 100 to 200 samples/s,"
        " 2.00 times for 8 times the batch. Each doubling multiplies it by 2.00 and 1.00; beyond"
        " batch 16 nothing is gained. Intensity goes from 20 to 20 FLOP/B, efficiency"
        " from 50.0 % to"
        " 50.0 %. The 95 % intervals of batches 16 and 64 overlap."
    ]


def test_a_batch_that_still_gains() -> None:
    assert "; at batch 32 it is still rising." in told(batches((8, 0.08), (32, 0.2)), "batch")[0]


def test_a_precision_against_another() -> None:
    study = make_study(
        [
            run_row(run_id="amp", precision="amp", step_median_s=0.008),
            run_row(run_id="full"),
        ],
        [
            step_row(run_id="full"),
            step_row(run_id="amp", precision="amp", floor_s=0.0025, bound="dram"),
        ],
    )

    assert told(study, "precision") == [
        "net (training) on toy, amp against fp32: speed-up 2.50 at batch 8 (20.0 ms → 8.00 ms); the"
        " ratio of the floors is 4.00, set by arithmetic for fp32 and by moving data from and to"
        " memory for amp."
    ]


def test_one_other_setting() -> None:
    study = make_study(
        [
            run_row(run_id="plain", backend="cuda", busy_fraction=0.5),
            run_row(run_id="graph", backend="cuda", compile="reduce-overhead",
                    step_median_s=0.01, busy_fraction=0.9),
            run_row(run_id="last", backend="cuda", channels_last=True, step_median_s=0.025),
            run_row(run_id="adam", backend="cuda", optimizer="adamw", step_median_s=0.04),
        ]
    )  # fmt: skip

    assert told(study, "settings") == [
        "net, batch 8, fp32 training on toy: compile reduce-overhead makes a step 2.00 times as"
        " fast (20.0 ms → 10.0 ms); the GPU is then busy 90.0 % of the step, not 50.0 %.",
        "net, batch 8, fp32 training on toy: channels last makes a step 0.800 times as fast"
        " (20.0 ms → 25.0 ms).",
        "net, batch 8, fp32 training, adamw on toy: sgd in place of adamw makes a step 2.00 times"
        " as fast (40.0 ms → 20.0 ms).",
    ]


def test_two_machines() -> None:
    other = replace(TOY, env="big")
    study = make_study(
        [run_row(), run_row(run_id="b", env="big", threads=64, step_median_s=0.004)],
        [step_row(), step_row(run_id="b", env="big", floor_s=0.002)],
        machines=(Machine(roofs=TOY), Machine(roofs=other)),
    )

    assert told(study, "machines") == [
        "net, fp32 training, big against toy: speed-up 5.00 at batch 8 (20.0 ms → 4.00 ms); the"
        " ratio of the floors is 5.00, both set by arithmetic."
    ]


def test_the_gap_of_a_gpu() -> None:
    study = make_study(
        [run_row(backend="cuda", kernel_time_s=0.012, data_s=0.001, copy_s=0.001)],
        [step_row(compute_s=0.009, launch_s=0.01, bound="launch")],
    )

    assert told(study, "gap") == [
        "On toy, kernels take 15.0 % of the step beyond the floor of their work (most in net, batch"
        " 8, fp32 training). The device is idle, and waits for the host, for 40.0 % of the"
        " step, most in net, batch 8, fp32 training.",
        "On toy, waiting is the larger part of the gap in the one configuration: net, batch 8, fp32"
        " training. There, better kernels would gain less than fewer or larger ones.",
        "On toy, waiting for data and copying it takes at most 10.0 % of a step and the optimizer"
        " at most 10.0 % (net, batch 8, fp32 training).",
    ]


def test_the_gap_of_a_cpu() -> None:
    study = make_study(
        [run_row()],
        [
            step_row(),
            phase_row("forward", headroom_s=0.002),
            phase_row("backward", headroom_s=0.01),
        ],
    )

    assert told(study, "gap")[0] == (
        "On toy, where kernels were not timed apart from the step, 50.0 % of it is above the floor;"
        " the phase that loses most is backward in 1 of 1 training step."
    )


def test_a_split_that_is_not_known_is_not_a_split_of_zero() -> None:
    unknown = {"data_s": NAN, "copy_s": NAN, "optimizer_s": NAN}
    without = make_study([run_row(**unknown)], [step_row()])
    assert len(told(without, "gap")) == 1
    assert cases(without) and gaps(cases(without))[0].data_s is None

    trained = make_study([run_row(**{**unknown, "optimizer_s": 0.002})], [step_row()])
    assert told(trained, "gap")[1] == (
        "On toy, the optimizer takes at most 10.0 % of a step (net, batch 8, fp32 training)."
    )


def test_kernels_that_take_longer_than_the_step_do_not_make_it_negative() -> None:
    study = make_study([run_row(backend="cuda", kernel_time_s=0.021)], [step_row()])

    assert "for 0.0 % of the step." in told(study, "gap")[0]


def test_forward_and_backward() -> None:
    study = make_study(
        [run_row(), run_row(run_id="b", model="other", backward_s=0.018)],
        [step_row(), phase_row("forward", flops=1e9), phase_row("backward", flops=2e9)],
    )

    assert told(study, "phases") == [
        "On toy, backward takes 2.00 (net, batch 8, fp32 training) to 3.00 times (other, batch 8,"
        " fp32 training) the forward, 2.50 in the middle; in FLOPs it is 2.00 times."
    ]


def test_energy() -> None:
    study = make_study(
        [run_row(energy_j_per_step=4.0, energy_j_per_sample=0.5, mean_power_w=200.0,
                 idle_power_w=50.0)]
    )  # fmt: skip

    assert told(study, "energy") == [
        "On toy, a sample costs, at the cheapest batch size of what is otherwise alike, 500 mJ"
        " for net, batch 8, fp32 training (400 pJ/FLOP); mean power 200 W, of which an"
        " idle device takes 50 W."
    ]


def test_the_cheapest_batch_is_one_of_the_same_input() -> None:
    rows = [
        run_row(run_id=f"{size}-{batch}", input_size=size, batch_size=batch, energy_j_per_sample=j)
        for size, batch, j in (("32", 8, 0.2), ("32", 16, 0.1), ("64", 8, 0.8), ("64", 16, 0.9))
    ]

    assert told(make_study(rows), "energy") == [
        "On toy, a sample costs, at the cheapest batch size of what is otherwise alike, 100 mJ for"
        " net, batch 16, fp32 training, input 32; 800 mJ for net, batch 8, fp32 training, input 64."
    ]


def test_what_the_gate_flagged() -> None:
    flag = "above its compute roof: {} % faster than its floor; likely cause: Winograd"
    study = make_study(
        [run_row(clock_flag="ran at 1500 MHz")],
        [
            layer_row("c1", efficiency=1.05, flag=flag.format(5)),
            layer_row("c2", efficiency=1.2, flag=flag.format(20)),
        ],
    )

    assert told(study, "physics") == [
        "On toy, 2 points are flagged; the farthest out is c2 of net, batch 8 (above its compute"
        " roof: 20 % faster than its floor). Likely cause: Winograd.",
        "net, batch 8, fp32 training on toy: ran at 1500 MHz.",
    ]


def test_memory_that_does_not_fit_the_count() -> None:
    study = make_study([run_row(backend="cuda", peak_memory_bytes=2e7)])

    assert told(study, "physics") == [
        "net, batch 8, fp32 training on toy: the peak of allocated memory, 20.0 MB, is 0.100 times"
        " the counted 200 MB."
    ]


def test_repeats_stragglers_and_warnings() -> None:
    study = make_study(
        [
            run_row(run_id="a", step_median_s=0.02, step_mean_s=0.03, warnings=2),
            run_row(run_id="b", step_median_s=0.04, step_mean_s=0.04),
            run_row(run_id="c", step_median_s=0.01, step_mean_s=0.01),
        ]
    )

    assert told(study, "stability") == [
        "3 runs of net, batch 8, fp32 training on toy took 10.0 ms to 40.0 ms a step, 4.00"
        " times apart; this report uses 20.0 ms.",
        "net, batch 8, fp32 training on toy: the mean step (30.0 ms) is 50.0 % above the median"
        " (20.0 ms), so a few steps were slow; throughput here is that of the median step.",
        "1 run of 3 came with warnings, which are listed with the measurements.",
    ]


def test_what_is_not_known_is_not_said() -> None:
    measured = {"run_id", "env", "model", "arch", "mode", "precision", "batch_size",
                "step_median_s", "images_processed", "measured_iters"}  # fmt: skip
    bare = {name: value if name in measured else None for name, value in run_row().items()}
    numbers = (
        "flops", "dram_bytes", "fused_bytes", "ai", "ai_high", "time_s", "compute_s", "dram_s",
        "launch_s", "floor_s", "efficiency", "headroom_s", "peak_flops_per_s",
    )  # fmt: skip
    nothing = step_row(**dict.fromkeys(numbers, NAN), bound=None)

    for study in (make_study([bare]), make_study([bare], [nothing])):
        assert analyse(study) == ()


def test_a_configuration_is_told_apart_from_others_like_it() -> None:
    study = make_study(
        [
            run_row(run_id="a", input_size="32"),
            run_row(run_id="b", input_size="64"),
            run_row(run_id="c", model="deep", config='{"hidden": 64, "layers": 2}'),
        ],
    )

    assert [case.title for case in cases(study)] == [
        "net, batch 8, fp32 training, input 32",
        "net, batch 8, fp32 training, input 64",
        "deep, batch 8, fp32 training, hidden=64 layers=2",
    ]


def test_the_middle_run_stands_for_its_repeats() -> None:
    times = {"a": 0.03, "b": 0.01, "c": 0.02, "d": 0.04}
    study = make_study([run_row(run_id=r, step_median_s=t) for r, t in times.items()])

    (case,) = cases(study)

    assert (case.run_id, case.run_ids) == ("c", ("a", "b", "c", "d"))
