"""report.md: its sections, its tables, and names that would break it if they could."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.report.hand_study import TOY, layer_row, make_study, phase_row, run_row, step_row, stored

from ridgeline.report.figures import Figure
from ridgeline.report.markdown import report_text, unwrap, write_report_md
from ridgeline.report.sections import cite
from ridgeline.report.study import Machine, Study
from ridgeline.report.text import code_block, markdown, markdown_line, markdown_table

markdown_it = pytest.importorskip("markdown_it")
NASTY = [
    "<script>alert(1)</script>",
    "a|b",
    "`x`",
    "a\nb",
    "# title",
    "**b** [c](d) ![e](f)",
    "$x$",
]


RUNS = make_study([run_row(run_id=str(n)) for n in range(1, 10)])


def picture(path: Path, kind: str = "classic", **words: str) -> Figure:
    words = {"title": "Steps of toy", "caption": "One step, half way to its roof.", **words}
    return Figure(path=path, paths=(path,), kind=kind, env="toy", **words)


def html(text: str) -> str:
    return str(markdown_it.MarkdownIt("commonmark", {"html": True}).enable("table").render(text))


def whole_study(model: str = "net") -> Study:
    run = run_row(model=model, warnings=1)
    points = [
        step_row(model=model),
        phase_row("forward", model=model, flops=3e9, time_s=0.006),
        phase_row("backward", model=model, flops=6e9, time_s=0.012),
        phase_row("input-grad", model=model, flops=3e9, time_s=float("nan")),
        phase_row("weight-grad", model=model, flops=3e9, time_s=float("nan")),
        *(layer_row(f"conv{n}", model=model, flops=n * 1e9) for n in range(5)),
    ]
    finding = {
        "run_id": "a", "env": "toy", "model": model, "mode": "train", "precision": "fp32",
        "batch_size": 8, "layer": "conv4", "kind": "Conv2d", "bound": "compute", "time_s": 0.02,
        "floor_s": 0.01, "efficiency": 0.5, "headroom_s": 0.01, "share": 0.5,
        "meaning": "takes 20 ms", "advice": "--compile",
    }  # fmt: skip
    raw = stored(
        "a",
        asked={"model": model, "label": "first|try"},
        found={"warnings": ["step times are unstable; close other programs"]},
        provenance={
            "command": ["ridgeline", "run", model, "-b", "8"], "python": "3.12.3",
            "host": {"name": "node7", "os": "Linux"}, "libraries": {"torch": "2.15.0"},
        },
    )  # fmt: skip
    stages = ({"stage": "counters", "status": "skipped", "reason": "no ncu here"},)
    return make_study(
        [run], points, [finding], raw_runs=(raw,), stages=stages, problems=("x is damaged",)
    )


SECTIONS = {
    "Abstract": "abstract", "Experiment design": "experiment-design", "Complexity": "complexity",
    "Measurement": "measurement", "Roofline": "roofline", "What the hardware did": "executed",
    "Analysis": "analysis", "Limitations": "limitations", "Appendix": "appendix",
}  # fmt: skip


def test_the_sections_are_those_of_a_paper_each_with_a_place(tmp_path: Path) -> None:
    path = write_report_md(whole_study(), tmp_path / "report.md", title="My <study>")
    text = path.read_text(encoding="utf-8")
    assert re.findall("^## (.*)$", text, re.MULTILINE) == list(SECTIONS)
    assert re.findall("^<!-- yours: (.*) -->$", text, re.MULTILINE) == list(SECTIONS.values())
    assert "\n# My &lt;study&gt;\n" in text
    assert "\n# Roofline study of net on toy\n" in report_text(whole_study(), folder=tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["report.md"]


@pytest.mark.parametrize("name", NASTY)
def test_a_name_stays_a_name(name: str, tmp_path: Path) -> None:
    plain, nasty = whole_study(), whole_study(name)

    pages = [html(report_text(study, folder=tmp_path)) for study in (plain, nasty)]

    for tag in ("<td", "<h1", "<h2", "<a ", "<img", "<strong", "<script", "<code"):
        assert pages[0].count(tag) == pages[1].count(tag)


cells = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


@given(st.lists(st.lists(cells, min_size=3, max_size=3), min_size=1, max_size=3))
def test_a_table_keeps_its_columns_and_its_text(rows: list[list[str]]) -> None:
    page = html(markdown_table(["a", "b", "c"], rows))

    assert page.count("<th>") == 3
    assert page.count("<td>") == 3 * len(rows)
    assert page.count("<tr>") == 1 + len(rows)
    assert set(re.findall("<([a-z0-9]+)", page)) <= {"table", "thead", "tbody", "tr", "th", "td"}


@given(cells)
def test_a_line_stays_a_paragraph(text: str) -> None:
    page = html(markdown_line("x" + text)).strip()

    assert page.startswith("<p>x") and page.endswith("</p>") and page.count("<") == 2


def test_figures_stand_where_they_belong_and_are_found_from_the_report(tmp_path: Path) -> None:
    figures = [
        picture(tmp_path / "figures" / "a b.png"),
        picture(tmp_path / "figures" / "t.png", kind="throughput", title="T|", caption="<c>"),
    ]

    text = report_text(whole_study(), figures, folder=tmp_path)

    measurement, roofline = (
        text[text.index(f"## {name}") :].split("<!-- yours")[0]
        for name in ("Measurement", "Roofline")
    )
    assert "![T&#124;](figures/t.png)\n\n*Figure 1.* **T&#124;.** &lt;c&gt;" in measurement
    assert "![Steps of toy](figures/a%20b.png)\n\n*Figure 2.* **Steps of toy.** One" in roofline


def study_of_roofs(**changes: Any) -> Study:
    return make_study([run_row()], [step_row()], machines=(Machine(roofs=replace(TOY, **changes)),))


SYSTEM = {"run_id": "a", "model": "net", "layer": "(system)", "headroom_s": 0.01, "share": 0.5}


@pytest.mark.parametrize(
    ("study", "line"),
    [
        (make_study(machines=()), "The results folder holds no completed run yet."),
        (study_of_roofs(source="given"), "| toy | fp32 matrix | 1.00 TFLOP/s | given |"),
        (study_of_roofs(source="given"),
         "- The roofs of toy were given by the user, all or some of them, and not measured."),
        (study_of_roofs(source="datasheet"),
         "- The roofs of toy were not measured; they are those of its datasheet."),
        (study_of_roofs(is_quick=True), "- The roofs of toy were measured quickly"),
        (study_of_roofs(basis="half of the cores"), "- The roofs of toy: half of the cores."),
        (make_study([run_row(coverage=0.5)], [step_row()]),
         "- Not all operators have a formula: in the worst case those with one hold 50.0 % of"),
        (make_study([run_row()], [step_row()], [SYSTEM]),
         "Of (system): this time is also part of the layers' times, so the two do not add up."),
    ],
)  # fmt: skip
def test_what_depends_on_the_study(study: Study, line: str, tmp_path: Path) -> None:
    text = report_text(study, folder=tmp_path)
    assert line in text
    assert not re.search(r"\bnan\b", text)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (markdown("resnet18_cifar, layer1.0.conv2 (a-b)"), "resnet18_cifar, layer1.0.conv2 (a-b)"),
        (markdown("_x_ *y*"), r"\_x\_ \*y\*"),
        (html(f"- {markdown_line('- a')}"), "<ul>\n<li>- a</li>\n</ul>\n"),
        (html(f"- {markdown_line('12) a')}"), "<ul>\n<li>12) a</li>\n</ul>\n"),
        (code_block("a ``` b\n<!-- /yours -->", "sh"),
         "````sh\na ``` b\n <!-- /yours -->\n````"),
        (unwrap("a\nb\n\n\n- c\n  d\n- e\n```\nf\n\n\ng\n```\n| h |\n| i |"),
         "a b\n\n- c d\n- e\n\n```\nf\n\n\ng\n```\n\n| h |\n| i |"),
        (cite(RUNS, ["5", "1", "2", "4", "3"]), "R1–R5"),
        (cite(RUNS, ["1", "2", "4"]), "R1, R2, R4"),
        (cite(RUNS, ["unknown"]), ""),
    ],
)  # fmt: skip
def test_small_texts(written: str, expected: str) -> None:
    assert written == expected


FLAG = "above its compute roof: {} % faster than its floor; likely cause: Winograd"
NET = "net, batch 8, fp32 training"


@pytest.mark.parametrize(
    ("study", "line"),
    [
        (make_study([run_row()], [
            layer_row("c1", efficiency=1.05, flag=FLAG.format(5)),
            layer_row("c2", efficiency=1.2, flag=FLAG.format(20)),
         ]),
         "- On toy, 2 points are flagged; the farthest out is c2 of net (above its compute roof:"
         " 20 % faster than its floor). Likely cause: Winograd (R1)."),
        (make_study([run_row(run_id=r, step_median_s=s)
                     for r, s in (("a", 0.02), ("b", 0.04), ("c", 0.01))]),
         f"- R1–R3: {NET} on toy took 10.0 ms to 40.0 ms a step in 3 runs; this report uses"
         " 20.0 ms."),
        (make_study([run_row(disturbed="others")]),
         f"- R1: {NET} on toy: the machine was busy (others); no hypothesis and no"
         " speed-up uses it."),
    ],
)  # fmt: skip
def test_what_the_analysis_says(study: Study, line: str, tmp_path: Path) -> None:
    assert line in report_text(study, folder=tmp_path)


@pytest.mark.parametrize(("disturbed", "is_compared"), [("", True), ("others", False)])
def test_a_busy_machine_shows_no_speed_up(
    disturbed: str, is_compared: bool, tmp_path: Path
) -> None:
    runs = [run_row(run_id="amp", precision="amp", disturbed=disturbed), run_row(disturbed="")]
    text = report_text(make_study(runs), folder=tmp_path)
    assert ("### Precisions and machines" in text) == is_compared
