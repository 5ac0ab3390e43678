"""What the hardware did: counters of kernels, read here (captures/ reads those of elsewhere).

A step profiled here, in the order of the work:

request.py          what is asked
profiling.py        the whole of it (result.py: for the API; stored.py, outcome.py: what is kept)
metrics.py          the fewest metrics of a chip that answer        plan.py  what counting will take
by_cupti.py         the process of a model counts its own step; cupti/ is what goes on in it
by_ncu.py           Nsight Compute counts: ncu.py (probe.py: asks it), passes.py (groups of metrics)
workplace.py        where the processes work; sessions.py, and target.py, which runs a model in one
step_mark.py        in them: `profile_step`, the step that is looked at
marks.py            a number for every operator (operators.py: their names and numbers)
self_test.py        work of known size through the same path
traced.py joined.py checks.py   what two profilers saw, joined (kernel_names.py) and checked
"""
