"""Counters read by the process that takes the step, through CUPTI: nobody stands around it.

PyTorch brings the library, so that Nsight Compute need not be there. The chip's counters are set up
once for all kernels, not anew for each as ncu does, and the step is run once for every pass: a
kernel costs a millisecond and not twenty, and nothing is saved and restored.

structures.py       what its calls take
range_profiler.py   the library, what is launched in order, and the counters of every launch
messages.py         what the process tells its parent: the plan, the counted kernels, or a refusal
"""
