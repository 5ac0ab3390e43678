"""What the hardware did: counters of kernels, read here (captures/ reads those of elsewhere).

request.py          records: the request, the plan, the profiled step
profiling.py        the order: trace, plan, count, join; storage.py: what a results folder keeps
metrics.py          the metrics of a chip that are counted
capture_cupti.py    the process of a model counts its own step, by cupti.py
capture_ncu.py      Nsight Compute counts, a process for each group of metrics
processes.py        the processes of a profile; model_process.py runs a model in one
profile_step.py     in them: the step that is profiled; op_ranges.py: a number for every operator
self_test.py        work of known size through the same path
step_kernels.py     the trace and the counters of a step, joined and checked
"""
