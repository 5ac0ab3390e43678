"""The library that PyTorch has loaded, and what it refuses."""

from pathlib import Path

import pytest
from tests.profile.cupti.fake_library import FakeLibrary

from ridgeline.profile.cupti import library
from ridgeline.profile.cupti.library import Cupti, RefusedError, loaded_cupti, loaded_path
from ridgeline.profile.cupti.structures import Initialize

MAPS = """\
7f1200000000-7f1200400000 r--p 00000000 08:01 1234   /usr/lib/x86_64-linux-gnu/libc.so.6
7f1300000000-7f1300100000 r--p 00000000 08:01 4711   /opt/my env/nvidia/cu13/lib/libcupti.so.13
7f1300100000-7f1300200000 r-xp 00100000 08:01 4711   /opt/my env/nvidia/cu13/lib/libcupti.so.13
"""


def test_the_library_is_the_one_that_is_loaded() -> None:
    assert loaded_path(MAPS) == "/opt/my env/nvidia/cu13/lib/libcupti.so.13"
    assert loaded_path(MAPS.replace("cupti", "other")) is None


@pytest.mark.parametrize("maps", ["", MAPS.replace("cupti", "other")])
def test_a_pytorch_without_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, maps: str) -> None:
    if maps:
        (tmp_path / "maps").write_text(maps)
    monkeypatch.setattr(library, "MAPS", tmp_path / "maps")
    with pytest.raises(RefusedError, match="this PyTorch comes without CUPTI"):
        loaded_cupti()


def test_one_that_is_too_old(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "maps").write_text(MAPS)
    monkeypatch.setattr(library, "MAPS", tmp_path / "maps")
    monkeypatch.setattr("ctypes.CDLL", lambda path: object())
    with pytest.raises(RefusedError, match="older than its range profiler"):
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
