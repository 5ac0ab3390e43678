"""The page's section about counters in a browser: a recorded profile, and a capture beside it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from tests.captures.files import PRODUCTS, STEP
from tests.report.profiled import profiled_folder, store_capture

from ridgeline import import_capture
from ridgeline.report.study import read_study
from ridgeline.store import ResultsFolder

Opened = Callable[..., Any]


@pytest.fixture
def page(opened: Opened, tmp_path: Path) -> Any:
    results = profiled_folder(tmp_path / "results")
    store_capture(results, "RN50 <b>amp")
    return opened(read_study(results))


def cells(page: Any, caption: str) -> list[list[str]]:
    rows = page.locator(f"#executed-body [aria-label='{caption}'] tbody tr").all()
    return [row.locator("th, td").all_inner_texts() for row in rows]


def test_totals_gap_and_trust(page: Any) -> None:
    told = page.inner_text("#executed-body")
    for text in ("7.92 ms (637 launches) of a step of 22.5 ms", "launch overhead",
                 "Self-test: a copy", "98.5 % of the kernels' time", "the clock was <not> locked",
                 "798 GFLOP"):  # fmt: skip
        assert text in told
    assert "NaN" not in told
    facts = page.locator("#executed-body dl.facts dd").all_inner_texts()
    assert facts == ["798 GFLOP", "13.6 GFLOP", "8.52 GFLOP", "10.5 GB", "32.1 GB", "15.8 GB",
                     "637", "7.92 ms", "22.5 ms", "14.6 ms"]  # fmt: skip


def test_model_against_executed_by_phase_and_by_layer(page: Any) -> None:
    phases = cells(page, "Model against executed work, by phase")
    assert [row[0] for row in phases] == ["step", "forward", "backward", "optimizer", "(no phase)"]
    layers = cells(page, "Model against executed work, by layer")
    assert layers[0][:8] == ["conv1", "conv", "15.1 GFLOP", "26.4 GFLOP", "1.75", "1.74",
                             "11.3 GFLOP", "tile padding"]  # fmt: skip
    # a cause says what it means, and columns sort
    cell = page.locator("#executed-body td", has_text="tile padding").first
    cell.hover()
    assert "kernels compute whole tiles" in page.inner_text("#tip")
    page.click(
        "#executed-body [aria-label='Model against executed work, by layer'] th >> text=Layer"
    )
    names = [row[0] for row in cells(page, "Model against executed work, by layer")]
    assert names == sorted(names)


def test_kernels_and_captures(page: Any) -> None:
    rows = cells(page, "Kernels that take longest")
    assert rows[0][:4] == ["at::vectorized_elementwise_kernel", "pointwise", "247", "1.75 ms"]
    assert len(rows) == 15
    page.select_option("#executed-run", label="RN50 <b>amp, capture, nvidia-h200")
    told = page.inner_text("#executed-body")
    assert "the step around them was not timed" in told
    assert "Model against executed" not in told
    # the figure has the capture as a point of its own, and tables of runs do not
    for name in ("machine", "model", "run"):
        page.select_option(f"#choose-{name}", "")
    page.select_option("#choose-grain", "capture")
    assert [mark["name"] for mark in page.evaluate("ridgeline.marks()")] == ["RN50 <b>amp"]
    assert "RN50" not in page.inner_text("#runs-body") + page.inner_text("#throughput-body")


def test_a_page_of_captures_alone(opened: Opened, tmp_path: Path) -> None:
    results = ResultsFolder(tmp_path / "results")
    store_capture(results)
    page = opened(read_study(results))
    assert page.inner_text("#title") == "RN50 amp"
    assert "637 kernel launches take 7.92 ms together" in page.inner_text("section.lead")
    assert "RN50 amp" in {mark["name"] for mark in page.evaluate("ridgeline.marks()")}
    # then there is no run, and the file of the capture is told
    assert page.inner_text("#runs-body") == "No run was timed here."
    row = page.locator("#captures-body [aria-label='Captures'] tbody tr").first
    assert row.locator("th, td").all_inner_texts() == [
        "▸RN50 amp", "captures/step.csv", "NVIDIA H200", "2026-11-16T10:00:00+00:00",
        "ridgeline import captures/step.csv --label 'RN50 amp'",
    ]  # fmt: skip
    # and why there is no energy
    assert page.inner_text("#energy-body") == (
        "No run was timed here. A capture does not tell the joules of its kernels."
    )
    # and where its numbers are from
    page.hover("section.lead .first")
    assert page.inner_text("#tip").startswith("capture: captures/step.csv, stored as ")


def overlap(box: list[float], other: list[float]) -> bool:
    return (box[0] < other[2] and other[0] < box[2]) and (box[1] < other[3] and other[1] < box[3])


def test_labels_of_roofs_cover_no_points(opened: Opened, tmp_path: Path) -> None:
    # given two captures with work in nine precisions, under the roofs of a datasheet
    results = ResultsFolder(tmp_path / "results")
    import_capture(PRODUCTS, STEP, results=results.path)
    page = opened(read_study(results))
    # then roofs at one height share a label, in their own units
    labels = page.evaluate("ridgeline.roofLabels()")
    assert [label["text"].removesuffix(", datasheet") for label in labels] == [
        "fp8 matrix 1.98 PFLOP/s, int8 matrix 1.98 POP/s", "fp16, bf16 matrix 989 TFLOP/s",
        "tf32 matrix 495 TFLOP/s", "fp16 vector 134 TFLOP/s",
        "fp32 vector, fp64 matrix 66.9 TFLOP/s", "fp64 vector 33.5 TFLOP/s",
    ]  # fmt: skip
    # and none of them is on another, or on a point
    boxes = [label["box"] for label in labels]
    marks = [[m["x"] - 3, m["y"] - 3, m["x"] + 3, m["y"] + 3]
             for m in page.evaluate("ridgeline.marks()")]  # fmt: skip
    assert len(marks) > 100
    assert not any(overlap(box, other) for box, other in combinations(boxes, 2))
    assert not any(overlap(box, mark) for box in boxes for mark in marks)
    assert page.inner_text("#roof-note") == ""
    # and the marks that take longest have their names beside them, clear of all
    names = [name["box"] for name in page.evaluate("ridgeline.names()")]
    assert 1 <= len(names) <= 8
    texts = [*names, *boxes]
    assert not any(overlap(box, other) for box, other in combinations(texts, 2))
    assert not any(overlap(box, mark) for box in names for mark in marks)
