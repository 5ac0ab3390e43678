"""Experiment matrices: every combination of models and settings, in stages, here or on Slurm.

matrix.py   the YAML file, checked whole before anything runs
plan.py     its stages as cases with an id, in the order in which they run
ledger.py   the folder of a sweep: which case is done, running or failed
shard.py    runs cases one after another; several shards share a sweep
slurm.py    job scripts, squeue and sinfo, as text
run.py      a sweep from its plan to its end: stages, executors, cancelling, tables
status.py   how far sweeps are
"""
