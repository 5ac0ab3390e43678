"""What a machine is and what it can do.

describe.py    what is there: CPU, caches, memory, GPUs, drivers, libraries
doctor.py      what works here, and how to get what does not
datasheets.py  published figures of common devices, each with its source
ceiling.py     the records of a measured ceiling
sampling.py    how a ceiling is sampled: best, sustained, spread
cpu*.py cuda*.py mps.py   the measurements
measure.py     all ceilings of one machine
passport.py    a machine's ceilings as a file: written, read, compared
"""
