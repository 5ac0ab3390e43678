"""The main job: from a model to a report, stage by stage.

stages.py     what was done, cached, skipped or failed, and why
machine.py    the machine's ceilings: measured once, then kept and looked at again
count.py      what models must do, stored beside the runs; a batch size if none is named
max_batch.py  the largest batch that fits
profile.py    what the hardware did, where there is something to count with
outputs.py    points, figures, page, report.md and tables of a results folder
analyze.py    all stages in one process, for a script or notebook
"""
