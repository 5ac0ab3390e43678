"""Figures for a paper, from what a study holds. See docs/figures.md.

write.py         `write_figures`: which figures a study allows, and their files; one as one file
figure.py        the records: a figure on paper, a drawing before it is saved
subjects.py      a machine with what ran there, and a file name for it
configurations.py  runs of the same settings as one, with a short name
style.py         size, fonts, colours, marks, ticks, legend
board.py         texts that keep clear of each other, of marks and of lines
roofs.py         slopes, flat roofs and ridges, labelled on the line
marks.py         points: hollow or filled, with their range, their flag and their name
words.py         sentences that several captions share

classic.py       steps, layers and kernels under the roofs
hierarchical.py  a mark for each memory level
timing.py        compute time against memory time, with the launch floor
training.py      forward, backward, its two halves, and the optimizer
batch.py         the way of a step under the roofs as its batch grows
machines.py      several machines in one picture
throughput.py    samples per second against the batch
runtime.py       bars of step times
"""

from ridgeline.report.figures.figure import KINDS, Figure
from ridgeline.report.figures.write import write_figure, write_figures

__all__ = ["KINDS", "Figure", "write_figure", "write_figures"]
