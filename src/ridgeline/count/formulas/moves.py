"""Operators that move data without arithmetic, and those that cost nothing at all."""

from __future__ import annotations

from ridgeline.count.call import OpCall
from ridgeline.count.formulas.registry import Work, aten, register

FREE = frozenset(
    f"aten::{name}"
    for name in """
    unsafe_split unsafe_split_with_sizes unsafe_chunk empty empty_like empty_strided new_empty new_empty_strided empty_permuted _unsafe_view
    _reshape_alias lift lift_fresh lift_fresh_copy t_ transpose_ squeeze_ unsqueeze_ resize_
    resize_as_ set_ as_strided_ detach_ swapaxes_ swapdims_ requires_grad_ rename_
    _assert_async _assert_scalar _assert_tensor_metadata sym_size sym_stride sym_numel
    sym_storage_offset is_same_size is_pinned pin_memory record_stream _has_same_storage_numel
    _local_scalar_dense item _nested_tensor_size is_coalesced _backward retain_grad
    _sparse_coo_tensor_unsafe sparse_dim dense_dim copy_sparse_to_sparse_ refine_names
    _version _fw_primal _make_dual _unpack_dual alias_copy_ conj _conj _neg_view
    """.split()
)
"""Allocation, metadata and views in disguise: no data moves."""


@aten("clone", "copy", "_to_copy", "contiguous", "_to_dense", "to_dense", "_copy_from", "to_mkldnn",
      "cat", "_cat", "stack", "hstack", "repeat", "tile", "flip", "roll", "rot90", "expand_copy",
      "view_copy", "permute_copy", "transpose_copy", "t_copy", "slice_copy", "select_copy",
      "split_copy", "unbind_copy", "as_strided_copy", "constant_pad_nd", "reflection_pad1d",
      "reflection_pad2d", "reflection_pad3d", "replication_pad1d", "replication_pad2d",
      "replication_pad3d", "pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "im2col", "tril",
      "triu", "repeat_interleave", "diag_embed", "diagonal_copy", "meshgrid", "block_diag",
      "masked_select", "nonzero", "nonzero_static", "one_hot", "unfold_copy", "combinations",
      "native_channel_shuffle", "_chunk_cat", "_pad_circular", "view_as_real_copy", "dequantize",
      "quantize_per_tensor", "quantize_per_tensor_dynamic", "quantize_per_channel",
      "_nested_tensor_from_mask", "_pack_padded_sequence", "split_with_sizes_copy", kind="move")
def move(call: OpCall) -> Work:
    """Each element is read once and written once."""
    return Work()


@aten("copy_", kind="move")
def copy_into(call: OpCall) -> Work:
    """The target is overwritten, not read."""
    return Work(read_bytes=call.inputs[1].nbytes)


@aten("zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "new_zeros", "new_ones",
      "new_full", "arange", "linspace", "logspace", "eye", "scalar_tensor", "fill", "fill_", "zero_",
      "zero", "tril_indices", "triu_indices", "_efficientzerotensor", "hann_window", "fill_diagonal_",
      "rand", "randn", "randint", "rand_like", "randn_like", "randint_like", "randperm", "normal_",
      "uniform_", "bernoulli", "bernoulli_", "random_", "exponential_", "normal", "multinomial",
      "log_normal_", "cauchy_", "geometric_", "poisson", "_standard_gamma", "log_normal",
      kind="fill")
def fill(call: OpCall) -> Work:
    """Written, never read; the arithmetic of random generators is not floating-point work."""
    reads_input = call.name in ("aten::multinomial", "aten::poisson", "aten::bernoulli", "aten::normal")
    return Work(read_bytes=None if reads_input else 0)


@aten("embedding", "index_select", kind="gather")
def gather_rows(call: OpCall) -> Work:
    """Reads the rows that are named, not the table."""
    table, indices = call.inputs[:2]
    return Work(read_bytes=_rows_bytes(call, table.dtype.itemsize) + indices.nbytes)


@aten("gather", "take", "take_along_dim", kind="gather")
def gather(call: OpCall) -> Work:
    table, indices = call.inputs[:2]
    return Work(read_bytes=call.out.numel * table.dtype.itemsize + indices.nbytes)


@aten("index", "_unsafe_index", "_unsafe_masked_index", kind="gather")
def index(call: OpCall) -> Work:
    table, indices = call.inputs[0], call.inputs[1:]
    return Work(read_bytes=_rows_bytes(call, table.dtype.itemsize) + sum(t.nbytes for t in indices))


def _rows_bytes(call: OpCall, itemsize: int) -> int:
    return call.out.numel * itemsize


@aten("embedding_dense_backward", "embedding_backward", kind="scatter")
def embedding_backward(call: OpCall) -> Work:
    """A dense gradient of the whole table is written; each looked-up row is added into it."""
    grad = call.inputs[0]
    return Work(other_flops=grad.numel, terms=(("n", grad.numel),))


@aten("_embedding_bag", "_embedding_bag_forward_only", "embedding_bag", kind="gather")
def embedding_bag(call: OpCall) -> Work:
    """Reads every named row; one addition an element to reduce the bag, two if weighted."""
    table, indices = call.inputs[:2]
    gathered = indices.numel * table.shape[1]
    weighted = call.get("per_sample_weights") is not None
    per_element = 2 if weighted else 1
    return Work(
        other_flops=per_element * gathered,
        read_bytes=gathered * table.dtype.itemsize + sum(t.nbytes for t in call.inputs[1:]),
        factor=per_element,
        terms=(("indices", indices.numel), ("dim", table.shape[1])),
    )


@aten("_embedding_bag_dense_backward", "_embedding_bag_backward", kind="scatter")
def embedding_bag_backward(call: OpCall) -> Work:
    grad, indices = call.inputs[:2]
    n = indices.numel * grad.shape[-1]
    return Work(other_flops=n, terms=(("n", n),))


@aten("scatter", "index_copy", "masked_scatter", "index_fill", "put",
      "select_scatter", "slice_scatter", "diagonal_scatter", "as_strided_scatter", kind="scatter")
def scatter(call: OpCall) -> Work:
    """Out of place the whole target is copied; in place only what is named is touched."""
    return _scattered(call, accumulate=False)


@aten("scatter_add", "scatter_reduce", "index_add", "index_reduce", kind="scatter")
def scatter_add(call: OpCall) -> Work:
    return _scattered(call, accumulate=True)


@aten("index_put", "_index_put_impl", "_unsafe_index_put", "_unsafe_masked_index_put_accumulate",
      kind="scatter")
def index_put(call: OpCall) -> Work:
    return _scattered(call, accumulate=bool(call.get("accumulate")))


def _scattered(call: OpCall, *, accumulate: bool) -> Work:
    target, rest = call.inputs[0], call.inputs[1:]
    source = _named(call)
    touched = source * target.dtype.itemsize
    in_place = call.name.endswith("_")
    read = sum(t.nbytes for t in rest) + (touched if accumulate else 0)
    return Work(
        other_flops=source if accumulate and target.is_float else 0,
        read_bytes=read + (0 if in_place else target.nbytes),
        written_bytes=touched if in_place else None,
        terms=(("n", source),),
    )


def _named(call: OpCall) -> int:
    """How many elements of the target are named: those of the source, or of the index."""
    source = call.get("src", call.get("source", call.get("values")))
    if source is not None and hasattr(source, "numel") and source.shape:
        return int(source.numel)
    return max((t.numel for t in call.inputs[1:]), default=0)


@register([f"aten::{name}_backward" for name in (
    "reflection_pad1d", "reflection_pad2d", "reflection_pad3d", "replication_pad1d",
    "replication_pad2d", "replication_pad3d")], kind="move")
def pad_backward(call: OpCall) -> Work:
    grad = call.inputs[0]
    return Work(other_flops=grad.numel, read_bytes=grad.nbytes, terms=(("n", grad.numel),))


@aten("select_backward", "slice_backward", "unfold_backward", "diagonal_backward", "value_selecting_reduction_backward",
      kind="move")
def view_backward(call: OpCall) -> Work:
    """A zero tensor of the input's shape with the gradient written into it."""
    return Work()


@aten("col2im", kind="move")
def col2im(call: OpCall) -> Work:
    n = call.inputs[0].numel
    return Work(other_flops=n, terms=(("n", n),))
