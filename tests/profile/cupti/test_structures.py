"""What calls of CUPTI take, against the sizes that its headers give."""

import pytest

from ridgeline.profile.cupti import structures

SIZES = {  # …_STRUCT_SIZE of the headers of CUDA 13.0, compiled for x86-64
    "Initialize": 16,
    "ChipName": 32,
    "Availability": 40,
    "HostInitialize": 48,
    "HostDeinitialize": 24,
    "BaseMetrics": 48,
    "AddMetrics": 40,
    "ConfigSize": 32,
    "Config": 40,
    "Passes": 40,
    "Enable": 32,
    "OfProfiler": 24,
    "DataSize": 64,
    "InitializeData": 40,
    "SetConfig": 90,
    "Stop": 41,
    "Decode": 32,
    "DataInfo": 40,
    "Evaluate": 72,
}


@pytest.mark.parametrize(("name", "size"), SIZES.items())
def test_a_structure_says_the_size_of_the_headers(name: str, size: int) -> None:
    parameters = getattr(structures, name)()
    parameters.measured()
    assert parameters.own_size == size


def test_fields_lie_where_the_headers_have_them() -> None:
    wanted, heard = structures.SetConfig, structures.CallbackData
    places = [getattr(wanted, name).offset for name in ("most_ranges", "pass_index")]
    assert (places, wanted.target_level.offset, heard.symbol.offset) == ([64, 80], 88, 32)
