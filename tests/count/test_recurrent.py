"""Recurrent layers by hand: each step multiplies (gates·H) × (inputs + H) for every sequence.

Beyond the products, a hidden unit and step costs, in FLOPs: two biases and one addition for each
gate; a sigmoid is 3, and its exponential or a tanh one transcendental.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.count.cases import FP32, Case, assert_cost, check, table, x
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

import ridgeline

T, N, D, H = 3, 2, 4, 5  # steps, sequences, inputs, hidden units

RNN_FLOPS = 3  # two biases, one addition
LSTM_FLOPS = 4 * 3 + 3 * 3 + 3 + 1  # gates; sigmoids; f·c + i·g; o·tanh(c)
GRU_FLOPS = 3 * 3 + 2 * 3 + 1 + 3  # gates; sigmoids; r·(…); (h − n)·z + n


@table(
    Case("rnn tanh", nn.RNN(D, H), x(T, N, D), macs=T * N * H * (D + H),
         other=T * N * H * RNN_FLOPS, transcendental=T * N * H),
    Case("rnn relu", nn.RNN(D, H, nonlinearity="relu"), x(T, N, D), macs=T * N * H * (D + H),
         other=T * N * H * (RNN_FLOPS + 1)),
    Case("rnn without bias", nn.RNN(D, H, bias=False), x(T, N, D), macs=T * N * H * (D + H),
         other=T * N * H, transcendental=T * N * H),
    Case("lstm", nn.LSTM(D, H), x(T, N, D), macs=T * N * 4 * H * (D + H),
         other=T * N * H * LSTM_FLOPS, transcendental=T * N * H * 5),
    Case("lstm, batch first", nn.LSTM(D, H, batch_first=True), x(N, T, D),
         macs=T * N * 4 * H * (D + H), other=T * N * H * LSTM_FLOPS, transcendental=T * N * H * 5),
    Case("lstm unbatched", nn.LSTM(D, H), x(T, D), macs=T * 4 * H * (D + H),
         other=T * H * LSTM_FLOPS, transcendental=T * H * 5),
    Case("lstm of two layers", nn.LSTM(D, H, num_layers=2), x(T, N, D),
         macs=T * N * 4 * H * ((D + H) + (H + H)), other=2 * T * N * H * LSTM_FLOPS,
         transcendental=2 * T * N * H * 5),
    Case("lstm in both directions", nn.LSTM(D, H, bidirectional=True), x(T, N, D),
         macs=2 * T * N * 4 * H * (D + H), other=2 * T * N * H * LSTM_FLOPS,
         transcendental=2 * T * N * H * 5),
    # the second layer reads 2·H
    Case("lstm of two layers in both directions", nn.LSTM(D, H, num_layers=2, bidirectional=True),
         x(T, N, D), macs=2 * T * N * 4 * H * ((D + H) + (2 * H + H)),
         other=4 * T * N * H * LSTM_FLOPS, transcendental=4 * T * N * H * 5),
    Case("lstm with projection to 2", nn.LSTM(D, H, proj_size=2), x(T, N, D),
         macs=T * N * (4 * H * (D + 2) + 2 * H), other=T * N * H * LSTM_FLOPS,
         transcendental=T * N * H * 5),
    Case("gru", nn.GRU(D, H), x(T, N, D), macs=T * N * 3 * H * (D + H),
         other=T * N * H * GRU_FLOPS, transcendental=T * N * H * 3),
    Case("gru, two layers, both directions", nn.GRU(D, H, num_layers=2, bidirectional=True),
         x(T, N, D), macs=2 * T * N * 3 * H * ((D + H) + (2 * H + H)),
         other=4 * T * N * H * GRU_FLOPS, transcendental=4 * T * N * H * 3),
    Case("lstm cell", nn.LSTMCell(D, H), x(N, D), macs=N * 4 * H * (D + H),
         other=N * H * LSTM_FLOPS, transcendental=N * H * 5),
    Case("gru cell", nn.GRUCell(D, H), x(N, D), macs=N * 3 * H * (D + H), other=N * H * GRU_FLOPS,
         transcendental=N * H * 3),
    # two products with their biases, their sum, and its tanh; each N × H
    Case("rnn cell", nn.RNNCell(D, H), (x(N, D), x(N, H)), macs=N * H * (D + H),
         other=N * H * RNN_FLOPS, transcendental=N * H,
         read=FP32 * ((N * D + H * D + H) + (N * H + H * H + H) + 2 * N * H + N * H),
         written=FP32 * 4 * N * H),
)  # fmt: skip
def test_forward(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
def test_real_modules_in_eval_give_the_same(kind: Any) -> None:
    layer = kind(D, H, num_layers=2, bidirectional=True)
    on_meta = ridgeline.count(layer.to("meta"), x(T, N, D))
    real = kind(D, H, num_layers=2, bidirectional=True).eval()
    with torch.no_grad():
        on_cpu = ridgeline.count(real, torch.zeros(T, N, D))
    assert on_cpu.total == on_meta.total


def test_lstm_phases() -> None:
    """Weight gradients repeat the forward; all hidden products but the first go back in time."""
    r = ridgeline.count(nn.LSTM(D, H), x(T, N, D), mode="train")
    forward = T * N * 4 * H * (D + H)
    assert_cost(r.phase("forward"), macs=forward)
    assert_cost(r.phase("weight-grad"), macs=forward)
    assert_cost(r.phase("input-grad"), macs=(T - 1) * N * 4 * H * H)


def test_packed_sequences_do_only_the_steps_there_are() -> None:
    """Lengths 3 and 1: four steps in all."""

    class Packed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(D, H, batch_first=True)

        def forward(self, data: Tensor, lengths: Tensor) -> Tensor:
            packed = pack_padded_sequence(data, lengths, batch_first=True, enforce_sorted=False)
            out: Tensor = self.lstm(packed)[0].data
            return out

    r = ridgeline.count(Packed(), (torch.zeros(2, 3, D), torch.tensor([3, 1])))
    assert_cost(r.total, macs=(3 + 1) * 4 * H * (D + H), transcendental=4 * H * 5)
