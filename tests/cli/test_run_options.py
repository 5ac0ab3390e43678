"""The options of `ridgeline run`: what each is for, what is refused, and what helps to look."""

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from pytest import MonkeyPatch
from tests.cli.analyzed_here import Printed, command
from tests.cli.small_runs import NET_MAKE, QUICK, folder, json_of, run_here

from ridgeline.cli import main
from ridgeline.cli.app import app
from ridgeline.cli.options import parse_input_size, parse_sizes
from ridgeline.errors import RidgelineError
from ridgeline.measure.isolation import attempt
from ridgeline.store import ResultsFolder

__all__ = ["folder"]  # a fixture

EVERYTHING = {  # every option that makes sense together with the others
    "--batch-size": "2", "--mode": "train", "--precision": "fp32", "--backend": "cpu",
    "--device": "0", "--input-size": "3,8,8", "--config": "width=4", "--warmup-iters": "0",
    "--iters": "2", "--repeats": "1", "--optimizer": "momentum", "--lr": "0.1",
    "--momentum": "0.8", "--weight-decay": "0.01", "--grad-accum-steps": "2",
    "--channels-last": None, "--deterministic": None, "--cudnn-benchmark": None, "--nvtx": None,
    "--algorithm": "gemm",
    "--data": "synthetic-host", "--workers": "1", "--pin-memory": None, "--prefetch-factor": "2",
    "--augment": None, "--layers": None, "--energy": None, "--energy-time": "0.1",
    "--layer-energy": None, "--seed": "1", "--label": "all at once", "--results": "kept",
    "--json": None, "--quiet": None, "--debug": None, "--in-process": None,
}  # fmt: skip
IN_OTHER_TESTS = {
    "--seq-len",
    "--compile",
    "--compile-mode",
    "--find-max-batch",
    "--list-models",
    "--weights",
}


def options_of_run() -> set[str]:
    command: Any = typer.main.get_command(app)
    parameters = command.commands["run"].params
    names = {one.opts[-1] if "--batch-sizes" not in one.opts else "--batch-size"
             for one in parameters if one.param_type_name == "option"}  # fmt: skip
    return {name for name in names if name not in ("--help", "-h")}


def test_every_option_is_accepted(folder: Path, capsys: Printed) -> None:
    assert options_of_run() == set(EVERYTHING) | IN_OTHER_TESTS
    words = [word for pair in EVERYTHING.items() for word in pair if word is not None]
    assert run_here("net.py:images", *words) == 0
    (answer,) = json_of(capsys)
    (run,) = ResultsFolder(Path("kept")).read_runs()
    assert run.request.config == {"width": "4"}
    idle = [
        text.split()[0] for text in answer["warnings"] if text.endswith("no effect in this run")
    ]
    if answer["backend"] == "cpu":
        assert idle == [
            "--nvtx", "--cudnn-benchmark", "--workers", "--prefetch-factor", "--pin-memory",
        ]  # fmt: skip
    assert run.request.label == "all at once"
    assert answer["layers"] is not None


SYNTAX = "def make(:\n    pass\n"


def test_the_models_that_there_are(capsys: Printed) -> None:
    assert command("run", "--list-models", "resnet*_cifar") == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert names[:2] == ["resnet18_cifar", "resnet34_cifar"]


def test_names_are_looked_at_before_anything_is_measured(folder: Path, capsys: Printed) -> None:
    # given models that can be run, and all sorts of others
    (folder / "syntax.py").write_text(SYNTAX)
    wrong = ("resnet5", "syntax.py:make", "none.py:make", "net.py:mkae")
    # when they are to be run together, then all the wrong ones are told, and nothing is measured
    assert run_here(*NET_MAKE, *wrong, *QUICK, "--json") == 2
    streams = capsys.readouterr()
    lines = streams.err.splitlines()
    assert lines[0] == "ridgeline: 4 models cannot be run, and none was measured"
    assert lines[-1] == "  hint: fix these names, or leave these models out"
    for complaint in (
        "unknown model 'resnet5': did you mean resnet50",
        "syntax.py:1: SyntaxError: invalid syntax (syntax.py, line 1): fix the file",
        "no such file: none.py: give the path of a Python file",
        "unknown factory in net.py: 'mkae': did you mean make",
    ):
        assert f"\n  {complaint}" in streams.err
    assert (streams.out, (folder / "results").exists()) == ("", False)


# ---------------------------------------------------------------- the largest batch


def test_a_cpu_has_no_memory_to_fill(folder: Path, capsys: Printed) -> None:
    assert run_here(*NET_MAKE[:3], *QUICK, "--backend", "cpu", "--find-max-batch") == 2
    assert "ridgeline count net.py:make --mode train --find-max-batch" in capsys.readouterr().err


@pytest.fixture
def device(monkeypatch: MonkeyPatch) -> list[int]:
    """A device of 30,000 bytes on which batches beyond 1990 fail; the batches that were tried."""
    tried: list[int] = []

    def memory_task(task: Any, send: Any) -> tuple[int, int]:
        tried.append(task.spec.batch_size)
        if task.spec.batch_size > 1990:
            raise RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR. Look elsewhere.")
        return 50 + 10 * task.spec.batch_size, 30_000

    monkeypatch.setattr("ridgeline.pipeline.cases.memory_task", memory_task)
    return tried


def test_a_batch_that_fails_for_whatever_reason_does_not_fit(
    folder: Path, device: list[int], capsys: Printed
) -> None:
    assert run_here(*NET_MAKE[:3], *QUICK, "--find-max-batch", "--json", "--debug") == 0
    streams = capsys.readouterr()
    (run,) = json.loads(streams.out)["runs"]
    # then it is the largest but for one percent, and no batch was tried twice
    found, fails = run["batch_size"], min(batch for batch in device if batch > 1990)
    assert 0.99 * 1990 <= found <= 1990
    assert len(device) == len(set(device)) <= 15
    reason = "RuntimeError: cuDNN error: CUDNN_STATUS_INTERNAL_ERROR"
    assert (
        f"net.py:make, fp32: the largest batch is {found} (batch {fails} fails: {reason})\n"
    ) in streams.err
    assert run["max_batch"] == {
        "batch_size": found, "fails": fails, "reason": reason,
    }  # fmt: skip


# ---------------------------------------------------------------- a closer look


def run_apart(*arguments: str) -> int:
    """`ridgeline run`; what is done in a process of its own depends on `run_isolated`."""
    with pytest.raises(SystemExit) as stopped:
        main(["run", *arguments])
    return int(stopped.value.code or 0)


def test_debug_shows_where_this_process_failed(folder: Path) -> None:
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        main(["run", "net.py:make", "--input-size", "5", *QUICK, "--in-process", "--debug"])


def test_debug_shows_where_another_process_failed(
    folder: Path, capsys: Printed, monkeypatch: MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "ridgeline.pipeline.cases.run_isolated", lambda *work, timeout_s: attempt(*work)
    )
    wrong = ("net.py:make", "--input-size", "5", "-b", "2", *QUICK, "-q")
    assert run_apart(*wrong) == 3
    said = capsys.readouterr().err
    assert said.startswith("ridgeline: net.py:make, batch 2, input 5, fp32: failed: RuntimeError: ")
    assert said.endswith("; --debug shows it here\n")
    assert run_apart(*wrong, "--debug") == 3
    log = ResultsFolder().read_log(ResultsFolder().run_ids()[-1])
    assert log.startswith("Traceback (most recent call last):\n")
    assert capsys.readouterr().err == log + said


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("224", ((224,),)),
        ("224,256", ((224,), (256,))),
        ("224x256", ((224, 256),)),
        ("224:320:32", ((224,), (256,), (288,), (320,))),
        ("3,64,64", ((3, 64, 64),)),  # channels, height and width
        ("64,96,128", ((64,), (96,), (128,))),
    ],
)
def test_input_sizes_as_people_write_them(text: str, sizes: tuple[tuple[int, ...], ...]) -> None:
    assert parse_sizes(text) == sizes


def test_a_command_of_one_size_refuses_several() -> None:
    with pytest.raises(RidgelineError, match="several sizes"):
        parse_input_size("224,256")
