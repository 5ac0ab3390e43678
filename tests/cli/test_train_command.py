"""`ridgeline train` as a user meets it: what it prints, writes and refuses, and how it ends."""

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from pytest import MonkeyPatch
from tests.cli.analyzed_here import Printed, command
from tests.cli.small_runs import MINUTES_S, start, wait_until
from tests.train.small_training import net_file, what_differs

from ridgeline.cli.options import MODELS
from ridgeline.cli.train import CLASSIFIERS
from ridgeline.store import ResultsFolder
from ridgeline.train import checkpoints
from ridgeline.train.trainer import Trainer

TRAIN = (sys.executable, "-m", "ridgeline", "train")
SMALL = ("--data", "synthetic", "--limit-train", "70", "--limit-test", "30", "--batch-size", "16",
         "--epochs", "3", "--lr", "0.05", "--seed", "7")  # fmt: skip
STEPS = 5  # of an epoch
STALLING = """
import os, pathlib, time
from net import Net

class Stalling(Net):
    steps = 0

    def forward(self, x):
        self.steps += self.training
        if self.training and self.steps == int(os.environ.get("STALL_AT", 0)):
            pathlib.Path("stalled").touch()
            time.sleep(600)
        return super().forward(x)

def make():
    return Stalling()
"""


@pytest.fixture
def net(tmp_path: Path, monkeypatch: MonkeyPatch) -> str:
    """A small network in a file, and the folder of the test as the working directory."""
    net_file(tmp_path)
    (tmp_path / "stalling.py").write_text(STALLING)
    monkeypatch.chdir(tmp_path)
    return "net.py:make"


ridgeline = partial(command, "train")


def loaded(path: str) -> Any:
    return torch.load(path, weights_only=True)


# ---------------------------------------------------------------- what comes of it


def test_files_run_and_summary(net: str, capsys: Printed) -> None:
    assert ridgeline(net, *SMALL, "--save-every", "2") == 0
    # then the checkpoints are there
    assert sorted(path.name for path in Path("artifacts").iterdir()) == [
        "net_make_best.pt", "net_make_epoch2.pt", "net_make_final_weights.pt", "net_make_last.pt",
    ]  # fmt: skip
    last = checkpoints.load(Path("artifacts/net_make_last.pt"))
    # and a run
    (run,) = ResultsFolder(Path("results")).read_runs()
    assert run.request.settings["lr"] == 0.05
    assert (run.result.status, run.result.provenance) == ("ok", "measured")
    assert run.result.best_accuracy == last["best_accuracy"]
    assert [epoch["epoch"] for epoch in run.result.history] == [1, 2, 3]
    # and epochs are told on stderr, the outcome on stdout
    printed = capsys.readouterr()
    assert printed.err.splitlines()[0].startswith("net.py:make in fp32 on ")
    assert printed.err.splitlines()[0].endswith(
        "(cpu): 70 + 30 images of synthetic, 3 epochs of 5 steps"
    )
    assert len(printed.err.splitlines()) == 5
    assert printed.out.startswith("net.py:make on synthetic: ")
    assert "artifacts/net_make_final_weights.pt" in printed.out


def test_profile_one_step_saves_nothing(net: str, capsys: Printed) -> None:
    code = ridgeline(
        net, *SMALL, "--profile-one-step", "--warmup-iters", "3", "--profile-iter", "2"
    )
    assert code == 0
    assert capsys.readouterr().out == (
        "step 5 of net.py:make, 16 images: done; on cpu there is no profiler to mark it for\n"
    )
    assert not Path("artifacts").exists()
    assert not Path("results").exists()


# ---------------------------------------------------------------- going on


def test_resume_takes_the_settings_of_the_checkpoint(net: str, capsys: Printed) -> None:
    # given a whole training that kept its first epoch
    assert ridgeline(net, *SMALL, "--out-dir", "whole", "--save-every", "1", "-q") == 0
    # when a training goes on from there, with no settings and with agreeing ones
    Path("again").mkdir()
    Path("whole/net_make_epoch1.pt").rename("again/net_make_epoch1.pt")
    capsys.readouterr()
    assert ridgeline("--resume", "again/net_make_epoch1.pt", "--lr", "0.05") == 0
    # then it comes to the same, beside the checkpoint
    printed = capsys.readouterr()
    assert "again/net_make_epoch1.pt has 1 of 3 epochs" in printed.err
    assert " images/s in the median epoch since epoch 1, " in printed.out
    (_, run) = ResultsFolder(Path("results")).read_runs()
    speeds = [epoch["images_per_s"] for epoch in run.result.history]
    assert run.result.epochs_before == 1
    assert run.result.images_per_s == pytest.approx((speeds[1] + speeds[2]) / 2)
    for name in ("last", "best", "final_weights"):
        one, two = loaded(f"whole/net_make_{name}.pt"), loaded(f"again/net_make_{name}.pt")
        assert what_differs(one, two) == []


def test_resume_with_other_settings_is_refused(net: str, capsys: Printed) -> None:
    assert ridgeline(net, *SMALL, "-q") == 0
    for options, text in {
        ("--epochs", "9", "--seed", "1"): "epochs: 3 there, 9 asked; seed: 7 there, 1 asked",
        ("--limit-train", "60"): "train_images: 70 there, 60 asked",
        ("--model", "resnet18"): "model: net.py:make there, resnet18 asked",
    }.items():
        assert ridgeline("--resume", "artifacts/net_make_last.pt", *options) == 2
        assert f"was made with other settings: {text}\n" in capsys.readouterr().err
    # and a training is not overwritten unasked
    assert ridgeline(net, *SMALL) == 2
    assert "artifacts already holds a training of net_make" in capsys.readouterr().err
    assert ridgeline(net, *SMALL, "-q", "--overwrite") == 0


# ---------------------------------------------------------------- what is refused


def test_too_little_memory_at_any_moment_is_one_error(
    net: str, capsys: Printed, monkeypatch: MonkeyPatch
) -> None:
    # given a training that can go on
    assert ridgeline(net, *SMALL, "-q", "--epochs", "2", "--save-every", "1") == 0
    capsys.readouterr()

    def no_room(*_: Any, **__: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    for part in ("__init__", "load_state", "run_epoch", "weights"):
        # when a part of it has no room
        with monkeypatch.context() as patch:
            patch.setattr(Trainer, part, no_room)
            assert ridgeline("--resume", "artifacts/net_make_epoch1.pt", "-q") == 2, part
        # then it says so, in two lines
        assert capsys.readouterr().err == (
            "ridgeline: net.py:make with batches of 16 does not fit into memory\n"
            "  hint: try a smaller --batch-size, or --amp on a GPU\n"
        )


def test_missing_data_names_the_file_and_its_place(
    net: str, capsys: Printed, monkeypatch: MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(101, "Network is unreachable")

    monkeypatch.setattr("urllib.request.urlopen", refused)
    assert ridgeline(net, "--data", "cifar") == 2
    assert capsys.readouterr().err == (
        "ridgeline: CIFAR-10 cannot be had from cifar: OSError: [Errno 101] Network is "
        "unreachable\n"
        "  hint: get https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz elsewhere and put it "
        "there as cifar/cifar-10-python.tar.gz; --data synthetic tries everything without it\n"
    )


def test_only_classifiers_are_offered() -> None:
    from ridgeline.workloads.sources import models_of

    ours = {"resnet18_cifar", "resnet34_cifar", "vgg11_cifar"}
    theirs = {name for name, task in models_of("torchvision").items() if task == "classification"}
    assert set(CLASSIFIERS) == set(MODELS) & (ours | theirs)


# ---------------------------------------------------------------- killed and interrupted


def stalled(folder: Path, *options: str, step: int) -> "subprocess.Popen[str]":
    """A training that has stopped in the forward pass of this step, and waits."""
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    command = ("train", "stalling.py:make", *SMALL, *options)
    process = start(folder, *command, STALL_AT=str(step), PYTHONPATH=path)
    wait_until((folder / "stalled").exists, process)
    return process


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_killed_in_the_middle_of_an_epoch(
    net: str, tmp_path: Path, monkeypatch: MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    # given a training that nothing happened to
    assert ridgeline("stalling.py:make", *SMALL, "--out-dir", "whole", "-q") == 0
    # when the same one is killed in the third step of its second epoch, and gone on with
    process = stalled(tmp_path, step=STEPS + 3)
    process.kill()
    process.communicate(timeout=MINUTES_S)
    assert process.returncode == -signal.SIGKILL
    assert checkpoints.load(Path("artifacts/stalling_make_last.pt"))["epoch"] == 1
    resumed = subprocess.run(
        [*TRAIN, "--resume", "artifacts/stalling_make_last.pt", "-q"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True,
    )  # fmt: skip
    assert resumed.returncode == 0, resumed.stderr
    # then every bit of weights, momentum, random states and history is the same
    for name in ("last", "best", "final_weights"):
        one, two = (loaded(f"{where}/stalling_make_{name}.pt") for where in ("whole", "artifacts"))
        assert what_differs(one, two) == []


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize(
    ("step", "epochs", "text"),
    [
        (2, 0, "no epoch was done, so nothing was saved\n"),
        (2 * STEPS + 1, 2, "epochs 1 to 2 are saved\n  hint: go on with ridgeline train --resume"
         " artifacts/stalling_make_last.pt\n"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("net")
def test_interrupt_says_what_is_saved_and_how_to_go_on(
    tmp_path: Path, step: int, epochs: int, text: str
) -> None:
    process = stalled(tmp_path, "--json", step=step)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=MINUTES_S)
    assert process.returncode == 130
    answer = json.loads(out)
    assert (answer["status"], len(answer["history"])) == ("interrupted", epochs)
    assert err.endswith(f"ridgeline: interrupted; {text}")
    assert "Traceback" not in err
