"""The records of this room: a model that can be built, and what is fed to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ridgeline.errors import RidgelineError
from ridgeline.workloads.checks import check_batch_size
from ridgeline.workloads.offline import refuse_downloads

if TYPE_CHECKING:
    from torch import Tensor, nn

    Loss = Callable[[Any, "Inputs"], Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """One batch. Floats follow the default device; integers are real, on the CPU, and valid.

    An index has to have a value even where nothing is computed: it chooses rows and branches.
    """

    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    targets: object | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A model by name: how to build it, feed it and train it."""

    name: str  # short, for files and tables
    source: str
    mode: str  # one of records.MODES
    make: Callable[[], nn.Module]
    make_inputs: Callable[[int], Inputs]
    loss: Loss | None = None
    describe: dict[str, object] = field(default_factory=dict)  # the sizes that were chosen

    def build(self) -> nn.Module:
        """The module, with random weights, on the default device, in the mode that was asked."""
        from ridgeline.workloads.meta_build import build_anywhere  # imports torch

        try:
            with refuse_downloads(self.name):
                module = build_anywhere(self.make)
        except RidgelineError:
            raise
        except Exception as error:
            raise cannot_build(self.source, self.name, error) from error
        return module.train(self.mode == "train")

    def inputs(self, batch_size: int) -> Inputs:
        """One batch of `batch_size` samples."""
        check_batch_size(batch_size)
        return self.make_inputs(batch_size)


def cannot_build(source: str, name: str, error: BaseException) -> RidgelineError:
    """The library's own complaint, in one line."""
    return RidgelineError(
        f"{source} cannot build {name}: {one_line(error)}",
        hint="check --config and --input-size; `--debug` shows where it happened",
    )


def one_line(error: BaseException, limit: int = 300) -> str:
    """`KeyError: 'x'`: the type and the text of an error without its line breaks."""
    text = " ".join(str(error).split())
    text = text if len(text) <= limit else text[: limit - 1] + "…"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
