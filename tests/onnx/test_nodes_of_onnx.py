"""Every node test that onnx makes of itself, and the models inside its wheel."""

from __future__ import annotations

import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from ridgeline.onnx import count_onnx

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
SMALL = 64  # elements of an input that may decide on a shape


@cache
def cases() -> list[Any]:
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [case for case in collect_testcases(None) if case.model is not None]


def values_of(case: Any) -> dict[str, Any]:
    """Inputs that are small and whole, or lists: what shapes may depend on."""
    names = [value.name for value in case.model.graph.input]
    found: dict[str, Any] = {}
    for name, value in zip(names, case.data_sets[0][0], strict=False):
        if isinstance(value, list) and all(isinstance(item, np.ndarray) for item in value):
            found[name] = value
        elif not isinstance(value, list | dict) and value is not None:
            array = np.asarray(value)
            if array.dtype.kind not in "OUS" and array.size <= SMALL:
                found[name] = array
    return found


def open_dims(case: Any) -> dict[str, int]:
    found: dict[str, int] = {}
    for value, data in zip(case.model.graph.input, case.data_sets[0][0], strict=False):
        shape = getattr(data, "shape", ())
        for dim, size in zip(value.type.tensor_type.shape.dim, shape, strict=False):
            if dim.dim_param:
                found[dim.dim_param] = int(size)
    return found


LIGHT_MACS = {
    "light_bvlc_alexnet": 654_560_384,
    "light_densenet121": 2_834_161_664,
    "light_inception_v1": 1_431_556_352,
    "light_inception_v2": 2_018_851_840,
    "light_resnet50": 4_089_184_256,
    "light_shufflenet": 124_664_528,
    "light_squeezenet": 349_151_936,
    "light_vgg19": 19_632_062_464,
    "light_zfnet512": 1_481_727_008,
}


@pytest.mark.parametrize("name", LIGHT_MACS)
def test_the_models_in_the_wheel(name: str) -> None:
    path = LIGHT / f"{name}.onnx"
    if not path.exists():
        pytest.skip(f"this onnx has no {name}")
    result = count_onnx(path)
    assert (result.total.macs, result.coverage) == (LIGHT_MACS[name], 1.0)
