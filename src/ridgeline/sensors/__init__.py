"""What a device says about itself while it works: clocks, temperature, power, energy.

meters.py      which meters there are here: of a CPU by the kernel, of Jetson modules
sampler.py     the records of meters; reads them in a thread of its own, with a time for each
nvidia.py      NVIDIA GPUs, through NVML
"""
