"""How long a step takes and what it costs: the timed loop, phases, layers, energy, the process.

backends.py     CPU, CUDA and MPS behind one interface: wait, mark a moment, peak memory, profilers
step.py         one step of a workload, its batches on the device, settings, seeds
timing.py       marks at the ends of phases; warm-up and timed loop; rusage; how much a GPU works
layers.py       time of every module, and the table of it
energy.py       joules of a step, from readings of meters; layer_energy.py of a layer
measure_workload.py  all passes in their order; advice.py warnings
run_record.py   the record of a measurement and its tables; result.py what people get of it
isolation.py    a process per configuration; worker.py what it does, preload.py what it imports
"""
