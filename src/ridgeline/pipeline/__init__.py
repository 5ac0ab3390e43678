"""The main job: from a model to a report, stage by stage. Nothing in here prints.

cases.py      cases and their runner: measured in a process of their own or here, stored at once
max_batch.py  the largest batch that fits
machine.py    the machine's ceilings: measured once, then kept and looked at again
count.py      counts stored with the runs; a batch size if none is named
profile.py    what the hardware did, as a stage or alone
study.py      which runs of a folder are chosen, and their study
outputs.py    points, figures, page, report.md and tables of a results folder
stages.py     what was done, cached, skipped or failed, and why
analyze.py    all stages in their order

One job alone, for its command: count_models.py, export_model.py, import_captures.py,
train_model.py, measure_passport.py
"""
