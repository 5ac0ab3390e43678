"""Time of each module's forward and backward, in a pass of its own and without waiting per layer.

Hooks mark the moments at which the work of one module ends and that of another begins, and the time
between two marks belongs to the module that was at work. So the times tile the step: their sum is
the whole, and what a container does beside its children (the addition of a residual) is its own.

Forward is marked where modules are entered and left. Backward is marked at the nodes of autograd's
graph, each of which belongs to the module that made it: backward hooks of modules forbid
activations in place, which most networks have.

A GPU is held back now and then, until the host has given out the work that follows: what is
measured is the device's own time, not the host's delay between two launches. Its queue takes about
a thousand entries. What a mark takes is measured and taken off.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median, stdev
from time import perf_counter
from typing import Any

import pandas as pd
from torch import nn

from ridgeline.measure.backends import Backend, Timeline
from ridgeline.measure.step import Stepper
from ridgeline.measure.timing import OnProgress
from ridgeline.tracing import COPY, DATA, FORWARD, LOSS, MODEL, OPTIMIZER
from ridgeline.tracing.tracker import ModuleTracker, tensors_in, walk_graph

Owner = tuple[str, str]  # path of the module, or a name in brackets, and the phase

AFTER = {  # when a phase of the step has ended, the time that follows belongs to …
    "data": (COPY, "copy"),
    "copy": (FORWARD, "forward"),
    "forward": (LOSS, "backward"),  # until autograd reaches the first node of a module
    "backward": (OPTIMIZER, "optimizer"),
}
FIRST: Owner = (DATA, "data")
HOLDING: Owner = ("(held back)", "")  # not a part of the step
WATCHING: Owner = ("(watching)", "")  # nor is what hooks take on the host's own time line
HOLD_EVERY = 200  # marks; with the kernels between them they stay well below a thousand
HOLD_MARGIN = 1.5
CALIBRATION_MARKS, CALIBRATION_HOLD_S = 200, 0.02
LEAST_PASSES, MOST_PASSES, TARGET_S = 3, 20, 5.0
CHANNELS = ("in_channels", "out_channels", "groups")
GEOMETRY = ("kernel_size", "stride", "padding")


@dataclass(slots=True)
class Seen:
    """What a hook saw of a module."""

    calls: int = 0
    input_shape: tuple[int, ...] | None = None
    output_shape: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTimes:
    """Seconds per module and phase, a sample a step."""

    samples_s: dict[Owner, tuple[float, ...]]
    seen: dict[str, Seen]
    steps_s: tuple[float, ...]  # of this pass: the sum of everything
    is_held_back: bool  # a device's own time, without the gaps between its kernels
    mark_cost_s: float = 0.0  # what was taken off for each mark

    def time_s(self, path: str, phase: str | None = None) -> float:
        """Median time of a module, beside that of its children."""
        return sum(
            median(taken)
            for (owner, stage), taken in self.samples_s.items()
            if owner == path and phase in (None, stage)
        )

    @property
    def sum_s(self) -> float:
        """All medians together: to be compared with the unprofiled step."""
        return sum(median(taken) for taken in self.samples_s.values())


@dataclass(slots=True)
class LayerMarks:
    """The marks of one step, and who owns the time after each."""

    mark: Callable[[], Any]
    hold: Callable[[], None] | None = None  # keeps the device waiting
    is_host: bool = False  # hooks show on this time line
    is_training: bool = True
    owners: list[Owner] = field(default_factory=list)
    marks: list[Any] = field(default_factory=list)
    modules: ModuleTracker = field(default_factory=lambda: ModuleTracker(outside=FORWARD))
    owner: Owner = FIRST  # of the time now
    direction: str = "forward"  # or "backward", where a checkpoint does forward work again
    interrupted: Owner = FIRST  # by what is done again
    nodes: dict[Any, str] = field(default_factory=dict)
    seen: dict[str, Seen] = field(default_factory=lambda: defaultdict(Seen))

    def own(self, owner: Owner) -> None:
        """From now on, time belongs to this one."""
        self.owner = owner
        if self.hold is not None and len(self.marks) % HOLD_EVERY == 0:
            self._note(HOLDING)
            self.hold()
        self._note(owner)

    def _note(self, owner: Owner) -> None:
        self.marks.append(self.mark())
        self.owners.append(owner)

    def end(self, phase: str) -> None:
        """A phase of the step has ended."""
        if phase == "data":  # that of a further batch follows a backward, too
            self.owners[-1] = FIRST
        if phase in AFTER and (self.is_training or phase != "forward"):
            self.direction = "backward" if phase == "forward" else "forward"
            self.own(AFTER[phase])

    def start_step(self) -> None:
        """Forget the last step and begin another."""
        self.forget()
        self.direction = "forward"
        self.own(FIRST)

    def forget(self) -> None:
        """Let go of the last step.

        Nodes that gather gradients live as long as somebody holds them, with their hooks: held
        beyond the last step, they would go on marking, and holding the device back, in every step
        after it.
        """
        self.owners.clear()
        self.marks.clear()
        self.modules = ModuleTracker(outside=FORWARD)
        self.nodes.clear()
        self.seen.clear()

    def enter(self, path: str, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        self._watch()
        self._claim(self.modules.path, (inputs, named))  # produced before this module
        if not self.modules.is_inside:
            self.interrupted = self.owner
        self.modules.enter(path)
        seen = self.seen[path]
        seen.calls += 1
        seen.input_shape = seen.input_shape or _first_shape([*inputs, *named.values()])
        self.own((path, self.direction))

    def leave(self, path: str, output: Any) -> None:
        self._watch()
        self.modules.leave()
        seen = self.seen[path]
        seen.output_shape = seen.output_shape or _first_shape([output])
        is_recomputed = not self.modules.is_inside and self.direction == "backward"
        following = self.interrupted if is_recomputed else (self.modules.path, self.direction)
        if not self.is_host:  # a device is marked before the host walks the graph
            self.own(following)
        self._claim(path, output)
        if self.is_host:
            self.own(following)

    def _watch(self) -> None:
        """What the hook takes from here on is nobody's."""
        if self.is_host:
            self._note(WATCHING)

    def _claim(self, path: str, output: Any) -> None:
        """Every node behind the output that nobody owns yet is this module's."""
        roots = [tensor.grad_fn for tensor in tensors_in(output)]
        for node in walk_graph(roots, self.nodes.__contains__):
            self.nodes[node] = path
            node.register_prehook(self._begin(path))

    def _begin(self, path: str) -> Callable[[Any], None]:
        def begin(_gradients: Any) -> None:
            self.own((path, "backward"))

        return begin

    def times_s(
        self, seconds: Callable[[Any, Any], float], mark_cost_s: float = 0.0
    ) -> dict[Owner, float]:
        """Seconds by owner, once the device is idle; the last mark ends the last stretch."""
        sums: dict[Owner, float] = defaultdict(float)
        for owner, start, end in zip(self.owners, self.marks, self.marks[1:], strict=False):
            sums[owner] += max(0.0, seconds(start, end) - mark_cost_s)
        return {owner: sum_s for owner, sum_s in sums.items() if owner not in (HOLDING, WATCHING)}


def time_layers(
    stepper: Stepper,
    backend: Backend,
    *,
    step_time_s: float,
    most: int = MOST_PASSES,
    on_progress: OnProgress = lambda done, total: None,
) -> LayerTimes:
    """Take a few steps with hooks on every module, after one that is not kept."""
    watched = replace(stepper, model=stepper.module)
    timeline = backend.timeline()
    marks = LayerMarks(
        mark=timeline.mark,
        is_training=stepper.optimizer is not None,
        is_host=not backend.has_events,
    )
    samples: dict[Owner, list[float]] = defaultdict(list)
    steps_s: list[float] = []
    passes = min(max(int(TARGET_S / step_time_s), LEAST_PASSES), most)
    with _hooks(watched.module, marks):
        mark_cost_s = 0.0
        if backend.kind == "cuda":
            hold_s = HOLD_MARGIN * _host_time_s(watched, marks) * HOLD_EVERY / len(marks.marks)
            marks.hold = partial(backend.hold_back, hold_s)
            mark_cost_s = _mark_cost_s(backend, timeline)
        else:
            _host_time_s(watched, marks)
        for number in range(passes):
            marks.start_step()
            watched.step(marks)
            marks.own(("", ""))
            backend.synchronize()
            times_s = marks.times_s(timeline.seconds, mark_cost_s)
            steps_s.append(sum(times_s.values()))
            for owner, time_s in times_s.items():
                samples[owner].append(time_s)
            on_progress(number + 1, passes)
        seen = dict(marks.seen)
    return LayerTimes(
        samples_s={owner: tuple(taken) for owner, taken in samples.items()},
        seen=seen,
        steps_s=tuple(steps_s),
        is_held_back=backend.kind == "cuda",
        mark_cost_s=mark_cost_s,
    )


def _mark_cost_s(backend: Backend, timeline: Timeline) -> float:
    """What the device takes from one mark to the next with nothing between them."""
    backend.synchronize()
    backend.hold_back(CALIBRATION_HOLD_S)
    marks = [timeline.mark() for _ in range(CALIBRATION_MARKS)]
    backend.synchronize()
    return timeline.seconds(marks[0], marks[-1]) / (CALIBRATION_MARKS - 1)


def _host_time_s(stepper: Stepper, marks: LayerMarks) -> float:
    """How long the host takes to give out a step with hooks; also their warm-up."""
    for _ in range(2):
        stepper.backend.synchronize()
        start_s = perf_counter()
        marks.start_step()
        stepper.step(marks)
        host_s = perf_counter() - start_s
    stepper.backend.synchronize()
    return host_s


@contextmanager
def _hooks(module: nn.Module, marks: LayerMarks) -> Iterator[None]:
    """Let every module report when it is entered and left; nothing stays behind."""
    with ExitStack() as stack:
        for path, part in module.named_modules():
            for handle in _hook(part, path or MODEL, marks):
                stack.callback(handle.remove)
        stack.callback(marks.forget)
        yield


def _hook(part: nn.Module, path: str, marks: LayerMarks) -> list[Any]:
    def enter(_module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        marks.enter(path, inputs, named)

    def leave(_module: nn.Module, _inputs: Any, output: Any) -> None:
        marks.leave(path, output)

    return [
        part.register_forward_pre_hook(enter, with_kwargs=True, prepend=False),
        part.register_forward_hook(leave, always_call=True),  # a checkpoint may end it early
    ]


def _first_shape(values: Sequence[Any]) -> tuple[int, ...] | None:
    first = next(tensors_in(values), None)
    return tuple(first.shape) if first is not None else None


# ---------------------------------------------------------------- as a table


def layer_table(module: nn.Module, times: LayerTimes) -> pd.DataFrame:
    """A row per module that was called, in their order, then what belongs to none.

    `time_s` is a module's own time, beside its children's: medians of the samples of forward and
    backward. The sum over all rows is the step of this pass. `total_time_s` includes the children.
    `percentage` is `time_s` of the sum of all `time_s`. `mean_s` and `std_s` follow a single
    disturbed sample, so no share is made of them.
    """
    modules = {path or MODEL: part for path, part in module.named_modules()}
    rows = [_row(path, modules[path], times) for path in modules if path in times.seen]
    outside = {owner for owner, _ in times.samples_s if owner not in modules}
    rows += [_row(name, None, times) for name in sorted(outside)]
    table = pd.DataFrame(rows).astype(dict.fromkeys(CHANNELS, "Int64"))
    table["percentage"] = 100 * table["time_s"] / table["time_s"].sum()
    table["total_time_s"] = [_total_s(table, path) for path in table["layer"]]
    return table


def _row(path: str, part: nn.Module | None, times: LayerTimes) -> dict[str, Any]:
    seen = times.seen.get(path, Seen())
    own = {stage: taken for (owner, stage), taken in times.samples_s.items() if owner == path}
    sums = [sum(taken) for taken in zip(*own.values(), strict=False)]
    return {
        "layer": path,
        "kind": type(part).__name__ if part is not None else "",
        "depth": 0 if path == MODEL else path.count(".") + 1,
        "is_leaf": part is not None and next(part.children(), None) is None,
        "calls": seen.calls,
        "input_shape": _text(seen.input_shape),
        "output_shape": _text(seen.output_shape),
        **_geometry(part),
        "parameters": sum(p.numel() for p in part.parameters(recurse=False))
        if part is not None
        else 0,
        "forward_s": times.time_s(path, "forward"),
        "backward_s": times.time_s(path, "backward"),
        "time_s": times.time_s(path),
        "mean_s": sum(map(sum, own.values())) / len(times.steps_s),
        "std_s": stdev(sums) if len(sums) > 1 else 0.0,
        "forward_samples_s": list(own.get("forward", ())),
        "backward_samples_s": list(own.get("backward", ())),
    }


def _total_s(table: pd.DataFrame, path: str) -> float:
    if path == MODEL:
        own = ~table["layer"].str.startswith("(") | (table["layer"] == MODEL)
    else:
        own = (table["layer"] == path) | table["layer"].str.startswith(path + ".")
    return float(table.loc[own, "time_s"].sum())


def _geometry(part: nn.Module | None) -> dict[str, Any]:
    """What tells one convolution or product from another; None where a layer has no such thing."""
    channels = {
        "in_channels": getattr(part, "in_channels", getattr(part, "in_features", None)),
        "out_channels": getattr(part, "out_channels", getattr(part, "out_features", None)),
        "groups": getattr(part, "groups", None),
    }
    sizes = {name: _text(getattr(part, name, None)) for name in GEOMETRY}
    sums = {name: value if isinstance(value, int) else None for name, value in channels.items()}
    return sums | sizes


def _text(value: Any) -> str | None:
    """`3x3`, `same`, `1`; None for what is no size."""
    if isinstance(value, tuple):
        return "x".join(str(part) for part in value)
    return str(value) if isinstance(value, int | str) else None
