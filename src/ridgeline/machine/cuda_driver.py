"""List the devices that the CUDA driver shows, in its order; run as a script, prints JSON.

Only the driver knows the order: it depends on CUDA_VISIBLE_DEVICES, on CUDA_DEVICE_ORDER and, by
default, on which device it takes for the fastest. It also knows what NVML does not tell: the L2.
This runs in a process of its own, because a process that has started CUDA can no longer be forked;
it needs the standard library only and creates no context.
"""

from __future__ import annotations

import ctypes
import json
import sys
from typing import Any
from uuid import UUID

LIBRARIES = {"linux": "libcuda.so.1", "win32": "nvcuda.dll"}
ATTRIBUTES = {  # of CUdevice_attribute, in cuda.h
    "compute_units": 16,
    "l2_bytes": 38,
    "capability_major": 75,
    "capability_minor": 76,
}


def list_devices(cuda: Any) -> dict[str, Any]:
    """Driver version and devices, from a loaded CUDA driver library; or what it refused."""
    status = cuda.cuInit(0)
    if status:
        return {"error": f"cuInit answered {status}"}
    version, count = ctypes.c_int(), ctypes.c_int()
    cuda.cuDriverGetVersion(ctypes.byref(version))
    cuda.cuDeviceGetCount(ctypes.byref(count))
    return {
        "cuda_version": f"{version.value // 1000}.{version.value % 1000 // 10}",
        "devices": [_device(cuda, index) for index in range(count.value)],
    }


def _device(cuda: Any, index: int) -> dict[str, Any]:
    handle = ctypes.c_int()
    cuda.cuDeviceGet(ctypes.byref(handle), index)
    name = ctypes.create_string_buffer(256)
    cuda.cuDeviceGetName(name, 256, handle)
    raw = (ctypes.c_ubyte * 16)()
    # The second version tells a MIG slice from the device that it is a part of.
    get_uuid = getattr(cuda, "cuDeviceGetUuid_v2", None) or cuda.cuDeviceGetUuid
    get_uuid(ctypes.byref(raw), handle)
    memory = ctypes.c_size_t()
    cuda.cuDeviceTotalMem_v2(ctypes.byref(memory), handle)
    return {
        "index": index,
        "name": name.value.decode(errors="replace"),
        "uuid": str(UUID(bytes=bytes(raw))),
        "memory_bytes": memory.value,
        **{key: _attribute(cuda, number, handle) for key, number in ATTRIBUTES.items()},
    }


def _attribute(cuda: Any, number: int, handle: ctypes.c_int) -> int | None:
    value = ctypes.c_int()
    status = cuda.cuDeviceGetAttribute(ctypes.byref(value), number, handle)
    return None if status else value.value


def main() -> None:
    try:
        answer = list_devices(ctypes.CDLL(LIBRARIES.get(sys.platform, "libcuda.so.1")))
    except (OSError, AttributeError) as error:
        answer = {"error": str(error)}
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
