"""The settings of a run: how a workload is run, and what is measured. Imports no torch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ridgeline.errors import RidgelineError
from ridgeline.serialize import STORED

MODES = ("infer", "train")
PRECISIONS = ("fp32", "tf32", "amp", "bf16", "fp16")
BACKENDS = ("auto", "cuda", "mps", "cpu")
COMPILE_MODES = ("default", "reduce-overhead", "max-autotune")
ALGORITHMS = (  # of convolutions; docs/conv.md says which device has which
    "default", "benchmark", "direct", "gemm", "implicit gemm", "implicit precomp gemm", "fft",
    "fft tiling", "winograd", "winograd 4x4", "winograd nonfused", "guess", "find",
)  # fmt: skip
DEFAULT_BATCH = 32  # of a step that is timed or profiled; a count is of one sample
SYNTHETIC = "synthetic"  # one batch that stays on the device
SYNTHETIC_HOST = "synthetic-host"  # one batch in host memory, copied in every step
LOADING = ("workers", "pin_memory", "prefetch_factor", "augment")  # settings of data that is read
# settings that say what is measured and how, not what a step does
MEASURING = (
    "device", "warmup_iters", "iters", "nvtx", "seed", "weights", "layers", "energy",
    "energy_time_s", "layer_energy",
)  # fmt: skip
WORK_SETTINGS = ("grad_accum_steps",)  # that change how much work a step is
WORDS = "words"  # in the metadata of a setting: how a report names it, if not by its field

# The optimizers that users name: the class of torch.optim, and its arguments.
OPTIMIZERS: dict[str, tuple[str, dict[str, Any]]] = {
    "sgd": ("SGD", {}),
    "momentum": ("SGD", {"momentum": 0.9}),
    "nesterov": ("SGD", {"momentum": 0.9, "nesterov": True}),
    "adam": ("Adam", {}),
    "adamw": ("AdamW", {}),
    "adamax": ("Adamax", {}),
    "nadam": ("NAdam", {}),
    "radam": ("RAdam", {}),
    "rmsprop": ("RMSprop", {}),
    "adagrad": ("Adagrad", {}),
    "adadelta": ("Adadelta", {}),
    "adafactor": ("Adafactor", {}),
}
WITH_MOMENTUM = tuple(n for n, (kind, _) in OPTIMIZERS.items() if kind in ("SGD", "RMSprop"))


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a workload is to be run and what is to be measured. None: ridgeline chooses."""

    backend: str = "auto"
    device: int = 0
    precision: str = field(default="fp32", metadata=STORED)
    warmup_iters: int | None = None  # exactly so many; None: until the times are steady
    iters: int | None = None
    optimizer: str = field(default="sgd", metadata=STORED)
    lr: float | None = None
    momentum: float | None = None
    weight_decay: float | None = None
    channels_last: bool = False
    grad_accum_steps: int = field(default=1, metadata={WORDS: "{} batches a step"})
    deterministic: bool = False
    cudnn_benchmark: bool = field(default=False, metadata={WORDS: "cuDNN search"})
    compile: str | None = None  # one of COMPILE_MODES
    algorithm: str = field(default="default", metadata={WORDS: "convolutions by {}"})
    nvtx: bool = False
    seed: int = 0
    weights: str | None = None  # a file of them; the work of a step does not depend on it
    data: str = field(default=SYNTHETIC, metadata=STORED)  # or SYNTHETIC_HOST, or a path
    workers: int = field(default=0, metadata={WORDS: "{} workers"})
    pin_memory: bool = field(default=False, metadata={WORDS: "pinned memory"})
    prefetch_factor: int | None = field(default=None, metadata={WORDS: "prefetch {}"})
    augment: bool = field(default=True, metadata={WORDS: "augmented"})
    layers: bool = False
    energy: bool | None = None  # None: where there is a meter
    energy_time_s: float = 5.0
    layer_energy: bool = False

    def __post_init__(self) -> None:
        for part in fields(self):
            check_setting(part.name, getattr(self, part.name))
        check_momentum(self.optimizer, self.optimizer_options)
        if self.prefetch_factor is not None and not self.workers:
            raise RidgelineError(
                "--prefetch-factor needs workers that could fetch", hint="add --workers 2 or more"
            )
        if self.layer_energy and self.energy is False:
            raise RidgelineError(
                "--layer-energy and --no-energy exclude each other", hint="leave one of them out"
            )

    @property
    def optimizer_options(self) -> dict[str, Any]:
        """Arguments of the optimizer: those that were given."""
        options = {"lr": self.lr, "momentum": self.momentum, "weight_decay": self.weight_decay}
        return {name: value for name, value in options.items() if value is not None}

    @property
    def for_counting(self) -> Settings:
        """Those of a step whose kernels are counted: without a search, which would be counted."""
        return replace(self, cudnn_benchmark=False, nvtx=False)

    def batches_in_step(self, mode: str) -> int:
        """Batches whose gradients a step gathers; inference has none to gather."""
        return self.grad_accum_steps if mode == "train" else 1

    @property
    def layout(self) -> str:
        """Of images in memory."""
        return "nhwc" if self.channels_last else "nchw"

    @property
    def is_synthetic(self) -> bool:
        return self.data in (SYNTHETIC, SYNTHETIC_HOST)


# Fields that change a step and are columns of that name in every table of runs.
STEP_SETTINGS = tuple(
    f.name
    for f in fields(Settings)
    if f.name not in (*MEASURING, *LOADING, "backend", "precision", "optimizer", "lr", "momentum",
                      "weight_decay", "compile", "data")
)  # fmt: skip
NOT_COUNTED = ("channels_last", "grad_accum_steps", "algorithm")  # a count lacks their effect
CHOICES = {
    "backend": BACKENDS, "precision": PRECISIONS, "optimizer": tuple(OPTIMIZERS),
    "compile": COMPILE_MODES, "algorithm": ALGORITHMS,
}  # fmt: skip
LEAST: Mapping[str, float] = {
    "device": 0, "warmup_iters": 0, "iters": 1, "lr": 0, "weight_decay": 0,
    "grad_accum_steps": 1, "seed": 0, "workers": 0, "prefetch_factor": 1, "energy_time_s": 0.1,
}  # fmt: skip


def check_setting(name: str, value: Any) -> None:
    """Refuse a value that a setting never has, whatever the others are."""
    if value is None:
        return
    if name in CHOICES:
        one_of("compile mode" if name == "compile" else name, value, CHOICES[name])
    least = LEAST.get(name)
    if least is not None and not least <= value < float("inf"):
        raise RidgelineError(
            f"{option(name)} {value} is not possible", hint=f"it is {least} or more"
        )


def check_momentum(name: str, options: Mapping[str, Any]) -> None:
    """Refuse a momentum that is none, or that the optimizer does not have."""
    momentum = options.get("momentum")
    if momentum is None:
        return
    if not 0 <= momentum < 1:  # also for nan
        raise RidgelineError(
            f"--momentum {momentum} is not possible", hint="it is 0 or more, and less than 1"
        )
    if name not in WITH_MOMENTUM:
        raise RidgelineError(
            f"the optimizer {name} has no momentum",
            hint=f"leave --momentum out, or choose {', '.join(WITH_MOMENTUM)}",
        )


def check_mode(mode: str) -> None:
    one_of("mode", mode, MODES)


def is_counted(settings: object) -> bool:
    """Whether a step is as its count has it: what is predicted from a count is that step."""
    return all(getattr(settings, n) == getattr(Settings(), n) for n in NOT_COUNTED)


def one_of(what: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise RidgelineError(f"unknown {what} {value!r}", hint=f"choose {', '.join(choices)}")


def option(name: str) -> str:
    """The option of the command line that sets a field."""
    return "--" + {"energy_time_s": "energy-time"}.get(name, name.replace("_", "-"))


OTHER_ARGUMENTS = ("batch_size", "input_size", "seq_len", "config", "mode", "remeasure")
OF_COMMAND_ALONE = {"repeats": "{} measurements", "find_max_batch": "ridgeline.max_batch"}
_VALUES = "|".join((*PRECISIONS, *COMPILE_MODES, *BACKENDS, SYNTHETIC))
_OPTION = re.compile(rf"--(no-)?([a-z][a-z-]*)(?:[ ](\d[\d.]*\d|\d|(?:{_VALUES})\b))?")


def as_arguments(text: str) -> str:
    """Advice that names options, with arguments of the Python functions in their place."""
    return _OPTION.sub(_as_argument, text.replace("ridgeline run … ", ""))


def _as_argument(found: re.Match[str]) -> str:
    no, option_name, value = found.groups()
    name = option_name.replace("-", "_")
    name = {"compile_mode": "compile", "energy_time": "energy_time_s"}.get(name, name)
    if name in OF_COMMAND_ALONE:
        return OF_COMMAND_ALONE[name].format(value)
    kinds = {part.name: part.type for part in fields(Settings)}
    if name not in kinds and name not in OTHER_ARGUMENTS:
        return found[0]
    rest = f" {value}" if value else ""
    if name == "remeasure" or str(kinds.get(name)).startswith("bool"):
        return f"{name}={not no}{rest}"
    if value is None:
        return name
    return f"{name}={value}" if value[0].isdigit() else f'{name}="{value}"'
