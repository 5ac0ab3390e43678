"""Nsight Compute: where it is found, what it answers."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import psutil
import pytest
from tests.profile.recorded import metrics_of

from ridgeline.errors import RidgelineError
from ridgeline.machine import profilers
from ridgeline.profile import ncu
from ridgeline.profile.ncu import (
    Ncu,
    find_ncu,
    known_metrics,
    metric_names,
    passes_in,
    passes_of,
)

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
ANSWER = """\
==PROF== Connected to process 7 (/usr/bin/python3)
ridgeline_probe says: "hello", twice
"ID","Kernel Name","dram__bytes.sum","profiler__replayer_passes"
"","","byte",""
"0","probe(float *, int)","4096","3"
==PROF== Disconnected from process 7
"""


@pytest.fixture(autouse=True)
def _nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No variable, no program on the path, none in the usual places."""
    monkeypatch.delenv("RIDGELINE_NCU", raising=False)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(profilers, "NCU_PLACES", (f"{tmp_path}/cuda-*/ncu",))


def script(path: Path, says: str, then: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{says}\nEND\n{then}\n")
    path.chmod(0o755)
    return path


def version(number: str) -> str:
    return f"NVIDIA (R) Nsight Compute Command Line Profiler\nVersion {number} (build 36398880)"


# ---------------------------------------------------------------- where it is


def test_the_variable_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # given one that the variable names and another on the path
    named = script(tmp_path / "mine" / "ncu", version("2024.1.0.0"))
    script(tmp_path / "bin" / "ncu", version("2025.3.1.0"))
    monkeypatch.setenv("RIDGELINE_NCU", str(named))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    # then it is the named one
    assert find_ncu() == Ncu(str(named), "2024.1.0.0")


def test_then_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path = script(tmp_path / "bin" / "ncu", version("2025.3.1.0"))
    script(tmp_path / "cuda-13.0" / "ncu", version("2025.4.0.0"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    assert find_ncu() == Ncu(str(on_path), "2025.3.1.0")


def test_then_the_newest_in_the_usual_places(tmp_path: Path) -> None:
    # 12.10 is newer than 12.9, though it comes before it in the alphabet
    for number in ("12.10", "12.9"):
        script(tmp_path / f"cuda-{number}" / "ncu", version("2025.1.0.0"))
    assert find_ncu().path == str(tmp_path / "cuda-12.10" / "ncu")


def test_nowhere() -> None:
    with pytest.raises(RidgelineError) as raised:
        find_ncu()
    assert raised.value.problem == "Nsight Compute (ncu) was not found"
    assert "RIDGELINE_NCU=/path/to/ncu" in raised.value.hint
    assert "--tier time" in raised.value.hint


@pytest.mark.parametrize("number", ["2019.5.1", "2020.3.1.0"])
def test_an_old_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: str
) -> None:
    monkeypatch.setenv("RIDGELINE_NCU", str(script(tmp_path / "ncu", version(number))))
    with pytest.raises(RidgelineError, match=f"is ncu {number}, which is too old"):
        find_ncu()


def test_the_oldest_that_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RIDGELINE_NCU", str(script(tmp_path / "ncu", version("2021.1.0.0"))))
    assert find_ncu().version == "2021.1.0.0"


def test_one_that_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RIDGELINE_NCU", str(tmp_path))  # a folder
    with pytest.raises(RidgelineError, match=r"does not start: .*Permission denied"):
        find_ncu()


def test_words_in_another_encoding_do_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ncu"
    path.write_bytes(b"#!/bin/sh\nprintf '\\260\\377 Version 2025.1.0'\n")
    path.chmod(0o755)
    monkeypatch.setenv("RIDGELINE_NCU", str(path))
    assert find_ncu().version == "2025.1.0"


def test_one_that_hangs_is_ended_with_what_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given an ncu whose child says its number and then sleeps
    script(tmp_path / "ncu", "", f"sleep 60 & echo $! > {tmp_path / 'child'}; wait")
    monkeypatch.setattr(ncu, "ANSWER_S", 0.5)
    # when it is asked something
    with pytest.raises(RidgelineError, match=r"gave no answer: .*timed out after 0.5 seconds"):
        known_metrics(Ncu(str(tmp_path / "ncu"), "2025.3.1"))
    # then neither of them is left
    child = int((tmp_path / "child").read_text())
    end_s = time.monotonic() + 5
    while _runs(child) and time.monotonic() < end_s:
        time.sleep(0.01)
    assert not _runs(child)


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


# ---------------------------------------------------------------- what it says


def test_the_command_leaves_clocks_and_caches_alone() -> None:
    command = Ncu("/opt/ncu", "2025.3.1").command(["a.sum", "b.sum"], Path("log.csv"), is_once=True)
    assert command == [
        "/opt/ncu", "--csv", "--page", "raw", "--print-units", "base", "--nvtx",
        "--profile-from-start", "off", "--clock-control", "none", "--cache-control", "none",
        "--replay-mode", "application", "--app-replay-buffer", "memory",
        "--graph-profiling", "node",
        "--metrics", "a.sum,b.sum", "--log-file", "log.csv",
    ]  # fmt: skip


def test_by_itself_a_kernel_may_run_twice() -> None:
    command = Ncu("/opt/ncu", "2025.3.1").command(["a.sum"], Path("log.csv"), is_once=False)
    assert "--replay-mode" not in command


def test_options_that_older_versions_do_not_know() -> None:
    command = Ncu("/opt/ncu", "2022.4.1.0").command(["a.sum"], Path("log.csv"), is_once=True)
    assert "--graph-profiling" not in command
    assert "--app-replay-buffer" not in command


def test_names_are_the_first_words() -> None:
    assert metric_names(NAMES) == ["dram__bytes", "gpu__time_duration"]
    assert metric_names("") == []


@pytest.mark.parametrize(
    ("chip", "count"),
    [("gh100", 144), ("ga100", 74), ("tu102", 57), ("ad102", 62), ("gb100", 92), ("gb202", 75)],
)
def test_names_of_real_chips(chip: str, count: int) -> None:
    names = metrics_of(chip)
    assert len(names) == count
    assert {"gpu__time_duration", "lts__t_bytes", "l1tex__t_bytes"} <= names


def test_metrics_are_asked(tmp_path: Path) -> None:
    path = script(tmp_path / "ncu", NAMES)
    assert known_metrics(Ncu(str(path), "")) == {"dram__bytes", "gpu__time_duration"}


def test_no_metric_is_an_error(tmp_path: Path) -> None:
    path = script(tmp_path / "ncu", "nothing to see")
    with pytest.raises(RidgelineError, match="names no metric for the device here: nothing to see"):
        known_metrics(Ncu(str(path), ""))


def test_passes_are_in_the_row_of_the_kernel() -> None:
    assert passes_in(ANSWER) == 3


@pytest.mark.parametrize("said", ["", "no table", '"ID","Kernel Name"\n"0","probe"',
                                  '"ID","profiler__replayer_passes"\n"",""\n"0","n/a"',
                                  '"ID","profiler__replayer_passes"\n"0"'])  # fmt: skip
def test_no_passes_is_an_error(said: str) -> None:
    with pytest.raises(RidgelineError, match="did not say how many passes"):
        passes_in(said)


def test_passes_are_asked_with_a_tiny_program(tmp_path: Path) -> None:
    path = script(tmp_path / "ncu", ANSWER, f'echo "$@" > {tmp_path / "asked"}')
    assert passes_of(Ncu(str(path), ""), ["a.sum", "b.sum"], device=2) == 3
    program = Path(ncu.__file__).with_name("probe.py")
    asked = (tmp_path / "asked").read_text()
    assert asked.endswith(f"--metrics a.sum,b.sum {sys.executable} {program} 2\n")
