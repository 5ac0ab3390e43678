"""What is said when a model fails, and models that once failed for no good reason."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from tests.count.cases import Net
from torch import Tensor, nn

import ridgeline
from ridgeline.count import formulas


@dataclass
class Output:
    """A plain record, as some models return."""

    scores: Tensor


def branch(net: Any, x: Tensor) -> Any:
    return net.layer(x) if x.sum() > 0 else net.layer(x) * 2


def misspelt(_: Any, x: Tensor) -> Any:
    return relo(x)  # type: ignore[name-defined]  # noqa: F821


def complaint(model: nn.Module, x: Tensor, mode: str = "infer") -> str:
    with pytest.raises(ridgeline.RidgelineError) as refused:
        ridgeline.count(model, x, mode=mode)
    return str(refused.value)


def test_a_record_as_output_trains() -> None:
    model = Net(lambda n, x: Output(n.layer(x)), layer=nn.Linear(3, 4))
    # forward and weight-grad, 2·3·4 each; the input needs no gradient
    assert ridgeline.count(model, (2, 3), mode="train").total.macs == 48


def test_a_lazy_module_has_to_be_run_once() -> None:
    assert "run a lazy module once before" in complaint(nn.LazyLinear(5), torch.ones(2, 3))


def test_a_branch_on_values_is_run_for_real_and_says_why() -> None:
    result = ridgeline.count(Net(branch, layer=nn.Linear(3, 4)), torch.ones(2, 3))
    assert result.traced_on == "real"
    assert "item() cannot be called on meta tensors" in result.notes[0]


def test_a_branch_on_values_without_data() -> None:
    with torch.device("meta"):
        model = Net(branch, layer=nn.Linear(3, 4))
    assert complaint(model, torch.empty(2, 3, device="meta")) == (
        "the model looks at values that shapes cannot give: "
        "Tensor.item() cannot be called on meta tensors\n"
        "  hint: it has no data (device meta): build it with data, smaller if need be"
    )


def test_a_mistake_in_the_code_is_not_blamed_on_shapes() -> None:
    text = complaint(Net(misspelt), torch.ones(2))
    assert "name 'relo' is not defined (test_errors.py:" in text
    assert "the error is in the model's own code" in text


def test_batch_norm_over_one_value_says_which_batch() -> None:
    model = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.BatchNorm2d(3))
    assert "use --batch-size 2 or more" in complaint(model, torch.ones(1, 3, 8, 8), "train")


def test_sparse_inputs_are_refused() -> None:
    assert "sparse tensors as inputs" in complaint(nn.Linear(3, 4), torch.eye(3).to_sparse())


def test_attention_trains_on_real_tensors() -> None:
    # given attention in a model that must run for real
    def forward(net: Any, x: Tensor) -> Any:
        x = net.project(x)
        if x.sum() > -1e9:
            x = nn.functional.scaled_dot_product_attention(x, x, x)
        return x

    model = Net(forward, project=nn.Linear(4, 4))
    result = ridgeline.count(model, torch.ones(1, 2, 3, 4), mode="train")
    products, attention = 2 * 3 * 4 * 4, 2 * 3 * 3 * (4 + 4)
    assert result.traced_on == "real"
    assert result.total.macs == 2 * products + 3 * attention


# ---------------------------------------------------------------- names

ONLY_IN_SOME_VERSIONS = frozenset({"aten::shallow_copy_data_"})
"""Operators that some of the supported versions of PyTorch do not have."""


def existing() -> set[str]:
    full: list[str] = torch._C._dispatch_get_all_op_names()
    return {name.split(".")[0] for name in full} | set(full)


def aten(names: Iterable[str]) -> set[str]:
    return {name for name in names if name.startswith("aten::")}


def test_formulas() -> None:
    assert aten(formulas.FORMULAS) - existing() - ONLY_IN_SOME_VERSIONS == set()


def test_free_operators() -> None:
    assert aten(formulas.FREE) - existing() - ONLY_IN_SOME_VERSIONS == set()


def test_no_operator_is_both_free_and_counted() -> None:
    assert formulas.FREE & set(formulas.FORMULAS) == set()
