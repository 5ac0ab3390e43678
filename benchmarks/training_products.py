"""Products of a training step against 3 × forward less the input-grad that nobody needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.report import Report, Table
from benchmarks.torchvision_ops import build as build_network

MODELS = ("mobilenet_v2", "regnet_y_400mf", "resnet50", "vit_b_16", "swin_t")
LSTM = "LSTM 64→128, 2 layers"
BATCH = 2
STEPS = 20


@dataclass(slots=True)
class Products:
    """Multiply-adds by phase, from the shapes of modules alone."""

    forward: int = 0
    weight_grad: int = 0
    input_grad: int = 0
    skipped: list[str] = field(default_factory=list)  # whose input needs no gradient

    @property
    def total(self) -> int:
        return self.forward + self.weight_grad + self.input_grad

    def weighted(self, macs: int, name: str, *, needs_input_grad: bool) -> None:
        """A product of an activation and a weight."""
        self.forward += macs
        self.weight_grad += macs
        if needs_input_grad:
            self.input_grad += macs
        else:
            self.skipped.append(f"`{name}` {macs:,}")

    def paired(self, macs: int) -> None:
        """A product of two activations: a gradient for each."""
        self.forward += macs
        self.input_grad += 2 * macs


def run() -> Report:
    """Each model in train mode, on meta and on the CPU."""
    rows = [row(name) for name in (*MODELS, LSTM)]
    wrong = [r for r in rows if r[-4] != "0" or r[-3] != "0"]
    return Report(
        title="Products of a training step",
        summary=[
            f"**ridgeline is exact for {len(rows) - len(wrong)} of {len(rows)} "
            "networks, on meta and "
            "on the CPU.** FlopCounterMode multiplies the backward of grouped convolutions by the "
            "number of groups. On the CPU it adds the scores that fused attention "
            "computes again in "
            "backward, and does not see the fused LSTM."
        ],
        tables=[
            Table(
                columns=("network", "input-grad not needed", "forward", "weight-grad", "input-grad",
                         "sum", "ridgeline, meta: error %", "CPU", "FlopCounterMode, meta", "CPU"),
                rows=rows,
                text_columns=2,
            )
        ],
        notes=[
            f"Multiply-adds, batch {BATCH}, 224×224 images; the LSTM has {STEPS} "
            "steps. The expected "
            "numbers come from the shapes that forward hooks see at convolutions, linear layers, "
            "attention and the LSTM: each product with a weight costs the same again "
            "for the weight's "
            "gradient and for the input's, where that input has one; each product of "
            "two activations "
            "twice more. The state an LSTM starts from has no gradient either."
        ],
    )  # fmt: skip


def row(name: str) -> tuple[str, ...]:
    expected = expected_products(name)
    found = [
        error(count(name, device), expected.total)
        for count in (ridgeline_step, flop_counter_step)
        for device in ("meta", "cpu")
    ]
    phases = (expected.forward, expected.weight_grad, expected.input_grad, expected.total)
    return (name, "<br>".join(expected.skipped), *(f"{macs:,}" for macs in phases), *found)


def error(macs: int, expected: int) -> str:
    return "0" if macs == expected else f"**{100 * (macs / expected - 1):+.3g}**"


def build(name: str, device: str) -> tuple[nn.Module, Tensor]:
    from torchvision import models

    with torch.device(device):
        if name == LSTM:
            return nn.LSTM(64, 128, 2).train(), torch.zeros(STEPS, BATCH, 64)
        module = build_network(partial(models.get_model, name, weights=None))
        return module.train(), torch.zeros(BATCH, 3, 224, 224)


def ridgeline_step(name: str, device: str) -> int:
    import ridgeline

    module, given = build(name, device)
    return int(ridgeline.count(module, given, mode="train").total.macs)


def flop_counter_step(name: str, device: str) -> int:
    module, given = build(name, device)
    with FlopCounterMode(display=False) as counter:
        out = module(given)
        (out[0] if isinstance(out, tuple) else out).sum().backward()
    return int(counter.get_total_flops()) // 2


# ---------------------------------------------------------------- expected, from shapes


def expected_products(name: str) -> Products:
    """Run forward with hooks that do the arithmetic of the layers that have products."""
    found = Products()
    module, given = build(name, "meta")
    for path, part in module.named_modules():
        rule = RULES.get(type(part).__name__)
        if rule is not None:
            part.register_forward_hook(partial(rule, found, path or type(part).__name__))
    module(given)
    return found


def convolution(found: Products, name: str, layer: nn.Conv2d, inputs: Any, out: Tensor) -> None:
    """Every output sums over the kernel and the input channels of its group."""
    macs = out.numel() * (layer.in_channels // layer.groups) * prod(layer.kernel_size)
    found.weighted(macs, name, needs_input_grad=inputs[0].requires_grad)


def linear(found: Products, name: str, layer: nn.Linear, inputs: Any, out: Tensor) -> None:
    found.weighted(out.numel() * layer.in_features, name, needs_input_grad=inputs[0].requires_grad)


def attention(found: Products, name: str, layer: Any, inputs: Any, out: Any) -> None:
    """Four projections of each token, then each query with each key and with each value."""
    batch, tokens, width = inputs[0].shape
    found.weighted(4 * batch * tokens * width * width, name, needs_input_grad=True)
    found.paired(2 * batch * tokens * tokens * width)


def windowed(found: Products, name: str, layer: Any, inputs: Any, out: Any) -> None:
    """As attention, among the tokens of a window; 224×224 is a whole number of windows."""
    batch, height, width, channels = inputs[0].shape
    tokens, window = batch * height * width, prod(layer.window_size)
    found.weighted(4 * tokens * channels * channels, name, needs_input_grad=True)
    found.paired(2 * tokens * window * channels)


def lstm(found: Products, name: str, layer: nn.LSTM, inputs: Any, out: Any) -> None:
    """Four gates from the input and four from the state, which starts without a gradient."""
    steps, batch, _ = inputs[0].shape
    hidden = layer.hidden_size
    for number in range(layer.num_layers):
        size = layer.input_size if number == 0 else hidden
        needed = inputs[0].requires_grad or number > 0
        found.weighted(
            steps * batch * 4 * hidden * size, f"input of layer {number}", needs_input_grad=needed
        )
        state = batch * 4 * hidden * hidden
        found.weighted((steps - 1) * state, "", needs_input_grad=True)
        found.weighted(state, f"first state of layer {number}", needs_input_grad=False)


RULES: dict[str, Callable[..., None]] = {
    "Conv2d": convolution,
    "Linear": linear,
    "MultiheadAttention": attention,
    "ShiftedWindowAttention": windowed,
    "LSTM": lstm,
}
