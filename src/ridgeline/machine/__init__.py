"""What a machine is and what it can do.

describe.py     what is there, by cpu.py and system.py (which has all ways to look)
doctor.py       what works here, and how to fix what does not
datasheets.py   published figures of common devices, each with its source
passport.py     a machine's ceilings as records and as a file; compare.py: two of them
energy_fit.py   what work costs in joules, fitted to loads
measure.py      all ceilings of one machine, by ceilings_cpu.py, ceilings_cuda.py; sampling.py: how
"""
