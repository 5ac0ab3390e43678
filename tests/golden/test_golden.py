"""What users get is what was stored: a sample of each part; `make golden` compares all of it."""

from __future__ import annotations

import json

import pytest
from tests.golden import freeze
from tests.golden.freeze import Difference, describe, find_differences

SAMPLED = ("torchvision", "zoo", "onnx_nodes", "captures", "views", "commands")


@pytest.mark.parametrize("part", SAMPLED)
def test_nothing_changed(part: str) -> None:
    if others := freeze.find_other_versions():
        pytest.skip(f"the goldens are of other versions: {'; '.join(others)}")

    differences = freeze.compare(part, freeze.compute(part, fast=True), fast=True)

    assert not differences, "\n".join(describe(part, differences))


def test_differences_have_their_path_and_both_values() -> None:
    was = {"net": {"macs": 8, "time_s": 1.0, "phases": ["forward"]}, "gone": 1}
    now = {"net": {"macs": 9, "time_s": 1.0 + 1e-12, "phases": ["forward", "backward"]}}

    assert list(find_differences(was, now)) == [
        Difference(path=("gone",), was=1, now="(absent)"),
        Difference(path=("net", "macs"), was=8, now=9),
        Difference(path=("net", "phases"), was=["forward"], now=["forward", "backward"]),
    ]


@pytest.mark.parametrize(
    ("was", "now", "is_equal"),
    [
        (1.0, 1.0 + 1e-12, True),
        (1.0, 1.0 + 1e-6, False),
        (float("nan"), float("nan"), True),
        (1, 1.0, False),  # a whole number became a broken one
        (True, 1, False),
        (None, "", False),
    ],
)
def test_only_floats_have_a_tolerance(was: object, now: object, is_equal: bool) -> None:
    assert (not list(find_differences(was, now))) is is_equal


def test_the_same_difference_is_listed_once_with_examples() -> None:
    differences = list(find_differences({f"net{n}": {"macs": n} for n in range(5)},
                                        {f"net{n}": {"macs": 0} for n in range(5)}))  # fmt: skip

    assert describe("zoo", differences) == [
        "zoo: macs: 4 differences",
        "  net1 / macs: was 1, is 0",
        "  net2 / macs: was 2, is 0",
        "  net3 / macs: was 3, is 0",
    ]


def test_files_are_json_with_a_line_for_each_item() -> None:
    value = {"long": ["x" * 60, "y" * 60], "short": {"b": 1, "a": [1, 2.5, None]}}

    text = freeze.to_text(value)

    assert json.loads(text) == value
    assert text.splitlines() == [
        "{",
        ' "long": [',
        f'  "{"x" * 60}",',
        f'  "{"y" * 60}"',
        " ],",
        ' "short": {"a": [1, 2.5, null], "b": 1}',
        "}",
    ]
