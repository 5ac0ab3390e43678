"""What a step does: the timed loop, its split, layers, energy, process statistics.

settings.py     what can be asked
backends.py     CPU, CUDA and MPS behind one interface: wait, mark a moment, peak memory
precision.py    number formats, and the fallback where a device lacks one
placement.py    batches to the device; tensors.py finds tensors in whatever a module takes
step.py         one step of a workload; marks.py the marks at the ends of its phases
timing.py       warm-up and timed loop; statistics.py samples to summaries; process.py rusage
kernels.py      how much of a step a GPU works; covered.py when at least one kernel does
layers.py       time of every module; layer_table.py as a table
energy.py       joules of a step; energy_window.py, power_maths.py, power_table.py: its parts
layer_repeats.py  joules of every layer; layer_energy.py of one, by repetition
measurement.py  all of that in its order; advice.py what a reader should know
found.py        a measurement as plain values; result.py what `ridgeline.measure` returns
isolation.py    a process per configuration; tasks.py, worker.py, preload.py: what it does
randomness.py   seeds, states of generators, algorithms that repeat themselves
profiler_mark.py  one whole step, marked for Nsight
"""
