"""A whole file or none."""

from pathlib import Path

import pytest

from ridgeline.errors import RidgelineError
from ridgeline.onnx.export import destination


def test_a_file_comes_whole_with_its_weights(tmp_path: Path) -> None:
    path = tmp_path / "models" / "net.onnx"
    with destination(path) as place:
        place.draft.write_bytes(b"graph")
        place.draft.with_name("net.onnx.data").write_bytes(b"weights")
        assert not path.exists()
        place.commit()
    assert sorted(p.name for p in path.parent.iterdir()) == ["net.onnx", "net.onnx.data"]
    assert path.read_bytes() == b"graph"


def test_nothing_is_left_of_a_failure(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no"), destination(tmp_path / "net.onnx") as place:
        place.draft.write_bytes(b"half a gra")
        raise ValueError("no")
    assert list(tmp_path.iterdir()) == []


def test_weights_of_an_older_file_go_with_it(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(b"old")
    path.with_name("net.onnx.data").write_bytes(b"old weights")
    with destination(path, force=True) as place:
        place.draft.write_bytes(b"new")
        place.commit()
    assert [p.name for p in tmp_path.iterdir()] == ["net.onnx"]
    assert path.read_bytes() == b"new"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("net.pt", "net.pt does not end in .onnx"),
        ("folder.onnx", "folder.onnx is a folder"),
        ("there.onnx", "there.onnx is there already\n  hint: --force replaces it"),
        ("there.onnx/net.onnx", "cannot write"),
    ],
)
def test_places_that_are_refused(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "folder.onnx").mkdir()
    (tmp_path / "there.onnx").write_bytes(b"mine")
    with pytest.raises(RidgelineError, match=message), destination(tmp_path / name):
        pass
    assert (tmp_path / "there.onnx").read_bytes() == b"mine"
