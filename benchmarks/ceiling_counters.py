"""Run each kernel behind a GPU's ceilings once, for Nsight Compute to count what it really does.

Not part of `make bench`: it needs an NVIDIA GPU and ncu. From the project's root:

    ncu --profile-from-start off --clock-control none --csv --page raw --metrics METRICS \\
        python -m benchmarks.ceiling_counters

with METRICS such as dram__bytes_read.sum,dram__bytes_write.sum,lts__t_sectors_srcunit_tex.sum,
l1tex__t_bytes.sum,sm__ops_path_tensor_src_fp16.sum. It prints the work that ridgeline takes for
each kernel, in the order they run; docs/results/h200-ceilings.md holds such a comparison.
"""

from __future__ import annotations

from collections.abc import Iterator

L2_SHARE = 4  # the L2 kernels work on this part of the cache
DRAM_TIMES = 32  # and the DRAM kernels on so many times the cache
PRODUCT = 4096


def launches(device: int) -> Iterator[tuple[str, object, int]]:
    """Name, call and work of every kernel."""
    import torch

    from ridgeline.machine import ceilings_cuda as cuda
    from ridgeline.machine import cuda_kernels as kernels

    l2_bytes = torch.cuda.get_device_properties(device).L2_cache_size
    inside, outside = l2_bytes // L2_SHARE, DRAM_TIMES * l2_bytes
    plain = {
        "dram read": kernels.stream("read", device, outside, rounds=1),
        "dram copy": kernels.stream("copy", device, outside, rounds=1),
        "dram triad": kernels.stream("triad", device, outside, rounds=1),
        "l2 read": kernels.stream("read", device, inside, rounds=64),
        "l2 copy": kernels.stream("copy", device, inside // 2, rounds=64),
        "l2 triad": kernels.stream("triad", device, inside // 3, rounds=64),
        "l1 read": kernels.read_l1(device, 32 << 10),
    }
    for precision, dtype in cuda.VECTOR:
        launch = kernels.fma_chain(getattr(torch, dtype), device)
        yield f"{precision} vector", launch.call, launch.work
    for name, launch in plain.items():
        yield name, launch.call, launch.work
    for product in cuda.PRODUCTS:
        call = product.make(torch, PRODUCT, PRODUCT, PRODUCT, f"cuda:{device}")
        yield f"{product.precision} matrix", call, 2 * PRODUCT**3


def main() -> None:
    import torch

    control = torch.cuda.cudart()
    for name, call, work in launches(0):
        assert callable(call)
        call()  # compiled and warm before the counters start
        torch.cuda.synchronize()
        control.cudaProfilerStart()
        call()
        torch.cuda.synchronize()
        control.cudaProfilerStop()
        print(f"{name}: {work}")


if __name__ == "__main__":
    main()
