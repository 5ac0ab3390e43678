"""A language model with an LSTM: tokens → vectors → two LSTM layers → scores of the next token.

The plain form of arXiv:1409.2329 in its medium size: 10,000 words, vectors and states of 650.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn


@dataclass(frozen=True, slots=True, kw_only=True)
class LstmConfig:
    """The sizes that `--config` can change."""

    vocab_size: int = 10_000
    embedding_size: int = 650
    hidden_size: int = 650
    num_layers: int = 2
    dropout: float = 0.5


class LstmLanguageModel(nn.Module):
    """Token ids (N, length) to scores (N, length, vocabulary)."""

    def __init__(self, config: LstmConfig) -> None:
        super().__init__()
        between = config.dropout if config.num_layers > 1 else 0.0
        self.embedding = nn.Embedding(config.vocab_size, config.embedding_size)
        self.lstm = nn.LSTM(
            config.embedding_size,
            config.hidden_size,
            config.num_layers,
            batch_first=True,
            dropout=between,
        )
        self.dropout = nn.Dropout(config.dropout)
        self.projection = nn.Linear(config.hidden_size, config.vocab_size)

    def forward(self, ids: Tensor) -> Tensor:
        states, _ = self.lstm(self.dropout(self.embedding(ids)))
        scores: Tensor = self.projection(self.dropout(states))
        return scores
