"""What the hardware did: counters of kernels, read here or captured elsewhere.

capture.py          a capture: its kernels, and its totals
quantities.py       from metrics to FLOPs, bytes and seconds (tensor_counters.py: tensor cores)
reading/            files of profilers, whatever wrote them
keeping.py          imported captures in a results folder
"""
