"""The other counters, each as one function of a module and its arguments that gives MACs.

They live in build/bench-site, put on the path when the first of them is used. What one of them
raises is kept as its answer. Several replace functions of torch while they run and do not put them
back after an error, so that is done here.
"""

from __future__ import annotations

import copy
import io
import logging
import sys
import time
import tomllib
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from importlib import import_module, metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

ROOT = Path(__file__).parents[1]
SITE = ROOT / "build" / "bench-site"
Count = Callable[["nn.Module", Sequence[Any]], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counter:
    """One tool."""

    name: str
    macs: Count
    copies: bool = True  # it leaves hooks and buffers behind, so it gets a copy of the module


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a tool said of one case, how long it took, or what it raised."""

    macs: int | None
    time_s: float
    error: str = ""


def requirements() -> list[str]:
    """What `make bench` installs: the `bench` extra of pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [str(line) for line in project["optional-dependencies"]["bench"]]


def described() -> list[str]:
    """Every other counter with its version, or that it is not installed."""
    names = [counter.name for counter in OTHERS]
    return [f"{name} {version(name) or '(not installed)'}" for name in names]


def version(name: str) -> str | None:
    found = metadata.distributions(name=name, path=[str(SITE)])
    return next((distribution.version for distribution in found), None)


def ask(counter: Counter, module: nn.Module, args: Sequence[Any]) -> Answer:
    """One tool on one case: never raises, never prints."""
    given = copy.deepcopy(module) if counter.copies else module
    with quiet(), torch_restored():
        start_s = time.perf_counter()
        try:
            macs: int | None = round(counter.macs(given, args))
            error = ""
        except Exception as problem:
            macs, error = None, f"{type(problem).__name__}: {problem}"
        return Answer(macs=macs, time_s=time.perf_counter() - start_s, error=error)


@contextmanager
def quiet() -> Iterator[None]:
    """Nothing they print or warn of reaches the terminal."""
    logging.disable(logging.CRITICAL)
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            logging.disable(logging.NOTSET)


@contextmanager
def torch_restored() -> Iterator[None]:
    """Put back whatever was replaced in torch."""
    import torch

    owners = (torch, torch.Tensor, torch.nn.functional)
    before = [dict(vars(owner)) for owner in owners]
    try:
        yield
    finally:
        for owner, saved in zip(owners, before, strict=True):
            now = dict(vars(owner))
            for name, value in saved.items():
                if now.get(name) is not value:
                    setattr(owner, name, value)


def imported(name: str) -> Any:
    """One of the installed counters; their folder comes behind everything else on the path."""
    if str(SITE) not in sys.path:
        sys.path.append(str(SITE))
    return import_module(name)


# ---------------------------------------------------------------- the tools


def ridgeline_macs(module: nn.Module, args: Sequence[Any]) -> int:
    import ridgeline

    return int(ridgeline.count(module, tuple(args)).total.macs)


def flop_counter_macs(module: nn.Module, args: Sequence[Any]) -> int:
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        module(*args)
    return int(counter.get_total_flops()) // 2


def ptflops_macs(module: nn.Module, args: Sequence[Any]) -> int:
    """Its aten backend. It passes one argument on, so the others are bound to the module."""
    import torch

    class Bound(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = module

        def forward(self, first: Any) -> Any:
            return self.inner(first, *args[1:])

    with torch.no_grad():
        macs, _ = imported("ptflops").get_model_complexity_info(
            module if len(args) == 1 else Bound().eval(),
            (1,),
            input_constructor=lambda _: args[0],
            backend="aten",
            as_strings=False,
            print_per_layer_stat=False,
        )
    if macs is None:
        raise RuntimeError("not finished, as it says on its output")
    return int(macs)


def calflops_macs(module: nn.Module, args: Sequence[Any]) -> int:
    found = imported("calflops").calculate_flops(
        module, args=list(args), output_as_string=False, print_results=False, print_detailed=False
    )
    return int(found[1])


def deepspeed_macs(module: nn.Module, args: Sequence[Any]) -> int:
    import torch

    profiler = imported("deepspeed.profiling.flops_profiler")
    with torch.no_grad():
        found = profiler.get_model_profile(
            module, args=list(args), print_profile=False, as_string=False, warm_up=0
        )
    return int(found[1])


def torchinfo_macs(module: nn.Module, args: Sequence[Any]) -> int:
    device = next((a.device for a in args if hasattr(a, "device")), "cpu")
    found = imported("torchinfo").summary(module, input_data=list(args), verbose=0, device=device)
    return int(found.total_mult_adds)


def thop_macs(module: nn.Module, args: Sequence[Any]) -> int:
    macs, _ = imported("thop").profile(module, inputs=tuple(args), verbose=False)
    return int(macs)


def fvcore_macs(module: nn.Module, args: Sequence[Any]) -> int:
    analysis = imported("fvcore.nn").FlopCountAnalysis(module, tuple(args))
    analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False)
    return int(analysis.total())


OURS = Counter(name="ridgeline", macs=ridgeline_macs, copies=False)
FLOP_COUNTER = Counter(name="FlopCounterMode", macs=flop_counter_macs, copies=False)
OTHERS = (
    Counter(name="ptflops", macs=ptflops_macs),
    Counter(name="calflops", macs=calflops_macs),
    Counter(name="deepspeed", macs=deepspeed_macs),
    Counter(name="torchinfo", macs=torchinfo_macs),
    Counter(name="thop", macs=thop_macs),
    Counter(name="fvcore", macs=fvcore_macs),
)
ALL = (OURS, FLOP_COUNTER, *OTHERS)
