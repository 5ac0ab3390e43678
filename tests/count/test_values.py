"""Models that look at numbers, and operators that nobody has a formula for."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from tests.count.cases import FP32, Net, x
from torch import Tensor, nn

import ridgeline


def test_item_of_a_known_value() -> None:
    def model(mask: Tensor, data: Tensor) -> Tensor:
        length = int(mask.sum().item())
        return data[:, :length] @ data[:, :length].transpose(1, 2)

    mask = torch.tensor([1, 1, 1, 0, 0])
    r = ridgeline.count(model, (mask, x(2, 5, 4)))
    assert (r.total.macs, r.traced_on) == (2 * 3 * 3 * 4, "meta")


def test_a_branch_on_activations_runs_for_real() -> None:
    """All inputs are zero there, so the sum is not above zero."""
    small, large = nn.Linear(4, 1, bias=False), nn.Linear(4, 9, bias=False)
    model = Net(lambda n, d: n.large(d) if d.sum() > 0 else n.small(d), small=small, large=large)
    r = ridgeline.count(model, x(2, 4))
    assert (r.total.macs, r.traced_on) == (2 * 4, "real")
    assert any("real tensors" in note for note in r.notes)
    positive = ridgeline.count(model, torch.ones(2, 4))
    assert positive.total.macs == 2 * 4 * 9


def test_nonzero_of_a_known_mask() -> None:
    def model(mask: Tensor, data: Tensor) -> Tensor:
        return data[mask.nonzero().squeeze(1)] @ data.t()

    mask = torch.tensor([True, False, True, True])
    r = ridgeline.count(model, (mask, x(4, 6)))
    assert r.total.macs == 3 * 4 * 6


class Experts(nn.Module):
    """Four experts of 6 → 5, two for each token, written as a loop over experts."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(6, 4, bias=False)
        self.experts = nn.ModuleList(nn.Linear(6, 5, bias=False) for _ in range(4))

    def forward(self, tokens: Tensor) -> Tensor:
        weights, chosen = F.softmax(self.router(tokens), dim=-1).topk(2)
        out = tokens.new_zeros(tokens.shape[0], 5)
        for number, expert in enumerate(self.experts):
            rows, slot = torch.where(chosen == number)
            if rows.numel():
                out.index_add_(0, rows, expert(tokens[rows]) * weights[rows, slot, None])
        return out


def test_mixture_of_experts() -> None:
    """Whatever the routing, every token meets two experts."""
    r = ridgeline.count(Experts(), x(8, 6))
    assert r.total.macs == 8 * 4 * 6 + 8 * 2 * 5 * 6
    assert r.traced_on == "meta"
    assert any("evenly spread" in note for note in r.notes)
    real = ridgeline.count(Experts(), torch.randn(8, 6))
    assert real.total.macs == r.total.macs


def test_mixture_of_experts_in_training() -> None:
    r = ridgeline.count(Experts(), x(8, 6), mode="train")
    router, experts = 8 * 4 * 6, 8 * 2 * 5 * 6
    assert r.phase("forward").macs == router + experts
    assert r.phase("weight-grad").macs == router + experts
    assert r.phase("input-grad").macs == 0  # the tokens are the input


@torch.library.custom_op("ridgeline_test::mystery", mutates_args=())
def mystery(data: Tensor) -> Tensor:
    return data.clone()


@mystery.register_fake
def _(data: Tensor) -> Tensor:
    return torch.empty_like(data)


def test_an_operator_without_a_formula_is_never_silent() -> None:
    """8 elements read and written by each operator: half of all bytes are not covered."""
    r = ridgeline.count(lambda data: mystery(data.relu()), (x(2, 4),))
    assert r.unknown == {
        "ridgeline_test::mystery": {"calls": 1, "bytes": 2 * FP32 * 8, "share": 0.5}
    }
    assert r.coverage == 0.5
    assert r.total.read_bytes == r.total.written_bytes == 2 * FP32 * 8
    assert r.total.other_flops == 8


def test_compiled_modules() -> None:
    """What torch.compile would run is what the module asks for."""
    r = ridgeline.count(torch.compile(nn.Linear(4, 3, bias=False)), x(2, 4))
    assert r.total.macs == 2 * 3 * 4


def test_a_module_without_weights_may_look_at_values_too() -> None:
    r = ridgeline.count(Net(lambda _, d: d @ d.t() if d.sum() >= 0 else d), x(2, 4))
    assert (r.total.macs, r.traced_on) == (2 * 2 * 4, "real")


def test_scripted_traced_and_wrapped_modules() -> None:
    layer, data = nn.Linear(4, 3), torch.zeros(2, 4)
    for model in (torch.jit.script(layer), torch.jit.trace(layer, data), nn.DataParallel(layer)):
        assert ridgeline.count(model, data).total.macs == 2 * 3 * 4


def test_tensors_that_are_not_parameters() -> None:
    """One in an attribute, one in a list, one from outside."""
    outside = torch.ones(3, 3)

    model = Net(
        lambda n, data: data @ n.inside @ n.listed[0] @ outside,
        inside=torch.ones(4, 3),
        listed=[torch.ones(3, 3)],
    )
    assert ridgeline.count(model, x(2, 4)).total.macs == 2 * (4 * 3 + 3 * 3 + 3 * 3)


def test_a_sparse_gradient_does_not_stop_the_count() -> None:
    r = ridgeline.count(nn.Embedding(10, 4, sparse=True), torch.tensor([1, 2]), mode="train")
    assert r.phase("forward").read_bytes == FP32 * 8 + 2 * 8


def test_the_largest_of_unknown_numbers_is_not_a_place() -> None:
    """How many values are positive nobody knows without data, so the model runs for real."""

    def model(data: Tensor) -> Tensor:
        return data[:, : int((data > 0).sum(1).max())] + 1

    r = ridgeline.count(model, (torch.tensor([[1.0, 2.0, -1.0], [-1.0, -1.0, -1.0]]),))
    assert (r.op_costs[-1].cost.other_flops, r.traced_on) == (2 * 2, "real")


def test_what_was_overwritten_does_not_spoil_later_values() -> None:
    """Memory of a value that is gone may be used for another one."""

    def model(data: Tensor) -> Tensor:
        known = 0
        for number in range(20):
            mask = torch.zeros(4, dtype=torch.long, device=data.device)
            mask.add_((data > 0).long())
            del mask
            known += int(torch.full((4,), number, dtype=torch.long, device=data.device)[0])
        return data.expand(known, 4) * 2

    r = ridgeline.count(model, (x(4),))
    assert (r.traced_on, r.op_costs[-1].cost.other_flops) == ("meta", 190 * 4)
