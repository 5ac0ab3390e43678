"""Reading captures, made here or elsewhere.

detect.py         what a file is, by its content
opening.py        files as text: packed, in any encoding, pasted somewhere (prefixes.py)
header.py         the first line of a table
wide.py  long.py  tables of Nsight Compute: a row per kernel; a row per kernel and metric
wide_pieces.py    the rows of a wide table, quickly or with care; turned.py  one turned round
sections.py       its plain text
report.py         its binary report, through its own library (report_worker.py) or program
kineto.py         PyTorch and Kineto traces (traces.py)        nsys.py  kernel tables of nsys stats
decimals.py  evidence.py  metric_units.py  display_names.py   numbers, units, names of any version
unitless.py       metrics without a unit
named_metrics.py  launches.py  source.py  log.py    what is gathered on the way
assemble.py       quantities and remarks; soundness.py, repeated.py  what is left out before
tensor_names.py   tensor cores that nobody counted      plausible.py  what no GPU can do
counters.py  joining.py    kernels and their counters; several files of one capture
files.py          the way through all of them
"""

from ridgeline.profile.reading.files import read_capture, read_captures, read_ncu_csv

__all__ = ["read_capture", "read_captures", "read_ncu_csv"]
