"""Captures: kernels, their times and counters, from files of any profiler.

read.py           from paths to captures; storage.py  captures in a results folder
detect.py         the kind of a file, by its content
text_io.py        files as text; table.py  headers and rows of tables
csv_wide.py       tables with a row per kernel
csv_long.py       tables with a row per kernel and metric
text.py           the plain text of Nsight Compute; ncu_rep.py  its binary report
kineto.py         PyTorch and Kineto traces; nsys.py  kernel tables of nsys stats
normalise.py      names, units and decimal marks: texts to numbers in base units
counters.py       kernels and counters as read; reading_log.py  messages of the profiler
join.py           several files of one capture
to_capture.py     a capture and its warnings; capture.py  the record and its totals
quantities.py     from metrics to FLOPs, bytes and seconds
counter_ways.py   the metrics of each quantity (tensor_counters.py: of tensor cores)
ncu_errors.py     reasons why Nsight Compute could not count
"""

from ridgeline.captures.read import read_capture, read_captures

__all__ = ["read_capture", "read_captures"]
