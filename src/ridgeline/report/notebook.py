"""A notebook that reads the results folder again and shows runs, points, findings and a roofline.

It is plain nbformat 4 JSON, so nothing but an editor of notebooks is needed to open it, and its
cells are plain Python, so that they also run anywhere else.
"""

from __future__ import annotations

from os.path import relpath
from pathlib import Path
from typing import Any

from ridgeline.report.markup import markdown
from ridgeline.report.study import Study
from ridgeline.report.text import counted, listed
from ridgeline.store import IN_RESULTS, atomic_write_text, to_json

FORMAT, MINOR = 4, 5

READ = """\
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from ridgeline.report.configurations import cases
from ridgeline.report.study import read_study
from ridgeline.store import ResultsFolder

RESULTS = Path({results!r})  # seen from the folder of this notebook
study = read_study(ResultsFolder(RESULTS))
print(len(study.runs), "runs on", ", ".join(machine.env for machine in study.machines))
"""

RUNS = """\
shown = ["env", "model", "mode", "precision", "batch_size", "images_per_sec", "step_median_s",
         "forward_s", "backward_s", "busy_fraction", "energy_j_per_sample", "peak_memory_bytes"]
study.runs.reindex(columns=shown)
"""

POINTS = """\
steps = study.points[study.points["grain"] == "step"]
steps[["env", "model", "precision", "batch_size", "ai", "ai_high", "time_s", "floor_s", "bound",
       "efficiency", "headroom_s", "flag"]]
"""

FINDINGS = """\
study.top_findings(20)[["env", "model", "precision", "batch_size", "layer", "bound", "time_s",
                        "headroom_s", "share", "meaning", "advice"]]
"""

ROOFLINE = """\
def draw_roofline(machine, points, axis):
    \"\"\"Measured roofs as lines; a step as a bar of its intensity, moved to fused.\"\"\"
    roofs = machine.roofs
    slope = roofs.bandwidth.get("dram")
    if not slope or not roofs.compute:
        axis.set_title(f"{machine.env}: no roofs")
        return
    intensity = np.logspace(-1, 4, 200)
    for precision in sorted(set(points["precision"])):
        peak = roofs.peak("fp16" if precision == "amp" else precision, "matrix")
        axis.plot(intensity, np.minimum(peak, slope * intensity), label=f"{precision} products")
    for _, point in points.iterrows():
        color = axis.plot(point["ai"], point["attained_flops_per_s"], "o", fillstyle="none")
        axis.plot([point["ai"], point["ai_high"]], [point["attained_flops_per_s"]] * 2,
                  color=color[0].get_color(), linewidth=1)
        axis.annotate(f"{point['model']}, {point['batch_size']}, {point['precision']}",
                      (point["ai"], point["attained_flops_per_s"]), fontsize=7,
                      xytext=(3, 3), textcoords="offset points", parse_math=False)
    axis.set(xscale="log", yscale="log", xlabel="FLOP per byte", ylabel="FLOP/s",
             title=machine.env)
    if len(points):
        axis.legend(fontsize=7)


count = max(len(study.machines), 1)
figure, axes = plt.subplots(1, count, figsize=(6 * count, 4.5), squeeze=False)
for machine, axis in zip(study.machines, axes[0]):
    draw_roofline(machine, steps[steps["env"] == machine.env], axis)
figure.tight_layout()
plt.show()
"""

BATCH = """\
# images_processed / measured_iters / step_median_s of the middle run of each configuration
lines = {}
for case in cases(study):
    lines.setdefault(f"{case.family}, {case.env}", {})[case.batch_size] = case.samples_per_s
figure, axis = plt.subplots(figsize=(6, 4))
for name, line in lines.items():
    axis.plot(sorted(line), [line[size] for size in sorted(line)], marker="o", label=name)
axis.set(xscale="log", yscale="log", xlabel="batch size", ylabel="samples/s")
if len(study.runs):
    axis.legend(fontsize=7)
plt.show()
"""


def write_notebook(study: Study, path: Path) -> Path:
    """Write the notebook; it finds the results folder by its place relative to `path`."""
    results = Path(relpath(study.results.resolve(), path.resolve().parent)).as_posix()
    atomic_write_text(path, to_json(notebook(study, results)), elsewhere=IN_RESULTS)
    return path


def notebook(study: Study, results: str) -> dict[str, Any]:
    """The notebook as JSON; `results` is the path of the results folder as its cells see it."""
    envs = [machine.env for machine in study.machines]
    title = counted(len(study.runs), "run") + (f" on {listed(envs)}" if envs else "")
    cells = [
        _text(f"# {markdown(title)}\n\n"
              "Everything below is read from the results folder. It needs ridgeline in the kernel"
              " that runs it."),
        _code(READ.format(results=results)),
        _text("## Runs\n\nA row per completed run. Times are in seconds, sizes in bytes."),
        _code(RUNS),
        _text("## Steps under their roofs\n\n`floor_s` is the least time that the roofs allow,"
              " `efficiency` is floor over time."),
        _code(POINTS),
        _code(ROOFLINE),
        _text("## Throughput and batch size"),
        _code(BATCH),
        _text("## What to fix first"),
        _code(FINDINGS),
    ]  # fmt: skip
    return {
        "cells": [{"id": f"cell-{n}", **cell} for n, cell in enumerate(cells)],
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": FORMAT,
        "nbformat_minor": MINOR,
    }


def _text(source: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": _lines(source)}


def _code(source: str) -> dict[str, Any]:
    return {
        "cell_type": "code",
        "execution_count": None,
        "metadata": {},
        "outputs": [],
        "source": _lines(source.rstrip("\n")),
    }


def _lines(source: str) -> list[str]:
    return source.splitlines(keepends=True)
