"""How to count: what was asked for beside the model and its inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ridgeline.records import MODES, PRECISIONS
from ridgeline.settings import OPTIMIZERS, one_of

CAUSAL = ("full", "half")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How to count: everything but the model and its inputs."""

    mode: str = "infer"
    precision: str = "fp32"
    optimizer: str = "sgd"
    optimizer_options: Mapping[str, Any] = field(default_factory=dict)
    causal: str = "full"

    def __post_init__(self) -> None:
        one_of("mode", self.mode, MODES)
        one_of("precision", self.precision, PRECISIONS)
        one_of("optimizer", self.optimizer, tuple(OPTIMIZERS))
        one_of("causal", self.causal, CAUSAL)
