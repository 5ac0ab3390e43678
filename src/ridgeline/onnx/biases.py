"""Is a bias that a file has not one of zeros? The model's own parameters say it.

A count needs no values, so the model is built once more with them: only where something is missing,
and only where its weights fit into memory without a thought.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from ridgeline.count.call import OpCall, TensorMeta
from ridgeline.count.result import CountResult
from ridgeline.errors import RidgelineError
from ridgeline.onnx.pieces import OF_VALUES, OF_ZEROS, UNSEEN
from ridgeline.records import WorkloadSpec
from ridgeline.workloads import resolve

MOST_BYTES = 4_000_000_000  # of weights, for a second look at a model
BIAS = {"aten::addmm": "self", "aten::addmv": "self", "aten::baddbmm": "self",
        "aten::addbmm": "self", "aten::convolution": "bias", "aten::linear": "bias",
        "aten::mkldnn_linear": "bias"}  # the argument that is added  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Vectors:
    """What a model's parameters of one dimension are; nothing of a model that cannot be seen."""

    are_zeros: Mapping[str, bool] = field(default_factory=dict)  # by `name:length`
    norms: Mapping[str, int] = field(default_factory=dict)  # by module; one number, one content


def biases(count: CountResult, vectors: Vectors) -> dict[int, str]:
    """Of each operator with a bias, by its number: of zeros, of values, or nobody knows."""
    found = {}
    for number, op in enumerate(count.op_costs):
        bias = _bias(op.call, op.op)
        if bias is not None:
            found[number] = _seen(op.path, bias.numel, vectors.are_zeros)
    return found


def _bias(call: Any, name: str) -> TensorMeta | None:
    if not isinstance(call, OpCall) or name not in BIAS:
        return None
    bias = call.get(BIAS[name])
    return bias if isinstance(bias, TensorMeta) else None


def _seen(path: str, length: int, vectors: Mapping[str, bool]) -> str:
    """By the module's own vectors of that length, else by all of the model."""
    inside = f"{path}." if path else ""
    if (own := f"{inside}bias:{length}") in vectors:
        return _verdict([vectors[own]])
    fitting = {name: is_zero for name, is_zero in vectors.items() if name.endswith(f":{length}")}
    near = [is_zero for name, is_zero in fitting.items() if name.startswith(inside)]
    return _verdict(near or fitting.values())


def _verdict(are_zero: Iterable[bool]) -> str:
    known = set(are_zero)
    if not known:
        return UNSEEN  # worked out of others
    return OF_ZEROS if True in known else OF_VALUES


def vectors_of(spec: WorkloadSpec, count: CountResult) -> Vectors:
    """Build the model on the CPU, as it is exported, and look at its vectors."""
    if sum(size for _, size in count.module_params.values()) > MOST_BYTES:
        return Vectors()
    try:
        with torch.random.fork_rng(devices=[]), torch.device("cpu"):
            module = resolve(spec).build()
    except (RidgelineError, MemoryError):
        return Vectors()
    zeros = {
        f"{name}:{vector.numel()}": not bool(vector.any())
        for name, vector in _seen_vectors(module.named_parameters(remove_duplicate=False))
    }
    return Vectors(are_zeros=zeros, norms=_norms(module))


def _norms(module: nn.Module) -> dict[str, int]:
    """Modules of vectors alone; untrained norms start alike, and exporters merge them."""
    contents: dict[object, int] = {}
    found = {}
    for path, part in module.named_modules():
        own = [*part.named_parameters(recurse=False), *part.named_buffers(recurse=False)]
        vectors = [(name, vector.tolist()) for name, vector in _seen_vectors(own)]
        if vectors and not any(is_lazy(t) or t.ndim > 1 for _, t in own):
            found[path] = contents.setdefault(repr(vectors), len(contents) + 1)
    return found


def _seen_vectors(tensors: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
    for name, tensor in tensors:
        if not is_lazy(tensor) and tensor.ndim == 1 and not tensor.is_meta:
            yield name, tensor.detach()
