"""The page in a browser: the figure, the tables, keys, a phone, paper."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.browser.studies import LAYERS, SCRIPT, empty_study, h200, other_machine, study
from tests.report.test_sweeps import make_sweep

from ridgeline import units

Opened = Callable[..., Any]
SMOOTH_MS = 50  # from the mouse to the words about a point; in practice under one


def marks(page: Any) -> list[dict[str, Any]]:
    drawn_again(page)
    found: list[dict[str, Any]] = page.evaluate("ridgeline.marks()")
    return found


def drawn_again(page: Any) -> None:
    """Two frames: one in which the figure is drawn, and one to be sure."""
    page.evaluate("new Promise(r => requestAnimationFrame(() => requestAnimationFrame(() => r())))")


def point_at(page: Any, name: str, **wanted: str) -> dict[str, Any]:
    return next(
        mark
        for mark in marks(page)
        if mark["name"] == name and all(mark[key] == value for key, value in wanted.items())
    )


def hover(page: Any, mark: dict[str, Any]) -> None:
    page.locator("#plot").scroll_into_view_if_needed()
    box = page.locator("#plot").bounding_box()
    page.mouse.move(box["x"] + mark["x"], box["y"] + mark["y"])


def choose(page: Any, name: str, value: str) -> None:
    page.select_option(f"#choose-{name}", value)
    drawn_again(page)


def colours_drawn(page: Any) -> int:
    """Different colours in the canvas; an empty one has one."""
    count: int = page.evaluate(
        """() => { const c = document.getElementById("canvas");
        const picture = c.getContext("2d").getImageData(0, 0, c.width, c.height);
        return new Set(new Uint32Array(picture.data.buffer)).size; }"""
    )
    return count


def test_the_figure_is_drawn_with_its_roofs(opened: Opened) -> None:
    page = opened(study())
    assert {mark["name"] for mark in marks(page)} == set(LAYERS)
    assert colours_drawn(page) > 20
    lines = {(line["name"], line["source"]) for line in page.evaluate("ridgeline.lines()")}
    assert lines == {
        ("DRAM", "measured"), ("tf32 matrix", "measured"), ("fp32 vector", "measured"),
        ("DRAM", "datasheet"), ("tf32 matrix", "datasheet"), ("fp32 vector", "datasheet"),
    }  # fmt: skip
    page.uncheck("#choose-hasSheet")
    page.check("#choose-isAllRoofs")
    names = {line["name"] for line in page.evaluate("ridgeline.lines()")}
    assert names == {"DRAM", *h200().roofs.flats}
    assert {line["source"] for line in page.evaluate("ridgeline.lines()")} == {"measured"}


def test_hover_tells_all_about_a_point(opened: Opened) -> None:
    page = opened(study())
    hover(page, point_at(page, "features.0"))
    told = page.inner_text("#details")
    for text in ("features.0", "Conv2d, whole, 128×64×8×8", "12.0 TFLOP",
                 "bytes moved\n24.0 GB", "bytes, fused\n4.00 GB",
                 "40.0 ms", "arithmetic", "nvidia-h200-128", "static: counted from the graph",
                 "ridgeline run vgg16 -b 128"):  # fmt: skip
        assert text in told
    facts = dict(zip(page.locator("#details dt").all_inner_texts(),
                     page.locator("#details dd").all_inner_texts(), strict=True))  # fmt: skip
    floor_s = 12e12 / h200().roofs.compute["tf32 matrix"]
    assert facts["floor"] == units.format_time(floor_s)
    assert facts["efficiency"] == units.format_percent(floor_s / 0.04)
    page.mouse.move(5, 5)
    assert page.locator("#details").is_hidden()


@pytest.mark.parametrize(
    ("name", "value", "key"),
    [
        ("grain", "step", "grain"),
        ("kind", "Conv2d", "kind"),
        ("phase", "forward", "phase"),
        ("precision", "tf32", "precision"),
        ("machine", "small", "machine"),
        ("model", "vgg16", "model"),
    ],
)
def test_each_filter_leaves_only_what_was_chosen(
    opened: Opened, name: str, value: str, key: str
) -> None:
    page = opened(study(machines=(h200(), other_machine())))
    for free in ("run", "machine", "model"):
        choose(page, free, "")
    choose(page, "grain", "")
    everything = len(marks(page))
    choose(page, name, value)
    left = marks(page)
    assert {mark[key] for mark in left} == {value}
    assert 0 < len(left) <= everything


def test_what_cannot_be_is_marked_with_its_likely_cause(opened: Opened) -> None:
    page = opened(study())
    hover(page, point_at(page, "classifier"))
    assert "above its dram roof" in page.inner_text("#details .flag")
    page.click("#flagged summary")
    assert "1 of these is marked" in page.inner_text("#flagged summary")
    assert "likely cause" in page.inner_text("#flagged li")
    assert "above its dram roof" in page.inner_text("#layers-body")


@pytest.mark.parametrize(
    ("view", "count"),
    [
        ("classic", 4),  # layers
        ("hierarchical", 8),  # each at DRAM and at the L2 cache
        ("time", 4),
        ("times", 2),  # steps
        ("training", 3),  # forward, backward, step: the optimizer was not counted
        ("batches", 2),
        ("machines", 4),
    ],
)
def test_every_kind_of_figure_is_drawn(opened: Opened, view: str, count: int) -> None:
    page = opened(study(machines=(h200(), other_machine())))
    choose(page, "machine", "nvidia-h200")
    choose(page, "view", view)
    if view != "machines":  # the largest headroom is on the slower machine
        choose(page, "machine", "nvidia-h200")
    if view in ("classic", "hierarchical", "time", "training"):
        page.select_option("#choose-run", index=2)
    assert len(marks(page)) == count
    assert colours_drawn(page) > 20
    machines = {line["machine"] for line in page.evaluate("ridgeline.lines()")}
    expected = {"machines": {"nvidia-h200", "small"}, "time": set(), "times": set()}
    assert machines == expected.get(view, {"nvidia-h200"})


def test_zoom_drag_and_reset(opened: Opened) -> None:
    page = opened(study())
    drawn_again(page)
    whole = page.evaluate("ridgeline.span()")
    page.click("#zoom-in")
    near = page.evaluate("ridgeline.span()")
    assert whole[0] < near[0] < near[1] < whole[1]
    box = page.locator("#plot").bounding_box()
    page.mouse.move(box["x"] + 400, box["y"] + 200)
    page.mouse.down()
    page.mouse.move(box["x"] + 300, box["y"] + 250, steps=4)
    page.mouse.up()
    moved = page.evaluate("ridgeline.span()")
    assert moved[0] > near[0] and moved[2] > near[2]
    drawn_again(page)
    page.mouse.wheel(0, -300)  # the figure has the focus by now
    page.wait_for_function("span => ridgeline.span()[0] !== span", arg=moved[0])
    page.click("#zoom-reset")
    assert page.evaluate("ridgeline.span()") == whole


def test_five_thousand_kernels_stay_smooth(opened: Opened) -> None:
    page = opened(study(batches=(128,), kernel_count=5_000))
    choose(page, "grain", "kernel")
    found = marks(page)
    assert len(found) > 4_500  # some copies have no FLOPs and no place on a roofline
    draws = page.evaluate("ridgeline.draws()")
    times = []
    for mark in found[:: len(found) // 40]:
        hover(page, mark)
        times.append(page.evaluate("ridgeline.pickTime()"))
    assert sorted(times)[len(times) // 2] < SMOOTH_MS
    # hovering draws nothing anew, and moving draws once a frame at most
    assert page.evaluate("ridgeline.draws()") == draws
    assert "static" not in page.inner_text("#details .source")


def test_a_model_may_be_called_like_a_script(opened: Opened) -> None:
    page = opened(study(model=SCRIPT))
    assert SCRIPT in page.inner_text("#title")
    assert SCRIPT in page.inner_text("#runs-body")
    hover(page, point_at(page, "features.0"))
    assert SCRIPT in page.inner_text("#details")
    assert page.locator("main script").count() == 0


def layer_names(page: Any) -> list[str]:
    found: list[str] = page.locator("#layers-body tbody th").all_inner_texts()
    return [name.strip("▾▸ \n") for name in found]


def test_the_layer_table_sorts_searches_and_folds(opened: Opened) -> None:
    page = opened(study())
    # as a tree, the longest first; a module is the sum of what is in it
    assert layer_names(page) == ["features", "3", "conv", "0", "1", "classifier"]
    assert "150 ms" in page.locator("#layers-body tbody tr").first.inner_text()
    page.click("#layers-body .fold >> nth=0")
    assert layer_names(page) == ["features", "classifier"]
    assert page.get_attribute("#layers-body .fold >> nth=0", "aria-expanded") == "false"
    assert page.evaluate("document.activeElement.className") == "fold"
    page.get_by_role("button", name="Open all").click()
    # as a list, by any column, both ways
    page.uncheck("#layers-grouped")
    assert layer_names(page) == ["features.3.conv", "features.0", "features.1", "classifier"]
    head = page.locator("#layers-body thead th", has_text="FLOPs")
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    assert layer_names(page)[-1] == "features.1"
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    assert layer_names(page)[0] == "features.1"
    page.fill("#layers-body input[type=search]", "conv2d")
    assert layer_names(page) == ["features.0", "features.3.conv"]
    page.fill("#layers-body input[type=search]", "nothing like it")
    assert "Nothing matches." in page.inner_text("#layers-body .more")


def test_numbers_say_where_they_come_from(opened: Opened) -> None:
    page = opened(study())
    time = page.locator("#layers-body tbody td[data-prov=measured]").first
    time.hover()
    assert page.inner_text("#tip").startswith(
        "sum of what is inside\nmeasured: run nvidia-h200-128"
    )
    # by keyboard: the table is one stop, arrow keys go on from there
    page.locator("#layers-body tbody th").first.focus()
    for key in ("ArrowDown", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    assert page.inner_text("#tip").startswith("sum of what is inside")
    assert page.evaluate("document.activeElement.getAttribute('aria-describedby')") == "tip"
    page.keyboard.press("Escape")
    assert page.locator("#tip").is_hidden()
    page.locator("#machines td[data-prov]").first.hover()
    assert "measured:" in page.inner_text("#tip")
    page.locator(".lead .first").focus()
    assert "measured, run nvidia-h200-" in page.inner_text("#tip")
    page.locator(".card strong").first.focus()
    assert "measured, run nvidia-h200-128" in page.inner_text("#tip")


def test_the_figure_can_be_read_by_keyboard(opened: Opened) -> None:
    page = opened(study())
    page.focus("#plot")
    page.keyboard.press("ArrowRight")
    first = page.inner_text("#details h3")
    assert first == "features.3.conv"  # the longest
    page.keyboard.press("ArrowLeft")
    assert page.inner_text("#details h3") != first
    assert page.get_attribute("#details", "aria-live") == "polite"
    page.keyboard.press("Escape")
    assert page.locator("#details").is_hidden()
    whole = page.evaluate("ridgeline.span()")
    page.keyboard.press("+")
    assert page.evaluate("ridgeline.span()") != whole
    page.keyboard.press("0")
    assert page.evaluate("ridgeline.span()") == whole
    rows = page.locator("#points-list tbody tr")
    assert rows.count() == 4
    assert rows.first.inner_text().split("\t")[:2] == ["features.3.conv", "90.0 ms"]


def test_every_control_has_a_name(opened: Opened) -> None:
    page = opened(study())
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("button, select, input, a")]
        .filter((e) => !(e.getAttribute("aria-label") || e.textContent.trim() || e.labels?.length))
        .map((e) => e.outerHTML)"""
    )
    assert nameless == []


def test_throughput_and_energy_are_drawn(opened: Opened) -> None:
    page = opened(study(batches=(32, 64, 128)))
    assert page.locator("#throughput-body svg.draw .dot").count() == 3
    assert page.locator("#throughput-body svg.draw .spread").count() == 3
    page.locator("#throughput-body .dot").first.hover()
    assert page.inner_text("#tip").startswith("batch 32: 1.4")
    assert page.locator("#energy-body tbody tr").count() == 3
    assert "NVML" in page.inner_text("#energy-body")


def test_paper_is_light_and_has_no_controls(opened: Opened) -> None:
    page = opened(study(), color_scheme="dark")
    page.get_by_role("button", name="Close all").click()
    page.emulate_media(media="print")
    drawn_again(page)
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.locator("#filters").is_hidden() and page.locator("#theme").is_hidden()
    assert layer_names(page) == ["features", "3", "conv", "0", "1", "classifier"]
    page.emulate_media(media="screen")
    drawn_again(page)
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 24, 29)"
    assert layer_names(page) == ["features", "classifier"]


@pytest.mark.parametrize("told", [study(), study(model="m" * 200), empty_study()])
def test_a_phone_needs_no_sideways_scrolling(opened: Opened, told: Any) -> None:
    page = opened(told, viewport={"width": 360, "height": 740}, has_touch=True)
    assert page.evaluate("document.documentElement.scrollWidth") == 360


def test_an_empty_study_opens_without_an_error(opened: Opened) -> None:
    page = opened(empty_study())
    assert "There is no completed run" in page.inner_text("main")


VALUES = (4.09e9, 999.9e6, 7, 0, 0.0123, 1.5e-13, 2.5e21, 12345, 0.999, 61.4e-3, -3.2e-6, 1234.0)


def test_numbers_read_as_everywhere_in_ridgeline(opened: Opened) -> None:
    page = opened(empty_study())

    def said(function: str, values: tuple[float, ...]) -> list[str]:
        call = f"values => values.map(value => ridgeline.format.{function}(value))"
        texts: list[str] = page.evaluate(call, list(values))
        return texts

    within = tuple(value for value in VALUES if abs(value) < 1e21)
    assert said("si", within) == [units.si(value) for value in within]
    times = (0.0421, 1.0, 119.9, 125.4, 3599.7, 3600.0, 7265.0, 86400.0, -300.0)
    assert said("formatTime", times) == [units.format_time(value) for value in times]
    shares = (0.0, 1.0, 0.99999, 0.00001, 0.1234, 1.57)
    assert said("formatPercent", shares) == [units.format_percent(value) for value in shares]
    ratios = (0.25, 1350.4, 93.26, 0.0001234, 0.00001234, 0.0, 812.6)
    assert said("formatRatio", ratios) == [units.format_ratio(value) for value in ratios]
    assert said("si", (math.pi,)) == ["3.14"]


def test_a_sweep_has_curves_crosses_and_a_table_to_sort(opened: Any, tmp_path: Path) -> None:
    page = opened(make_sweep(tmp_path / "results"))
    part = page.locator("#sweeps")

    assert "Stage full: 3 of 6 done, 1 failed, 2 not run yet." in part.inner_text()
    assert "9 % slower" in part.inner_text()
    charts = part.locator("figure.chart")
    assert charts.count() == 3  # time, throughput and energy
    assert charts.first.locator("svg.draw circle.dot").count() == 3
    crosses = charts.first.locator("path.lost")
    assert crosses.count() == 3
    reasons = [cross.get_attribute("aria-label").split("\n")[1] for cross in crosses.all()]
    assert sorted(reasons) == ["not run yet", "not run yet", "out of memory"]

    part.get_by_role("button", name="Step").click()
    times = part.locator("tbody tr").first.inner_text()
    assert "209 ms" in times  # the longest first
    assert part.locator("tbody tr").count() == 6
