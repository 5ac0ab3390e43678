"""Static cost of a model: FLOPs, bytes, parameters and memory, without running any arithmetic.

counting.py   the way in: a model's name or a module → CountResult
meta.py       models and inputs without data
step.py       one step run under the tracer
trace.py      the tracer; values.py, routes.py, autocast.py, modules.py, checkpoints.py,
              backward.py and owners.py help it
call.py       one operator call, what formulas see
formulas/     operator → cost, by family; per_element.py the numbers that onnx/ has too
evaluate.py   traced calls + formulas → costs
result.py     the answer; layers.py is its table by module
memory.py     what is alive when; storages.py which storage is which
parts.py      what the answer is made of; settings.py how to count
growth.py     how cost grows with batch and input size; capacity.py the largest batch
"""
