"""Tables of a study made by hand: as CSV, Markdown and LaTeX."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.report.hand_study import (
    NAN,
    layer_row,
    make_study,
    phase_row,
    run_row,
    step_row,
    stored,
)

from ridgeline.report.markup import latex, latex_table
from ridgeline.report.tables import (
    POINT_COLUMNS,
    SEED_COLUMNS,
    complexity_table,
    findings_table,
    write_points,
    write_tables,
)
from ridgeline.report.text import three_digits

SEED = [
    "label", "env", "arch", "backend", "batch_size", "precision", "elapsed_sec", "images_per_sec",
    "ai", "attained_gflops", "peak_gflops", "peak_gbps",
]  # fmt: skip
NAMES = ["runs", "complexity", "roofline_points", "layers", "reconcile", "kernels", "captures",
         "ceilings", "findings"]  # fmt: skip


def test_points_begin_with_the_usual_columns_and_with_steps(tmp_path: Path) -> None:
    study = make_study(
        [run_row(), run_row(run_id="b", model="other", label="second")],
        [layer_row("conv"), phase_row("forward"), step_row(), step_row(run_id="b", model="other")],
    )

    path = write_points(study, tmp_path / "roofline_points.csv")

    table = pd.read_csv(path)
    assert list(table.columns[: len(SEED)]) == SEED == list(SEED_COLUMNS)
    assert list(table.columns[len(SEED) :]) == list(POINT_COLUMNS)
    assert table["grain"].tolist() == ["step", "step", "phase", "layer"]
    assert table[SEED].iloc[0].dropna().to_dict() == {
        "env": "toy", "arch": "net", "backend": "cpu", "batch_size": 8, "precision": "fp32",
        "elapsed_sec": 0.2, "images_per_sec": 400.0, "ai": 20.0, "attained_gflops": 500.0,
        "peak_gflops": 1000.0, "peak_gbps": 100.0,
    }  # fmt: skip
    ours = ["grain", "name", "phase", "provenance", "flops", "dram_bytes", "ai_high", "time_s",
            "floor_s", "bound", "efficiency", "headroom_s", "run_id"]  # fmt: skip
    assert table[ours].iloc[0].tolist() == [
        "step", "net", "all", "static", 1e10, 5e8, 100.0, 0.02, 0.01, "compute", 0.5, 0.01, "a"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("plain", "expected"),
    [
        ("50 %", r"50 \%"),
        (
            "a_b & c # $d {e} ~f ^g",
            r"a\_b \& c \# \$d \{e\} \textasciitilde{}f \textasciicircum{}g",
        ),
        ("\\", r"\textbackslash{}"),
        ("[x]* <y> |", r"{[}x{]}{*} \textless{}y\textgreater{} \textbar{}"),
        ("--compile", r"-{}-compile"),
        ("3 µs → 2", r"3 $\mu$s $\rightarrow$ 2"),
        ("größer 中", r"gro\ss{}er ?"),
        ("a\nb", "a b"),
    ],
)
def test_text_for_latex(plain: str, expected: str) -> None:
    assert latex(plain) == expected


@given(st.lists(st.lists(st.text(max_size=20), min_size=3, max_size=3), max_size=3))
def test_latex_keeps_its_columns_and_its_braces(rows: list[list[str]]) -> None:
    source = latex_table(["a", "b", "c"], rows, caption="x", label="y")
    body = source.split("\\endfoot\n")[1].split("\\end{longtable}")[0]

    lines = body.splitlines()
    assert len(lines) == len(rows)
    assert source.isascii()
    for line in lines:
        assert line.endswith(" \\\\")
        bare = re.sub(r"\\[%_&#${}]", "", line.removesuffix(" \\\\"))
        assert bare.count("&") == 2
        assert bare.count("{") == bare.count("}") and bare.count("$") % 2 == 0
        assert not re.search("[%#_~]", bare)


def test_layers_for_people_are_the_longest_ten(tmp_path: Path) -> None:
    layers = [layer_row(f"l{n}", time_s=0.001 * n) for n in range(1, 15)]
    study = make_study([run_row()], [step_row(), *layers])

    write_tables(study, tmp_path)

    shown = re.findall(r"\| (l\d+) \|", (tmp_path / "layers.md").read_text(encoding="utf-8"))
    assert shown == [f"l{n}" for n in range(14, 4, -1)]
    assert len(pd.read_csv(tmp_path / "layers.csv")) == 14


def test_findings_of_layers_that_do_not_add_up_are_marked_in_the_csv(tmp_path: Path) -> None:
    finding = {"run_id": "a", "model": "net", "layer": "conv", "headroom_s": 0.01}
    study = make_study(
        [run_row()],
        [step_row()],
        [finding],
        raw_runs=(stored("a", found={"layers": {"sum_s": 99.0}}),),
    )

    write_tables(study, tmp_path)

    assert "conv" in (tmp_path / "findings.md").read_text(encoding="utf-8")
    assert pd.read_csv(tmp_path / "findings.csv")["is_trusted"].tolist() == [False]


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


def test_a_csv_survives_any_name(tmp_path: Path) -> None:
    name = 'a,"b"\nc'
    study = make_study([run_row(model=name)], [step_row(model=name)])

    path = write_points(study, tmp_path / "points.csv")

    rows = list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))
    assert [row["arch"] for row in rows] == [name]


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
