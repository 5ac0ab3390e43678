"""Captures: kernels, their times and counters, from files of any profiler.

read.py           from paths to captures: the kind of a file, its reader, files of one capture,
                  the binary report of Nsight Compute
table.py          files as text; headers and rows of tables
ncu_tables.py     tables and texts of Nsight Compute
traces.py         PyTorch and Kineto traces; kernel tables of nsys stats
normalise.py      names, units and decimal marks: texts to numbers in base units
ncu_messages.py   messages of the profiler, and reasons why it could not count
quantities.py     from metrics to FLOPs, bytes and seconds
capture.py        the records: joined, derived, summed and stored
"""

from ridgeline.captures.read import read_capture, read_captures

__all__ = ["read_capture", "read_captures"]
