"""What a step does: the timed loop, its split, layers, energy, process statistics, real training.

backends.py   CPU, CUDA and MPS behind one interface: wait, mark a moment, peak memory
precision.py  number formats, and the fallback where a device lacks one
energy.py     joules of a step, by what meters there are; layer_energy.py by repetition

training.py   real training, an epoch at a time; train_loop.py all of it, with checkpoints
batches.py, schedule.py, randomness.py, train_records.py, checkpoints.py: its parts
profiler_mark.py  one whole step, marked for Nsight
"""
