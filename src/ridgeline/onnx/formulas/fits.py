"""What an operator's operands must have in common, as ONNX's text and onnxruntime want it.

A node that breaks it has no count: a MalformedError says which rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ridgeline.onnx.node import MalformedError, NodeCall, Shape, Tensor


def must(fits: bool, otherwise: str) -> None:
    """A rule of the operator, and what to say where it is broken."""
    if not fits:
        raise MalformedError(otherwise)


def must_have(call: NodeCall, place: int, shape: Shape) -> None:
    """The shape of an operand, if it is there."""
    tensor = call.get(place)
    if tensor is not None:
        must(tensor.shape == shape, f"operand {place} is {tensor.shape}, not {shape}")


def split_evenly(width: int, heads: int) -> int:
    """The size of one head."""
    must(heads > 0 and width % heads == 0, f"a width of {width} is not one of {heads} heads")
    return width // heads


def check_convolution(call: NodeCall, x: Tensor, w: Tensor, out: Tensor, *, bias: int) -> None:
    """Channels first; `bias` is the place of the bias."""
    groups, channels = call.whole("group", 1), x.shape[1]
    used = w.shape[1] * groups
    must(channels == used, f"the operand has {channels} channels, the weight is for {used}")
    must(w.shape[0] % groups == 0, f"{w.shape[0]} channels are not {groups} groups")
    must_have(call, bias, (w.shape[0],))
    check_kernel(call, x.shape[2:], w.shape[2:])
    must(min(out.shape[2:], default=1) > 0, "its result has no place")


def check_transposed(call: NodeCall, x: Tensor, w: Tensor, out: Tensor, *, bias: int) -> None:
    """The weight is (Cin, Cout/g, …)."""
    groups, channels = call.whole("group", 1), x.shape[1]
    must(
        channels == w.shape[0],
        f"the operand has {channels} channels, the weight is for {w.shape[0]}",
    )
    must(groups > 0 and channels % groups == 0, f"{channels} channels are not {groups} groups")
    must_have(call, bias, (w.shape[1] * groups,))
    must(min(out.shape[2:], default=1) > 0, "its result has no place")


def check_kernel(call: NodeCall, sizes: Shape, kernel: Shape) -> None:
    """The kernel is as named, and finds place on the padded operand."""
    named = call.wholes("kernel_shape")
    must(not named or tuple(named) == kernel, f"kernel_shape is {named}, the weight's {kernel}")
    if str(call.attr("auto_pad", "NOTSET")).startswith("SAME"):
        return
    axes = len(sizes)
    pads = call.wholes("pads") or [0] * 2 * axes
    dilations = call.wholes("dilations") or [1] * axes
    padded = [size + pads[n] + pads[n + axes] for n, size in enumerate(sizes)]
    reach = [dilation * (size - 1) + 1 for dilation, size in zip(dilations, kernel, strict=True)]
    fits = all(have >= needed for have, needed in zip(padded, reach, strict=True))
    must(fits, f"a kernel that reaches over {_by(reach)} does not fit on {_by(padded)}")


def _by(sizes: Sequence[int]) -> str:
    return "·".join(map(str, sizes))


def check_deformed(call: NodeCall, x: Tensor, w: Tensor, out: Tensor) -> None:
    """Two offsets, and perhaps a factor, for each place of the kernel and each result."""
    groups = call.whole("offset_group", 1)
    must(groups > 0 and x.shape[1] % groups == 0, f"{x.shape[1]} channels are not {groups} groups")
    points = groups * prod(w.shape[2:])
    must_have(call, 2, (x.shape[0], 2 * points, *out.shape[2:]))
    must_have(call, 4, (x.shape[0], points, *out.shape[2:]))


def check_inner(k: int, other: int) -> None:
    """The side that two matrices have in common."""
    must(k == other, f"a product of {k} columns with {other} rows")


def check_broadcast(a: Shape, b: Shape) -> None:
    """Sides are equal, or one of them is 1."""
    pairs = zip(reversed(a), reversed(b), strict=False)
    must(all(m == n or 1 in (m, n) for m, n in pairs), f"{a} and {b} do not broadcast")


def must_spread(call: NodeCall, place: int, shape: Shape) -> None:
    """An operand, if it is there, broadcasts to a shape without making it larger."""
    tensor = call.get(place)
    if tensor is not None:
        sides = list(zip(reversed(tensor.shape), reversed(shape), strict=False))
        fits = len(tensor.shape) <= len(shape) and all(have in (1, side) for have, side in sides)
        must(fits, f"operand {place} is {tensor.shape}, which does not broadcast to {shape}")


# ---------------------------------------------------------------- norms


def check_channels(call: NodeCall, places: Sequence[int]) -> None:
    """A number for each channel of the first operand."""
    for place in places:
        must_have(call, place, call.x.shape[1:2])


def check_group_norm(call: NodeCall) -> None:
    """Before opset 21 a scale is for a group, since then for a channel."""
    channels, groups = call.x.shape[1], call.whole("num_groups", 1)
    must(groups > 0 and channels % groups == 0, f"{channels} channels are not {groups} groups")
    for place in (1, 2):
        must_spread(call, place, (channels if call.version >= 21 else groups,))


def check_skip(call: NodeCall, vectors: Sequence[int]) -> None:
    """What is added to the first operand, perhaps the same for all of a batch; vectors beside."""
    shape, skip = call.x.shape, call.given(1).shape
    fits = skip in (shape, (1, *shape[1:]), shape[1:] if len(shape) > 2 else shape)
    must(fits, f"operand 1 is {skip}, which is not added to {shape}")
    check_widths(call, vectors)


def check_widths(call: NodeCall, places: Sequence[int]) -> None:
    """A number for each feature, which are the last dimension of the first operand."""
    for place in places:
        must_have(call, place, call.x.shape[-1:])


# ---------------------------------------------------------------- moves


def check_indices(call: NodeCall) -> None:
    """As many dimensions as the data; along other axes no more than there are places."""
    data, indices = call.x.shape, call.given(1).shape
    must(len(indices) == len(data), f"indices of {indices} for {data}")
    axis = call.whole("axis", 0) % max(len(data), 1)
    for n, (count, size) in enumerate(zip(indices, data, strict=True)):
        must(n == axis or count <= size, f"indices of {indices} for {data}")


def check_rows(call: NodeCall) -> None:
    """Indices that are known are of rows that there are."""
    indices = call.given(1).value
    if indices is not None and indices.size:
        rows = call.x.shape[call.whole("axis", 0)]
        low, high = int(indices.min()), int(indices.max())
        must(-rows <= low and high < rows, f"indices from {low} to {high} for {rows} rows")


def check_axis(call: NodeCall, place: int) -> None:
    """An operand that is one axis, where it is known, is one of the first operand's."""
    axis, rank = call.given(place), len(call.x.shape)
    must(axis.numel == 1, f"an axis of {axis.shape}")
    if axis.value is not None:
        number = int(axis.value.ravel()[0])
        must(-rank <= number < rank, f"axis {number} of {rank} dimensions")


def check_reversed(call: NodeCall) -> None:
    """A length for each sequence; batch and time are the first two sides, in any order."""
    batch, time = call.whole("batch_axis", 1), call.whole("time_axis", 0)
    must(batch != time and max(batch, time) < 2, f"a batch axis of {batch}, a time axis of {time}")
    must_have(call, 1, (call.x.shape[batch],))
    lengths, longest = call.given(1).value, call.x.shape[time]
    if lengths is not None:
        known = [int(n) for n in lengths.ravel()]
        must(all(0 <= n <= longest for n in known), f"lengths of {known} in {longest} steps")


def check_scatter(call: NodeCall) -> None:
    """An update for each index."""
    check_indices(call)
    must_have(call, 2, call.given(1).shape)


def check_scatter_nd(call: NodeCall) -> None:
    """The last side of the indices names the first sides of the data."""
    data, indices = call.x.shape, call.given(1).shape
    must(len(indices) > 0 and indices[-1] <= len(data), f"indices of {indices} for {data}")
    must_have(call, 2, (*indices[:-1], *data[indices[-1] :]))


def check_blocks(call: NodeCall) -> None:
    """DepthToSpace takes blocks from the channels, SpaceToDepth from height and width."""
    block = call.whole("blocksize", 0)
    _, channels, *sides = call.x.shape
    if call.op_type == "DepthToSpace":
        must(channels % block**2 == 0, f"{channels} channels are not blocks of {block}·{block}")
    else:
        fits = all(side % block == 0 for side in sides)
        must(fits, f"{_by(sides)} is not blocks of {block}·{block}")


def check_affine_grid(call: NodeCall) -> None:
    """A matrix of d rows and d + 1 columns for each image of d dimensions."""
    dims = call.given(1).numel - 2
    must(dims in (2, 3), f"{dims} dimensions, not 2 or 3")
    must_have(call, 0, (call.out.shape[0], dims, dims + 1))
