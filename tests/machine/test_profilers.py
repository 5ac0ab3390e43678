"""The CUPTI that PyTorch has loaded, from what /proc says of a process."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from ridgeline.machine import system
from ridgeline.machine.system import NoCuptiError, has_cupti, loaded_library, loaded_path

MAPS = """\
7f1200000000-7f1200400000 r--p 00000000 08:01 1234   /usr/lib/x86_64-linux-gnu/libc.so.6
7f1300000000-7f1300100000 r--p 00000000 08:01 4711   /opt/my env/nvidia/cu13/lib/libcupti.so.13
7f1300100000-7f1300200000 r-xp 00100000 08:01 4711   /opt/my env/nvidia/cu13/lib/libcupti.so.13
"""


def test_the_library_is_the_one_that_is_loaded() -> None:
    assert loaded_path(MAPS) == "/opt/my env/nvidia/cu13/lib/libcupti.so.13"
    assert loaded_path(MAPS.replace("cupti", "other")) is None


OLD = SimpleNamespace()  # without the functions that are needed
NEW = SimpleNamespace(**dict.fromkeys(system.CUPTI_NEEDED))


def _broken(path: str) -> None:
    raise OSError("file too short")


@pytest.mark.parametrize(
    ("maps", "load", "why"),
    [
        (None, None, "this PyTorch comes without CUPTI"),  # as on Windows: no such file
        ("", None, "this PyTorch comes without CUPTI"),
        (MAPS, lambda path: OLD, "this CUPTI is older than its range profiler"),
        (MAPS, _broken, "the CUPTI of this PyTorch cannot be loaded: file too short"),
    ],
)
def test_none_that_can_count(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, maps: str | None, load: object, why: str
) -> None:
    if maps is not None:
        (tmp_path / "maps").write_text(maps)
    monkeypatch.setattr(system, "MAPS", tmp_path / "maps")
    monkeypatch.setattr("ctypes.CDLL", load)
    with pytest.raises(NoCuptiError, match=why):
        loaded_library()
    assert not has_cupti()


def test_one_that_can(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "maps").write_text(MAPS)
    monkeypatch.setattr(system, "MAPS", tmp_path / "maps")
    monkeypatch.setattr("ctypes.CDLL", lambda path: NEW)
    assert has_cupti()
