"""What calls of CUPTI take, against NVIDIA's headers: sizes by hand, and field by field."""

import ctypes
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from ridgeline.profile.cupti import PARAMETERS, CallbackData, structure_of

STRUCTURES = {  # …_Params of the headers of CUDA 13.0, and its …_STRUCT_SIZE on x86-64
    "cuptiProfilerInitialize": ("Profiler_Initialize", 16),
    "cuptiDeviceGetChipName": ("Device_GetChipName", 32),
    "cuptiProfilerGetCounterAvailability": ("Profiler_GetCounterAvailability", 40),
    "cuptiProfilerHostInitialize": ("Profiler_Host_Initialize", 48),
    "cuptiProfilerHostDeinitialize": ("Profiler_Host_Deinitialize", 24),
    "cuptiProfilerHostGetBaseMetrics": ("Profiler_Host_GetBaseMetrics", 48),
    "cuptiProfilerHostConfigAddMetrics": ("Profiler_Host_ConfigAddMetrics", 40),
    "cuptiProfilerHostGetConfigImageSize": ("Profiler_Host_GetConfigImageSize", 32),
    "cuptiProfilerHostGetConfigImage": ("Profiler_Host_GetConfigImage", 40),
    "cuptiProfilerHostGetNumOfPasses": ("Profiler_Host_GetNumOfPasses", 40),
    "cuptiRangeProfilerEnable": ("RangeProfiler_Enable", 32),
    "cuptiRangeProfilerDisable": ("RangeProfiler_Disable", 24),
    "cuptiRangeProfilerStart": ("RangeProfiler_Start", 24),
    "cuptiRangeProfilerGetCounterDataSize": ("RangeProfiler_GetCounterDataSize", 64),
    "cuptiRangeProfilerCounterDataImageInitialize": (
        "RangeProfiler_CounterDataImage_Initialize",
        40,
    ),
    "cuptiRangeProfilerSetConfig": ("RangeProfiler_SetConfig", 90),
    "cuptiRangeProfilerStop": ("RangeProfiler_Stop", 41),
    "cuptiRangeProfilerDecodeData": ("RangeProfiler_DecodeData", 32),
    "cuptiRangeProfilerGetCounterDataInfo": ("RangeProfiler_GetCounterDataInfo", 40),
    "cuptiProfilerHostEvaluateToGpuValues": ("Profiler_Host_EvaluateToGpuValues", 72),
}
TYPES = {
    "size_t": ctypes.c_size_t, "uint8_t": ctypes.c_uint8, "uint16_t": ctypes.c_uint16,
    "uint32_t": ctypes.c_uint32, "CUcontext": ctypes.c_void_p,
}  # fmt: skip


@pytest.mark.parametrize("name", STRUCTURES)
def test_a_structure_says_the_size_of_the_headers(name: str) -> None:
    assert structure_of(name)[1] == STRUCTURES[name][1]


def test_every_function_is_tested() -> None:
    assert PARAMETERS.keys() == STRUCTURES.keys()


@pytest.mark.parametrize("name", [*STRUCTURES, "CallbackData"])
def test_fields_lie_where_the_headers_of_this_pytorch_have_them(name: str) -> None:
    is_callback = name == "CallbackData"
    theirs = "CUpti_CallbackData" if is_callback else f"CUpti_{STRUCTURES[name][0]}_Params"
    their_fields = fields_of(theirs)
    ours = CallbackData if name == "CallbackData" else structure_of(name)[0]
    names = [field[0] for field in ours._fields_]
    layout = [(getattr(ours, one).offset, getattr(ours, one).size) for one in names]
    # a later version may have more of them behind ours
    assert layout == their_fields[: len(layout)]


def fields_of(structure: str) -> list[tuple[int, int]]:
    """Offset and size of the fields of a structure in NVIDIA's headers."""
    found = find_spec("nvidia")
    folders = list(found.submodule_search_locations or ()) if found is not None else []
    headers = [path for folder in folders for path in Path(folder).glob("*/include/cupti*.h")]
    if not headers:
        pytest.skip("this PyTorch comes without the headers of CUPTI")
    text = "\n".join(path.read_text(encoding="utf-8", errors="replace") for path in headers)
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.DOTALL)
    body = re.search(rf"typedef struct(?: \w+)?\s*{{([^{{}}]*)}}\s*{structure}\s*;", text)
    assert body is not None, structure
    declared = [one.split() for one in body[1].split(";") if one.strip()]
    kinds = [
        ctypes.c_void_p if "*" in " ".join(words) else TYPES.get(words[-2], ctypes.c_int)
        for words in declared
    ]

    fields = [(f"f{number}", kind) for number, kind in enumerate(kinds)]
    Theirs = type("Theirs", (ctypes.Structure,), {"_fields_": fields})  # noqa: N806
    places = [getattr(Theirs, f"f{number}") for number in range(len(kinds))]
    return [(place.offset, place.size) for place in places]
