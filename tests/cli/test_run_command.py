"""`ridgeline run` as a user meets it: what it measures, prints and keeps."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch
from pytest import MonkeyPatch
from tests.cli.analyzed_here import Printed
from tests.cli.small_runs import NET_MAKE, QUICK, folder, json_of, pick, run_here, without_notes

from ridgeline.store import ResultsFolder, ResultsIndex

__all__ = ["folder"]  # a fixture

SEED_000 = (
    "timestamp", "hostname", "arch", "backend", "device_name", "batch_size", "warmup_iters",
    "measured_iters", "precision", "lr", "momentum", "weight_decay", "elapsed_sec",
    "images_per_sec", "images_processed", "data_root", "label", "torch_version", "channels_last",
    "grad_accum_steps", "deterministic", "cudnn_benchmark",
)  # fmt: skip
LINE = re.compile(
    r"MEASURED_SEC=(?P<sec>\S+) IMGS_PER_SEC=(?P<rate>\S+) "
    r"BATCH=(?P<batch>\d+) ARCH=(?P<arch>\S+) BACKEND=(?P<backend>\w+)"
)


def lines_of(text: str) -> list[dict[str, str]]:
    return [found.groupdict() for found in map(LINE.fullmatch, text.splitlines()) if found]


# ---------------------------------------------------------------- what it prints and keeps


def test_the_line_agrees_with_the_run(folder: Path, capsys: Printed) -> None:
    assert run_here(*NET_MAKE, *QUICK) == 0
    streams = capsys.readouterr()
    (line,) = lines_of(streams.out)
    (run,) = ResultsFolder().read_runs()
    assert pick(line, "batch", "arch", "backend") == {
        "batch": "2", "arch": "net.py:make", "backend": run.result.backend,
    }  # fmt: skip
    assert float(line["sec"]) == pytest.approx(run.result.elapsed_s, abs=1e-6)
    assert float(line["rate"]) == pytest.approx(2 / run.result.step_time_s.median, rel=1e-3)
    assert len(run.result.step_time_s.samples) == 5
    assert " samples/s " in streams.out
    assert streams.err.endswith("runs are in results/runs, 3 views in results\n")


def test_models_precisions_and_batches_in_one_call(folder: Path, capsys: Printed) -> None:
    asked = ("net.py:make", "net.py:images", "--input-size", "3,8,8", "--config", "width=2")
    (folder / "net.py").write_text((folder / "net.py").read_text().replace("Linear(4", "Linear(8"))
    options = ("-b", "1,2", "--precision", "fp32,tf32", "--label", "sweep")
    assert run_here(*asked, *options, *QUICK, "--backend", "cpu", "--mode", "infer") == 0
    streams = capsys.readouterr()
    expected = [
        (model, batch, precision)
        for model in ("net.py:make", "net.py:images")
        for precision in ("fp32", "tf32")
        for batch in (1, 2)
    ]
    runs = ResultsFolder().read_runs()
    keys = ("model", "batch_size", "precision")
    assert [tuple(getattr(run.request, key) for key in keys) for run in runs] == expected
    assert {run.request.label for run in runs} == {"sweep"}
    for run, (model, batch, _) in zip(runs, expected, strict=True):
        assert f"-sweep-{model.replace(':', '-')}-bs{batch}-" in run.run_id
    assert len(lines_of(streams.out)) == 8
    assert "medians of" not in streams.out
    # and that fp32 ran in place of tf32 is a note, and stored
    note = "note: net.py:make, batch 1, input 3x8x8, fp32: tf32 is not used: TF32 is a"
    assert streams.err.count(note) == 1
    for run in runs:
        said = [text for text in run.result.warnings if text.startswith("tf32 is not used")]
        assert len(said) == (run.request.precision == "tf32")
        assert run.result.precision == "fp32"
    table = pd.read_csv("results/metrics.csv")
    columns = ["arch", "batch_size", "asked_precision"]
    assert list(table[columns].itertuples(index=False, name=None)) == expected
    assert set(table["precision"]) == {"fp32"}


def test_metrics_have_a_row_per_completed_run_and_are_made_again(folder: Path) -> None:
    metrics = folder / "results" / "metrics.csv"
    assert run_here(*NET_MAKE, *QUICK, "-q", "--lr", "0.5") == 0
    assert run_here("net.py:make", "--input-size", "5", "-b", "2", *QUICK, "-q") == 3
    first = pd.read_csv(metrics)
    metrics.unlink()
    assert run_here(*NET_MAKE, *QUICK, "-q", "--label", "second") == 0
    both = pd.read_csv(metrics)
    assert tuple(both.columns[: len(SEED_000)]) == SEED_000
    assert len(ResultsFolder().run_ids()) == 3  # one of them failed
    assert both["run_id"].tolist()[:1] == first["run_id"].tolist()
    assert both["measured_iters"].tolist() == [5, 5]
    assert both["images_processed"].tolist() == [10, 10]
    assert both["lr"].tolist()[0] == 0.5
    assert both["label"].tolist()[1] == "second"
    rate = both["images_processed"] / both["measured_iters"] / both["step_median_s"]
    assert both["images_per_sec"].tolist() == pytest.approx(rate.tolist())


@pytest.fixture
def pets(folder: Path) -> tuple[str, ...]:
    """Six pictures in two classes, as options."""
    from torchvision.utils import save_image

    for name in ("cats", "dogs"):
        (folder / "pets" / name).mkdir(parents=True)
        for number in range(3):
            save_image(torch.rand(3, 9, 9), folder / "pets" / name / f"{number}.png")
    return ("net.py:images", "--input-size", "3,8,8", "--data", "pets", *QUICK)


@pytest.mark.slow  # the times of loaded data are never steady, so the warm-up takes its longest
def test_workers_are_gone_without_a_word(folder: Path, pets: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "ridgeline", "run", *pets, "-b", "2", "--workers", "2", "-q"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert (done.returncode, without_notes(done.stderr)) == (0, "")


def test_images_from_a_folder(folder: Path, pets: tuple[str, ...], capsys: Printed) -> None:
    images = (*pets, "--json")
    assert run_here(*images, "-b", "2", "--no-augment") == 0
    (answer,) = json_of(capsys)
    (run,) = ResultsFolder().read_runs()
    assert run.result.data == "imagefolder"
    assert set(answer["split_s"]) == {"data", "copy", "forward", "backward", "optimizer"}
    # and what the folder cannot give is refused
    assert run_here(*images, "-b", "7") == 2
    streams = capsys.readouterr()
    assert json.loads(streams.out) == {"schema": 1, "runs": []}
    assert streams.err.startswith(
        "ridgeline: a batch of 7 is more than the 6 samples there are\n  hint: use a smaller"
    )


@pytest.mark.slow
@pytest.mark.parametrize("option", [("--compile",), ("--compile-mode", "reduce-overhead")])
def test_compile_works_or_is_a_failed_run(
    folder: Path, option: tuple[str, ...], capsys: Printed
) -> None:
    code = run_here(*NET_MAKE, *QUICK, *option, "--mode", "infer", "--json")
    (answer,) = json_of(capsys)
    assert (code, answer["status"]) in ((0, "ok"), (3, "failed"))
    torch.compiler.reset()


def test_what_a_model_prints_is_not_in_the_results(folder: Path, capfd: Printed) -> None:
    (folder / "loud.py").write_text(
        "import os, warnings\nimport torch\n\nclass Loud(torch.nn.Linear):\n"
        "    def forward(self, x):\n"
        "        print('by python')\n        os.write(1, b'by the system\\n')\n"
        "        warnings.warn('careful')\n        return super().forward(x)\n\n"
        "def make():\n    return Loud(4, 2)\n"
    )
    assert run_here("loud.py:make", "--input-size", "4", *QUICK, "--json", "-q") == 0
    streams = capfd.readouterr()
    (answer,) = json.loads(streams.out)["runs"]
    assert answer["status"] == "ok"
    assert "by python\n" in streams.err
    assert "by the system\n" in streams.err
    assert ResultsFolder().read_log(answer["run_id"]) == "UserWarning: careful"


def test_quiet_prints_results_and_notes_on_them(folder: Path, capsys: Printed) -> None:
    assert run_here(*NET_MAKE, *QUICK, "--precision", "tf32", "--backend", "cpu", "-q") == 0
    streams = capsys.readouterr()
    assert len(lines_of(streams.out)) == 1
    # that it was fp32 is said, and where the runs are is not
    notes = streams.err.splitlines()
    assert notes[0].startswith("note: net.py:make, batch 2, input 4, fp32: tf32 is not used")
    assert all(note.startswith("note: ") for note in notes)
    # and yet it says why a run failed
    assert run_here("net.py:make", "--input-size", "5", *QUICK, "-q") == 3
    assert capsys.readouterr().err.startswith(
        "ridgeline: net.py:make, batch 32, input 5, fp32: failed: RuntimeError: "
    )


# ---------------------------------------------------------------- surroundings


def test_two_commands_share_a_folder(
    folder: Path, capsys: Printed, monkeypatch: MonkeyPatch
) -> None:
    # given another command that stores a run after this one has read all runs for its views
    assert run_here(*NET_MAKE, *QUICK, "-q", "--label", "first") == 0
    (first,) = ResultsFolder().read_runs()
    once = ResultsFolder.index

    def read_then_another_is_stored(results: ResultsFolder) -> ResultsIndex:
        index = once(results)
        if len(results.run_ids()) < 3:
            results.save_run("other", first.request, first.result, first.made)
        return index

    monkeypatch.setattr(ResultsFolder, "index", read_then_another_is_stored)
    assert run_here(*NET_MAKE, *QUICK, "-q") == 0
    assert pd.read_csv("results/metrics.csv")["run_id"].tolist() == ResultsFolder().run_ids()
    assert len(ResultsFolder().run_ids()) == 3


def imported_by(module: str) -> set[str]:
    code = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_command_line_imports_nothing_heavy() -> None:
    heavy = {"torch", "pandas", "numpy", "matplotlib", "multiprocessing", "rich.progress"}
    assert heavy & imported_by("ridgeline.cli.app") == set()


@pytest.mark.parametrize("module", ["pipeline.analyze", "pipeline.profile", "cli.show_study"])
def test_torch_is_for_the_processes_that_a_command_starts(module: str) -> None:
    assert "torch" not in imported_by(f"ridgeline.{module}")
