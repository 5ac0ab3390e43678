"""Tokens for language models, out of files: stretches of them, each with what follows.

`*.bin` holds 16-bit numbers without a header, as nanoGPT's preparation writes them; `*.npy` an
array of whole numbers; of `*.txt` every byte is a token.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from ridgeline.errors import RidgelineError

ENDINGS = (".bin", ".npy", ".txt")
LOOKED_AT = 10_000_000  # tokens of a file, to learn how many kinds there are: enough, and quick


def find_tokens(path: Path) -> list[Path]:
    """The files of tokens at a path: itself, or all of one kind in a folder."""
    if path.is_file():
        return [path] if path.suffix in ENDINGS else []
    for ending in ENDINGS:
        if files := sorted(path.glob(f"*{ending}")):
            return files
    return []


def read_tokens(file: Path) -> Any:
    """The tokens of a file as an array, mapped rather than read where that is possible."""
    try:
        if file.suffix == ".npy":
            tokens = np.load(file, mmap_mode="r", allow_pickle=False)
        else:
            kind = np.uint16 if file.suffix == ".bin" else np.uint8
            tokens = np.memmap(file, dtype=kind, mode="r")
    except (OSError, ValueError, EOFError) as error:
        raise RidgelineError(
            f"cannot read tokens from {file}: {error}",
            hint="a .bin file holds 16-bit numbers, a .npy file an array of whole numbers",
        ) from error
    if tokens.ndim != 1 or not np.issubdtype(tokens.dtype, np.integer):
        raise RidgelineError(
            f"{file} does not hold a row of tokens but {tokens.dtype} of shape {tokens.shape}",
            hint="save them as a one-dimensional array of whole numbers",
        )
    return tokens


class TokenWindows(Dataset[tuple[Tensor, Tensor]]):
    """Stretches of `length` tokens, one after another, and the same moved on by one."""

    def __init__(self, files: list[Path], length: int) -> None:
        self.length = length
        self.parts = [read_tokens(file) for file in files]
        self.counts = [max(0, (len(part) - 1) // length) for part in self.parts]
        looked_at = [part[:LOOKED_AT] for part in self.parts if len(part)]
        self.ids = max((int(part.max()) + 1 for part in looked_at), default=0)

    def __len__(self) -> int:
        return sum(self.counts)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        for part, count in zip(self.parts, self.counts, strict=True):
            if index < count:
                start = index * self.length
                taken = torch.from_numpy(part[start : start + self.length + 1].astype(np.int64))
                return taken[:-1], taken[1:]
            index -= count
        raise IndexError(index)
