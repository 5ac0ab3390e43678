"""Which operators a calibration measures, in which order, and how samples are taken."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from functools import partial

import pytest
import torch
from benchmarks.shape_corpus import CPU_TESTS, GPU_TESTS, NETWORKS

from ridgeline.predict.calibrate import (
    Measured,
    Plan,
    choose_order,
    corpus_points,
    in_precision,
    measure_points,
    read_corpus,
    sample_in_turns,
    take_batch,
)
from ridgeline.predict.calibration import Calibration
from ridgeline.predict.operators import OperatorPoint
from ridgeline.predict.replay import Replay


def product(n: int, *, group: str = "mm nn") -> OperatorPoint:
    """A product of two square matrices."""
    return OperatorPoint(
        op="aten::mm", arguments=f'[[{{"fp32":[{n},{n}]}},{{"fp32":[{n},{n}]}}],{{}}]',
        precision="fp32", group=group, kind="matmul", flops=2.0 * n**3, moved_bytes=12.0 * n * n,
        output=(n, n),
    )  # fmt: skip


def test_networks_of_the_tests_are_not_in_the_corpus() -> None:
    assert not {*CPU_TESTS, *GPU_TESTS} & {*NETWORKS}
    assert len(set(NETWORKS)) == len(NETWORKS)


def test_the_corpus_has_all_classes_heaviest_first() -> None:
    corpus = read_corpus()

    weights = [weight for _, weight in corpus]
    assert weights == sorted(weights, reverse=True)
    assert len({point.key for point, _ in corpus}) == len(corpus)
    assert {"conv", "matmul", "attention", "norm", "softmax", "pointwise", "pool", "reduce"} <= {
        point.kind for point, _ in corpus
    }


def test_groups_take_turns_by_the_weight_that_is_left() -> None:
    a, b, c = product(64), product(128), product(256, group="mm nt")

    order = choose_order([(a, 1.0), (b, 5.0), (c, 4.0)])

    # left: nn 6, nt 4; then nn has 1 left and nt 4
    assert order == [b, c, a]
    assert choose_order([(a, 1.0), (b, 5.0)], known=[b.key]) == [a]


def test_calls_that_take_too_long_are_passed_over() -> None:
    queue = deque([product(64), product(4096)])  # 1.4e11 FLOPs at 3e10 a second: 4.6 s
    known = Calibration(machine="-", device="cpu")

    assert take_batch(queue, known, set(), longest_s=1.0) == [product(64)]


@pytest.mark.parametrize(
    ("precision", "kind", "expected"),
    [("tf32", "matmul", "tf32"), ("tf32", "norm", "fp32"), ("amp", "matmul", "fp16"),
     ("amp", "norm", "fp32"), ("bf16", "norm", "bf16")],
)  # fmt: skip
def test_a_point_in_another_precision(precision: str, kind: str, expected: str) -> None:
    point = in_precision(replace(product(64), kind=kind), precision)

    is_half = expected in ("fp16", "bf16")
    assert point.precision == expected
    assert point.tensors == [(64, 64), (64, 64)]
    assert point.moved_bytes == (24576.0 if is_half else 49152.0)


def test_samples_are_taken_in_turns_after_a_warm_up() -> None:
    calls: list[str] = []
    ticks = iter(range(1000))
    replays = {
        name: Replay(run=partial(calls.append, name), activations=(), nbytes=0)
        for name in ("conv", "relu")
    }

    samples, _ = sample_in_turns(replays, clock=lambda: float(next(ticks)))

    assert calls[:6] == ["conv", "conv", "relu", "relu", "conv", "conv"]
    assert samples == {"conv": [1.0, 1.0], "relu": [1.0, 1.0]}  # 0.15 s are enough


def test_points_are_measured_until_the_time_is_spent() -> None:
    measured, ticks = Measured(), iter(range(1000))

    measure_points(
        [product(8), replace(product(16), op="aten::nonsense")], torch.device("cpu"), 2.5,
        measured, clock=lambda: float(next(ticks)),
    )  # fmt: skip

    assert [one.point for one in measured.points] == [product(8)]
    assert list(measured.refused) == [replace(product(16), op="aten::nonsense").key]


def test_a_class_of_the_corpus() -> None:
    plan = Plan(device="cpu", groups=("conv",))

    assert {point.kind for point, _ in corpus_points(plan)} == {"conv"}
