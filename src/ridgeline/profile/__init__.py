"""What the hardware did: counters of kernels, read here (captures/ reads those of elsewhere).

request.py          records: the request, the plan, the profiled step
profiling.py        the order: trace, plan, count, join; storage.py: what a results folder keeps
metrics.py          the metrics of a chip that are counted
capture_cupti.py    the process of a model counts its own step; cupti/ runs in it
capture_ncu.py      Nsight Compute counts, a process for each group of metrics
processes.py        the processes of a profile; model_process.py runs a model in one
step_mark.py        in them: `profile_step`, the step that is profiled
marks.py            a number for every operator (operators.py: their names and numbers)
self_test.py        work of known size through the same path
trace.py join_counters.py checks.py   the trace and the counters, joined and checked
"""
