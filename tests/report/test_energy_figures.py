"""Figures of joules: what is drawn where, on a toy whose joules can be added up in the head."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
from tests.report.hand_study import NAN, TOY, layer_row, make_study, run_row, step_row

from ridgeline.machine.passport import Coefficient, EnergyModel, Passport
from ridgeline.report.figures.energy import draw_arch, draw_front, draw_power
from ridgeline.report.figures.style import Drawing, in_style
from ridgeline.report.figures.views import MachineView, list_views
from ridgeline.report.study import Machine, Study
from ridgeline.roofline.floors import find_energies

CAP_W = 10.0


def fixed(value: float) -> Coefficient:
    return Coefficient(value=value, interval=(value, value))


PRICES = EnergyModel(  # at its ridge of 10 FLOP/B the toy would draw 2 + 10 + 10 W
    device="cpu", j_per_flop={"fp32": fixed(10e-12)}, j_per_byte={"dram": fixed(100e-12)},
    constant_power_w=fixed(2.0), power_cap_w=CAP_W, r_squared=1.0, r_squared_power=1.0,
    mean_residual=0.04, points=(), how="a meter", measured_at="2026-11-19",
)  # fmt: skip


def joules_study(*cases: tuple[int, float, float], model: EnergyModel | None = PRICES) -> Study:
    """A run for each batch size, step time and joules of a step (NAN: no meter)."""
    runs, points = [], []
    for size, time_s, energy_j in cases:
        shared: dict[str, Any] = {"run_id": f"b{size}", "batch_size": size}
        runs.append(run_row(images_processed=10 * size, step_median_s=time_s,
                            energy_j_per_step=energy_j, **shared))  # fmt: skip
        points += [step_row(time_s=time_s, **shared), layer_row("conv", time_s=time_s, **shared)]
    passport = Passport(name="toy", measured_at="2026-11-19", is_quick=False, ceilings=(),
                        energy=(model,) if model else ())  # fmt: skip
    study = make_study(runs, points, machines=(Machine(roofs=TOY, passport=passport),))
    priced = study.points.assign(flops_fp32_matrix=study.points["flops"])
    models = {row["run_id"]: model for row in runs if model}
    energies = find_energies(priced, pd.DataFrame(runs), models).assign(finding="")
    return replace(study, energies=energies)


def only_view(study: Study) -> MachineView:
    (view,) = list_views(study)
    return view


def draw(how: Any, study: Study) -> Drawing:
    with in_style():
        drawing = how(only_view(study))
    assert isinstance(drawing, Drawing)
    return drawing


def panels_of(drawing: Drawing) -> list[Any]:
    return list(drawing.canvas.axes)


def marks_of(axes: Any) -> list[Any]:
    """Place of each mark, and whether it is filled."""
    lines = [line for line in axes.lines if str(line.get_gid()).startswith("mark-")]
    return [
        (float(line.get_xdata()[0]), float(line.get_ydata()[0]),
         line.get_markerfacecolor() != "white")
        for line in lines
    ]  # fmt: skip


def test_the_arch_and_the_time_roofline_have_the_same_steps() -> None:
    drawing = draw(draw_arch, joules_study((8, 0.02, 0.25), (16, 0.04, NAN)))

    # 10 GFLOP: by 0.25 J as measured; by 100 + 50 + 80 mJ as modelled
    left, right = panels_of(drawing)
    assert marks_of(left)[2:] == [(20.0, pytest.approx(4e10), True),
                                  (20.0, pytest.approx(1e10 / 0.23), False)]  # fmt: skip
    assert marks_of(right)[2:] == [(20.0, 5e11, True), (20.0, 2.5e11, False)]
    assert not any(is_filled for _, _, is_filled in marks_of(left)[:2])  # layers are modelled
    assert drawing.caption == (
        "Work per joule and per second on Toy 1. toy, fp32: time balance 10 FLOP/B, energy balance"
        " 10, half of the best work per joule at 8.57: finishing soon saves joules."
    )


def test_the_power_cap_lowers_the_time_roofline() -> None:
    _, right = panels_of(draw(draw_arch, joules_study((8, 0.02, 0.25))))

    capped, free = (
        max(max(line.get_ydata()) for line in right.lines if line.get_color() == colour
            and line.get_gid() is None)
        for colour in ("#222222", "#b00020")
    )  # fmt: skip
    assert free == 1e12
    assert capped < 8e11  # 8 W above constant power, at more than 10 pJ a FLOP


def test_power_with_its_cap() -> None:
    (axes,) = panels_of(draw(draw_power, joules_study((8, 0.02, 0.25))))

    assert marks_of(axes) == [(20.0, pytest.approx(12.5), True)]
    levels = {line.get_ydata()[0] for line in axes.lines if len(set(line.get_ydata())) == 1}
    assert {2.0, CAP_W} <= levels
    texts = {text.get_text() for text in axes.texts}
    assert {"constant power 2 W", "power cap 10 W"} <= texts


def test_the_front_joins_what_nothing_else_beats() -> None:
    # given samples of 2.5 ms and 25 mJ, 2.5 ms and 30 mJ, 2 ms and 40 mJ
    study = joules_study((8, 0.02, 0.2), (16, 0.04, 0.48), (32, 0.064, 1.28), model=None)

    drawing = draw(draw_front, study)

    (axes,) = panels_of(drawing)
    assert len(marks_of(axes)) == 3
    (front,) = [line for line in axes.lines if len(line.get_xdata()) == 2]
    assert list(front.get_xdata()) == pytest.approx([0.002, 0.0025])
    assert list(front.get_ydata()) == pytest.approx([0.04, 0.025])
    assert drawing.caption == (
        "3 steps on Toy 1. Fewest joules: net, fp32, 8 with 25.0 mJ a sample, measured."
    )


def test_without_coefficients_there_is_no_arch() -> None:
    view = only_view(joules_study((8, 0.02, 0.25), model=None))
    assert (draw_arch(view), draw_power(view), draw_front(view)) == (None, None, None)
