"""Power modes in a sweep: only when asked for, and always put back; nvpmodel is a stand-in."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.machine.recorded import FakeNvml, NoAnswerError
from tests.sweep.quick_sweep import measure

from ridgeline.cli import main
from ridgeline.errors import RidgelineError
from ridgeline.provenance import collect
from ridgeline.sensors import power_mode
from ridgeline.sensors.power_mode import JetsonMode, PowerLimit, hold_power_mode, parse_nvpmodel
from ridgeline.store import ResultsFolder
from ridgeline.sweep.run import LocalRun, check_power, open_sweep

NVPMODEL = """#!/bin/sh
file=$(dirname "$0")/mode
if [ "$1" = -m ]; then echo "$2" > "$file"; echo "$2" >> "$file.log"; exit; fi
echo "NV Power Mode: MODE_$(cat "$file")"; cat "$file"
"""
MATRIX: dict[str, Any] = {"name": "modes", "models": ["lstm"], "backend": "cpu", "nvpmodel": [2, 3]}


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Jetson in mode 0; the file holds the mode, mode.log what was set."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "nvpmodel").write_text(NVPMODEL)
    (folder / "nvpmodel").chmod(0o755)
    (folder / "mode").write_text("0\n")
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder / "mode"


def test_each_case_runs_in_its_mode_and_the_one_before_is_put_back(
    board: Path, tmp_path: Path
) -> None:
    sweep = open_sweep(MATRIX, ResultsFolder(tmp_path))
    sweep.save()
    LocalRun(sweep=sweep, work=measure, in_process=True).run()

    runs = ResultsFolder(tmp_path).index().runs
    assert [run.made.environment["nvpmodel"] for run in runs] == ["2:MODE_2", "3:MODE_3"]
    assert [case.name for case in sweep.plans["full"]] == [
        "lstm, batch 32, train, fp32, nvpmodel 2, cpu",
        "lstm, batch 32, train, fp32, nvpmodel 3, cpu",
    ]  # fmt: skip
    assert len({case.case_id for case in sweep.plans["full"]}) == 2
    log = board.with_suffix(".log").read_text().split()
    assert (log, board.read_text()) == (["2", "0", "3", "0"], "0\n")


def test_a_killed_process_leaves_the_mode_that_was_there(board: Path) -> None:
    # given a process that holds another mode
    code = (
        "import time\n"
        "from ridgeline.sensors.power_mode import JetsonMode, hold_power_mode\n"
        "with hold_power_mode(JetsonMode(), 3.0): print('held', flush=True); time.sleep(60)\n"
    )
    holder = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    assert board.read_text() == "3\n"
    # when it is killed
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    # then the mode of before comes back
    deadline = time.monotonic() + 20
    while board.read_text() != "0\n" and time.monotonic() < deadline:
        time.sleep(0.02)
    assert board.read_text() == "0\n"


@pytest.mark.parametrize(
    ("set_power", "is_alone", "user", "hint"),
    [
        (False, True, 0, "add --set-power; what was set before is put back"),
        (True, False, 0, "leave --parallel and --executor slurm out"),
        (True, True, 1000, "run it as root"),
    ],
)
def test_a_mode_is_set_only_on_request_alone_and_by_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    set_power: bool, is_alone: bool, user: int, hint: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(os, "geteuid", lambda: user)
    sweep = open_sweep(MATRIX, ResultsFolder(tmp_path))

    with pytest.raises(RidgelineError) as raised:
        check_power(sweep, set_power=set_power, is_alone=is_alone)

    assert raised.value.problem.startswith("the sweep modes sets nvpmodel, for everyone")
    assert raised.value.hint.startswith(hint)


def test_the_command_refuses_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "study.yaml"
    path.write_text("models: lstm\nbackend: cpu\npower_limit_w: [300, 400]\n")

    with pytest.raises(SystemExit) as ended:
        main(["sweep", str(path), "--results", str(tmp_path)])

    assert ended.value.code == 2
    assert "add --set-power" in capsys.readouterr().err
    assert not (tmp_path / "sweeps").exists()


class Board(FakeNvml):
    """A GPU whose limit may be 200 to 700 W."""

    def nvmlDeviceSetPowerManagementLimit(self, card: dict[str, Any], limit_mw: int) -> None:  # noqa: N802
        if not 200_000 <= limit_mw <= 700_000:
            raise NoAnswerError("Invalid Argument")
        card["PowerManagementLimit"] = limit_mw


def test_the_limit_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    card = {"UUID": "GPU-1", "PowerManagementLimit": 700_000,
            "PowerManagementLimitConstraints": (200_000, 700_000)}  # fmt: skip
    monkeypatch.setattr(power_mode, "start_nvml", lambda: Board(card))
    limit = PowerLimit("GPU-1")

    limit.write(400)
    assert limit.read() == 400.0
    with pytest.raises(RidgelineError, match="cannot be set to 900 W") as raised:
        limit.write(900)
    assert raised.value.hint == "it is 200 to 700 W, and root may set it"


def test_without_the_program_or_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with (
        pytest.raises(RidgelineError, match="nvpmodel -q failed"),
        hold_power_mode(JetsonMode(), 1),
    ):
        pass
    monkeypatch.setattr(power_mode, "start_nvml", lambda: None)
    with pytest.raises(RidgelineError, match="NVML does not answer"):
        PowerLimit("GPU-1").read()


def test_the_mode_is_recorded_with_each_run() -> None:
    # as a Jetson AGX Orin prints it
    said = "NV Power Mode: MODE_30W\n2\n"

    made = collect(run=lambda command: said if command[0] == "nvpmodel" else None, environ={})

    assert made.environment == {"nvpmodel": "2:MODE_30W"}
    assert parse_nvpmodel("NVPM ERROR: failed to read PARAM_GPU") is None


def test_a_mode_that_cannot_be_put_back_is_an_error(board: Path) -> None:
    with (
        pytest.raises(RidgelineError, match="nvpmodel could not be put back to 0") as raised,
        hold_power_mode(JetsonMode(), 3.0),
    ):
        (board.parent / "nvpmodel").write_text("#!/bin/sh\nexit 1\n")

    assert raised.value.hint == "set it by hand: nvidia-smi -pl WATTS, or nvpmodel -m MODE"
