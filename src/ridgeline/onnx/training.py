"""A training step of an inference graph: what the gradients of every node would cost.

The file has no backward pass, so this is an estimate by rule. Products are exact: each gradient
repeats the forward's multiply-adds. Normalisations, softmax, activations, pooling and lookups have
PyTorch's backward numbers. Any other operator's input gradient is taken to cost what its forward
does, and to read its operands and the result's gradient. Views, joins and sums cost nothing; a
value that is used several times has its gradients added. The loss is not in the file: every output
that can have a gradient is taken to get one, and what leads to none of them gets none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from ridgeline.count.parts import Work
from ridgeline.onnx.gradients import INPUT_GRAD, WEIGHT_GRAD, gradient_of, phase_of
from ridgeline.onnx.node import NodeCall, Tensor
from ridgeline.onnx.passes import Passes
from ridgeline.onnx.row import Row
from ridgeline.onnx.tape import MOST_SINGLE, Repeat, Step, Tape, check_steps, recorded
from ridgeline.onnx.weights import Stored

NOTE = (
    "training is estimated: the file has no backward pass and no loss;"
    " gradients of products are exact, the others follow the rules in docs/onnx.md"
)

NOTHING = (
    "nothing in this file has a gradient, as no floating-point parameter leads to a floating-point"
    " result: there is no backward pass"
)

Uses = dict[int, int]  # by key: how many gradients a value gets


@dataclass(frozen=True, slots=True)
class Gradient:
    """One row of the backward pass."""

    row: Row
    phase: str
    call: NodeCall
    work: Work | None
    times: int = 1  # in how many passes of the loops around it


def backward(rows: list[Row], stored: Stored, outputs: Iterable[Tensor]) -> list[Gradient]:
    """The gradients of all nodes, last first; equal ones of a loop's passes are one row."""
    tape, roots = recorded(rows, stored.params, outputs)
    uses: Uses = dict.fromkeys(roots, 1)
    found = _Backward().through(tape, uses, is_strict=bool(roots))
    return [*_merged(found), *_shared(stored, uses)]


class _Backward:
    """Through a tape from its end; `uses` says how many gradients each value has got."""

    def __init__(self) -> None:
        self.steps = 0

    def through(self, tape: Tape, uses: Uses, *, is_strict: bool) -> list[Gradient]:
        """A strict pass leaves out what got no gradient.

        One that is not is for files whose outputs have none, as the place of the largest logit.
        """
        found: list[Gradient] = []
        for part in reversed(tape):
            if isinstance(part, Repeat):
                found += self._loop(part, uses, is_strict=is_strict)
            elif not is_strict or any(uses.get(out.key) for out, _ in part.outs):
                self.steps += bool(part.row.around)
                found += _summed(part, uses)
                for key in part.given:
                    _add_uses(uses, {key: 1}, 1)
                found += _gradients(part.row, part.sides)
        return found

    def _loop(self, loop: Repeat, uses: Uses, *, is_strict: bool) -> list[Gradient]:
        """All passes. Strict where a gradient comes in: the last pass may make what nobody uses."""
        passes, pieces = loop.passes, Uses()
        given, stacked = self._coming_in(loop, uses)
        has_any = any(given) or any(stacked.values())
        if is_strict and not has_any:
            return []
        found: list[Gradient] = []
        for times, inner, local in self._passes(loop, given, stacked, is_strict=has_any):
            found += [replace(g, times=g.times * times * passes.copies) for g in inner]
            _add_uses(uses, local, times * passes.copies)
            for _, inside in passes.sliced:
                pieces[inside] = max(pieces.get(inside, 0), local.get(inside, 0))
            given = _of_states(passes, local)
        for (first, _, _), number in zip(passes.carried, given, strict=True):
            _add_uses(uses, {first: number}, 1)
        for outside, inside in passes.kept:
            _add_uses(uses, {outside: uses.get(inside, 0)}, 1)
        for outside, inside in passes.sliced:
            _add_uses(uses, {outside: pieces.get(inside, 0)}, 1)
        return found

    def _coming_in(self, loop: Repeat, uses: Uses) -> tuple[list[int], Uses]:
        """How many gradients the states get after the last pass, and the results of every pass."""

        def number(outside: int) -> int:
            return uses.get(outside, 0) if outside in loop.results else 0

        last = {inside: number(outside) for inside, outside in loop.passes.finals}
        given = [last.pop(end, 0) for _, _, end in loop.passes.carried]
        stacked: Uses = {}
        for inside, outside in loop.passes.stacked:
            _add_uses(stacked, {inside: number(outside)}, 1)
        return given, stacked

    def _passes(
        self, loop: Repeat, given: list[int], stacked: Uses, *, is_strict: bool
    ) -> Iterator[tuple[int, list[Gradient], Uses]]:
        """Passes that are alike, last first: how many, the gradients of one, and their uses."""
        for count, tape in reversed(loop.runs):
            left = count
            while left:
                local = dict(stacked)
                for (_, _, end), number in zip(loop.passes.carried, given, strict=True):
                    _add_uses(local, {end: number}, 1)
                inner = self.through(tape, local, is_strict=is_strict)
                check_steps(self.steps)
                before = _of_states(loop.passes, local)
                times = 1 if before != given and count - left < MOST_SINGLE else left
                yield times, inner, local
                given, left = before, left - times


def _of_states(passes: Passes, uses: Uses) -> list[int]:
    return [uses.get(state, 0) for _, state, _ in passes.carried]


def _add_uses(uses: Uses, more: Uses, times: int) -> None:
    for key, number in more.items():
        uses[key] = uses.get(key, 0) + number * times


def _merged(found: Iterable[Gradient]) -> list[Gradient]:
    """Equal rows of different passes together, each with its number of passes."""
    together: dict[object, Gradient] = {}
    for number, one in enumerate(found):
        key = (id(one.row), one.phase, one.work) if one.row.around else number
        have = together.get(key)
        together[key] = replace(one, times=one.times + have.times) if have is not None else one
    return [
        replace(one, row=replace(one.row, repeats=one.times)) if one.row.around else one
        for one in together.values()
    ]


def _summed(step: Step, uses: Uses) -> Iterator[Gradient]:
    """Gradients of a value that several nodes use are added."""
    for out, side in step.outs:
        more = uses.get(out.key, 1) - 1
        if more > 0 and out.is_known:
            yield Gradient(step.row, phase_of(side), step.row.call, _sum_of(out, more))


def _shared(stored: Stored, uses: Uses) -> Iterator[Gradient]:
    """So are those of a weight."""
    for ident, tensor in stored.params.items():
        more = uses.get(ident, 1) - 1
        if more > 0:
            call = NodeCall("", "Add", "", 0, {}, (tensor,), (tensor,))
            row = Row(stored.used_by[ident], "pointwise", call, None)
            yield Gradient(row, WEIGHT_GRAD, call, _sum_of(tensor, more))


def _sum_of(tensor: Tensor, more: int) -> Work:
    nbytes = tensor.nbytes * more
    return Work.per_element(tensor.numel * more, 1, read_bytes=2 * nbytes, written_bytes=nbytes)


def _gradients(row: Row, sides: tuple[int, ...]) -> Iterator[Gradient]:
    if row.work is None:
        if any(sides):
            yield Gradient(row, INPUT_GRAD, row.call, None)
        return
    for phase, work in gradient_of(row, sides).items():
        yield Gradient(row, phase, row.call, work)
