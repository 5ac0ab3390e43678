"""What a device says about itself while it works: clocks, temperature, power, energy.

meter.py       the record of one meter (joules or watts, and of what), and of all of a device
meters.py      which meters there are here, with those of Apple chips and Jetson modules
sampler.py     reads them in a thread of its own, with a time for every reading
nvidia.py      NVIDIA GPUs, through NVML
cpu.py         clock and temperature of a CPU by the kernel, energy by RAPL
"""
