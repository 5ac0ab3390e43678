"""Figures for a paper, from what a study holds. See docs/figures.md.

write.py          `write_figures`: which figures a study allows, and their files; one as one file
machine_views.py  a machine with its runs and points; runs of the same settings as one
rooflines.py      the drawer: slopes, flat roofs, ridges and marks
labels.py         texts that keep clear of each other, of marks and of lines
style.py          size, fonts, colours, marks, ticks, legend
captions.py       sentences that several captions share

steps.py          steps under the roofs, as the batch grows, and on several machines
parts.py          layers, kernels, memory levels and phases under the roofs
timing.py         compute time against memory time, with the launch floor
step_times.py     samples per second against the batch; bars of step times
"""

from ridgeline.report.figures.write import KINDS, Figure, write_figure, write_figures

__all__ = ["KINDS", "Figure", "write_figure", "write_figures"]
