"""What the hardware did: counters of kernels, read here or captured elsewhere.

A step profiled here, in the order of the work:

request.py          what is asked
profiling.py        the whole of it (result.py: for the API; stored.py, outcome.py: what is kept)
ncu.py  metrics.py  Nsight Compute, and the fewest of its metrics that answer (probe.py: asks it)
ncu_errors.py       what it means when it could not, and what to do
passes.py  plan.py  metrics in groups of one pass, and what counting them will take
sessions.py         the processes; target.py runs a model in one
step_mark.py        in them: `profile_step`, the step that is looked at
marks.py            a number for every operator (operators.py: their names and numbers)
self_test.py        work of known size through the same path
traced.py joined.py checks.py   what two profilers saw, joined and checked

Captures, from here or elsewhere:

capture.py          a capture: its kernels, and its totals
quantities.py       from metrics to FLOPs, bytes and seconds
counter_ways.py     which metrics tell them (tensor_counters.py: of tensor cores)
reading/            files of profilers, whatever wrote them
keeping.py          captures in a results folder
"""
