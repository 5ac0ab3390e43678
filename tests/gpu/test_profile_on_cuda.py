"""`ridgeline profile` on a real GPU: counters, phases, layers, and a program of one's own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import ridgeline
from ridgeline.errors import RidgelineError
from ridgeline.profile.counting import find_ncu

PROGRAM = """
import torch
from torch import nn

import ridgeline

net = nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 8)).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
x = torch.randn(512, 1024, device="cuda")
for _ in range(6):
    with ridgeline.profile_step():
        net(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
raise SystemExit("the marked step did not end the program")
"""
PHASES = {"forward", "backward", "optimizer"}


def need_ncu() -> None:
    try:
        find_ncu()
    except RidgelineError as error:
        pytest.skip(f"no counters here: {error.problem}")


def profile_command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`ridgeline profile` in a folder, with the ridgeline that is tested here."""
    return subprocess.run(
        [sys.executable, "-m", "ridgeline", "profile", *arguments],
        cwd=folder, capture_output=True, text=True, timeout=600, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
    )  # fmt: skip


def profile_json(folder: Path, *arguments: str) -> dict[str, Any]:
    """The one profile that the command answers."""
    done = profile_command(folder, "--json", *arguments)
    if "may not read the GPU's counters" in done.stderr:
        pytest.skip("no counters here: this user may not read them")
    assert done.returncode == 0, done.stderr
    [profile] = json.loads(done.stdout)["profiles"]
    assert isinstance(profile, dict)
    return profile


@pytest.mark.slow
def test_a_training_step_with_counters(tmp_path: Path) -> None:
    # when a step of ResNet-18 is counted by its own process, and by Nsight Compute
    asked = ("resnet18", "--precision", "amp", "--tool")
    found = profile_json(tmp_path, *asked, "cupti")
    # then the whole step is there, told by phase and layer
    assert set(found["phases"]) == PHASES
    assert found["attributed_share"] > 0.98
    assert found["layer_share"] > 0.8
    # with as many FLOPs on tensor cores as the model has: a tile is padded, a layer may be FFT
    model = ridgeline.count("resnet18", batch_size=32, mode="train").total.flops
    assert 0.8 < found["flops"]["tensor_fp16"] / model < 1.5
    assert found["dram_bytes"] > 10**8
    # and counters that are right on work of known size
    assert found["self_test"]["is_trusted"]
    assert all(abs(ratio - 1) < 0.05 for ratio in found["self_test"]["ratios"].values())
    # and backward does about twice what forward does
    flops = {name: phase["flops"] for name, phase in found["phases"].items()}
    assert 1.4 < flops["backward"] / flops["forward"] < 2.6
    assert found["kernel_time_s"] > 0
    assert found["gap_s"] == pytest.approx(max(found["step_time_s"] - found["busy_time_s"], 0))
    # and Nsight Compute says the same
    need_ncu()
    other = profile_json(tmp_path, *asked, "ncu")
    assert (found["tool"], other["tool"]) == ("cupti", "ncu")
    assert found["launches"] == other["launches"]
    assert found["flops"]["tensor_fp16"] == other["flops"]["tensor_fp16"]
    assert found["flops"]["fp32"] == pytest.approx(other["flops"]["fp32"], rel=1e-4)
    assert found["dram_bytes"] == pytest.approx(other["dram_bytes"], rel=0.1)


@pytest.mark.slow
def test_a_cuda_graph_is_left_to_nsight_compute(tmp_path: Path) -> None:
    need_ncu()
    graph = ("--mode", "infer", "-b", "8", "--compile-mode", "reduce-overhead")
    found = profile_json(tmp_path, "resnet18", *graph)
    assert found["tool"] == "ncu"
    assert "Nsight Compute counted, and not CUPTI" in " ".join(found["warnings"])
    assert found["dram_bytes"] > 10**7


def test_an_inference_step_without_counters(tmp_path: Path) -> None:
    arguments = ("--mode", "infer", "--tier", "time", "-b", "8")
    found = profile_json(tmp_path, "resnet18", *arguments)
    assert set(found["phases"]) == {"forward"}
    assert found["attributed_share"] > 0.98
    assert set(found["flops"].values()) == {None}
    assert found["launches"] > 40  # 20 convolutions, 20 batch norms at least


def test_two_steps_are_told_as_one(tmp_path: Path) -> None:
    arguments = ("resnet18", "--tier", "time", "-b", "8")
    one = profile_json(tmp_path, *arguments)
    two = profile_json(tmp_path, *arguments, "--iters", "2")
    assert two["launches"] == pytest.approx(one["launches"], rel=0.01)
    assert two["kernel_time_s"] == pytest.approx(one["kernel_time_s"], rel=0.2)


@pytest.mark.parametrize("tier", ["time", "counters"])
def test_a_marked_program(tmp_path: Path, tier: str) -> None:
    if tier == "counters":
        need_ncu()
    (tmp_path / "train.py").write_text(PROGRAM)
    found = profile_json(tmp_path, "--tier", tier, "--", sys.executable, "train.py")
    assert set(found["phases"]) == PHASES
    assert found["attributed_share"] > 0.98
    assert 0 < found["step_time_s"] < 1
    if tier == "counters":
        # 2·512·1024·1024 forward and twice that backward, less the gradient of the input;
        # the small layer is 2·512·1024·8, three times
        large, small = 2 * 512 * 1024 * 1024, 2 * 512 * 1024 * 8
        flops = found["flops"]["fp32"] + (found["flops"]["tensor_tf32"] or 0)
        assert flops == pytest.approx(2 * large + 3 * small, rel=0.1)
        assert found["self_test"]["is_trusted"]


def test_an_unmarked_program_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch; torch.ones(9, device='cuda').neg()")
    done = profile_command(tmp_path, "--tier", "time", "--", sys.executable, "train.py")
    assert done.returncode == 2
    assert "with ridgeline.profile_step():" in done.stderr


CHECKPOINTED = """
from torch import nn
from torch.utils.checkpoint import checkpoint

WIDTHS = (512, 768, 1024, 1280, 1536)  # of which each pair is another layer's


class Kept(nn.Module):
    def __init__(self, use_reentrant):
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(*pair) for pair in zip(WIDTHS, WIDTHS[1:]))
        self.use_reentrant = use_reentrant

    def forward(self, x):
        x = self.parts[0](x).relu()
        for pair in (self.parts[1:3], self.parts[3:]):
            x = checkpoint(self.again, pair, x, use_reentrant=self.use_reentrant)
        return x

    def again(self, parts, x):
        for part in parts:
            x = part(x).tanh()
        return x


def at_once():
    return Kept(True)


def when_needed():
    return Kept(False)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["at_once", "when_needed"])
def test_what_a_checkpoint_does_again_is_its_layer_s(tmp_path: Path, kind: str) -> None:
    # given four products of different sizes, the last three of them done again
    (tmp_path / "net.py").write_text(CHECKPOINTED)
    profile_json(
        tmp_path, f"net.py:{kind}", "--input-size", "512", "-b", "512", "--precision", "bf16"
    )
    [run] = (tmp_path / "results" / "runs").glob("*-profile-*")
    kernels = pd.read_parquet(run / "kernels.parquet")
    # then each has its own in every phase: forward again, and two gradients (the first one has one)
    flops = kernels.groupby(["phase", "layer"])["flops_bf16_matrix"].sum()
    sizes = [2 * 512 * a * b for a, b in pairwise((512, 768, 1024, 1280, 1536))]
    layers = [f"parts.{n}" for n in range(4)]
    again = [n * size for n, size in zip((1, 3, 3, 3), sizes, strict=True)]
    padded = 0.03  # to whole tiles; the layers are further apart
    assert [flops["forward", layer] for layer in layers] == pytest.approx(sizes, rel=padded)
    assert [flops["backward", layer] for layer in layers] == pytest.approx(again, rel=padded)
