"""What the hardware did: counters of kernels, read here (captures/ reads those of elsewhere).

request.py          records: the request, the metrics of a chip, the plan, the profiled step
profiling.py        the order: trace, plan, count, join; what a results folder keeps
counting.py         who counts: the step's own process by cupti.py, or Nsight Compute around several
processes.py        the processes of a profile; model_process.py runs a model in one
profile_step.py     in them: the step that is profiled; op_ranges.py: a number for every operator
count_calls.py      counters of single calls: convolutions, loads of known work
step_kernels.py     the trace and the counters of a step, joined and checked
"""
