"""Static cost of a model: FLOPs, bytes, parameters and memory, without running any arithmetic.

counting.py   a model's name or a module → CountResult: traced, then the formulas applied
meta.py       models and inputs without data
step.py       one step run under the tracer
trace.py      the tracer; values.py, dispatch_overrides.py, autocast.py and backward.py help it
call.py       one operator call, as formulas see it
formulas/     operator → cost, by family, from the formulas in costs/
cost_records.py  records of a count; result.py the result, and its table by module
fused.py      bytes if each tensor moved once
memory.py     live bytes and storage ids; settings.py how to count
growth.py     how cost grows with batch and input size; the largest batch that fits
"""
