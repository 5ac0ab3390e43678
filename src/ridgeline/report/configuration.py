"""What makes a configuration, and how two of them are told apart. The one place that says so.

Runs that agree in all SETTINGS are repeats of one configuration. A setting that is as usual (no
compiler, one batch a step, synthetic data) is None here, whether it was written down or not.

A label, the number of threads, the version of torch and environment variables differ between
machines and between days in any case: they separate runs of one machine that agree in everything
else, and name nothing more.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ridgeline.provenance import speed_variables
from ridgeline.report.text import plain, records

if TYPE_CHECKING:
    import pandas as pd

PLACE = ("env", "backend", "device_name")
NETWORK = ("model", "digest", "config")  # a changed file, or other sizes, is another network
WORK = (*NETWORK, "batch_size", "mode", "precision", "input_size", "seq_len")
LOADING = ("workers", "pin_memory", "prefetch_factor", "augment")  # of data that is read
MANNER = (
    "optimizer", "compile", "channels_last", "grad_accum_steps", "deterministic",
    "cudnn_benchmark", "data_root", *LOADING,
)  # fmt: skip
CIRCUMSTANCES = ("label", "threads", "torch_version", "environment")
SETTINGS = (*PLACE, *WORK, *MANNER, *CIRCUMSTANCES)

# Variables that say where something is, or which of several equal devices is used. They are stored
# and shown, and runs that differ in them alone are repeats.
NO_SETTINGS = (
    "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_HOME", "CUDA_PATH", "TORCH_HOME",
    "KMP_DUPLICATE_LIB_OK", "TORCH_WARM_POOL",  # torch itself sets the last three
)  # fmt: skip

USUAL: dict[str, Any] = {"grad_accum_steps": 1, "data_root": "synthetic"}
USUAL_OPTIMIZER = "sgd"
MADE_UP = ("synthetic", "synthetic-host", None)  # inputs that nobody has to read
BARE = (
    "model", "mode", "precision", "optimizer", "label", "env", "backend", "device_name",
    "environment",
)  # fmt: skip
WORDS = {
    "batch_size": "batch {}", "input_size": "input {}", "seq_len": "length {}",
    "compile": "compile {}", "grad_accum_steps": "{} batches a step", "data_root": "data {}",
    "workers": "{} workers", "prefetch_factor": "prefetch {}", "threads": "{} threads",
    "torch_version": "torch {}", "digest": "version {:.6}",
}  # fmt: skip
FLAGS = {
    "channels_last": "channels last", "deterministic": "deterministic",
    "cudnn_benchmark": "cuDNN search", "pin_memory": "pinned memory", "augment": "augmented",
    "compile": "compiled",
}  # fmt: skip


def settings_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """All SETTINGS of a run, from its row in the table of runs."""
    found = {name: _setting(name, row.get(name)) for name in SETTINGS}
    if found["data_root"] in MADE_UP:
        found |= dict.fromkeys(LOADING)
    return found


def _setting(name: str, value: Any) -> Any:
    known = plain(value)
    return None if known is False or known == "" or known == USUAL.get(name) else known


def key(settings: Mapping[str, Any], *, but: Iterable[str] = ()) -> tuple[Any, ...]:
    """Equal for runs that agree in all settings `but` some."""
    left_out = set(but)
    return tuple(settings[name] for name in SETTINGS if name not in left_out)


def numbered(found: Iterable[Mapping[str, Any]], *, but: Iterable[str] = ()) -> list[int]:
    """For each of some settings the number of its configuration, by first appearance."""
    left_out = tuple(but)
    numbers: dict[tuple[Any, ...], int] = {}
    return [numbers.setdefault(key(one, but=left_out), len(numbers)) for one in found]


def all_settings(runs: pd.DataFrame) -> list[dict[str, Any]]:
    """The settings of every row of the table of runs."""
    return [settings_of(row) for row in records(runs[[n for n in SETTINGS if n in runs]])]


def telling(found: Sequence[Mapping[str, Any]], among: Iterable[str] = SETTINGS) -> list[str]:
    """The settings that tell some configurations apart."""
    names = list(among)
    told = [name for name in names if name not in CIRCUMSTANCES and _differs(found, name)]
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for one in found:
        groups.setdefault(key(one, but=CIRCUMSTANCES), []).append(one)
    told += [
        name
        for name in names
        if name in CIRCUMSTANCES and any(_differs(same, name) for same in groups.values())
    ]
    return told


def telling_each(
    found: Sequence[Mapping[str, Any]], *, by: Sequence[str], among: Sequence[str]
) -> list[list[str]]:
    """For each of some settings those `among` which tell it from others that agree in `by`."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for one in found:
        groups.setdefault(tuple(one[name] for name in by), []).append(one)
    told = {same: telling(group, among) for same, group in groups.items()}
    return [told[tuple(one[name] for name in by)] for one in found]


def describe_differences(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """For each of some settings, in words, those in which they differ.

    Label and threads are among them wherever they differ. Place, model, batch, mode and precision
    are not: a table has columns for these.
    """
    shown = (*PLACE, "model", "batch_size", "mode", "precision")
    told = telling_each(found, by=("model",), among=[n for n in SETTINGS if n not in shown])
    always = [name for name in ("label", "threads") if _differs(found, name)]
    return [
        ", ".join(in_words(one, dict.fromkeys((*always, *names))))
        for one, names in zip(found, told, strict=True)
    ]


def _differs(found: Iterable[Mapping[str, Any]], name: str) -> bool:
    """Whether a setting takes several values; inference has no optimizer, which is no value."""
    values = {one[name] for one in found}
    return len(values - {None} if name == "optimizer" else values) > 1


def in_words(settings: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    """Some settings: `compile default`, `input 224`; what is usual needs no word."""
    return [text for name in names if (text := word(name, settings[name]))]


def word(name: str, value: Any) -> str:
    """One setting in words."""
    if value is None or value is False:
        return ""
    if value is True:
        return FLAGS.get(name, name.replace("_", " "))
    if name == "config":
        return config_words(str(value))
    if name in BARE:
        return str(value)
    text = WORDS.get(name, name + " {}").format(value)
    return text.removesuffix("s") if value == 1 else text  # 1 thread, 1 worker


def unusual(settings: Mapping[str, Any]) -> list[str]:
    """In words, those settings that are not what one would assume."""
    names = [name for name in ("config", *MANNER) if name != "optimizer"]
    optimizer = settings.get("optimizer")
    used = [] if optimizer in (None, USUAL_OPTIMIZER) else [str(optimizer)]
    return [*used, *in_words({name: settings.get(name) for name in names}, names)]


def config_text(config: Any) -> str:
    """What a model was configured with, as a cell: the same text for the same sizes."""
    if not isinstance(config, Mapping) or not config:
        return ""
    return json.dumps(config, sort_keys=True, default=str)


def environment_settings(provenance: Mapping[str, Any]) -> dict[str, str]:
    """The environment variables that are settings of a run; none where none are recorded."""
    recorded = speed_variables(provenance.get("environment") or {})
    return {name: str(value) for name, value in recorded.items() if name not in NO_SETTINGS}


def environment_text(provenance: Mapping[str, Any]) -> str:
    """`OMP_NUM_THREADS=1 OMP_PROC_BIND=true`, as a shell takes it."""
    found = environment_settings(provenance)
    return " ".join(f"{name}={shlex.quote(value)}" for name, value in found.items())


def config_words(text: str) -> str:
    """`hidden=64 layers=2` of such a cell."""
    try:
        config = json.loads(text)
    except ValueError:
        return text
    if not isinstance(config, dict):
        return text
    return " ".join(f"{name}={value}" for name, value in config.items())
