"""The options of `ridgeline run`: what each is for, what is refused, and what helps to look."""

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from tests.cli.small_runs import NET_MAKE, QUICK, folder, json_of, run_here

from ridgeline.cli import main
from ridgeline.cli.app import app
from ridgeline.measure.isolation import Outcome, attempt, died
from ridgeline.store import ResultsFolder

__all__ = ["folder"]  # a fixture

EVERYTHING = {  # every option that makes sense together with the others
    "--batch-size": "2", "--mode": "train", "--precision": "fp32", "--backend": "cpu",
    "--device": "0", "--input-size": "3,8,8", "--config": "width=4", "--warmup-iters": "0",
    "--iters": "2", "--repeats": "1", "--optimizer": "momentum", "--lr": "0.1",
    "--momentum": "0.8", "--weight-decay": "0.01", "--grad-accum-steps": "2",
    "--channels-last": None, "--deterministic": None, "--cudnn-benchmark": None, "--nvtx": None,
    "--data": "synthetic-host", "--workers": "1", "--pin-memory": None, "--prefetch-factor": "2",
    "--augment": None, "--layers": None, "--energy": None, "--energy-time": "0.1",
    "--layer-energy": None, "--seed": "1", "--label": "all at once", "--results": "kept",
    "--json": None, "--quiet": None, "--debug": None, "--in-process": None,
}  # fmt: skip
IN_OTHER_TESTS = {"--seq-len", "--compile", "--compile-mode", "--find-max-batch"}


def options_of_run() -> set[str]:
    command: Any = typer.main.get_command(app)
    parameters = command.commands["run"].params
    names = {one.opts[-1] if "--batch-sizes" not in one.opts else "--batch-size"
             for one in parameters if one.param_type_name == "option"}  # fmt: skip
    return {name for name in names if name not in ("--help", "-h")}


def test_every_option_is_accepted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
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


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--batch-size", "0"), "--batch-size '0' is not valid\n  hint: give whole numbers"),
        (("--batch-size", "-4"), "--batch-size '-4' is not valid\n  hint: give whole numbers"),
        (("--batch-size", "3000000000"), "--batch-size 3000000000 is too large\n  hint:"),
        (("--precision", "fp8"), "unknown precision 'fp8'\n  hint: choose fp32, tf32, amp"),
        (("--precision", "fp32,,amp"), "unknown precision ''\n  hint: choose fp32, tf32, amp"),
        (("--backend", "tpu"), "unknown backend 'tpu'\n  hint: choose auto, cuda, mps, cpu"),
        (("--optimizer", "sdg"), "unknown optimizer 'sdg'\n  hint: choose sgd"),
        (("--mode", "trian"), "unknown mode 'trian'\n  hint: choose infer, train"),
        (("--compile-mode", "fast"), "unknown compile mode 'fast'\n  hint: choose default"),
        (("--data", "nowhere"), "there is no data at 'nowhere'\n  hint: name a folder, synthetic"),
        (("--label", ""), "--label is empty\n  hint: give these runs a name"),
        (("--results", ""), "the name of a folder is empty\n  hint: write . for this folder"),
        (("--iters", "0"), "--iters 0 is not possible\n  hint: it is 1 or more"),
        (("--warmup-iters", "-1"), "--warmup-iters -1 is not possible\n  hint: it is 0 or more"),
        (("--lr", "-1"), "--lr -1.0 is not possible\n  hint: it is 0 or more"),
        (("--lr", "nan"), "--lr nan is not possible\n  hint: it is 0 or more"),
        (("--energy-time", "0"), "--energy-time 0.0 is not possible\n  hint: it is 0.1 or more"),
        (("--grad-accum-steps", "0"), "--grad-accum-steps 0 is not possible\n  hint: it is 1"),
        (("--workers", "-1"), "--workers -1 is not possible\n  hint: it is 0 or more"),
        (("--prefetch-factor", "2"), "--prefetch-factor needs workers that could fetch\n  hint:"),
        (("--seed", "-1"), "--seed -1 is not possible\n  hint: it is 0 or more"),
        (("--config", "width"), "--config 'width' is not valid\n  hint: write key=value"),
        (("--device", "9"), "there is no "),
        (
            ("--find-max-batch",),
            "--batch-size and --find-max-batch exclude each other\n  hint: leave --batch-size out",
        ),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else "",
)  # fmt: skip
def test_bad_options_are_refused(
    folder: Path, arguments: tuple[str, ...], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_here(*NET_MAKE, *QUICK, *arguments) == 2
    streams = capsys.readouterr()
    assert streams.err.startswith(f"ridgeline: {complaint}")
    assert "\n  hint: " in streams.err
    assert "Traceback" not in streams.err
    assert streams.out == ""
    assert not (folder / "results").exists()


def test_no_model_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_here() == 2
    assert capsys.readouterr().err.startswith("ridgeline: no model was named\n  hint: for example")


SYNTAX = "def make(:\n    pass\n"
STRANGE = """
from torch import nn

class NoParameters(nn.Module):
    def forward(self, x):
        return 2 * x

class Numbers(nn.Linear):
    def forward(self, x):
        return super().forward(x).argmax(-1)
"""


def test_names_are_looked_at_before_anything_is_measured(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # given models that can be run, and all sorts of others
    (folder / "syntax.py").write_text(SYNTAX)
    wrong = ("resnet5", "syntax.py:make", "none.py:make", "net.py:mkae")
    # when they are to be run together, then all the wrong ones are told, and nothing is measured
    assert run_here(*NET_MAKE, *wrong, *QUICK, "--json") == 2
    streams = capsys.readouterr()
    lines = streams.err.splitlines()
    assert lines[0] == "ridgeline: 4 models cannot be run, and none was measured"
    assert lines[-1] == "  hint: mend these names, or leave these models out"
    for complaint in (
        "unknown model 'resnet5': did you mean resnet50",
        "syntax.py:1: SyntaxError: invalid syntax (syntax.py, line 1): mend the file",
        "no such file: none.py: did you mean net.py?",
        "unknown factory in net.py: 'mkae': did you mean make",
    ):
        assert f"\n  {complaint}" in streams.err
    assert (streams.out, (folder / "results").exists()) == ("", False)


def test_one_wrong_name_among_others_is_told_as_if_alone(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_here(*NET_MAKE, "net.py:mkae", *QUICK) == 2
    streams = capsys.readouterr()
    assert streams.err.startswith("ridgeline: unknown factory in net.py: 'mkae'\n  hint: did you")
    assert (streams.out, (folder / "results").exists()) == ("", False)


def test_names_are_looked_at_in_a_process_of_their_own(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def run_isolated(work: Any, task: Any, hear: Any) -> Outcome[Any]:
        asked.append((work.__name__, [spec.model for spec in task]))
        return attempt(work, task, hear)

    monkeypatch.setattr("ridgeline.pipeline.cases.run_isolated", run_isolated)
    assert run_apart("net.py:make", "net.py:mkae", "net.py:make", *QUICK) == 2
    assert asked == [("check_task", ["net.py:make", "net.py:mkae"])]


def test_what_cannot_be_trained_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "strange.py").write_text(STRANGE)
    strange = ("strange.py:NoParameters", "--input-size", "4", *QUICK)
    assert run_here(*strange) == 2
    err = capsys.readouterr().err
    assert err.startswith("ridgeline: ")
    assert "\n  hint: " in err
    assert run_here(*strange, "--mode", "infer") == 0


def test_the_help_names_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_here("--help") == 0
    out = capsys.readouterr().out
    assert "Exit code" in out
    for option in options_of_run():
        assert option[:14] in out


# ---------------------------------------------------------------- the largest batch


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """26 free bytes, and networks of 4 bytes per sample; the precisions that were counted."""
    precisions: list[str] = []

    def count_workload(spec: Any, settings: Any) -> Any:
        precisions.append(settings.precision)
        return SimpleNamespace(memory=SimpleNamespace(peak_bytes=4 * spec.batch_size))

    memory = SimpleNamespace(available=26, total=64)
    monkeypatch.setattr("psutil.virtual_memory", lambda: memory)
    monkeypatch.setattr("ridgeline.count.counting.count_workload", count_workload)
    return precisions


@pytest.mark.parametrize(("asked", "used"), [("fp32", "fp32"), ("amp", "fp32"), ("bf16", "bf16")])
def test_the_largest_batch_for_a_small_memory(
    folder: Path, counted: list[str], asked: str, used: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--backend", "cpu", "--precision", asked, "--find-max-batch", "--json")
    assert run_here(*NET_MAKE[:3], *QUICK, *options) == 0
    streams = capsys.readouterr()
    # 80 % of 26 bytes are 20.8: five samples of 4
    assert (
        f"net.py:make, {asked}: the largest batch is 5 "
        "(counted, for 80 % of the free memory; not tried)\n"
    ) in streams.err
    (run,) = json.loads(streams.out)["runs"]
    assert run["max_batch"] == {"batch_size": 5, "is_counted": True, "fails": None, "reason": None}
    assert (run["batch_size"], run["precision"], set(counted)) == (5, used, {used})


def test_the_largest_batch_when_not_even_one_fits(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=10))
    assert run_here(*NET_MAKE[:3], *QUICK, "--backend", "cpu", "--find-max-batch") == 2
    assert re.match(
        r"ridgeline: one sample needs \d+ B, more than 8 B\n  hint: ", capsys.readouterr().err
    )


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> list[int]:
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
    folder: Path, device: list[int], capsys: pytest.CaptureFixture[str]
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
        "batch_size": found, "is_counted": False, "fails": fails, "reason": reason,
    }  # fmt: skip


def test_a_single_sample_that_fails_is_an_error(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def memory_task(task: Any, send: Any) -> tuple[int, int]:
        raise RuntimeError("broken")

    monkeypatch.setattr("ridgeline.pipeline.cases.memory_task", memory_task)
    assert run_here(*NET_MAKE[:3], *QUICK, "--find-max-batch") == 2
    assert capsys.readouterr().err.startswith("ridgeline: RuntimeError: broken\n  hint: ")


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
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ridgeline.pipeline.cases.run_isolated", attempt)
    wrong = ("net.py:make", "--input-size", "5", "-b", "2", *QUICK, "-q")
    assert run_apart(*wrong) == 3
    said = capsys.readouterr().err
    assert said.startswith("ridgeline: net.py:make, batch 2, fp32: failed: RuntimeError: ")
    assert said.endswith("; --debug shows it here\n")
    assert run_apart(*wrong, "--debug") == 3
    log = ResultsFolder().read_log(ResultsFolder().run_ids()[-1])
    assert log.startswith("Traceback (most recent call last):\n")
    assert capsys.readouterr().err == log + said


def test_debug_of_a_process_that_had_no_last_words(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: Outcome[Any] = Outcome(failure=died(-9))
    monkeypatch.setattr("ridgeline.pipeline.cases.run_isolated", lambda *_: killed)
    assert run_apart(*NET_MAKE, *QUICK, "-q", "--debug") == 3
    assert capsys.readouterr().err == (
        "ridgeline: net.py:make, batch 2, fp32: failed: the process was ended by SIGKILL\n"
        "  hint: most often the system ran out of memory: try a smaller --batch-size\n"
    )
