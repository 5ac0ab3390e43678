"""The page as text: what is in it, and that it is only text. tests/browser looks at it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.browser.studies import SCRIPT, kernels, study
from tests.report.hand_study import make_study, run_row, step_row

from ridgeline.report.page import SCRIPTS, join_scripts, read_asset, write_page
from ridgeline.report.page import payload as page_payload
from ridgeline.report.page.payload import (
    Words,
    choose_points,
    round_column,
    round_number,
    to_script,
)

DATA = re.compile(r'<script type="application/json" id="data">(.*?)</script>', re.DOTALL)


def payload(path: Path) -> dict[str, Any]:
    found = DATA.search(path.read_text(encoding="utf-8"))
    assert found is not None
    content: dict[str, Any] = json.loads(found[1])
    return content


def test_numbers_keep_five_digits_and_unknown_stays_unknown() -> None:
    assert [round_number(v) for v in (51748864.0, 0.0123456789, 3, float("nan"), None)] == [
        51749000, 0.012346, 3, None, None,
    ]  # fmt: skip
    assert round_column([float("nan"), None]) is None
    words = Words()
    assert words.column(["a", None, "b", "a", float("nan")]) == [1, 0, 2, 1, 0]
    assert words.texts == ["", "a", "b"]


def test_data_cannot_leave_its_script_element() -> None:
    text = to_script({"a": "</script><!--&\u2028"})
    assert text == '{"a":"\\u003c/script\\u003e\\u003c!--\\u0026\\u2028"}'
    assert json.loads(text) == {"a": "</script><!--&\u2028"}


def test_words_of_the_results_folder_are_text(tmp_path: Path) -> None:
    # given a model, a stage, a warning and a problem that look like HTML
    path = write_page(study(model=SCRIPT), tmp_path / "page.html")
    text = path.read_text(encoding="utf-8")
    # then none of them became any
    assert SCRIPT not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "no &lt;b&gt;ncu&lt;/b&gt;" in text
    assert text.count("<script") == 2
    assert SCRIPT in payload(path)["words"]


def test_kernels_beyond_the_budget_are_summed_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_payload, "MOST_KERNELS", 30)
    told = study(batches=(128,), kernel_count=100)
    points, (left_out,) = choose_points(told)
    made = kernels(100)
    rest = made.drop(made.nlargest(30, "time_s").index)["time_s"].sum() / made["time_s"].sum()
    assert points["grain"].eq("kernel").sum() == 30
    assert left_out == (
        "Of 100 kernels the 30 that take longest are here. The others take"
        f" {100 * rest:.1f} % of all kernel time."
    )
    assert left_out in write_page(told, tmp_path / "page.html").read_text()


def test_layers_beyond_the_budget_leave_whole_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_payload, "MOST_LAYERS", 30)  # two runs have 24 rows of layers
    assert choose_points(study())[1] == []
    monkeypatch.setattr(page_payload, "MOST_LAYERS", 20)
    points, (left_out,) = choose_points(study())
    layers = points[points["grain"].eq("layer")]
    assert layers["run_id"].unique().tolist() == ["nvidia-h200-64"]
    assert left_out.startswith("Layers of 1 of 2 runs are here")
    assert set(points["run_id"]) == {"nvidia-h200-64", "nvidia-h200-128"}


def test_a_page_of_5000_kernels_is_small_and_grows_no_further(tmp_path: Path) -> None:
    sizes = [
        write_page(study(kernel_count=count), tmp_path / f"{count}.html").stat().st_size
        for count in (5_000, 20_000)
    ]
    assert sizes[0] < 2_000_000
    assert sizes[1] < 1.1 * sizes[0]


def test_the_page_names_no_other_place(tmp_path: Path) -> None:
    text = write_page(study(), tmp_path / "page.html").read_text()
    assert "default-src 'none'" in text
    own = text.replace("http://www.w3.org/2000/svg", "")  # the name of SVG, which nobody fetches
    assert "http://" not in own and "https://" not in own and "//cdn" not in own


def test_scripts_write_only_text_and_stay_small() -> None:
    assert "innerHTML" not in join_scripts() and "insertAdjacentHTML" not in join_scripts()
    assert "eval(" not in join_scripts() and "</script" not in join_scripts()
    assert {name: len(read_asset(name).splitlines()) for name in SCRIPTS
            if len(read_asset(name).splitlines()) > 300} == {}  # fmt: skip


def test_a_run_of_a_busy_machine_is_marked(tmp_path: Path) -> None:
    made = make_study([run_row(disturbed="others")], [step_row()])
    path = write_page(made, tmp_path / "page.html")
    data = payload(path)
    assert [data["words"][place] for place in data["runs"]["flags"]] == [
        "the machine was busy: others"
    ]
    caution = "Caution: the machine was busy (others); measure again when it is quiet."
    assert caution in path.read_text()
