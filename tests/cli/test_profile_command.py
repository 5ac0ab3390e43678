"""`ridgeline profile` as a user meets it, with stand-ins for the GPU, ncu and the unwatched run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pytest import MonkeyPatch
from tests.cli.analyzed_here import Printed, command
from tests.profile.stand_ins import PROGRAM, use_stand_ins

from ridgeline import provenance
from ridgeline.measure.isolation import Failure, Outcome
from ridgeline.measure.worker import run_request
from ridgeline.pipeline import profile as profiled
from ridgeline.pipeline.cases import Case, CaseRunner
from ridgeline.pipeline.machine import device_task
from ridgeline.profile.profiling import profile_run
from ridgeline.records import CaptureRequest, DeviceMemory, ProfileOptions, RunResult
from ridgeline.records import Failure as Failed
from ridgeline.report.study import read_study
from ridgeline.store import ResultsFolder, to_run

RUN = Path(__file__).parents[1] / "data" / "run-h200-vgg16.json"
AMP = ("profile", "resnet50", "--precision", "amp")
PROMISED = [
    "run_id", "of_run", "model", "batch_size", "mode", "precision", "status", "reason", "tier",
    "level", "tool", "launches", "kernel_time_s", "busy_time_s", "step_time_s",
    "gap_s", "copies", "attributed_share", "layer_share", "flops", "dram_bytes", "l2_bytes",
    "l1_bytes", "phases", "self_test", "cost", "plan", "warnings",
]  # fmt: skip


class FakeRunner(CaseRunner):
    """Stores a run of an H200 for every case: a step of 20 ms, 2 GB of 150 GB in use."""

    def run(self, cases: Iterable[Case]) -> None:
        content = json.loads(RUN.read_text())
        recorded = to_run(Path("recorded"), content)
        for case in cases:
            result: RunResult | Failed = replace(
                recorded.result,
                model=case.spec.model,
                precision=case.settings.precision,
                step_time_s=replace(recorded.result.step_time_s, median=0.02),
                memory=DeviceMemory(allocated_bytes=10**9, reserved_bytes=2 * 10**9),
            )
            if os.environ.get("FAKE_RUN") == "fails":
                result = Failed(reason="out of memory")
            run_id = self.results.save_run("run", run_request(case), result, recorded.made)
            self.runs.append(self.results.read_run(run_id))


@pytest.fixture
def h200(tmp_path: Path, monkeypatch: MonkeyPatch) -> Path:
    """A folder on a machine that seems to have an H200 and ncu."""

    def isolated(work: Any, task: Any, *_: Any) -> Outcome[Any]:
        if work is device_task:
            return Outcome(answer="cuda:0")
        if os.environ.get("FAKE_COUNT") == "dies":
            return Outcome(failure=Failure(reason="the process was ended by SIGKILL", hint=""))
        if os.environ.get("FAKE_COUNT") == "refuses":
            return Outcome(answer=["resnet50 was not counted: no formula for it"])
        return Outcome(answer=[])

    use_stand_ins(monkeypatch, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(profiled, "run_isolated", isolated)
    monkeypatch.setattr("ridgeline.pipeline.cases.CaseRunner", FakeRunner)
    has_device(monkeypatch, "NVIDIA H200")
    return tmp_path


def has_device(monkeypatch: MonkeyPatch, name: str) -> None:
    """What the driver says of the machine."""
    here = provenance.collect()
    device = provenance.Device(kind="cuda", index=0, name=name, memory_bytes=150 * 10**9)
    made = replace(here, host=replace(here.host, devices=(device,)))
    monkeypatch.setattr(profiled, "collect", lambda: made)


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: MonkeyPatch) -> Path:
    """A folder on a machine without a GPU."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RIDGELINE_NCU", "/nowhere/ncu")
    return tmp_path


def profiles(folder: Path) -> list[Any]:
    runs = ResultsFolder(folder / "results").read_runs()
    return [run for run in runs if run.request.command != "run"]


# ---------------------------------------------------------------- a model


def test_a_profile_in_the_terminal(h200: Path, capsys: Printed) -> None:
    assert command(*AMP) == 0
    streams = capsys.readouterr()
    # the plan is told before the work
    plan = "13 metrics in 3 passes, read by CUPTI; 631 kernels; about 4.58 s"
    assert f"resnet50, batch 32, amp: {plan}" in streams.err
    # then the step and its phases: kernels, time, FLOPs and bytes
    rows = [line.split("   ") for line in streams.out.splitlines() if " FLOP " in line]
    assert [[cell.strip() for cell in row if cell.strip()][-9:] for row in rows] == [
        ["step", "631", "6.94 ms", "10 FLOP", "13.5 GFLOP", "8.52 GFLOP", "798 GFLOP", "9.93 GB",
         "–"],
        ["forward", "290", "2.61 ms", "0 FLOP", "6.42 GFLOP", "3.56 GFLOP", "271 GFLOP", "3.24 GB",
         "–"],
        ["backward", "330", "4.14 ms", "0 FLOP", "7.02 GFLOP", "4.96 GFLOP", "527 GFLOP",
         "6.20 GB", "–"],
        ["optimizer", "11", "194 µs", "10 FLOP", "76.7 MFLOP", "0 FLOP", "0 FLOP", "491 MB", "–"],
    ]  # fmt: skip
    # and the gap, and how far the counters can be trusted
    for words in (
        "resnet50, batch 32, amp: kernels take 6.94 ms (631 launches) of a step of 20.0 ms; the"
        " other 13.1 ms (65.3 %) is launch overhead and waiting for the host",
        "self-test: a copy counted 1.00 and a product counted 1.00 of the truth; 100.0 % of the",
    ):
        assert words in streams.out
    [run] = profiles(h200)
    assert streams.err.endswith(f"wrote results/runs/{run.run_id}\n")
    assert run.result.status == "ok"
    assert run.request.of_run in ResultsFolder(h200 / "results").run_ids()
    kernels = ResultsFolder(h200 / "results").read_table(run.run_id, "kernels")
    assert len(kernels) == 631


def test_json_whole(h200: Path, capsys: Printed) -> None:
    assert command(*AMP, "--json", "--quiet", "--label", "mine") == 0
    streams = capsys.readouterr()
    answer = json.loads(streams.out)
    assert streams.err == ""
    assert list(answer) == ["profiles", "plans"]
    [profile], [plan] = answer["profiles"], answer["plans"]
    assert list(profile) == PROMISED
    assert profile["flops"] == {
        "fp64": 10, "fp32": 13_518_928_880, "fp16": 8_517_821_408, "tensor_fp16": 797_680_599_040,
        "tensor_bf16": None, "tensor_tf32": None, "tensor_fp8": None, "tensor_int8": None,
        "tensor_fp64": None,
    }  # fmt: skip
    assert (profile["model"], profile["precision"], profile["mode"]) == ("resnet50", "amp", "train")
    assert (profile["dram_bytes"], profile["l2_bytes"]) == (9_925_320_448, None)
    assert (profile["launches"], profile["attributed_share"]) == (631, 1.0)
    assert profile["step_time_s"] == 0.02
    assert (plan["name"], plan["passes"]) == ("resnet50, batch 32, amp", 3)
    [run] = profiles(h200)
    assert run.request.label == "mine"
    assert run.request.profile == ProfileOptions(precision="amp")


def test_a_dry_run_stops_at_the_plan(h200: Path, capsys: Printed) -> None:
    assert command(*AMP, "--tool", "ncu", "--dry-run", "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["profiles"] == []
    [plan] = answer["plans"]
    assert (plan["tool"], plan["launches"]) == ("ncu", 631)
    assert profiles(h200) == []


def test_times_alone(h200: Path, capsys: Printed, monkeypatch: MonkeyPatch) -> None:
    # given no ncu
    monkeypatch.setenv("RIDGELINE_NCU", "/nowhere/ncu")
    assert command(*AMP, "--tier", "time", "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["plans"] == []
    [profile] = answer["profiles"]
    assert set(profile["flops"].values()) == {None}
    assert (profile["tier"], profile["plan"], profile["self_test"]) == ("time", None, None)
    assert {name: phase["launches"] for name, phase in profile["phases"].items()} == {
        "forward": 290, "backward": 330, "optimizer": 11,
    }  # fmt: skip
    # and in the terminal, in the same table
    assert command(*AMP, "--tier", "time") == 0
    assert "backward" in capsys.readouterr().out


# ---------------------------------------------------------------- how it ends


def test_a_profile_that_fails_is_stored_with_its_reason(
    h200: Path, capsys: Printed, monkeypatch: MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_CUPTI", "permission")
    assert command("profile", "resnet50", "vgg16", "--precision", "amp", "--json") == 3
    streams = capsys.readouterr()
    told = json.loads(streams.out)["profiles"]
    assert [(one["model"], one["status"]) for one in told] == [
        ("resnet50", "failed"),
        ("vgg16", "failed"),
    ]
    assert streams.err.count("ridgeline: the profiler may not read the GPU's counters") == 1
    assert [(run.result.status, run.result.reason) for run in profiles(h200)] == [
        ("failed", "the profiler may not read the GPU's counters (ERR_NVGPUCTRPERM)")
    ] * 2


def test_a_run_that_fails_is_not_profiled(
    h200: Path, capsys: Printed, monkeypatch: MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_RUN", "fails")
    assert command(*AMP) == 3
    assert "resnet50, batch 32, amp: failed: out of memory" in capsys.readouterr().err
    assert profiles(h200) == []


@pytest.mark.parametrize(
    ("counting", "reason"),
    [
        ("dies", "the process was ended by SIGKILL"),
        ("refuses", "resnet50 was not counted: no formula for it"),
    ],
)
def test_a_model_that_cannot_be_counted_is_profiled_all_the_same(
    counting: str, reason: str, h200: Path, capsys: Printed, monkeypatch: MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_COUNT", counting)
    assert command(*AMP, "--tier", "time") == 0
    streams = capsys.readouterr()
    assert f"what the model must do is not known: {reason}\n" in streams.err
    assert "backward" in streams.out


def test_interrupted(h200: Path, capsys: Printed, monkeypatch: MonkeyPatch) -> None:
    # given Ctrl-C in the second profile
    done = list[int]()

    def once(*arguments: Any, **more: Any) -> Any:
        if done:
            raise KeyboardInterrupt
        done.append(1)
        return profile_run(*arguments, **more)

    monkeypatch.setattr(profiled, "profile_run", once)
    assert command("profile", "resnet50", "--precision", "amp,fp16", "--tier", "time") == 130
    streams = capsys.readouterr()
    assert streams.err.endswith("ridgeline: interrupted; profiles kept: 1\n")
    assert "backward" in streams.out  # what is done is shown
    assert len(profiles(h200)) == 1


def test_without_a_gpu_it_says_so(nowhere: Path, capsys: Printed) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    for asked in (("resnet18",), ("--", "python", "x.py"), ("--tier", "time", "--", "x")):
        assert command("profile", *asked) == 2
        err = capsys.readouterr().err
        assert "there is nothing to profile on cpu: counters and kernels are those of an" in err
        assert "`ridgeline run --layers`" in err


# ---------------------------------------------------------------- a program


def test_a_program_of_the_users(h200: Path, capsys: Printed) -> None:
    assert command("profile", "--json", "--tier", "time", "--", *PROGRAM, "--lr", "0.1") == 0
    [profile] = json.loads(capsys.readouterr().out)["profiles"]
    assert profile["model"] == f"{' '.join(PROGRAM)} --lr 0.1"
    assert (profile["of_run"], profile["batch_size"]) == (None, None)
    assert profile["launches"] == 631
    assert profile["step_time_s"] == pytest.approx(0.0185)
    assert "profile-fake_program.py" in profile["run_id"]
    # and it is stored as what it is
    [run] = profiles(h200)
    assert run.request == CaptureRequest(
        command="profile", program=(*PROGRAM, "--lr", "0.1"),
        profile=ProfileOptions(tier="time"),
    )  # fmt: skip
    study = read_study(ResultsFolder(h200 / "results"))
    assert study.captures["label"].tolist() == ["fake_program.py --lr 0.1"]


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_no_program_stays_behind(tmp_path: Path, sent: signal.Signals, code: int) -> None:
    """A program that waits for its turn ends with the one who asked, however that one ends."""
    import psutil

    script = tmp_path / "waits.py"
    script.write_text(
        "import dataclasses, os, pathlib\n"
        "from ridgeline.profile import profile_step\n"
        f"pathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(os.getpid()))\n"
        "job = profile_step.job_here()\n"
        "job = dataclasses.replace(job, name='other')\n"  # whose turn never comes
        "profile_step.wait_for(job, 'go', after='ready')\n"
    )
    as_if_on_a_gpu = (
        "import runpy, sys; from ridgeline.pipeline import profile;"
        "profile.need_gpu = lambda selection: None;"
        "runpy.run_module('ridgeline', run_name='__main__', alter_sys=True)"
    )
    asking = subprocess.Popen(
        [sys.executable, "-c", as_if_on_a_gpu, "profile", "--tier", "time", "--",
         sys.executable, str(script)],
        cwd=tmp_path, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    end_s = time.monotonic() + 60
    while not _text(tmp_path / "pid") and time.monotonic() < end_s:
        time.sleep(0.02)
    time.sleep(0.5)
    assert asking.poll() is None  # it waits, and so does the program
    asking.send_signal(sent)
    assert asking.wait(timeout=30) == code
    pid = int(_text(tmp_path / "pid"))
    while _runs(psutil, pid) and time.monotonic() < end_s:
        time.sleep(0.02)
    assert not _runs(psutil, pid)
    if sent == signal.SIGINT:
        assert asking.stderr is not None
        assert "ridgeline: interrupted; profiles kept: 0" in asking.stderr.read()


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def _runs(psutil: Any, pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def test_the_command_of_nsight_compute(tmp_path: Path, capsys: Printed) -> None:
    # given an ncu that knows two metrics of ours and one that is not
    ncu = tmp_path / "ncu"
    listed = "dram__bytes_read Counter\ngpu__time_duration Counter\nsm__cycles_elapsed Counter"
    ncu.write_text(f'#!/bin/sh\n[ "$1" = --query-metrics ] && echo "{listed}" || echo "$@"\n')
    ncu.chmod(0o755)
    assert command("profile", "resnet50", "-b", "16", "--precision", "amp", "--print-ncu") == 0
    lines = capsys.readouterr().out
    # when the printed lines run in a shell
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    ran = subprocess.run(
        ["bash", "-e"], input=lines, cwd=tmp_path, env=environment, text=True, capture_output=True
    )
    # then ncu is asked for what it has, around a script that is valid
    assert "--metrics dram__bytes_read.sum,gpu__time_duration.sum --log-file" in ran.stdout
    assert ran.stdout.endswith("resnet50_bs16_amp.csv python resnet50_bs16_amp.py\n")
    compile((tmp_path / "resnet50_bs16_amp.py").read_text(), "step", "exec")
    assert command("profile", "bert", "--print-ncu") == 2
    assert command("profile", "--print-ncu", "--", "python", "train.py") == 0
    assert "capture.csv python train.py" in capsys.readouterr().out
