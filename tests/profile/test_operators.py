"""Which operators may use tensor cores, by their names."""

from __future__ import annotations

import pytest

from ridgeline.profile.operators import may_use_tensor_cores


@pytest.mark.parametrize(
    "op",
    ["aten::mm", "aten::addmm", "aten::baddbmm", "aten::convolution", "aten::convolution_backward",
     "aten::linear", "aten::_scaled_dot_product_flash_attention", "aten::_cudnn_rnn",
     "aten::_efficient_attention_backward", "mine::fused"],
)  # fmt: skip
def test_products_may(op: str) -> None:
    assert may_use_tensor_cores(op)


@pytest.mark.parametrize(
    "op",
    ["aten::relu_", "aten::cudnn_batch_norm", "aten::_foreach_add_", "aten::sum", "aten::_to_copy",
     "aten::max_pool2d_with_indices", "aten::_log_softmax", "aten::threshold_backward"],
)  # fmt: skip
def test_others_do_not(op: str) -> None:
    assert not may_use_tensor_cores(op)
