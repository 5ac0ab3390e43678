"""What `ridgeline run` prints of runs that are known: every line, on screens of every width."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from pytest import MonkeyPatch
from tests.cli.analyzed_here import Printed
from tests.measure.measured import energy_window, measured, timing_of
from torch import nn

from ridgeline.cli import show_runs
from ridgeline.cli.messages import name_run
from ridgeline.cli.options import Output
from ridgeline.measure.energy import summarise_windows
from ridgeline.measure.layers import LayerTimes, Seen
from ridgeline.measure.run_record import Measurement, make_tables
from ridgeline.measure.timing import StepTimes
from ridgeline.records import RunRequest
from ridgeline.store import ResultsFolder, Run

# ten steps: five of 1 s, five of 3 s; their middle and their mean are 2 s
TIMING = timing_of(*[1.0, 3.0] * 5)
PHASES: dict[str, tuple[float, ...]] = {
    "data": (0.0,) * 10,
    "forward": (0.25, 2.0) * 5,
    "backward": (0.75, 1.0) * 5,
}
SPLIT = replace(TIMING, device=StepTimes(steps_s=TIMING.device.steps_s, phases_s=PHASES))
WINDOW = energy_window(start_s=0.0, end_s=4.0, steps=2, mean_power_w=100.0)
ENERGY = replace(
    summarise_windows((WINDOW,), samples_per_step=2),
    meter="energy counter", scope="the whole board", kind="counter",
)  # fmt: skip
PATHS = ("features.0", "features.1.downsample", "classifier")
OWNERS = [
    *((path, phase) for path in PATHS for phase in ("forward", "backward")),
    ("(model)", "forward"),
    ("(optimizer)", "optimizer"),
]
LAYERS = LayerTimes(
    samples_s=dict.fromkeys(OWNERS, (0.25,)),
    seen={path: Seen(calls=1, input_shape=(2, 3, 224, 224)) for path in (*PATHS, "(model)")},
    steps_s=(2.0,), is_held_back=False,
)  # fmt: skip
NET = nn.ModuleDict(
    {
        "features": nn.ModuleList([nn.Conv2d(3, 8, 3), nn.ModuleDict({"downsample": nn.ReLU()})]),
        "classifier": nn.Linear(8, 2),
    }
)


def stored(results: ResultsFolder, made: Measurement, model: str = "net.py:make") -> Run:
    request = RunRequest(model=model, batch_size=2, mode="train")
    tables = make_tables(made, NET)
    run_id = results.save_run("x", request, made.result, {}, tables=tables)
    return results.read_run(run_id)


@pytest.fixture
def results(tmp_path: Path) -> ResultsFolder:
    return ResultsFolder(tmp_path)


def show(results: ResultsFolder, *runs: Run) -> None:
    show_runs.show(runs, results, [], Output(quiet=True))


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("  ") if cell.strip()]


def test_all_that_is_printed_of_a_run(results: ResultsFolder, capsys: Printed) -> None:
    show(results, stored(results, measured(timing=SPLIT, energy=ENERGY)))

    out = capsys.readouterr().out.splitlines()
    head, row = (line for line in out if "samples/s" in line or "fp32 train" in line)
    assert dict(zip(cells(head), cells(row), strict=True)) == {
        "model": "net.py:make", "batch": "2", "precision": "fp32 train", "samples/s": "1",
        "step": "2 s", "± (95 %)": "50.0 %", "busy": "–", "J/step": "200 J", "J/sample": "100 J",
        "power": "100 W", "peak memory": "–",
    }  # fmt: skip
    assert [line.rstrip() for line in out if line.startswith(("MEASURED", "net.py", "energy"))] == [
        "net.py:make, batch 2, fp32: 2 s on average = data 0 s + forward 1.12 s + backward 875 ms",
        "energy: energy counter, the whole board",
    ]


def test_a_run_has_the_precision_that_was_used(results: ResultsFolder) -> None:
    made = stored(results, measured(timing=SPLIT))
    asked = replace(made, request=replace(made.request, precision="amp"))

    assert name_run(asked) == "net.py:make, batch 2, fp32"


def test_the_split_is_of_means(results: ResultsFolder, capsys: Printed) -> None:
    # given steps of 4 s: nine whose forward takes 1 s, and one whose forward takes all of it
    phases: dict[str, tuple[float, ...]] = {
        "forward": (1.0,) * 9 + (4.0,),
        "backward": (3.0,) * 9 + (0.0,),
    }
    steps = StepTimes(steps_s=(4.0,) * 10, phases_s=phases)
    made = measured(timing=replace(timing_of(*[4.0] * 10), device=steps))

    show(results, stored(results, made))

    line = "net.py:make, batch 2, fp32: 4 s on average = forward 1.30 s + backward 2.70 s\n"
    assert line in capsys.readouterr().out


@pytest.mark.parametrize(
    ("interval", "shown"),
    [((1.0, 1.0), "0.0 %"), ((0.75, 1.125), "25.0 %"), ((0.9, 1.5), "50.0 %"), (None, "–")],
)
def test_how_far_an_interval_reaches(
    results: ResultsFolder, capsys: Printed, interval: tuple[float, float] | None, shown: str
) -> None:
    made = measured()
    made.add(step_time_s=replace(made.result.step_time_s, interval=interval))

    show(results, stored(results, made))

    row = next(line for line in capsys.readouterr().out.splitlines() if "fp32 train" in line)
    assert cells(row)[5] == shown


def test_shares_of_layers_are_of_medians_and_disturbed_times_have_a_mark(
    results: ResultsFolder, capsys: Printed
) -> None:
    # given a layer of 6 s and one of 2 s that another program held up for a minute in one step
    layers = LayerTimes(
        samples_s={("features.0", "forward"): (6.0,) * 5, ("classifier", "forward"):
                   (2.0, 2.0, 2.0, 2.0, 62.0)},
        seen={path: Seen(calls=1) for path in ("features.0", "classifier")},
        steps_s=(8.0, 8.0, 8.0, 8.0, 68.0), is_held_back=False,
    )  # fmt: skip

    show(results, stored(results, measured(layers=layers)))

    out = capsys.readouterr().out.splitlines()
    rows = [cells(line) for line in out if "Conv2d" in line or "Linear" in line]
    assert [[row[0], *row[-2:]] for row in rows] == [
        ["features.0", "6 s", "75.0 %"],
        ["classifier", "2 s*", "25.0 %"],
    ]
    footnote = "* mean is more than 1.2 times the median: some samples were disturbed"
    assert [line.strip() for line in out].count(footnote) == 1


@pytest.mark.parametrize("width", [40, 80, 120])
def test_it_fits_a_narrow_terminal(
    results: ResultsFolder, width: int, monkeypatch: MonkeyPatch, capsys: Printed
) -> None:
    # given two runs with everything, and a terminal of this width
    made = measured(timing=SPLIT, energy=ENERGY, layers=LAYERS)
    runs = [stored(results, made), stored(results, made, "torchvision:efficientnet_v2_l")]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "dumb")  # no colours

    show(results, *runs)

    # then all of it fits, and no number is cut
    out = capsys.readouterr().out
    assert [line for line in out.splitlines() if len(line.rstrip()) > width] == []
    text = " ".join(out.split())
    for run in runs:
        assert " 2 s " in out and " 1 " in out
        assert " ".join(show_runs.split_line(run).split()) in text
    assert text.count("all layers together 2 s, a step 2 s: 0.0 % less (host, monotonic)") == 2
    assert ("hidden columns (terminal too narrow): input" in text) == (width < 120)
    assert out.count(" 25.0 % ") == len(runs) * len(PATHS)
