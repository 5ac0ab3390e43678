"""Calls of CUPTI, launches and counters of every kernel, with a stand-in for the library."""

from __future__ import annotations

import ctypes
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tests.profile.fake_cupti import FakeLibrary

from ridgeline.machine.system import NoCuptiError
from ridgeline.profile import cupti as range_profiler
from ridgeline.profile.cupti import (
    GRAPH_LAUNCHES,
    LAUNCHES,
    PARAMETERS,
    CallbackData,
    Chip,
    Cupti,
    Launch,
    LaunchLog,
    RangeCounters,
    RefusedError,
    loaded_cupti,
    structure_of,
)


def test_what_a_later_version_writes_behind_a_structure_hurts_nobody() -> None:
    # given a library that clears a field that ours does not have, as CUPTI 13.2 does
    class Later:
        def cuptiProfilerHostInitialize(self, asked: Any) -> int:  # noqa: N802
            end = ctypes.addressof(asked._obj) + ctypes.sizeof(structure)
            ctypes.memset(end, 0, 64)
            asked._obj.host = 7
            return 0

    structure, _ = structure_of("cuptiProfilerHostInitialize")
    found = Cupti(Later()).call("cuptiProfilerHostInitialize", chip=b"GH100")
    # then that was in the room behind it
    assert (found.host, found.chip) == (7, b"GH100")
    assert ctypes.sizeof(structure) + 64 <= range_profiler.SPARE_BYTES


def test_none_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> ctypes.CDLL:
        raise NoCuptiError("this PyTorch comes without CUPTI")

    monkeypatch.setattr(range_profiler, "loaded_library", none)
    with pytest.raises(RefusedError, match="this PyTorch comes without CUPTI"):
        loaded_cupti()


def test_a_refusal_has_the_name_of_its_code() -> None:
    refused = Cupti(FakeLibrary(refuses="cuptiProfilerInitialize"))
    with pytest.raises(
        RefusedError, match="cuptiProfilerInitialize answers CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"
    ):
        refused.call("cuptiProfilerInitialize")
    unknown = Cupti(FakeLibrary(refuses="cuptiProfilerInitialize", code=999))
    with pytest.raises(RefusedError, match="answers error 999"):
        unknown.call("cuptiProfilerInitialize")


def test_each_launch_is_heard_once_with_its_innermost_range() -> None:
    library, log = FakeLibrary(), LaunchLog()
    library.launch("unheard")
    # when kernels are launched in ranges and outside of them
    with log.listening(Cupti(library)):
        library.launch("bare")
        with log.range("outer"):
            library.launch("one")
            with log.range("inner"):
                library.launch("two", LAUNCHES["cuLaunchKernelEx"][0])
            library.launch("three")
    library.launch("unheard")
    # then all of them are told, and none twice
    expected = [("bare", ""), ("one", "outer"), ("two", "inner"), ("three", "outer")]
    assert log.take() == [Launch(*one) for one in expected]
    assert log.take() == []


def test_graphs_are_counted_apart() -> None:
    library, log = FakeLibrary(), LaunchLog()
    with log.listening(Cupti(library)):
        library.launch("", GRAPH_LAUNCHES[0])
    assert log.graphs == 1


ENOUGH = 10**9


def chip_of(library: FakeLibrary) -> Chip:
    return Chip.of(Cupti(library), context=1, device=0)


def test_each_kernel_has_its_values_after_the_last_pass() -> None:
    # given two metrics, which take two passes
    library = FakeLibrary()
    counters = RangeCounters(chip_of(library), ["dram__bytes_read.sum", "dram__bytes_write.sum"])
    assert counters.passes == 2
    # when three kernels run in each
    with counters.enabled(most_ranges=10, most_bytes=ENOUGH):
        for is_last in (False, True):
            counters.start()
            for name in ("a", "b", "c"):
                library.launch(name)
            assert counters.stop() is is_last
        values = counters.values()
    # then each has both
    assert values == [[0, 1], [100, 101], [200, 201]]
    assert library.asked[-1] == "cuptiRangeProfilerDisable"


def test_more_kernels_than_there_is_room_for() -> None:
    library = FakeLibrary()
    counters = RangeCounters(chip_of(library), ["dram__bytes_read.sum"])
    with (
        pytest.raises(RefusedError, match="1 kernels more were launched than the step has"),
        counters.enabled(most_ranges=1, most_bytes=ENOUGH),
    ):
        counters.start()
        library.launch("a")
        library.launch("b")
        counters.stop()
        counters.values()


# ---------------------------------------------------------------- cupti structures

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
