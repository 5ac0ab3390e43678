"""The main job: from a model to a report, stage by stage.

stages.py    what was done, cached, skipped or failed, and why
passport.py  the machine's ceilings: measured once, then kept and looked at again
counts.py    what models must do, stored beside the runs
counters.py  what the hardware did, where there is something to count with
batch.py     a batch size for those who name none
outputs.py   points, figures, page, report.md and tables of a results folder
module.py    the same for a module in a script or notebook
"""
