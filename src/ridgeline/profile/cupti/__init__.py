"""Counters read by the process that takes the step, through CUPTI: nobody stands around it.

PyTorch brings the library, so that Nsight Compute need not be there. The chip's counters are set up
once for all kernels, not anew for each as ncu does, and the step is run once for every pass: a
kernel costs a millisecond and not twenty, and nothing is saved and restored.

structures.py  what its calls take        library.py  the library and its refusals
launches.py    what is launched, in order        ranges.py  the counters of every launch
inside.py      the process that counts: warm-up, work of known size, the step
told.py        on the other side: its plan, and the kernels it has counted
"""
