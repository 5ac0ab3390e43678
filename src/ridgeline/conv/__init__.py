"""Convolutions under every algorithm: distinct by construction, verified, timed.

    algorithms.py  what an algorithm is; direct, gemm, winograd and fft for a CPU
    cudnn.py       the forward algorithms of the cuDNN that torch ships, by ctypes; the plans of
                   its graph interface; the direct one is a kernel of machine/cuda_kernels.py
    network.py     the convolutions of a network; modules that run under an algorithm
    measuring.py   one shape under every algorithm: verified, timed, with what ran

It stands before `measure`, whose step runs a network under an algorithm.
"""
