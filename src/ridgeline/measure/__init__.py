"""How long a step takes and what it costs: the timed loop, phases, layers, energy, the process.

backends.py     CPU, CUDA and MPS behind one interface: wait, mark a moment, peak memory
precision.py    number formats, and the fallback where a device lacks one
tensors.py      tensors in whatever a module takes; batches to the device
step.py         one step of a workload; marks.py the marks at the ends of its phases
timing.py       warm-up and timed loop; statistics.py samples to summaries; process.py rusage
kernels.py      how much of a step a GPU works
layers.py       time of every module, and the table of it
energy.py       joules of a step; power.py the arithmetic on readings; layer_energy.py of a layer
measure_workload.py  all passes in their order; measurement.py their record; advice.py warnings
run_record.py   the record of a measurement; result.py what `ridgeline.measure` returns
isolation.py    a process per configuration; worker.py what it does, preload.py what it imports
randomness.py   seeds, states of generators, algorithms that repeat themselves
profiler_mark.py  one whole step, marked for Nsight
"""
