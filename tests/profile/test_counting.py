"""Nsight Compute: where it is found, what it answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ridgeline.errors import RidgelineError
from ridgeline.machine import system
from ridgeline.profile.counting import find_ncu
from ridgeline.profile.processes import Ncu
from ridgeline.profile.request import Plan

NAMES = """\
Device NVIDIA H200 (GH100)
-------------------------- ----------- ------- -------------------
Metric Name                Metric Type Metric Unit Metric Description
-------------------------- ----------- ------- -------------------
dram__bytes                Counter     byte    # of bytes accessed in DRAM
  more about it
gpu__time_duration         Counter     ns      incremental duration
Note: the names need .sum or .avg
"""


@pytest.fixture(autouse=True)
def _no_ncu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No variable, no program on the path, none in the usual folders."""
    monkeypatch.delenv("RIDGELINE_NCU", raising=False)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(system, "NCU_PATTERNS", (f"{tmp_path}/cuda-*/ncu",))


def script(path: Path, says: str, then: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{says}\nEND\n{then}\n")
    path.chmod(0o755)
    return path


def version(number: str) -> str:
    return f"NVIDIA (R) Nsight Compute Command Line Profiler\nVersion {number} (build 36398880)"


# ---------------------------------------------------------------- where it is


def test_the_variable_then_the_path_then_the_newest_of_the_usual_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 12.10 is newer than 12.9, though it comes before it in the alphabet
    for number in ("12.10", "12.9"):
        script(tmp_path / f"cuda-{number}" / "ncu", version("2025.1.0.0"))
    assert find_ncu().path == str(tmp_path / "cuda-12.10" / "ncu")
    on_path = script(tmp_path / "bin" / "ncu", version("2025.3.1.0"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    assert find_ncu() == Ncu(str(on_path), "2025.3.1.0")
    named = script(tmp_path / "mine" / "ncu", version("2024.1.0.0"))
    monkeypatch.setenv("RIDGELINE_NCU", str(named))
    assert find_ncu() == Ncu(str(named), "2024.1.0.0")


def test_nowhere() -> None:
    with pytest.raises(RidgelineError) as raised:
        find_ncu()
    assert raised.value.problem == "Nsight Compute (ncu) was not found"
    assert "RIDGELINE_NCU=/path/to/ncu" in raised.value.hint
    assert "--tier time" in raised.value.hint


@pytest.mark.parametrize("number", ["2019.5.1", "2020.3.1.0", "2021.1.0.0"])
def test_an_old_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: str
) -> None:
    monkeypatch.setenv("RIDGELINE_NCU", str(script(tmp_path / "ncu", version(number))))
    if number == "2021.1.0.0":  # the oldest that will do
        assert find_ncu().version == number
        return
    with pytest.raises(RidgelineError, match=f"is ncu {number}, which is too old"):
        find_ncu()


# ---------------------------------------------------------------- what it says


def test_the_command_leaves_clocks_and_caches_alone() -> None:
    command = Ncu("/opt/ncu", "2025.3.1").command(["a.sum", "b.sum"], Path("log.csv"))
    assert command == [
        "/opt/ncu", "--csv", "--page", "raw", "--print-units", "base", "--nvtx",
        "--profile-from-start", "off", "--clock-control", "none", "--cache-control", "none",
        "--graph-profiling", "node",
        "--metrics", "a.sum,b.sum", "--log-file", "log.csv",
    ]  # fmt: skip
    older = Ncu("/opt/ncu", "2022.4.1.0").command(["a.sum"], Path("log.csv"))
    assert "--graph-profiling" not in older  # which it does not know


# ---------------------------------------------------------------- the plan

VECTOR = ("smsp__sass_add.sum", "smsp__sass_mul.sum")
MEMORY = ("dram__bytes.sum", "gpu__time_duration.sum")
PLAN = Plan(
    tool="ncu",
    groups=(VECTOR, MEMORY),
    passes=2,
    launches=1000,
    time_s=55.2,
    is_parallel=True,
    missing=("L2 bytes", "DRAM bytes"),
    not_by_cupti="no library",
)


def test_a_plan_in_words() -> None:
    assert str(PLAN) == (
        "4 metrics in 2 groups, read by Nsight Compute; 1000 kernels; about 55.2 s; "
        "not by CUPTI: no library; not on this chip: L2 bytes, DRAM bytes"
    )
    inside = replace(PLAN, tool="cupti", passes=3, time_s=5.8, missing=(), not_by_cupti="")
    assert str(inside) == "4 metrics in 3 passes, read by CUPTI; 1000 kernels; about 5.80 s"
