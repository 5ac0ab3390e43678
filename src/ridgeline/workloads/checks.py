"""What can be wrong with what was asked, and how it is said."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from ridgeline.errors import RidgelineError
from ridgeline.records import MODES, WorkloadSpec

LIST_HINT = "`ridgeline count --list PATTERN` lists the models"


def check_spec(spec: WorkloadSpec) -> None:
    """Refuse a spec that no model could follow."""
    check_batch_size(spec.batch_size)
    if spec.mode not in MODES:
        raise RidgelineError(
            f"unknown mode {spec.mode!r}", hint=f"the modes are {' and '.join(MODES)}"
        )
    if spec.input_size is not None:
        check_input_size(spec.input_size)
    if spec.seq_len is not None and not is_positive(spec.seq_len):
        raise RidgelineError(
            f"sequence length {spec.seq_len} is not possible",
            hint="a sequence length is a whole number of tokens, 1 or more",
        )


def check_batch_size(batch_size: int) -> None:
    if not is_positive(batch_size):
        raise RidgelineError(
            f"batch size {batch_size} is not possible",
            hint="a batch size is a whole number, 1 or more",
        )


def check_input_size(input_size: tuple[int, ...]) -> None:
    if not input_size or not all(is_positive(size) for size in input_size):
        raise RidgelineError(
            f"input size {size_text(input_size)} is not possible",
            hint="each size is a whole number, 1 or more: 224, or 480x640 for height and width",
        )


def is_positive(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def size_text(size: Iterable[int]) -> str:
    """(480, 640) as people write it: 480x640."""
    return "x".join(str(length) for length in size) or "()"


def unknown_name(what: str, name: str, known: Iterable[str], *, hint: str) -> RidgelineError:
    """`unknown model resnet5` with the names that are nearest to it, then `hint`."""
    near = closest(name, known)
    lead = f"did you mean {or_text(near)}? " if near else ""
    return RidgelineError(f"unknown {what} {name!r}", hint=lead + hint)


def closest(name: str, known: Iterable[str], limit: int = 3) -> list[str]:
    """The nearest of `known`, best first, whatever their case."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    near = get_close_matches(name.lower(), by_lower, n=limit, cutoff=0.6)
    return [by_lower[match] for match in near]


def or_text(names: list[str]) -> str:
    """a, b or c."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def no_config(spec: WorkloadSpec, source: str) -> None:
    """Refuse `--config` where the source has nothing to configure."""
    if spec.config:
        raise RidgelineError(
            f"{spec.model} takes no --config ({', '.join(sorted(spec.config))})",
            hint=f"models of {source} are chosen by name; --config is for transformers: and lstm",
        )


def no_input_size(spec: WorkloadSpec) -> None:
    """Refuse `--input-size` where there are no images."""
    if spec.input_size is not None:
        raise RidgelineError(
            f"{spec.model} has no input size",
            hint="it takes tokens: choose their number with --seq-len",
        )


def no_seq_len(spec: WorkloadSpec) -> None:
    """Refuse `--seq-len` where there are no tokens."""
    if spec.seq_len is not None:
        raise RidgelineError(
            f"{spec.model} has no sequence length",
            hint="choose the size of its input with --input-size",
        )
