"""Static counts against a real GPU: the same answer, the same casts, the same memory."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torchvision import models  # type: ignore[import-untyped, unused-ignore]

import ridgeline

PRODUCTS_AND_CASTS = (
    "aten::convolution", "aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::_to_copy",
    "aten::native_layer_norm", "aten::_softmax", "aten::_log_softmax", "aten::gelu", "aten::relu",
)  # fmt: skip


class SeenDtypes(TorchDispatchMode):
    """Counts (operator, dtype of the result) of what really runs."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call, unused-ignore]
        self.seen: Counter[tuple[str, str]] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        first = out[0] if isinstance(out, tuple) else out
        name = func._schema.name
        if name in PRODUCTS_AND_CASTS and isinstance(first, torch.Tensor):
            self.seen[name, str(first.dtype)] += 1
        return out


def counted_dtypes(result: Any) -> Counter[tuple[str, str]]:
    forward = [op for op in result.op_costs if op.phase == "forward"]
    return Counter(
        (op.op, str(op.call.outputs[0].dtype)) for op in forward if op.op in PRODUCTS_AND_CASTS
    )


def encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, activation="gelu")
    return nn.TransformerEncoder(layer, 2)


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (models.resnet18, (2, 3, 64, 64)),
        (models.mobilenet_v3_small, (2, 3, 64, 64)),
        (models.swin_t, (2, 3, 64, 64)),
        (encoder, (2, 10, 64)),
    ],
    ids=["resnet18", "mobilenet_v3_small", "swin_t", "encoder"],
)
def test_autocast_casts_what_cuda_casts(
    make: Callable[[], nn.Module], shape: tuple[int, ...]
) -> None:
    # given a model on the GPU, in training, under CUDA's own autocast
    model = make().cuda().train()
    with SeenDtypes() as real, torch.autocast("cuda", torch.float16):
        model(torch.randn(shape, device="cuda"))
    # when it is counted without a GPU's tensors
    result = ridgeline.count(model, shape, mode="train", precision="amp")
    # then the same operators ran in the same precisions
    assert counted_dtypes(result) == real.seen


def test_a_module_on_the_gpu_counts_as_on_meta() -> None:
    model = models.resnet18()
    with torch.device("meta"):
        twin = models.resnet18()
    here = ridgeline.count(model.cuda(), torch.empty(2, 3, 64, 64, device="cuda"), mode="train")
    there = ridgeline.count(twin, torch.empty(2, 3, 64, 64, device="meta"), mode="train")
    assert here.total == there.total
    assert here.memory == there.memory
    assert next(model.parameters()).is_cuda


def measured_peak_bytes(model: nn.Module, x: torch.Tensor, precision: str) -> int:
    """Peak of the second of two training steps, as the allocator saw it."""
    optimizer = torch.optim.Adam(model.parameters(), foreach=False)
    for _ in range(2):
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        with torch.autocast("cuda", torch.float16, enabled=precision == "amp"):
            out = model(x)
        out.backward(torch.ones_like(out))
        del out
        optimizer.step()
    return torch.cuda.max_memory_allocated()


@pytest.mark.parametrize("precision", ["fp32", "amp"])
@pytest.mark.parametrize("name", ["resnet50", "mobilenet_v2", "vit_b_16", "densenet121"])
def test_peak_memory_is_the_allocators(name: str, precision: str, record_property: Any) -> None:
    # given what the allocator held before, and a model in training
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.backends.cudnn.benchmark = False
    model = models.get_model(name).cuda().train()
    x = torch.randn(32, 3, 224, 224, device="cuda")
    measured = measured_peak_bytes(model, x, precision) - before
    # when the same step is counted
    counted = ridgeline.count(
        model, x, mode="train", precision=precision, optimizer="adam"
    ).memory.peak_bytes
    record_property("ratio", counted / measured)
    # then they agree but for workspaces and rounding, which a static count cannot know
    assert counted == pytest.approx(measured, rel=0.05)
