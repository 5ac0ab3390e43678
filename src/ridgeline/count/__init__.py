"""Static cost of a model: FLOPs, bytes, parameters and memory, without running any arithmetic.

counting.py   a model's name or a module → CountResult: traced, then the formulas applied
meta.py       models and inputs without data, and the small values that are known all the same
step.py       one step run under the tracer, and what went wrong in it
trace.py      the tracer; dispatch.py and backward.py help it
call.py       one operator call, as formulas see it, and their registry
formulas/     operator → cost, by family, from the formulas in costs/
records.py    records of a count, and how to count; result.py the result, its table by module
fused.py      bytes if each tensor moved once
memory.py     live bytes and storage ids
growth.py     how cost grows with batch and input size
capacity.py   the largest batch that fits into a memory
"""
