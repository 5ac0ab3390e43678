"""Which phase work belongs to, by hand, where autograd makes it less than obvious."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.count.cases import FP32, Net, assert_cost, x
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import ridgeline
from ridgeline.errors import RidgelineError


def square(bias: bool = False) -> nn.Linear:
    return nn.Linear(4, 4, bias=bias)


ONE = 2 * 4 * 4  # MACs of one such layer on 2 rows


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, data: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(data, weight)
        return data @ weight

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        data, weight = ctx.saved_tensors
        return grad @ weight.t(), data.t() @ grad


def macs(r: Any) -> list[int]:
    return [r.phase(p).macs for p in ("forward", "input-grad", "weight-grad")]


def frozen(*places: int) -> nn.Module:
    """Three layers, of which these have no gradients."""
    model = nn.Sequential(square(), square(), square())
    for place in places:
        model[place].requires_grad_(False)
    return model


def cut_by(context: Callable[[], Any]) -> nn.Module:
    """Two layers, one of them without gradients."""

    def forward(net: Any, data: Tensor) -> Any:
        with context():
            target = net.teacher(data)
        return net.student(data) - target.clone()

    return Net(forward, teacher=square(), student=square())


@pytest.mark.parametrize(
    ("model", "data", "products"),
    [
        (frozen(), x(2, 4), [3, 2, 3]),  # the first layer has no input gradient
        (square(), x(2, 4).requires_grad_(), [1, 1, 1]),  # the input wants one
        (frozen(0, 1), x(2, 4), [3, 0, 1]),  # frozen first layers end the backward pass
        (frozen(1), x(2, 4), [3, 2, 2]),  # one in the middle passes gradients on
        (cut_by(torch.no_grad), x(2, 4), [2, 0, 1]),
        (cut_by(torch.inference_mode), x(2, 4), [2, 0, 1]),
        # a function with a backward of its own
        (Net(lambda n, data: Scaled.apply(n.first(data), n.weight), first=square(),
             weight=nn.Parameter(torch.empty(4, 4))), x(2, 4), [2, 1, 2]),
    ],
    ids=["plain", "input", "frozen", "in the middle", "no grad", "inference mode", "custom"],
)  # fmt: skip
def test_products_by_phase(model: nn.Module, data: Tensor, products: list[int]) -> None:
    r = ridgeline.count(model, data, mode="train")
    assert macs(r) == [number * ONE for number in products]


def test_frozen_weights_have_no_gradients_to_keep() -> None:
    r = ridgeline.count(frozen(1), x(2, 4), mode="train")
    assert (r.params, r.memory.gradient_bytes) == (3 * 16, FP32 * 2 * 16)


def checkpointed(block: nn.Module | None = None, *, reentrant: bool) -> nn.Module:
    return Net(
        lambda n, data: checkpoint(n.block, n.first(data), use_reentrant=reentrant),
        first=square(),
        block=block or nn.Sequential(square(), nn.ReLU(), square()),
    )


@pytest.mark.parametrize("reentrant", [True, False])
def test_recomputation_is_a_phase_of_its_own(reentrant: bool) -> None:
    r = ridgeline.count(checkpointed(reentrant=reentrant), x(2, 4), mode="train")
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


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_function_that_is_done_again_is_its_module_s(reentrant: bool) -> None:
    # given work of a module's own around a part's
    own = Net(
        lambda n, data: checkpoint(
            lambda one: torch.tanh(n.part(one.exp())), data, use_reentrant=reentrant
        ),
        part=square(),
    )
    model = nn.Sequential(square(), own, nn.ReLU())
    ops = ridgeline.count(model, x(2, 4), mode="train").ops
    again = ops.loc[ops["is_recomputed"], ["path", "op"]].to_numpy().tolist()
    assert again == [["1", "aten::exp"], ["1.part", "aten::mm"], ["1", "aten::tanh"]]
    gradients = ops[ops["phase"].isin(["input-grad", "weight-grad"]) & ops["macs"].gt(0)]
    assert gradients["path"].tolist() == ["1.part", "1.part", "0"]


def test_a_weight_that_was_cast_without_gradients_has_them_afterwards() -> None:
    # given a layer that runs once without gradients, and again on what came out
    def forward(net: Any, data: Tensor) -> Any:
        with torch.no_grad():
            data = net.layer(data)
        return net.layer(data)

    model = nn.Sequential(square(), Net(forward, layer=square()))
    [fp32, amp] = (
        ridgeline.count(model, x(2, 4), mode="train", precision=p) for p in ("fp32", "amp")
    )
    assert macs(amp) == macs(fp32) == [3 * ONE, 0, ONE]


def test_blocks_of_the_models_own() -> None:
    # given a block that was made before the model runs, and one that asks for another precision
    block = torch.autocast("cpu", enabled=False)

    def forward(net: Any, data: Tensor) -> Any:
        with block:
            out = net.kept(data)
        with torch.autocast("cuda", torch.bfloat16):
            assert torch.get_autocast_dtype("cuda") == torch.bfloat16
            return net.other(out)

    model = Net(forward, kept=square(), other=square())
    ops = ridgeline.count(model, x(2, 4), mode="train", precision="amp").ops
    products = ops.loc[ops["macs"].gt(0), ["path", "dtype"]].to_numpy().tolist()
    assert products == [
        ["kept", "fp16"], ["other", "bf16"],
        ["other", "bf16"], ["other", "bf16"], ["kept", "fp16"],
    ]  # fmt: skip


@pytest.mark.parametrize("device", ["meta", "cuda"])
def test_a_model_may_leave_mixed_precision(device: str) -> None:
    seen = []

    def forward(net: Any, data: Tensor) -> Any:
        seen.append(torch.is_autocast_enabled())
        out = net.low(data)
        with torch.autocast(device, enabled=False):
            seen.append(torch.is_autocast_enabled())
            out = net.full(out.float())
        seen.append(torch.is_autocast_enabled())
        return out

    model = Net(forward, low=square(), full=square())
    ops = ridgeline.count(model, x(2, 4), mode="infer", precision="amp").ops
    assert seen == [True, False, True]
    products = ops.loc[ops["macs"].gt(0), ["path", "dtype"]].to_numpy().tolist()
    assert products == [["low", "fp16"], ["full", "fp32"]]
    # and what was switched there is as it was before
    assert not torch.is_autocast_enabled()
    assert not torch.is_autocast_enabled("cpu")


@pytest.mark.parametrize("reentrant", [True, False])
def test_mixed_precision_holds_for_what_is_done_again(reentrant: bool) -> None:
    # given a product in fp16, then a softmax in fp32, in a checkpoint
    block = nn.Sequential(square(), nn.Softmax(-1))
    kept = checkpointed(block, reentrant=reentrant)
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


def test_gradients_that_a_checkpoint_of_ones_own_asks_for() -> None:
    own = Net(
        lambda n, data: Again.apply(n.inner, data, *n.inner.parameters()),
        inner=nn.Sequential(square(), square()),
    )
    r = ridgeline.count(nn.Sequential(square(), own), x(2, 4), mode="train")
    assert macs(r) == [3 * ONE, 2 * ONE, 3 * ONE]
    assert r.phase("recompute").macs == 2 * ONE


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoints_are_not_held_beyond_their_backward(reentrant: bool) -> None:
    # given layers of 4 kB each way, each in a checkpoint of its own
    def forward(net: Any, data: Tensor) -> Any:
        for layer in net.layers:
            data = checkpoint(layer, data, use_reentrant=reentrant)
        return data

    def peak(layers: int) -> int:
        deep = Net(forward, layers=nn.ModuleList(square() for _ in range(layers)))
        model = nn.Sequential(square(), deep)
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

    # given an error after a checkpoint has done enough of its work again
    model = nn.Sequential(
        square(), Net(lambda _, data: Failing.apply(data)), checkpointed(reentrant=False)
    )
    with pytest.raises(RidgelineError) as error:
        ridgeline.count(model, x(2, 4), mode="train")
    assert "no way back" in str(error.value)
    assert "block" not in str(error.value)  # which did not fail


@pytest.mark.parametrize("reentrant", [True, False])
def test_what_is_done_again_for_gradients_in_the_forward_pass(reentrant: bool) -> None:
    # given a forward pass that asks for gradients, by name, through a checkpoint
    def forward(net: Any, data: Tensor) -> Any:
        data = data.detach().requires_grad_()
        energy = torch.tanh(net.kept(data)).sum()
        if reentrant:  # such a checkpoint allows for nothing else
            energy.backward(retain_graph=True)
            return data * energy
        (force,) = torch.autograd.grad(outputs=energy, inputs=data, create_graph=True)
        return force * energy

    model = nn.Sequential(square(), Net(forward, kept=checkpointed(reentrant=reentrant)))
    ops = ridgeline.count(model, x(2, 4), mode="train").ops
    again = ops[ops["is_recomputed"] & ops["macs"].gt(0)]
    products = ["1.kept.block.0", "1.kept.block.2"] if reentrant else ["1.kept.block.0"]
    assert again["path"].tolist()[: len(products)] == products
    # the gradient of the model's own operator is its own
    tanh = ops[ops["op"].eq("aten::tanh_backward") & ops["phase"].eq("forward")]
    assert tanh["path"].tolist() == ["1"]


def test_work_on_weights_alone_is_weight_gradient() -> None:
    """The weight is scaled before use; its scaling's backward serves the weight too."""
    model = Net(lambda n, data: data @ (n.weight * 2.0), weight=nn.Parameter(torch.empty(4, 4)))
    r = ridgeline.count(model, x(2, 4), mode="train")
    assert_cost(r.phase("forward"), macs=ONE, other=16)
    assert_cost(r.phase("weight-grad"), macs=ONE, other=16)
    assert_cost(r.phase("input-grad"), macs=0, other=0, read=0)


def test_fan_out_adds_gradients() -> None:
    """Three uses of one activation: two additions of 8 elements."""

    def forward(net: Any, data: Tensor) -> list[Tensor]:
        start = net.first(data)
        return [branch(start) for branch in net.branches]

    branches = nn.ModuleList(square() for _ in range(3))
    model = Net(forward, first=square(), branches=branches)
    r = ridgeline.count(model, x(2, 4), mode="train")
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


def own_product() -> nn.Module:
    return Net(lambda n, data: Product.apply(data, n.weight), weight=nn.Parameter(torch.ones(4, 4)))


def kept(inner: nn.Module) -> nn.Module:
    return nn.Sequential(
        Net(lambda n, data: checkpoint(n.inner, data, use_reentrant=True), inner=inner)
    )


def half_in_place(_: Any, data: Tensor) -> Tensor:
    """Works in place on a view, whose nodes autograd makes afterwards."""
    whole = data * 1.0
    nn.functional.silu(whole[:, :2], inplace=True)
    return whole


@pytest.mark.parametrize(
    "middle",
    [own_product(), kept(square()), nn.Sequential(Net(half_in_place), square()),
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


def fill_by_parts(_: Any, data: Tensor) -> Tensor:
    whole = torch.zeros(2, 4, device=data.device)
    whole[:, :2] = data[:, :2]
    whole[:, 2:] = data[:, 2:]
    return whole


def add_to_weights(net: Any, data: Tensor) -> Any:
    whole = net.place.expand(2, 4).clone()
    whole[:, :2] += data[:, :2]
    return whole


@pytest.mark.parametrize(
    ("first", "wanted"),
    [(nn.Sequential(square(), Net(fill_by_parts)), [2 * ONE, 3 * ONE]),
     (nn.Sequential(square(), Net(add_to_weights, place=nn.Parameter(torch.ones(4)))),
      [2 * ONE, 3 * ONE]),
     (Net(lambda _, data: torch.randn(2, 4, device=data.device)), [ONE, 2 * ONE])],
    ids=["filled by parts", "added to weights", "drawn"],
)  # fmt: skip
def test_what_is_no_weight_has_input_gradients(first: nn.Module, wanted: list[int]) -> None:
    # given two layers behind what makes its result of nothing, or of weights
    model = nn.Sequential(first, square(), square())
    # then all but the first layer of all have gradients of inputs
    assert macs(ridgeline.count(model, x(2, 4), mode="train"))[1:] == wanted


def test_a_whole_whose_view_was_changed() -> None:
    def forward(net: Any, data: Tensor) -> Any:
        whole = net.before(data)
        net.act(whole.view(-1))
        return net.after(whole)

    model = Net(forward, before=square(), act=nn.SiLU(inplace=True), after=square())
    ops = ridgeline.count(model, x(2, 4), mode="train").ops
    assert ops.loc[ops["op"].eq("aten::silu_backward"), "path"].tolist() == ["act"]


@pytest.mark.parametrize(
    ("inner", "again"), [(own_product(), 1), (kept(square()), 2)], ids=["custom", "checkpoint"]
)
def test_recomputation_without_gradients(inner: nn.Module, again: int) -> None:
    # given a checkpoint around what runs its forward without gradients
    r = ridgeline.count(nn.Sequential(square(), kept(inner), square()), x(2, 4), mode="train")
    # then it has the products of three layers backward, and is recomputed
    assert macs(r)[1:] == [2 * ONE, 3 * ONE]
    products = r.ops[r.ops["is_recomputed"] & r.ops["macs"].gt(0)]
    assert products["path"].str[0].tolist() == ["1"] * again


def test_gradients_taken_inside_the_model() -> None:
    """A gradient penalty: forward, and an input gradient that belongs to the forward pass."""

    def forward(net: Any, data: Tensor) -> Any:
        data = data.detach().requires_grad_()
        (grad,) = torch.autograd.grad(net.layer(data).sum(), data, create_graph=True)
        return grad.square().sum()

    r = ridgeline.count(Net(forward, layer=square()), x(2, 4), mode="train")
    assert r.phase("forward").macs == 2 * ONE
    assert r.total.macs >= 3 * ONE


def test_nothing_to_train() -> None:
    with pytest.raises(ridgeline.RidgelineError, match="nothing in the model's output"):
        ridgeline.count(nn.ReLU(), x(2, 4), mode="train")
