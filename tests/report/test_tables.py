"""Tables of a study made by hand: as CSV, Markdown and LaTeX."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest
from tests.report.hand_study import NAN, layer_row, make_study, run_row, step_row, training

from ridgeline.report.tables import (
    complexity_table,
    findings_table,
    for_people,
    tables,
    write_tables,
)
from ridgeline.report.text import latex_table, three_digits


def test_layers_for_people_are_the_longest_ten(tmp_path: Path) -> None:
    layers = [layer_row(f"l{n}", time_s=0.001 * n) for n in range(1, 15)]
    study = make_study([run_row()], [step_row(), *layers])

    write_tables(study, tmp_path)

    shown = re.findall(r"\| (l\d+) \|", (tmp_path / "layers.md").read_text(encoding="utf-8"))
    assert shown == [f"l{n}" for n in range(14, 4, -1)]
    assert len(pd.read_csv(tmp_path / "layers.csv")) == 14


def test_of_repeats_only_the_run_in_the_middle_has_ranked_findings() -> None:
    # given three repeats of one configuration, the first much slower than the others
    times = {"slow": 0.09, "middle": 0.02, "fast": 0.019}
    runs = [run_row(run_id=name, step_median_s=time_s) for name, time_s in times.items()]
    findings = [
        {"run_id": name, "model": "net", "layer": f"conv{name}", "headroom_s": time_s / 2}
        for name, time_s in times.items()
    ]
    study = make_study(runs, [step_row(run_id=name) for name in times], findings)

    ranks = findings_table(study).set_index("run_id")["rank"].dropna()

    assert ranks.to_dict() == {"middle": 1}


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, "0"), (8.4, "8.40"), (90, "90.0"), (161.4, "161"), (52335.2, "52335"), (0.0392, "0.0392")],
)
def test_three_digits(value: float, expected: str) -> None:
    assert three_digits(value) == expected


def test_what_a_step_must_do() -> None:
    study = make_study(
        [
            run_row(run_id="b16", batch_size=16, flops=2e10, moved_bytes=8e8),
            run_row(run_id="b8"),
            run_row(run_id="again"),
            run_row(run_id="uncounted", model="other", flops=NAN),
        ]
    )

    table = complexity_table(study)

    assert table[["batch_size", "macs", "flops", "ai", "ai_high"]].values.tolist() == [
        [8, 5e9, 1e10, 20.0, 100.0],
        [16, 5e9, 2e10, 25.0, 200.0],
    ]


def test_a_table_in_latex_has_names_as_they_are() -> None:
    source = latex_table(["a_b", "c (%)"], [["x&y", "5"]], caption="50 %", label="t", numeric="lr")
    assert source.startswith(r"% needs \usepackage{booktabs,longtable}")
    for line in (r"\begin{longtable}{lr}", r"\caption{50 \%} \label{tab:t}", r"a\_b & c (\%) \\",
                 r"x\&y & 5 \\"):  # fmt: skip
        assert line in source


def test_a_row_for_each_epoch_of_a_training() -> None:
    table = tables(make_study(trainings=(training(), training())))["trainings"]
    assert table[["training", "epoch", "train_loss", "test_accuracy"]].to_numpy().tolist() == [
        ["net, fp32, batch 16", 1, 2.0, 0.5], ["net, fp32, batch 16", 2, 1.0, 0.75],
        ["net, fp32, batch 16 (2)", 1, 2.0, 0.5], ["net, fp32, batch 16 (2)", 2, 1.0, 0.75],
    ]  # fmt: skip
    # for people, a row for each training
    assert for_people("trainings", table)["epoch"].tolist() == [2, 2]
