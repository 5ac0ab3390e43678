"""The convolutions of a network: found with their shapes, and run under an algorithm.

A network runs under an algorithm by its own modules: each Conv2d keeps its weights, hooks and
place, and only the call that computes it is replaced. What the algorithm cannot do stays with
PyTorch, with the reason.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ridgeline.conv.algorithms import (
    BENCHMARK,
    CPU_ALGORITHMS,
    DEFAULT,
    Algorithm,
    UnsupportedError,
)
from ridgeline.errors import RidgelineError
from ridgeline.records import ConvLayer, ConvShape
from ridgeline.settings import ALGORITHMS
from ridgeline.workloads import Workload
from ridgeline.workloads.workload import one_line

OTHER_CONVOLUTIONS = (nn.Conv1d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d,
                      nn.ConvTranspose3d)  # fmt: skip
MOST_NAMED = 3  # layers in a sentence


@cache
def find_algorithms(kind: str) -> Mapping[str, Algorithm]:
    """The algorithms of a kind of device, by name, in the order of ALGORITHMS."""
    if kind == "cuda":
        from ridgeline.conv.cudnn import cuda_algorithms

        known: Mapping[str, Algorithm] = cuda_algorithms()
    else:
        known = CPU_ALGORITHMS if kind == "cpu" else {DEFAULT: CPU_ALGORITHMS[DEFAULT]}
    return {name: known[name] for name in ALGORITHMS if name in known}


def check_names(names: Sequence[str], kind: str) -> None:
    """Refuse a name that no algorithm of this kind of device has."""
    known = find_algorithms(kind)
    for name in names:
        if name not in known:
            raise RidgelineError(
                f"there is no algorithm {name!r} on {kind}",
                hint=f"choose {', '.join(known)}; `ridgeline conv --list-algorithms` says more",
            )


# ---------------------------------------------------------------- shapes


def shape_of(part: nn.Conv2d, x_shape: Sequence[int]) -> ConvShape | None:
    """The shape of a call; None where the padding is not the same on both sides."""
    padding = _padding_of(part)
    if padding is None or len(x_shape) != 4:
        return None
    n, c, h, w = x_shape
    (r, s), stride, dilation = (
        _two(sizes) for sizes in (part.kernel_size, part.stride, part.dilation)
    )
    return ConvShape(
        n=n, c=c, h=h, w=w, k=part.out_channels, r=r, s=s, stride=stride, padding=padding,
        dilation=dilation, groups=part.groups,
    )  # fmt: skip


def _padding_of(part: nn.Conv2d) -> tuple[int, int] | None:
    """Zeros at each end of rows and columns; None where the two ends differ."""
    if part.padding == "valid":
        return 0, 0
    if part.padding == "same":
        spans = [
            gap * (side - 1) for gap, side in zip(part.dilation, part.kernel_size, strict=True)
        ]
        return None if any(span % 2 for span in spans) else (spans[0] // 2, spans[1] // 2)
    return _two(part.padding)  # type: ignore[arg-type]


def _two(sizes: Sequence[int]) -> tuple[int, int]:
    rows, columns = sizes
    return rows, columns


def find_layers(workload: Workload, batch_size: int) -> tuple[ConvLayer, ...]:
    """The convolutions that a forward pass calls, in order; nothing is computed.

    Only modules are seen: a network that calls torch.nn.functional.conv2d itself hides it.
    """
    module = workload.build().eval().to("meta")  # training wants more than one value for a norm
    with torch.device("meta"):
        inputs = workload.inputs(batch_size)
    seen: Counter[tuple[str, ConvShape | None, str]] = Counter()
    handles = [
        part.register_forward_pre_hook(_note_call(path, seen))
        for path, part in module.named_modules()
        if isinstance(part, (nn.Conv2d, *OTHER_CONVOLUTIONS))
    ]
    try:
        with torch.no_grad():
            module(*inputs.args, **inputs.kwargs)
    except Exception as error:  # of the model's code
        raise RidgelineError(
            f"{workload.name} cannot be traced without computing: {one_line(error, 200)}",
            hint="check --input-size (3x64x64 for a model of your own), or measure single"
            " convolutions with --shape",
        ) from error
    finally:
        for handle in handles:
            handle.remove()
    layers = tuple(
        ConvLayer(layer=path, shape=shape, uses=uses, reason=why)
        for (path, shape, why), uses in seen.items()
    )
    if not any(layer.shape for layer in layers):
        raise _no_convolution(workload.name)
    return layers


def _note_call(
    path: str, seen: Counter[tuple[str, ConvShape | None, str]]
) -> Callable[[nn.Module, tuple[Any, ...]], None]:
    def note(part: nn.Module, inputs: tuple[Any, ...]) -> None:
        shape, why = None, f"{type(part).__name__} is not measured"
        if isinstance(part, nn.Conv2d):
            shape = shape_of(part, tuple(inputs[0].shape))
            why = "" if shape else "its padding differs from one side to the other"
        seen[path, shape, why] += 1

    return note


def _no_convolution(name: str) -> RidgelineError:
    return RidgelineError(
        f"{name} has no 2-D convolution",
        hint="`ridgeline count MODEL` lists the operators of a model; resnet18 has convolutions",
    )


# ---------------------------------------------------------------- under an algorithm


def use_algorithm(module: nn.Module, name: str, dtype: torch.dtype, kind: str) -> list[str]:
    """Let every Conv2d of a network run under an algorithm; what stays with PyTorch, and why."""
    if name == DEFAULT:
        return []
    check_names([name], kind)
    if name == BENCHMARK:  # put back after the measurement, with all of PyTorch's settings
        torch.backends.cudnn.benchmark = True
        return []
    algorithm = find_algorithms(kind)[name]
    parts = {path: part for path, part in module.named_modules() if isinstance(part, nn.Conv2d)}
    if not parts:
        raise _no_convolution("this model")
    refused: dict[str, list[str]] = {}
    for path, part in parts.items():
        if why := _refuse_module(part, algorithm, dtype):
            refused.setdefault(why, []).append(path)
        else:
            vars(part)["_conv_forward"] = _Replacement(part, algorithm)
    left = sum(map(len, refused.values()))
    if left == len(parts):
        raise RidgelineError(
            f"no convolution of this model can run under {name}: {next(iter(refused))}",
            hint="`ridgeline conv MODEL` shows which algorithm can do which layer",
        )
    return [
        f"{len(paths)} of {len(parts)} convolutions ran under PyTorch's default, not {name}: {why}"
        f" ({', '.join(paths[:MOST_NAMED])}{', …' if len(paths) > MOST_NAMED else ''})"
        for why, paths in refused.items()
    ]


def _refuse_module(part: nn.Conv2d, algorithm: Algorithm, dtype: torch.dtype) -> str:
    """Why a module cannot run under an algorithm, whatever the size of its input."""
    if _padding_of(part) is None:
        return "the padding differs from one side to the other"
    largest = [gap * (side - 1) + 1 for gap, side in zip(part.dilation, part.kernel_size,
                                                         strict=True)]  # fmt: skip
    shape = shape_of(part, (1, part.in_channels, *largest))
    assert shape is not None
    return algorithm.refuse(shape, dtype)


class _Replacement:
    """What computes a Conv2d in place of its own method."""

    def __init__(self, part: nn.Conv2d, algorithm: Algorithm) -> None:
        self._part, self._algorithm = part, algorithm

    def __call__(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        part = self._part
        if torch.is_autocast_enabled(x.device.type):  # as it does with PyTorch's own
            dtype = torch.get_autocast_dtype(x.device.type)
            x, weight = x.to(dtype), weight.to(dtype)
            bias = None if bias is None else bias.to(dtype)
        batch = x if x.dim() == 4 else x.unsqueeze(0)
        if part.padding_mode != "zeros":  # other values are put around the input beforehand
            batch = F.pad(batch, part._reversed_padding_repeated_twice, mode=part.padding_mode)
        shape = shape_of(part, tuple(batch.shape))
        assert shape is not None
        if part.padding_mode != "zeros":
            shape = replace(shape, padding=(0, 0))
        try:
            out = self._algorithm.forward(batch, weight, shape)
        except UnsupportedError as error:  # it depends on the size of the input, too
            self._algorithm = CPU_ALGORITHMS[DEFAULT]
            warnings.warn(f"{shape} ran under PyTorch's default: {error}", stacklevel=2)
            out = self._algorithm.forward(batch, weight, shape)
        out = out if bias is None else out + bias.view(1, -1, 1, 1)
        return out if x.dim() == 4 else out.squeeze(0)
