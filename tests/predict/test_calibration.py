"""Calibrations as files: whole or not at all, merged, refused where they cannot be read."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.predict.calibrations import KNOWN_FILE, calibration, measured, product

from ridgeline.errors import RidgelineError
from ridgeline.predict.calibration import Calibrations, read_calibration, write_calibration


def test_a_calibration_comes_back_as_it_was(tmp_path: Path) -> None:
    known = calibration().fit_curves()

    path = Calibrations(tmp_path).write(known)

    assert path == tmp_path / "machines" / KNOWN_FILE
    assert Calibrations(tmp_path).names() == ["small"]
    by_name, by_path = (Calibrations(tmp_path).read(name) for name in ("small", str(path)))
    assert by_name == by_path
    assert replace(by_name, curves={}) == replace(known, curves={})
    assert by_name.curve("relu|fp32") == known.curve("relu|fp32")


def test_a_new_point_replaces_that_of_the_same_call() -> None:
    again, new = measured(product(128, 128, 128), 5.0), measured(product(3, 3, 3), 7.0)

    merged = calibration().with_points([again, new])

    assert len(merged.points) == len(calibration().points) + 1
    assert merged.times_s[again.point.key] == 5.0
    assert merged.times_s[new.point.key] == 7.0


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_calibration(calibration(), tmp_path / KNOWN_FILE)
    before = path.read_bytes()

    def stop(*_: object, **__: object) -> bytes:
        raise KeyboardInterrupt

    monkeypatch.setattr(gzip, "compress", stop)
    with pytest.raises(KeyboardInterrupt):
        write_calibration(calibration(machine="other"), path)

    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == [KNOWN_FILE]


def content(**changes: object) -> bytes:
    known = {"schema_version": 1, "machine": "small", "device": "cpu", **changes}
    return gzip.compress(json.dumps(known).encode(), mtime=0)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"{}", "cannot be read as a calibration: Not a gzipped file"),
        (content()[:-9], "cannot be read as a calibration: Compressed file ended"),
        (gzip.compress(b"[1]", mtime=0), "cannot be read as a calibration"),
        (gzip.compress(b'{"machine": "a"', mtime=0), "cannot be read as a calibration"),
        (content(device=None), "cannot be read as a calibration: device"),
        (content(floor_s="fast"), "cannot be read as a calibration: floor_s"),
        (content(schema_version=99), "is a calibration of version 99; this ridgeline reads 1"),
        (None, "there is no calibration"),
    ],
    ids=["plain", "cut", "list", "half JSON", "device", "floor", "version", "none"],
)
def test_files_that_are_no_calibration(data: bytes | None, says: str, tmp_path: Path) -> None:
    path = tmp_path / KNOWN_FILE
    if data is not None:
        path.write_bytes(data)

    with pytest.raises(RidgelineError, match=says) as caught:
        read_calibration(path)

    assert "calibrat" in caught.value.hint or caught.value.hint == "update ridgeline"
