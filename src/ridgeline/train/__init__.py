"""Real training: epochs of steps on CIFAR-10 or made-up images, with checkpoints between them.

records.py      settings, learning rates, and the results of an epoch and of a training
trainer.py      one training: its batches, steps, epochs and state; one step marked for a profiler
checkpoints.py  that state in files that are whole or absent
"""
