"""A program with one tiny kernel, for asking Nsight Compute things: it starts in an instant.

Run as a script under ncu, it multiplies and adds a million numbers through the driver alone: no
torch, no compiler. What the kernel computes does not matter, only that it runs. Exit code 3: there
is no driver or no device.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

THREADS, BLOCKS = 256, 4096
NO_DEVICE = 3
PTX = b"""
.version 6.0
.target sm_52
.address_size 64
.visible .entry ridgeline_probe(.param .u64 numbers)
{
    .reg .b32 %r<5>;
    .reg .b64 %rd<4>;
    .reg .f32 %f<3>;
    ld.param.u64 %rd1, [numbers];
    cvta.to.global.u64 %rd1, %rd1;
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.s32 %r4, %r1, %r2, %r3;
    mul.wide.s32 %rd2, %r4, 4;
    add.s64 %rd3, %rd1, %rd2;
    ld.global.f32 %f1, [%rd3];
    fma.rn.f32 %f2, %f1, %f1, %f1;
    st.global.f32 [%rd3], %f2;
    ret;
}
\0"""


class DriverError(Exception):
    """A call that the driver refused."""


def main(device: int = 0) -> None:
    """Launch the kernel once on a device."""
    driver = ctypes.CDLL("libcuda.so.1")
    handle, context, module, function = (ctypes.c_void_p() for _ in range(4))
    numbers = ctypes.c_uint64()
    ordinal = ctypes.c_int()
    _call(driver, "cuInit", 0)
    _call(driver, "cuDeviceGet", ctypes.byref(ordinal), device)
    _call(driver, "cuDevicePrimaryCtxRetain", ctypes.byref(context), ordinal)
    _call(driver, "cuCtxSetCurrent", context)
    _call(driver, "cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(PTX))
    _call(driver, "cuModuleGetFunction", ctypes.byref(function), module, b"ridgeline_probe")
    _call(driver, "cuMemAlloc_v2", ctypes.byref(numbers), ctypes.c_size_t(4 * THREADS * BLOCKS))
    arguments = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(numbers), ctypes.c_void_p))
    sizes = (BLOCKS, 1, 1, THREADS, 1, 1, 0)
    _call(driver, "cuLaunchKernel", function, *sizes, handle, arguments, None)
    _call(driver, "cuCtxSynchronize")


def _call(driver: Any, name: str, *arguments: Any) -> None:
    code = getattr(driver, name)(*arguments)
    if code != 0:
        raise DriverError(f"{name} gave {code}")


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    except (OSError, DriverError) as error:
        sys.stderr.write(f"ridgeline: no device for counters: {error}\n")
        sys.exit(NO_DEVICE)
