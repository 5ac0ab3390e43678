"""The main job: from a model to a report, stage by stage. Nothing in here prints.

cases.py         cases and their runner: measured in a process of their own or here, stored at once
machine.py       the machine's ceilings: measured once, then kept and looked at again
count_models.py  counts of models and of stored runs; a batch size if none is named
profile.py       what the hardware did, as a stage or alone
outputs.py       the study of the runs that are chosen; points, figures, page, report.md, tables
analyze.py       all stages in their order: done, cached, skipped or failed, and why

One job alone, for its command: export_model.py, import_captures.py, train_model.py
"""
