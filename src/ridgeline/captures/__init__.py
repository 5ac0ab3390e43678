"""Captures: kernels, their times and counters, from files of any profiler.

read.py           from paths to captures: the kind of a file, its reader, files of one capture
table.py          files as text; headers and rows of tables
csv_wide.py       tables with a row per kernel
csv_long.py       tables with a row per kernel and metric
text.py           the plain text of Nsight Compute; ncu_rep.py  its binary report
kineto.py         PyTorch and Kineto traces; nsys.py  kernel tables of nsys stats
normalise.py      names, units and decimal marks: texts to numbers in base units
ncu_messages.py   messages of the profiler, and reasons why it could not count
counters.py       kernels and counters as read, and from these to a capture and its warnings
quantities.py     from metrics to FLOPs, bytes and seconds, by metric_formulas.py
capture.py        the record and its totals; storage.py  captures in a results folder
"""

from ridgeline.captures.read import read_capture, read_captures

__all__ = ["read_capture", "read_captures"]
