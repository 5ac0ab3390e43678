"""Which phase work belongs to, by hand, where autograd makes it less than obvious."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
import torch
from tests.count.cases import FP32, assert_cost, x
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import ridgeline
from ridgeline.errors import RidgelineError


def square(bias: bool = False) -> nn.Linear:
    return nn.Linear(4, 4, bias=bias)


ONE = 2 * 4 * 4  # MACs of one such layer on 2 rows


def macs(r: Any) -> list[int]:
    return [r.phase(p).macs for p in ("forward", "input-grad", "weight-grad")]


def test_the_first_layer_has_no_input_gradient() -> None:
    r = ridgeline.count(nn.Sequential(square(), square(), square()), x(2, 4), mode="train")
    assert macs(r) == [3 * ONE, 2 * ONE, 3 * ONE]


def test_an_input_that_wants_a_gradient_gets_one() -> None:
    r = ridgeline.count(square(), x(2, 4).requires_grad_(), mode="train")
    assert macs(r) == [ONE, ONE, ONE]


def test_frozen_first_layers_end_the_backward_pass() -> None:
    model = nn.Sequential(square(), square(), square())
    model[0].requires_grad_(False)
    model[1].requires_grad_(False)
    assert macs(ridgeline.count(model, x(2, 4), mode="train")) == [3 * ONE, 0, ONE]


def test_a_frozen_layer_in_the_middle_passes_gradients_on() -> None:
    model = nn.Sequential(square(), square(), square())
    model[1].requires_grad_(False)
    r = ridgeline.count(model, x(2, 4), mode="train")
    assert macs(r) == [3 * ONE, 2 * ONE, 2 * ONE]
    assert r.params == 3 * 16
    assert r.memory.gradient_bytes == FP32 * 2 * 16


class Checkpointed(nn.Module):
    def __init__(self, *, reentrant: bool) -> None:
        super().__init__()
        self.first, self.block = square(), nn.Sequential(square(), nn.ReLU(), square())
        self.reentrant = reentrant

    def forward(self, data: Tensor) -> Any:
        return checkpoint(self.block, self.first(data), use_reentrant=self.reentrant)


@pytest.mark.parametrize("reentrant", [True, False])
def test_recomputation_is_a_phase_of_its_own(reentrant: bool) -> None:
    r = ridgeline.count(Checkpointed(reentrant=reentrant), x(2, 4), mode="train")
    assert macs(r) == [3 * ONE, 2 * ONE, 3 * ONE]
    # the newer way stops once the last saved tensor is back: before the second product
    repeated = 2 * ONE if reentrant else ONE
    assert r.phase("recompute").flops == 2 * repeated + 8  # products and the ReLU
    assert list(r.phases) == ["forward", "input-grad", "weight-grad", "recompute", "optimizer"]
    assert list(r.to_dict()["phases"]) == list(r.phases)
    assert {op.phase for op in r.op_costs if op.is_recomputed} == {"recompute"}
    blocks = r.layers(depth=1).set_index("path")["recompute_flops"].to_dict()
    assert blocks == {"(model)": 2 * repeated + 8, "first": 0, "block": 2 * repeated + 8}
    assert r.phase("input-grad").other_flops == 8  # of the ReLU


def test_without_checkpoints_nothing_is_recomputed() -> None:
    # given a loss, whose own gradient is made before backward begins
    r = ridgeline.count(square(), x(2, 4), mode="train", loss=lambda out: out.sum())
    assert list(r.phases) == ["forward", "input-grad", "weight-grad", "optimizer"]
    started = r.ops[r.ops["op"].eq("aten::ones_like")]
    assert started[["phase", "is_recomputed"]].to_numpy().tolist() == [["input-grad", False]]


class Functional(nn.Module):
    """Work of its own around a part's, all of it done again in the backward pass."""

    def __init__(self, *, reentrant: bool) -> None:
        super().__init__()
        self.part, self.reentrant = square(), reentrant

    def forward(self, data: Tensor) -> Any:
        def work(one: Tensor) -> Tensor:
            return torch.tanh(self.part(one.exp()))

        return checkpoint(work, data, use_reentrant=self.reentrant)


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_function_that_is_done_again_is_its_module_s(reentrant: bool) -> None:
    model = nn.Sequential(square(), Functional(reentrant=reentrant), nn.ReLU())
    ops = ridgeline.count(model, x(2, 4), mode="train").ops
    again = ops.loc[ops["is_recomputed"], ["path", "op"]].to_numpy().tolist()
    assert again == [["1", "aten::exp"], ["1.part", "aten::mm"], ["1", "aten::tanh"]]
    gradients = ops[ops["phase"].isin(["input-grad", "weight-grad"]) & ops["macs"].gt(0)]
    assert gradients["path"].tolist() == ["1.part", "1.part", "0"]


class Recycled(nn.Module):
    """Runs its layer once without gradients, and again on what came out."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = square()

    def forward(self, data: Tensor) -> Any:
        with torch.no_grad():
            data = self.layer(data)
        return self.layer(data)


def test_a_weight_that_was_cast_without_gradients_has_them_afterwards() -> None:
    model = nn.Sequential(square(), Recycled())
    [fp32, amp] = (
        ridgeline.count(model, x(2, 4), mode="train", precision=p) for p in ("fp32", "amp")
    )
    assert macs(amp) == macs(fp32) == [3 * ONE, 0, ONE]


class Careful(nn.Module):
    """Leaves mixed precision for one product, and notes whether it was on."""

    seen: ClassVar[list[bool]] = []

    def __init__(self, device: str) -> None:
        super().__init__()
        self.low, self.full, self.device = square(), square(), device

    def forward(self, data: Tensor) -> Any:
        self.seen.append(torch.is_autocast_enabled())
        out = self.low(data)
        with torch.autocast(self.device, enabled=False):
            self.seen.append(torch.is_autocast_enabled())
            out = self.full(out.float())
        self.seen.append(torch.is_autocast_enabled())
        return out


class Decorated(nn.Module):
    """Has blocks that were made before it runs, and one that asks for another precision."""

    def __init__(self) -> None:
        super().__init__()
        self.kept, self.other = square(), square()
        self.block = torch.autocast("cpu", enabled=False)

    def forward(self, data: Tensor) -> Any:
        with self.block:
            out = self.kept(data)
        with torch.autocast("cuda", torch.bfloat16):
            assert torch.get_autocast_dtype("cuda") == torch.bfloat16
            return self.other(out)


def test_blocks_of_the_models_own() -> None:
    ops = ridgeline.count(Decorated(), x(2, 4), mode="train", precision="amp").ops
    products = ops.loc[ops["macs"].gt(0), ["path", "dtype"]].to_numpy().tolist()
    assert products == [
        ["kept", "fp16"], ["other", "bf16"],
        ["other", "bf16"], ["other", "bf16"], ["kept", "fp16"],
    ]  # fmt: skip


@pytest.mark.parametrize("device", ["meta", "cuda"])
def test_a_model_may_leave_mixed_precision(device: str) -> None:
    Careful.seen.clear()
    ops = ridgeline.count(Careful(device), x(2, 4), mode="infer", precision="amp").ops
    assert Careful.seen == [True, False, True]
    products = ops.loc[ops["macs"].gt(0), ["path", "dtype"]].to_numpy().tolist()
    assert products == [["low", "fp16"], ["full", "fp32"]]
    # and what was switched there is as it was before
    assert not torch.is_autocast_enabled()
    assert not torch.is_autocast_enabled("cpu")


@pytest.mark.parametrize("reentrant", [True, False])
def test_mixed_precision_holds_for_what_is_done_again(reentrant: bool) -> None:
    # given a product in fp16, then a softmax in fp32, in a checkpoint
    block = nn.Sequential(square(), nn.Softmax(-1))
    kept = Checkpointed(reentrant=reentrant)
    kept.block = block
    # when mixed precision is counted
    ops = ridgeline.count(kept, x(2, 4), mode="train", precision="amp").ops
    # then both are done again as they were done: the weight is converted anew, too
    columns = ["op", "path", "dtype"]
    again = ops.loc[ops["is_recomputed"], columns].to_numpy().tolist()
    assert again == [
        ["aten::_to_copy", "block.0", "fp32"],
        ["aten::mm", "block.0", "fp16"],
        ["aten::_to_copy", "block.1", "fp32"],
        ["aten::_softmax", "block.1", "fp32"],
    ]
    forward = ops[ops["phase"].eq("forward") & ops["path"].str.startswith("block")]
    assert forward[columns].to_numpy().tolist() == again


class Again(torch.autograd.Function):
    """A checkpoint of somebody's own: it asks for gradients with `torch.autograd.grad`."""

    @staticmethod
    def forward(ctx: Any, module: nn.Module, data: Tensor, *weights: Tensor) -> Any:
        ctx.module, ctx.weights = module, weights
        ctx.save_for_backward(data)
        with torch.no_grad():
            return module(data)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        data = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            out = ctx.module(data)
        return None, *torch.autograd.grad(out, (data, *ctx.weights), grad)


class OwnCheckpoint(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(square(), square())

    def forward(self, data: Tensor) -> Any:
        return Again.apply(self.inner, data, *self.inner.parameters())


def test_gradients_that_a_checkpoint_of_ones_own_asks_for() -> None:
    r = ridgeline.count(nn.Sequential(square(), OwnCheckpoint()), x(2, 4), mode="train")
    assert macs(r) == [3 * ONE, 2 * ONE, 3 * ONE]
    assert r.phase("recompute").macs == 2 * ONE


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoints_are_not_held_beyond_their_backward(reentrant: bool) -> None:
    # given layers of 4 kB each way, each in a checkpoint of its own
    class Deep(nn.Module):
        def __init__(self, layers: int) -> None:
            super().__init__()
            self.layers = nn.ModuleList(square() for _ in range(layers))

        def forward(self, data: Tensor) -> Any:
            for layer in self.layers:
                data = checkpoint(layer, data, use_reentrant=reentrant)
            return data

    def peak(layers: int) -> int:
        model = nn.Sequential(square(), Deep(layers))
        return ridgeline.count(model, x(256, 4), mode="train").memory.peak_bytes

    # then one more keeps its input and its weight when backward begins, and nothing afterwards
    assert peak(9) - peak(8) == FP32 * (256 * 4 + 16)


def test_a_checkpoint_that_ended_early_has_not_failed() -> None:
    class Failing(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, data: Tensor) -> Tensor:
            return data.clone()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            raise ValueError("no way back")

    class Broken(nn.Module):
        def forward(self, data: Tensor) -> Any:
            return Failing.apply(data)

    # given an error after a checkpoint has done enough of its work again
    model = nn.Sequential(square(), Broken(), Checkpointed(reentrant=False))
    with pytest.raises(RidgelineError) as error:
        ridgeline.count(model, x(2, 4), mode="train")
    assert "no way back" in str(error.value)
    assert "block" not in str(error.value)  # which did not fail


class Penalised(nn.Module):
    """Asks for gradients by name in its forward pass, through what is done again for them."""

    def __init__(self, *, reentrant: bool) -> None:
        super().__init__()
        self.kept, self.reentrant = Checkpointed(reentrant=reentrant), reentrant

    def forward(self, data: Tensor) -> Tensor:
        data = data.detach().requires_grad_()
        energy = torch.tanh(self.kept(data)).sum()
        if self.reentrant:  # such a checkpoint allows for nothing else
            energy.backward(retain_graph=True)
            return data * energy
        (force,) = torch.autograd.grad(outputs=energy, inputs=data, create_graph=True)
        return force * energy


@pytest.mark.parametrize("reentrant", [True, False])
def test_what_is_done_again_for_gradients_in_the_forward_pass(reentrant: bool) -> None:
    model = nn.Sequential(square(), Penalised(reentrant=reentrant))
    ops = ridgeline.count(model, x(2, 4), mode="train").ops
    again = ops[ops["is_recomputed"] & ops["macs"].gt(0)]
    products = ["1.kept.block.0", "1.kept.block.2"] if reentrant else ["1.kept.block.0"]
    assert again["path"].tolist()[: len(products)] == products
    # the gradient of the model's own operator is its own
    tanh = ops[ops["op"].eq("aten::tanh_backward") & ops["phase"].eq("forward")]
    assert tanh["path"].tolist() == ["1"]


def test_checkpointing_saves_memory() -> None:
    def kept(model: nn.Module) -> int:
        return ridgeline.count(model, x(64, 4), mode="train").memory.activation_bytes

    plain = nn.Sequential(square(), square(), nn.ReLU(), square())
    assert kept(Checkpointed(reentrant=False)) < kept(plain)


class Scaled(torch.autograd.Function):
    """A function with a backward of its own."""

    @staticmethod
    def forward(ctx: Any, data: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(data, weight)
        return data @ weight

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        data, weight = ctx.saved_tensors
        return grad @ weight.t(), data.t() @ grad


def test_a_custom_function_is_told_apart_by_its_results() -> None:
    class Custom(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.weight = square(), nn.Parameter(torch.empty(4, 4))

        def forward(self, data: Tensor) -> Any:
            return Scaled.apply(self.first(data), self.weight)

    r = ridgeline.count(Custom(), x(2, 4), mode="train")
    assert macs(r) == [2 * ONE, ONE, 2 * ONE]


def test_work_on_weights_alone_is_weight_gradient() -> None:
    """The weight is scaled before use; its scaling's backward serves the weight too."""

    class Standardised(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.empty(4, 4))

        def forward(self, data: Tensor) -> Tensor:
            return data @ (self.weight * 2.0)

    r = ridgeline.count(Standardised(), x(2, 4), mode="train")
    assert_cost(r.phase("forward"), macs=ONE, other=16)
    assert_cost(r.phase("weight-grad"), macs=ONE, other=16)
    assert_cost(r.phase("input-grad"), macs=0, other=0, read=0)


def test_fan_out_adds_gradients() -> None:
    """Three uses of one activation: two additions of 8 elements."""

    class FanOut(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = square()
            self.branches = nn.ModuleList(square() for _ in range(3))

        def forward(self, data: Tensor) -> list[Tensor]:
            start = self.first(data)
            return [branch(start) for branch in self.branches]

    r = ridgeline.count(FanOut(), x(2, 4), mode="train")
    assert macs(r) == [4 * ONE, 3 * ONE, 4 * ONE]
    assert r.phase("input-grad").other_flops == 2 * 8


@pytest.mark.parametrize("act", [nn.ReLU, nn.SiLU, nn.Hardswish, nn.Hardsigmoid, nn.Mish, nn.ELU])
@pytest.mark.parametrize("inplace", [True, False])
def test_the_gradient_of_an_activation_is_its_own(act: type[nn.Module], inplace: bool) -> None:
    # given an activation between two layers, which may keep a copy of what it overwrites
    model = nn.Sequential(square(), act(inplace=inplace), square())
    ops = ridgeline.count(model, x(2, 4), mode="train").ops
    # then its backward is work of its layer, and of no neighbour
    is_of_act = ops["kind"].eq("pointwise") & ops["phase"].eq("input-grad")
    assert set(ops.loc[is_of_act, "path"]) == {"1"}  # Mish has several operators


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, data: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(data, weight)
        return data @ weight.t()  # the first operator works on the weight alone

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        data, weight = ctx.saved_tensors
        return grad @ weight, grad.t() @ data


class OwnProduct(nn.Linear):
    def forward(self, data: Tensor) -> Tensor:
        out: Tensor = Product.apply(data, self.weight)
        return out


class Kept(nn.Sequential):
    def forward(self, data: Tensor) -> Any:
        return checkpoint(super().forward, data, use_reentrant=True)


class HalfInPlace(nn.Module):
    """Works in place on a view, whose nodes autograd makes afterwards."""

    def forward(self, data: Tensor) -> Tensor:
        whole = data * 1.0
        nn.functional.silu(whole[:, :2], inplace=True)
        return whole


@pytest.mark.parametrize(
    "middle",
    [OwnProduct(4, 4, bias=False), Kept(square()), nn.Sequential(HalfInPlace(), square()),
     nn.Sequential(nn.Flatten(), nn.Dropout(inplace=True), square())],
    ids=["custom function", "checkpoint", "in place on a part", "in place on a view"],
)  # fmt: skip
def test_the_layers_around_keep_their_gradients(middle: nn.Module) -> None:
    # given two layers, and between them what makes nodes that are not its first operator's
    model = nn.Sequential(square(), middle, square())
    r = ridgeline.count(model, x(2, 4), mode="train")
    # then each of the three has its products: two of inputs, three of weights
    assert macs(r)[1:] == [2 * ONE, 3 * ONE]
    products = r.ops[r.ops["macs"].gt(0) & r.ops["phase"].str.endswith("grad")]
    owners = products.groupby(products["path"].str[0])["phase"].apply(sorted).to_dict()
    both = ["input-grad", "weight-grad"]
    assert owners == {"0": ["weight-grad"], "1": both, "2": both}


class Filled(nn.Module):
    """Puts its input into the parts of an empty tensor."""

    def forward(self, data: Tensor) -> Tensor:
        whole = torch.zeros(2, 4, device=data.device)
        whole[:, :2] = data[:, :2]
        whole[:, 2:] = data[:, 2:]
        return whole


class Placed(nn.Module):
    """Adds its input to a part of what is made of weights alone."""

    def __init__(self) -> None:
        super().__init__()
        self.place = nn.Parameter(torch.ones(4))

    def forward(self, data: Tensor) -> Tensor:
        whole = self.place.expand(2, 4).clone()
        whole[:, :2] += data[:, :2]
        return whole


class Drawn(nn.Module):
    """A decoder: it takes noise for its input."""

    def forward(self, data: Tensor) -> Tensor:
        return torch.randn(2, 4, device=data.device)


@pytest.mark.parametrize(
    ("first", "wanted"),
    [(nn.Sequential(square(), Filled()), [2 * ONE, 3 * ONE]),
     (nn.Sequential(square(), Placed()), [2 * ONE, 3 * ONE]),
     (Drawn(), [ONE, 2 * ONE])],
    ids=["filled by parts", "added to weights", "drawn"],
)  # fmt: skip
def test_what_is_no_weight_has_input_gradients(first: nn.Module, wanted: list[int]) -> None:
    # given two layers behind what makes its result of nothing, or of weights
    model = nn.Sequential(first, square(), square())
    # then all but the first layer of all have gradients of inputs
    assert macs(ridgeline.count(model, x(2, 4), mode="train"))[1:] == wanted


class WholeAfterPart(nn.Module):
    """Works in place on a view, and goes on with the whole."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.act, self.after = square(), nn.SiLU(inplace=True), square()

    def forward(self, data: Tensor) -> Any:
        whole = self.before(data)
        self.act(whole.view(-1))
        return self.after(whole)


def test_a_whole_whose_view_was_changed() -> None:
    ops = ridgeline.count(WholeAfterPart(), x(2, 4), mode="train").ops
    assert ops.loc[ops["op"].eq("aten::silu_backward"), "path"].tolist() == ["act"]


@pytest.mark.parametrize(
    "inner", [OwnProduct(4, 4, bias=False), Kept(square())], ids=["custom function", "checkpoint"]
)
def test_recomputation_without_gradients(inner: nn.Module) -> None:
    # given a checkpoint around what runs its forward without gradients
    r = ridgeline.count(nn.Sequential(square(), Kept(inner), square()), x(2, 4), mode="train")
    # then it has the products of three layers backward, and is recomputed
    assert macs(r)[1:] == [2 * ONE, 3 * ONE]
    again = r.ops[r.ops["is_recomputed"] & r.ops["macs"].gt(0)]
    assert again["path"].str[0].tolist() == ["1"] * (1 if isinstance(inner, OwnProduct) else 2)


@pytest.mark.parametrize("inplace", [True, False])
def test_an_activation_on_a_view_keeps_its_gradient(inplace: bool) -> None:
    model = nn.Sequential(square(), nn.Flatten(), nn.SiLU(inplace=inplace), nn.Linear(8, 4))
    ops = ridgeline.count(model, x(2, 2, 4), mode="train").ops
    assert ops.loc[ops["op"].eq("aten::silu_backward"), "path"].tolist() == ["2"]


def test_no_grad_inside_the_model_cuts_the_graph() -> None:
    class Teacher(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.teacher, self.student = square(), square()

        def forward(self, data: Tensor) -> Tensor:
            with torch.no_grad():
                target = self.teacher(data)
            out: Tensor = self.student(data) - target
            return out

    r = ridgeline.count(Teacher(), x(2, 4), mode="train")
    assert macs(r) == [2 * ONE, 0, ONE]


def test_inference_mode_inside_the_model_cuts_the_graph() -> None:
    class Teacher(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.teacher, self.student = square(), square()

        def forward(self, data: Tensor) -> Tensor:
            with torch.inference_mode():
                target = self.teacher(data)
            out: Tensor = self.student(data) - target.clone()
            return out

    r = ridgeline.count(Teacher(), x(2, 4), mode="train")
    assert macs(r) == [2 * ONE, 0, ONE]
    assert ridgeline.count(Teacher(), x(2, 4)).total.macs == 2 * ONE


def test_vmap_and_functional_gradients() -> None:
    weight = torch.zeros(4, 4)

    def per_sample(data: Tensor) -> Any:
        return torch.func.vmap(lambda row: weight.to(row.device) @ row)(data)

    assert ridgeline.count(per_sample, (x(2, 4),)).total.macs == ONE


def test_gradients_taken_inside_the_model() -> None:
    """A gradient penalty: forward, and an input gradient that belongs to the forward pass."""

    class Penalty(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = square()

        def forward(self, data: Tensor) -> Tensor:
            data = data.detach().requires_grad_()
            (grad,) = torch.autograd.grad(self.layer(data).sum(), data, create_graph=True)
            out: Tensor = grad.square().sum()
            return out

    r = ridgeline.count(Penalty(), x(2, 4), mode="train")
    assert r.phase("forward").macs == 2 * ONE
    assert r.total.macs >= 3 * ONE


def test_nothing_to_train() -> None:
    with pytest.raises(ridgeline.RidgelineError, match="nothing in the model's output"):
        ridgeline.count(nn.ReLU(), x(2, 4), mode="train")
