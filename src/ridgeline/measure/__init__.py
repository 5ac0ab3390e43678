"""What a step does: the timed loop, its split, layers, energy, process statistics, real training.

backends.py   CPU, CUDA and MPS behind one interface: wait, mark a moment, peak memory
precision.py  number formats, and the fallback where a device lacks one
energy.py     joules of a step, by what meters there are; layer_energy.py by repetition
"""
