"""What `ridgeline roofline` prints of steps that are known."""

from __future__ import annotations

import sys

from pytest import MonkeyPatch
from tests.cli.analyzed_here import Printed
from tests.report.hand_study import layer_row, make_study, run_row, step_row

from ridgeline.cli.show_study import finding_lines, print_layers, print_steps


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("  ") if cell.strip()]


def test_rows_say_in_what_runs_differ_and_which_were_disturbed(capsys: Printed) -> None:
    # given a run with the defaults, and one with one thread while the machine was busy
    one = {"run_id": "b", "label": "one", "threads": 1, "environment": "OMP_NUM_THREADS=1"}
    reason = "other programs had the processor"
    runs = [run_row(label="all", disturbed=""), run_row(**one, disturbed=reason)]

    print_steps(make_study(runs, [step_row(), step_row(run_id="b", time_s=0.04)]))

    out = capsys.readouterr().out.splitlines()
    head = next(line for line in out if "headroom" in line)
    rows = [dict(zip(cells(head), cells(line), strict=True)) for line in out if "fp32" in line]
    assert [(row["settings"], row["step"]) for row in rows] == [
        ("all, 2 threads", "20.0 ms"),
        ("one, 1 thread, OMP_NUM_THREADS=1", "40.0 ms*"),
    ]
    assert out[-1].strip() == "* the machine was busy: other programs had the processor"


def test_repeats_need_no_settings_on_a_terminal(capsys: Printed, monkeypatch: MonkeyPatch) -> None:
    study = make_study([run_row(), run_row(run_id="b")], [step_row(), step_row(run_id="b")])

    print_steps(study)  # into a pipe, where the columns are always the same
    assert "settings" in capsys.readouterr().out

    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    print_steps(study)
    out = capsys.readouterr().out
    assert "settings" not in out and "*" not in out


def test_layers_of_two_runs_of_a_network_name_their_runs(capsys: Printed) -> None:
    runs = [run_row(label="one"), run_row(run_id="b", label="two"), run_row(run_id="c", model="m")]
    rows = [
        layer_row("conv"),
        layer_row("conv", run_id="b"),
        layer_row("fc", run_id="c", model="m"),
    ]

    print_layers(make_study(runs, rows), top=3)

    out = capsys.readouterr().out.splitlines()
    assert sorted(cells(line)[0] for line in out if "conv" in line or "fc" in line) == [
        "m, batch 8",
        "net, batch 8, fp32 training, one",
        "net, batch 8, fp32 training, two",
    ]


def test_what_a_finding_could_save_is_an_estimate_with_its_condition() -> None:
    finding = {
        "layer": "conv", "model": "net", "batch_size": 8, "precision": "fp32",
        "meaning": "takes 10.0 ms", "headroom_s": 0.006, "share": 0.2, "advice": "--channels-last",
    }  # fmt: skip
    assert finding_lines([finding]) == [
        "1. conv of net (batch 8, fp32) takes 10.0 ms. An estimate of what it could save:"
        " about 6.00 ms, 20.0 % of the step, if it ran at its floor. Try: --channels-last."
    ]
