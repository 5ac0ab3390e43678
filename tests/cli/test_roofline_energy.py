"""`ridgeline roofline --energy`: a stored run of an H200 with coefficients of made-up loads."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
from tests.cli.analyzed_here import Printed, command

from ridgeline.roofline.floors import ENERGY_COLUMNS

STORED = Path(__file__).parents[1] / "golden" / "folders" / "h200"
LOADS = """label,time_s,power_w,flops,bytes,precision
spinning,2,125,0,0,fp32
DRAM read,2,395,0,9.0e12,fp32
DRAM copy,2,375,0,8.4e12,fp32
fp32 chains,2,640,9.2e13,0,fp32
fp32 half,2,400,4.8e13,2e10,fp32
fp16 products,2,640,11.4e14,1e11,fp16
fp16 half,2,380,5.6e14,5e10,fp16
tf32 products,2,650,6.6e14,1e11,tf32
tf32 half,2,390,3.3e14,5e10,tf32
"""
ridgeline = partial(command)


@pytest.fixture
def results(tmp_path: Path, capsys: Printed) -> Path:
    """Two runs with joules (one has those of the other: 60 J), their counts, and coefficients."""
    folder = tmp_path / "h200"
    shutil.copytree(STORED, folder)
    loads = tmp_path / "loads.csv"
    loads.write_text(LOADS)
    fit = ("machine", "measure", "--energy", "--from", str(loads), "--name", "nvidia-h200")
    assert ridgeline(*fit, "--results", str(folder)) == 0
    capsys.readouterr()
    return folder


def test_joules_of_steps_their_floors_and_parts(results: Path, capsys: Printed) -> None:
    assert ridgeline("roofline", "--energy", "--no-figures", "--results", str(results)) == 0

    out = capsys.readouterr().out
    (vgg,) = [line for line in out.splitlines() if line.startswith("vgg16, batch 128")]
    assert vgg.startswith("vgg16, batch 128, tf32 training on nvidia-h200: a step takes 59.7 J,")
    assert "constant power" in vgg and "not explained" in vgg
    (resnet,) = [line for line in out.splitlines() if line.startswith("resnet50, batch 32")]
    assert "2.65 kW are more than the power cap of 700 W allows: likely a wrong" in resnet
    assert "nvidia-h200, tf32: time balance 92.8 FLOP/B, energy balance 37" in out


def test_a_table_of_all_points_and_the_figures(results: Path, capsys: Printed) -> None:
    assert ridgeline("roofline", "--energy", "--format", "svg", "--results", str(results)) == 0

    table = pd.read_csv(results / "energy_points.csv")
    assert tuple(table.columns) == ENERGY_COLUMNS
    steps = table[table["grain"].eq("step")].set_index("model")
    assert steps.loc["vgg16", "energy_provenance"] == "measured"
    assert (steps["energy_floor_j"] <= steps["energy_j"]).all()
    layers = table[table["grain"].eq("layer") & table["phase"].eq("all")]
    of_step = layers[layers["provenance"].eq("counter")].groupby("model")["energy_j"].sum()
    whole_j = steps["energy_j"].groupby("model").first()
    assert of_step["resnet50"] == pytest.approx(whole_j["resnet50"])
    assert set(layers["energy_provenance"]) == {"modelled"}
    # one run of each network: there is nothing to choose between in joules and time
    drawn = {path.name for path in (results / "figures").iterdir()}
    assert drawn == {f"{kind}_nvidia-h200.svg" for kind in ("energy", "power")}


def test_the_same_in_json_and_in_the_report(results: Path, capsys: Printed) -> None:
    at = ("--results", str(results))
    assert ridgeline("roofline", "--energy", "--no-figures", "--json", *at) == 0
    energies = json.loads(capsys.readouterr().out)["energies"]
    assert {row["grain"] for row in energies} == {"step", "phase", "layer"}
    mine = results / "mine.yaml"
    mine.write_text("- {claim: VGG-16 draws much., test: vgg16.energy_j_per_step > 50}\n")
    assert ridgeline("report", "--no-figures", "--hypotheses", str(mine), *at) == 0
    assert "A1 held: VGG-16 draws much.\n" in capsys.readouterr().out
    sentence = "a step takes 59.7 J, its energy floor is"
    assert sentence in (results / "report.md").read_text(encoding="utf-8")
    assert sentence in (results / "report.html").read_text(encoding="utf-8")


def test_without_joules_there_is_nothing_to_show(capsys: Printed) -> None:
    folder = STORED.parent / "cpu"
    assert ridgeline("roofline", "--energy", "--no-figures", "--results", str(folder)) == 2
    assert "no run has joules: no meter counted any" in capsys.readouterr().err


def test_joules_of_another_tool_under_coefficients_of_a_file(
    tmp_path: Path, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given coefficients of a device that was not measured, and runs with watts of another meter
    monkeypatch.chdir(tmp_path)
    Path("loads.csv").write_text(LOADS)
    rows = (
        "resnet18_cifar,cuda,NVIDIA H200,infer,1,fp32,1,0.001,300",
        "resnet18_cifar,cuda,NVIDIA H200,infer,4,fp32,1,0.001,60",
        "resnet18_cifar,cuda,NVIDIA H200,infer,16,fp32,1,0.002,300",
    )
    header = "arch,backend,device_name,mode,batch_size,precision,measured_iters,elapsed_sec"
    Path("metrics.csv").write_text("\n".join([f"{header},mean_power_w", *rows]) + "\n")
    assert ridgeline("machine", "measure", "--energy", "--from", "loads.csv",
                     "--name", "nvidia-h200") == 0  # fmt: skip
    assert ridgeline("import", "metrics.csv") == 0
    capsys.readouterr()

    assert ridgeline("roofline", "--energy", "--no-figures") == 0

    # then their joules stand under their floors, and the odd one is named
    out = capsys.readouterr().out
    assert "resnet18_cifar, batch 16, fp32 inference on nvidia-h200: a step takes 600 mJ" in out
    assert "flag: " in out and "0.015 J per sample where batches 1 and 16 suggest 0.106" in out
    table = pd.read_csv("results/energy_points.csv")
    steps = table[table["grain"].eq("step")]
    assert steps["energy_j"].tolist() == pytest.approx([0.3, 0.06, 0.6])
    assert steps["energy_floor_j"].notna().all()
