"""`ridgeline machine` on a recorded passport of a real H200, and on what cannot be read."""

import json
import shutil
from functools import partial
from pathlib import Path

import pytest
from tests.cli.analyzed_here import Printed, command

PAGODA = Path(__file__).parents[2] / "benchmarks" / "data" / "pagoda-energy.csv"
RECORDED = Path(__file__).parents[1] / "data" / "passport-h200.json"


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A results folder with the passport of an H200, measured on 2026-11-15."""
    (tmp_path / "machines").mkdir()
    shutil.copy(RECORDED, tmp_path / "machines" / "nvidia-h200.json")
    return tmp_path


ridgeline = partial(command, "machine")


def test_export_and_import(results: Path, tmp_path: Path) -> None:
    peaks, copy = tmp_path / "peaks.json", tmp_path / "copy.json"
    at = ("--results", str(results))
    assert ridgeline("export", "nvidia-h200", "--peaks", str(peaks), "-o", str(copy), *at) == 0
    assert json.loads(peaks.read_text())["nvidia-h200"]["peak_gflops"]["bf16"] > 780_000
    assert ridgeline("import", str(copy), "--name", "other", *at) == 0
    assert (results / "machines" / "other.json").exists()


def test_loads_of_a_file_are_fitted_and_shown(tmp_path: Path, capsys: Printed) -> None:
    at = ("--results", str(tmp_path))
    fit = ("measure", "--energy", "--from", str(PAGODA), "--name", "orin", *at)

    assert ridgeline(*fit) == 0

    out = capsys.readouterr().out
    assert "8.67 pJ   3.71 pJ to 14.2 pJ" in out
    assert "off by 16.5 % on average; R² 0.819 of the joules, 0.244 of the watts" in out
    assert "may be nothing at all: byte (dram)" in out
    wrong = "18.4 W where loads of the same rates draw 54.5 W: likely a wrong reading"
    (row,) = [line for line in out.splitlines() if wrong in line]
    assert row.split()[:3] == ["resnet50", "batch", "32"]
    assert ridgeline("show", "orin", *at) == 0
    assert capsys.readouterr().out == out
    assert ridgeline(*fit, "--json") == 0
    (model,) = json.loads(capsys.readouterr().out)["energy"]
    assert model["constant_power_w"]["value"] == pytest.approx(23.1, rel=0.01)
    assert len(model["points"]) == 25


def test_a_device_that_was_never_measured(tmp_path: Path, capsys: Printed) -> None:
    assert ridgeline("show", "NVIDIA A100 SXM4 80GB", "--results", str(tmp_path)) == 0
    label, *rows = capsys.readouterr().out.splitlines()
    assert label.startswith(
        "NVIDIA A100 SXM4 80GB: nothing was measured; these are published figures (NVIDIA A100"
    )
    assert {  # of the maker's datasheet
        "bf16 matrix, sums in fp32 312 TFLOP/s published",
        "int8 matrix, sums in int32 624 TOP/s published",
        "dram bandwidth 2.04 TB/s published",
        "power limit 400 W published",
    } <= {" ".join(row.split()) for row in rows}


def test_a_whole_measurement_of_this_cpu(tmp_path: Path, capsys: Printed) -> None:
    code = ridgeline("measure", "--device", "cpu", "--quick", "--results", str(tmp_path), "--json")
    assert code == 0
    answer = json.loads(capsys.readouterr().out)
    kinds = {c["kind"] for c in answer["ceilings"]}
    assert {"compute", "bandwidth"} <= kinds
    assert all(c["spread"] >= 0 for c in answer["ceilings"])
    assert [p.stem for p in (tmp_path / "machines").glob("*.json")] == [answer["machine"]]


def test_a_passport_that_is_not_ours_is_not_replaced(results: Path, capsys: Printed) -> None:
    # given a passport of an H200, a damaged one, and this machine without one
    measure = ("measure", "--device", "cpu", "--quick", "--results", str(results))
    assert ridgeline(*measure, "--name", "nvidia-h200") == 2
    assert "nvidia-h200.json is not a passport of this machine" in capsys.readouterr().err
    assert (results / "machines" / "nvidia-h200.json").read_text() == RECORDED.read_text()
    (results / "machines" / "box.json").write_text("{")
    assert ridgeline(*measure, "--name", "box") == 2
    assert "hint: keep this one under another name: --name NAME" in capsys.readouterr().err


def test_a_note_is_kept_and_shown(results: Path, capsys: Printed) -> None:
    at = ("--results", str(results))
    assert ridgeline("note", "nvidia-h200", "zone us-west4-a", *at) == 0
    assert ridgeline("note", "nvidia-h200", *at) == 0
    assert capsys.readouterr().out == "zone us-west4-a\n"
    assert ridgeline("show", "nvidia-h200", *at) == 0
    assert "note: zone us-west4-a" in capsys.readouterr().out
    assert ridgeline("list", *at) == 0  # a note is no passport
    assert len(capsys.readouterr().out.splitlines()) == 1
    assert ridgeline("note", "a/b", "x", *at) == 2
    assert ridgeline("note", "nobody", *at) == 2


def test_a_description_into_files(tmp_path: Path) -> None:
    paths = tmp_path / "env_info.md", tmp_path / "env.json"
    assert ridgeline("describe", "-o", str(paths[0]), "-o", str(paths[1])) == 0
    assert paths[0].read_text().startswith("# ")
    assert json.loads(paths[1].read_text())["cpu"]
    assert ridgeline("describe", "-o", "x.txt") == 2
