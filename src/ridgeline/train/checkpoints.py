"""Checkpoints: a training between two epochs, in a file that is whole or absent.

    NAME_last.pt            after every epoch: what --resume usually takes
    NAME_best.pt            after the epoch with the highest accuracy so far
    NAME_epoch5.pt          every so many epochs, where that was asked
    NAME_final_weights.pt   the weights alone, at the end

They hold tensors and plain values only and are read with `weights_only=True`, so opening one
cannot run anything. torch does not look at the checksums in its files; here they are checked.
Raise VERSION when an older reader would misread a checkpoint.
"""

from __future__ import annotations

import io
import pickle
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ridgeline.errors import RidgelineError
from ridgeline.store import whole_file, writing
from ridgeline.workloads.workload import one_line

FORMAT = "ridgeline-train"
VERSION = 1
ELSEWHERE = "--out-dir DIR"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFolder:
    """The files of one training."""

    folder: Path
    name: str

    @property
    def last(self) -> Path:
        return self.folder / f"{self.name}_last.pt"

    @property
    def best(self) -> Path:
        return self.folder / f"{self.name}_best.pt"

    @property
    def final_weights(self) -> Path:
        return self.folder / f"{self.name}_final_weights.pt"

    def epoch(self, number: int) -> Path:
        return self.folder / f"{self.name}_epoch{number}.pt"

    def prepare(self, *, overwrite: bool) -> None:
        """Make the folder, see that it takes files, and that nothing is lost there."""
        with writing(self.folder, elsewhere=ELSEWHERE):
            self.folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=self.folder).close()
        for kind in ("last", "best", "final_weights", "epoch[0-9]*"):
            for left in self.folder.glob(f".tmp-{self.name}_{kind}.pt-*"):  # of a killed writer
                left.unlink(missing_ok=True)
        there = [path.name for path in (self.last, self.best) if path.exists()]
        if there and not overwrite:
            raise RidgelineError(
                f"{self.folder} already holds a training of {self.name}: {', '.join(there)}",
                hint=f"--resume {self.last} goes on with it, --overwrite begins anew in its "
                "place, --out-dir DIR begins anew elsewhere",
            )


def save(path: Path, content: Mapping[str, Any]) -> None:
    """Write a file of torch's, whole or not at all; an older one stays until then."""
    # Into memory first: torch turns a full disk into an error that says nothing of it.
    buffer = io.BytesIO()
    torch.save(content, buffer)
    with writing(path, elsewhere=ELSEWHERE), whole_file(path) as file:
        file.write(buffer.getbuffer())


def checkpoint(content: Mapping[str, Any]) -> dict[str, Any]:
    """The state of a training as it is written."""
    return {"format": FORMAT, "version": VERSION, **content}


def load(path: Path) -> dict[str, Any]:
    """Read a checkpoint of a training, and refuse everything else."""
    if not path.is_file():
        near = sorted(file.name for file in path.parent.glob("*.pt"))
        raise RidgelineError(
            f"there is no checkpoint {path}",
            hint=f"{path.parent} has {', '.join(near) or 'no .pt files'}",
        )
    try:
        with zipfile.ZipFile(path) as archive:
            if wrong := archive.testzip():
                raise ValueError(f"the checksum of {wrong} in it is wrong")
        content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise RidgelineError(
            f"{path} holds more than tensors and plain values, and could run code if it was loaded",
            hint="take a checkpoint that `ridgeline train` has written",
        ) from error
    except Exception as error:  # a foreign file can be wrong in any way
        raise RidgelineError(
            f"{path} is damaged, or no checkpoint: {one_line(error)}",
            hint="take another one: NAME_last.pt, NAME_best.pt and, with --save-every, "
            "NAME_epoch5.pt",
        ) from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise RidgelineError(
            f"{path} is not a checkpoint of `ridgeline train`",
            hint="take NAME_last.pt or NAME_best.pt; files of weights alone cannot be resumed",
        )
    if content.get("version") != VERSION:
        raise RidgelineError(
            f"{path} is a checkpoint of version {content.get('version')}, and this ridgeline reads "
            f"version {VERSION}",
            hint="use the ridgeline that wrote it, or update this one",
        )
    return content


def refuse_differences(path: Path, saved: Mapping[str, Any], requested: Mapping[str, Any]) -> None:
    """To go on with other settings would be neither the old training nor a new one."""
    differences = [
        f"{name}: {saved.get(name)} there, {value} asked"
        for name, value in requested.items()
        if saved.get(name) != value
    ]
    if differences:
        raise RidgelineError(
            f"{path} was made with other settings: {'; '.join(differences)}",
            hint="leave these options out to go on as it began, or begin anew without --resume "
            "(the learning rate of every step depends on the number of epochs)",
        )
