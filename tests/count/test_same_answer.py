"""The answer depends on the model and its inputs, and on nothing else; nor does it change them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch
from tests.count.cases import Net, x
from torch import nn

import ridgeline

CALLERS: list[Callable[[], AbstractContextManager[Any]]] = [
    nullcontext,
    torch.no_grad,
    torch.inference_mode,
    torch.enable_grad,
]


def network() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 9, 5)
    )


def encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.1)
    return nn.TransformerEncoder(layer, 2)


MODELS: list[tuple[Callable[[], nn.Module], tuple[int, ...]]] = [
    (network, (2, 3, 5, 5)),
    (encoder, (2, 3, 8)),
    (lambda: nn.LSTM(4, 5, bidirectional=True), (3, 2, 4)),
    (lambda: nn.MultiheadAttention(8, 2), (3, 2, 8)),
]


def arguments(model: nn.Module, data: torch.Tensor) -> Any:
    return (data, data, data) if isinstance(model, nn.MultiheadAttention) else data


@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize(("make", "shape"), MODELS)
def test_device_and_callers_gradient_mode_do_not_matter(
    make: Callable[[], nn.Module], shape: tuple[int, ...], caller: Any, mode: str
) -> None:
    with torch.device("meta"):
        without_data = make()
    expected = ridgeline.count(without_data, arguments(without_data, x(*shape)), mode=mode)
    real = make().eval()
    with caller():
        r = ridgeline.count(real, arguments(real, torch.zeros(shape)), mode=mode)
    assert r.total == expected.total
    assert r.traced_on == "meta"


@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize("training", [True, False])
def test_the_model_is_left_as_it_was(mode: str, training: bool) -> None:
    model = network().train(training)
    model[0].eval()
    model[4].weight.grad = torch.ones(5, 36)
    state = {key: value.clone() for key, value in model.state_dict().items()}
    flags = [m.training for m in model.modules()]
    noise = torch.get_rng_state()
    ridgeline.count(model, torch.zeros(2, 3, 5, 5), mode=mode, optimizer="adam")
    assert all(torch.equal(state[key], value) for key, value in model.state_dict().items())
    assert [m.training for m in model.modules()] == flags
    assert model[0].weight.grad is None
    assert torch.equal(model[4].weight.grad, torch.ones(5, 36))
    assert torch.equal(torch.get_rng_state(), noise)
    assert all(p.requires_grad for p in model.parameters())
    assert not any(p.is_meta for p in model.parameters())


def test_random_numbers_are_left_as_they_were() -> None:
    """Also where the model has to run for real."""

    model = Net(
        lambda n, data: n.drop(n.layer(data)) if data.sum() >= 0 else data,
        layer=nn.Linear(4, 4),
        drop=nn.Dropout(0.5),
    )
    noise = torch.get_rng_state()
    assert ridgeline.count(model, torch.zeros(2, 4), mode="train").traced_on == "real"
    assert torch.equal(torch.get_rng_state(), noise)


@pytest.mark.parametrize("precision", ["fp32", "bf16", "amp"])
def test_a_model_without_data_is_left_as_it_was(precision: str) -> None:
    with torch.device("meta"):
        model = network().eval()
    ridgeline.count(model, x(2, 3, 5, 5), mode="train", precision=precision)
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert all(p.grad is None for p in model.parameters())
    assert not model.training


def test_the_inputs_are_left_as_they_were() -> None:
    data = torch.ones(2, 4)
    ridgeline.count(nn.ReLU(inplace=True), data.neg_())
    assert torch.equal(data, -torch.ones(2, 4))


def test_one_tensor_given_twice_is_still_one() -> None:
    data = torch.zeros(5)
    assert ridgeline.count(torch.mul, (data, data)).total.read_bytes == 20
    assert ridgeline.count(torch.mul, (data, data.clone())).total.read_bytes == 40


def test_a_storage_in_the_place_of_one_that_is_gone_is_another() -> None:
    # given a network whose storages take each other's places
    model = nn.Sequential(*(nn.Sequential(nn.BatchNorm1d(6), nn.RReLU()) for _ in range(4)))
    # when it is counted
    calls: list[Any] = [op.call for op in ridgeline.count(model, x(4, 6)).op_costs]
    # then each result has a number of its own, and is read once, by the next operator; nobody
    # has made the noise of an RReLU
    made = [call.out.storage for call in calls]
    assert len({*made}) == len(made) == 8
    assert [call.inputs[0].storage for call in calls[1:]] == made[:-1]
    assert not {call.inputs[1].storage for call in calls[1::2]} & {*made}


def test_inputs_are_left_as_they_were_where_the_model_runs_for_real() -> None:
    def model(data: torch.Tensor) -> torch.Tensor:
        data.relu_()
        return data + 1 if data.sum() > 0 else data

    data = torch.tensor([-1.0, 2.0])
    assert ridgeline.count(model, (data,)).traced_on == "real"
    assert data.tolist() == [-1.0, 2.0]
