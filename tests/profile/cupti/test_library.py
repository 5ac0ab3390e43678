"""Calls of the library, and what it refuses."""

import ctypes
from typing import Any

import pytest
from tests.profile.cupti.fake_library import FakeLibrary

from ridgeline.machine.profilers import NoCuptiError
from ridgeline.profile.cupti import library
from ridgeline.profile.cupti.library import Cupti, RefusedError, loaded_cupti
from ridgeline.profile.cupti.structures import HostInitialize, Initialize


def test_what_a_later_version_writes_behind_a_structure_hurts_nobody() -> None:
    # given a library that clears a field that ours does not have, as CUPTI 13.2 does
    class Later:
        def cuptiProfilerHostInitialize(self, asked: Any) -> int:  # noqa: N802
            end = ctypes.addressof(asked._obj) + ctypes.sizeof(HostInitialize)
            ctypes.memset(end, 0, 64)
            asked._obj.host = 7
            return 0

    given = HostInitialize(chip=b"GH100")
    found = Cupti(Later()).call("cuptiProfilerHostInitialize", given)
    # then that was in memory of its own, not in ours
    assert (found.host, found.chip, given.host) == (7, b"GH100", None)
    assert ctypes.sizeof(HostInitialize) + 64 <= library.ROOM_BYTES


def test_one_without_a_function() -> None:
    with pytest.raises(RefusedError, match="this CUPTI has no cuptiProfilerInitialize"):
        Cupti(object()).call("cuptiProfilerInitialize", Initialize())


def test_none_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> ctypes.CDLL:
        raise NoCuptiError("this PyTorch comes without CUPTI")

    monkeypatch.setattr(library, "loaded_library", none)
    with pytest.raises(RefusedError, match="this PyTorch comes without CUPTI"):
        loaded_cupti()


def test_its_version() -> None:
    assert Cupti(FakeLibrary()).version == 130001


def test_a_refusal_has_the_name_of_its_code() -> None:
    refused = Cupti(FakeLibrary(refuses="cuptiProfilerInitialize"))
    with pytest.raises(
        RefusedError, match="cuptiProfilerInitialize answers CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"
    ):
        refused.call("cuptiProfilerInitialize", Initialize())
    unknown = Cupti(FakeLibrary(refuses="cuptiProfilerInitialize", code=999))
    with pytest.raises(RefusedError, match="answers error 999"):
        unknown.call("cuptiProfilerInitialize", Initialize())
