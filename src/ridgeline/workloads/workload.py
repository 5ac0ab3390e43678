"""A workload: a model that can be built, what is fed to it, and the checks that sources share."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ridgeline.errors import MissingSizeError, RidgelineError
from ridgeline.records import MODES, WorkloadSpec
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

    @classmethod
    def of(cls, inputs: Any) -> Inputs:
        """From what people write: a dictionary of keywords, several arguments in order, or one."""
        if isinstance(inputs, Mapping):
            return cls(kwargs=dict(inputs))
        return cls(args=tuple(inputs) if isinstance(inputs, list | tuple) else (inputs,))


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
        try:
            with refuse_downloads(self.name):
                module = self.make()
        except RidgelineError:
            raise
        except Exception as error:
            raise RidgelineError(
                f"{self.source} cannot build {self.name}: {one_line(error)}",
                hint="check --config and --input-size; `--debug` shows where it happened",
            ) from error
        return module.train(self.mode == "train")

    def inputs(self, batch_size: int) -> Inputs:
        """One batch of `batch_size` samples."""
        check_positive("batch size", (batch_size,))
        return self.make_inputs(batch_size)


def read_weights(path: Path) -> dict[str, Any]:
    """A state_dict from a file: one alone, or that in a checkpoint of `ridgeline train`.

    Only tensors and plain values are read, so a file cannot run anything.
    """
    import torch

    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a foreign file can be wrong in any way
        raise RidgelineError(
            f"{path} cannot be read as weights: {one_line(error)}",
            hint="name a file of `ridgeline train`, or what torch.save(module.state_dict()) wrote",
        ) from error
    state = content.get("model", content) if isinstance(content, dict) else content
    if not isinstance(state, dict) or not all(isinstance(v, torch.Tensor) for v in state.values()):
        raise RidgelineError(
            f"{path} holds no state_dict", hint="it is a dictionary of names and tensors"
        )
    return state


def load_weights(module: nn.Module, path: Path, name: str) -> nn.Module:
    """The module with the weights of a file, all of them."""
    try:
        module.load_state_dict(read_weights(path))
    except RuntimeError as error:
        raise RidgelineError(
            f"the weights in {path} do not fit {name}: {one_line(error, limit=150)}…",
            hint="take the network that they were trained with; `ridgeline train` gives"
            " torchvision's networks ten classes: ridgeline.load_trained(FILE) builds those",
        ) from error
    return module


def with_weights(workload: Workload, path: Path) -> Workload:
    """The same network, built with the weights of a file."""
    return replace(workload, make=lambda: load_weights(workload.make(), path, workload.name))


def one_line(error: BaseException, limit: int = 300) -> str:
    """`KeyError: 'x'`: the type and the text of an error without its line breaks."""
    text = " ".join(str(error).split())[:limit]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


# ---------------------------------------------------------------- checks of a request

LIST_HINT = "`ridgeline count --list PATTERN` lists the models"


def check_spec(spec: WorkloadSpec) -> None:
    """Refuse a spec that no model could follow."""
    if spec.mode not in MODES:
        raise RidgelineError(
            f"unknown mode {spec.mode!r}", hint=f"the modes are {' and '.join(MODES)}"
        )
    check_positive("batch size", (spec.batch_size,))
    if spec.input_size is not None:
        check_positive("input size", spec.input_size)
    if spec.seq_len is not None:
        check_positive("sequence length", (spec.seq_len,))


def check_positive(what: str, sizes: tuple[int, ...]) -> None:
    whole = [isinstance(size, int) and not isinstance(size, bool) and size >= 1 for size in sizes]
    if not sizes or not all(whole):
        raise RidgelineError(
            f"{what} {size_text(sizes)} is not possible", hint="give whole numbers, 1 or more"
        )


def size_text(size: Iterable[int]) -> str:
    """(480, 640) as people write it: 480x640."""
    return "x".join(str(length) for length in size) or "()"


def unknown_name(what: str, name: str, known: Iterable[str], *, hint: str) -> RidgelineError:
    """`unknown model resnet5` with the names that are nearest to it, then `hint`."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    near = [by_lower[match] for match in get_close_matches(name.lower(), by_lower)]
    lead = f"did you mean {or_text(near)}? " if near else ""
    return RidgelineError(f"unknown {what} {name!r}", hint=lead + hint)


def or_text(names: list[str]) -> str:
    """a, b or c."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def check_image_options(spec: WorkloadSpec, source: str) -> None:
    """Refuse `--config` and `--seq-len`, which models of images that are chosen by name lack."""
    if spec.config:
        raise RidgelineError(
            f"{spec.model} takes no --config ({', '.join(sorted(spec.config))})",
            hint=f"models of {source} are chosen by name; --config is for transformers: and lstm",
        )
    refuse_seq_len(spec)


def refuse_input_size(spec: WorkloadSpec) -> None:
    """Refuse `--input-size` where there are no images."""
    if spec.input_size is not None:
        raise MissingSizeError(
            "input_size",
            f"{spec.model} has no input size",
            hint="it takes tokens: choose their number with --seq-len",
        )


def refuse_seq_len(spec: WorkloadSpec) -> None:
    """Refuse `--seq-len` where there are no tokens."""
    if spec.seq_len is not None:
        raise MissingSizeError(
            "seq_len",
            f"{spec.model} has no sequence length",
            hint="choose the size of its input with --input-size",
        )


# ---------------------------------------------------------------- `--config hidden_size=8192,…`


def override_defaults(
    defaults: Mapping[str, Any], config: Mapping[str, Any], model: str
) -> dict[str, Any]:
    """`defaults` with the values of `config` put in; an unknown key names its neighbours."""
    for key in config:
        if key not in defaults:
            more = f" and {len(defaults) - 12} more" if len(defaults) > 12 else ""
            hint = f"it has {', '.join(list(defaults)[:12])}{more}"
            raise unknown_name(f"--config key of {model}", key, defaults, hint=hint)
    return {**defaults, **{key: parse_value(key, config[key], defaults[key]) for key in config}}


def parse_value(key: str, value: Any, default: Any) -> Any:
    """`value` as the type of `default`; what is not text is believed."""
    if not isinstance(value, str) or isinstance(default, str):
        return value
    what, parse = PARSERS.get(type(default), ("", _parse_json))
    try:
        return parse(value)
    except (ValueError, KeyError):
        raise RidgelineError(
            f"--config {key}={value} is not {what}", hint=f"the default is {key}={default}"
        ) from None


def _parse_json(text: str) -> Any:
    """Where the default is None or a list there is no type to follow: read it as JSON if it is."""
    try:
        return None if text == "None" else json.loads(text)
    except json.JSONDecodeError:
        return text


TRUTH = {"true": True, "1": True, "false": False, "0": False}
PARSERS: dict[type, tuple[str, Callable[[str], Any]]] = {  # by the type of the default
    bool: ("true or false", lambda text: TRUTH[text.lower()]),
    int: ("a whole number", int),
    float: ("a number", float),
}
