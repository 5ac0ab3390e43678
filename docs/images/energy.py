"""Draw docs/images/energy-orin.png and power-orin.png from Pagoda's published table.

Run from the project's root: `.venv/bin/python docs/images/energy.py`. Joules are those of the
table, roofs those of the datasheet, coefficients those of `machine measure --energy --from`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from ridgeline.machine.datasheets import datasheet_for
from ridgeline.machine.energy_fit import fit_energy, read_energy_points
from ridgeline.machine.passport import EnergyModel, EnergyPoint, Passport
from ridgeline.report.figures.energy import draw_arch, draw_power
from ridgeline.report.figures.style import DPI, Drawing, in_style
from ridgeline.report.figures.views import RUN_COLUMNS, MachineView
from ridgeline.report.study import Machine
from ridgeline.roofline.floors import ENERGY_COLUMNS
from ridgeline.roofline.roofs import datasheet_roofs

HERE = Path(__file__).parent
TABLE = HERE.parents[1] / "benchmarks" / "data" / "pagoda-energy.csv"
MODULE, DEVICE = "Jetson AGX Orin 64GB", "cuda:0"


def main() -> None:
    model = fit_energy(read_energy_points(TABLE), device=DEVICE, how=TABLE.name,
                       measured_at="", provenance="imported")  # fmt: skip
    view = make_view(model)
    figures: dict[str, Callable[[MachineView], Drawing | None]] = {
        "energy": draw_arch, "power": draw_power,
    }  # fmt: skip
    for name, draw in figures.items():
        with in_style():
            drawing = draw(view)
            assert drawing is not None
            drawing.canvas.savefig(HERE / f"{name}-orin.png", dpi=DPI, metadata={"Software": None})


def make_view(model: EnergyModel) -> MachineView:
    sheet = datasheet_for(MODULE)
    assert sheet is not None
    roofs = datasheet_roofs(sheet.ceilings(DEVICE), env="orin", device=DEVICE, device_name=MODULE)
    passport = Passport(name="orin", measured_at="", is_quick=False, ceilings=(), energy=(model,))
    rows = pd.DataFrame([make_row(n, p) for n, p in enumerate(model.points) if not p.note])
    return MachineView(
        name="orin",
        machine=Machine(roofs=roofs, passport=passport),
        runs=pd.DataFrame(),
        points=pd.DataFrame(),
        energies=rows.reindex(columns=[*ENERGY_COLUMNS, *RUN_COLUMNS]),
    )


def make_row(number: int, point: EnergyPoint) -> dict[str, Any]:
    """A point of the table as a step."""
    model, _, batch = point.label.partition(" batch ")
    flops, moved = sum(point.flops.values()), sum(point.moved_bytes.values())
    return {
        "run_id": str(number), "configuration": number, "is_chosen": True, "grain": "step",
        "env": "orin", "model": model, "mode": "infer", "precision": "", "batch_size": int(batch),
        "variant": "", "provenance": "static", "energy_provenance": "measured", "flops": flops,
        "ai": flops / moved, "time_s": point.time_s, "energy_j": point.energy_j,
        "power_w": point.power_w, "flops_per_j": flops / point.energy_j,
        "energy_j_per_sample": point.energy_j / int(batch),
        "time_s_per_sample": point.time_s / int(batch),
    }  # fmt: skip


if __name__ == "__main__":
    main()
