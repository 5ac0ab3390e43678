"""Operators that move data without arithmetic, and those that cost nothing at all."""

from __future__ import annotations

from math import prod

from ridgeline.count.call import OpCall, TensorMeta
from ridgeline.count.formulas.registry import Work, aten, aten_names

FREE = frozenset(
    aten_names(
        "unsafe_split unsafe_split_with_sizes unsafe_chunk empty empty_like empty_strided",
        "new_empty new_empty_strided empty_permuted _unsafe_view _reshape_alias lift lift_fresh",
        "lift_fresh_copy t_ transpose_ squeeze_ unsqueeze_ resize_ resize_as_ set_ as_strided_",
        "detach_ swapaxes_ swapdims_ requires_grad_ _assert_async _assert_scalar",
        "_assert_tensor_metadata _functional_assert_async _functional_assert_scalar sym_size",
        "sym_stride sym_numel sym_storage_offset sym_constrain_range",
        "sym_constrain_range_for_size is_same_size is_set_to is_pinned pin_memory record_stream",
        "_has_same_storage_numel _local_scalar_dense item _nested_tensor_size is_coalesced",
        "_backward retain_grad sparse_dim dense_dim _coalesced_ _sparse_coo_tensor_unsafe",
        "_sparse_coo_tensor_with_dims_and_tensors",
        "copy_sparse_to_sparse_ _version _fw_primal _make_dual _unpack_dual conj _conj",
        "_neg_view _use_cudnn_ctc_loss _use_miopen_ctc_loss _fused_sdp_choice",
        "_linalg_check_errors shallow_copy_data_ _nnz _dimI _dimV",
    )
)
"""Allocation, metadata, choices and views in disguise: no data moves."""


@aten(
    "clone copy _to_copy contiguous _to_dense to_dense _copy_from to_mkldnn cat stack _stack",
    "hstack repeat tile flip roll rot90 expand_copy view_copy permute_copy transpose_copy t_copy",
    "slice_copy select_copy split_copy split_with_sizes_copy unbind_copy as_strided_copy",
    "unfold_copy squeeze_copy unsqueeze_copy alias_copy detach_copy narrow_copy diagonal_copy",
    "view_as_real_copy view_as_complex_copy _reshape_copy _conj_copy _lazy_clone constant_pad_nd",
    "reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d",
    "replication_pad3d _pad_circular pixel_shuffle pixel_unshuffle channel_shuffle",
    "native_channel_shuffle im2col tril triu repeat_interleave diag_embed meshgrid block_diag",
    "combinations masked_select nonzero nonzero_static one_hot _chunk_cat masked_scatter_backward",
    "lu_unpack dequantize quantize_per_tensor quantize_per_tensor_dynamic quantize_per_channel",
    "int_repr _nested_tensor_from_mask _pack_padded_sequence _nested_from_padded to_padded_tensor",
    "_to_sparse _coalesce",
    kind="move",
)
def move(call: OpCall) -> Work:
    """Each element is read once and written once."""
    return Work()


@aten("copy_", kind="move")
def copy_into(call: OpCall) -> Work:
    """The target is overwritten, not read."""
    return Work(read_bytes=call.inputs[1].nbytes)


READ_TO_FILL = aten_names("multinomial poisson bernoulli normal binomial _standard_gamma")
"""Random numbers whose distribution is given by a tensor."""


@aten(
    "zeros ones full zeros_like ones_like full_like new_zeros new_ones new_full arange range",
    "linspace logspace eye scalar_tensor fill fill_ zero_ zero tril_indices triu_indices",
    "_efficientzerotensor fill_diagonal_ hann_window hamming_window blackman_window",
    "bartlett_window kaiser_window fft_fftfreq fft_rfftfreq rand randn randint rand_like",
    "randn_like randint_like randperm normal_ uniform_ uniform bernoulli bernoulli_ random_",
    "random exponential_ exponential normal multinomial normal_functional log_normal_ log_normal",
    "cauchy_ cauchy geometric_ geometric poisson binomial _standard_gamma",
    kind="fill",
)
def fill(call: OpCall) -> Work:
    """Written, never read; the arithmetic of random generators is not floating-point work."""
    return Work(read_bytes=None if call.name in READ_TO_FILL else 0)


# ---------------------------------------------------------------- picking


@aten(
    "embedding index_select gather take take_along_dim index _unsafe_index _unsafe_masked_index",
    kind="gather",
)
def gather(call: OpCall) -> Work:
    """Reads the rows or elements that are named, and the indices or the mask; not the table."""
    table, *indices = call.inputs
    named = call.out.numel * table.dtype.itemsize
    return Work(read_bytes=named + sum(t.nbytes for t in indices))


@aten("embedding_dense_backward embedding_backward", kind="scatter")
def embedding_backward(call: OpCall) -> Work:
    """A dense gradient of the whole table is written; each looked-up row is added into it."""
    grad = call.inputs[0]
    return Work(other_flops=grad.numel, terms=(("n", grad.numel),))


@aten("embedding_renorm embedding_renorm_", kind="gather")
def embedding_renorm(call: OpCall) -> Work:
    """The norm of each named row, and a scale: 3 FLOPs an element, a root a row."""
    table, indices = call.inputs[:2]
    n = indices.numel * table.shape[1]
    touched = n * table.dtype.itemsize
    return Work(
        other_flops=3 * n,
        transcendentals=indices.numel,
        read_bytes=touched + indices.nbytes,
        written_bytes=touched if call.name.endswith("_") else None,
        factor=3,
        terms=(("n", n),),
    )


BAG_SUM, BAG_MEAN, BAG_MAX = 0, 1, 2


@aten("_embedding_bag _embedding_bag_forward_only embedding_bag", kind="gather")
def embedding_bag(call: OpCall) -> Work:
    """Reads every named row; one addition or comparison an element, two FLOPs if weighted.

    The mean divides each result once. Of the other outputs, only the places of the maxima are
    results; the rest is bookkeeping that devices fill in differently.
    """
    table, indices = call.inputs[:2]
    mode = call.get("mode", BAG_SUM)
    gathered = indices.numel * table.shape[1]
    per_element = 2 if call.get("per_sample_weights") is not None else 1
    return Work(
        other_flops=per_element * gathered + (call.out.numel if mode == BAG_MEAN else 0),
        read_bytes=gathered * table.dtype.itemsize + sum(t.nbytes for t in call.inputs[1:]),
        written_bytes=call.out.nbytes + (call.outputs[-1].nbytes if mode == BAG_MAX else 0),
        factor=per_element,
        terms=(("indices", indices.numel), ("dim", table.shape[1])),
    )


@aten("_embedding_bag_dense_backward _embedding_bag_backward", kind="scatter")
def embedding_bag_backward(call: OpCall) -> Work:
    """Each named row gets its bag's gradient: an addition, and a factor if mean or weighted."""
    grad, indices = call.inputs[:2]
    mode = call.get("mode", BAG_SUM)
    n = grad.numel if mode == BAG_MAX else indices.numel * grad.shape[-1]
    weights = call.get("per_sample_weights")
    per_element = 2 if mode == BAG_MEAN or weights is not None else 1
    places = call.get("maximum_indices") if mode == BAG_MAX else None
    read = [t for t in (grad, indices, weights, places) if isinstance(t, TensorMeta)]
    return Work(
        other_flops=per_element * n,
        read_bytes=sum(t.nbytes for t in read),
        factor=per_element,
        terms=(("n", n),),
    )


@aten("_embedding_bag_per_sample_weights_backward", kind="gather")
def embedding_bag_weights_backward(call: OpCall) -> Work:
    """For each index the product of its row and its bag's gradient, summed."""
    grad, table, indices = call.inputs[:3]
    n = indices.numel * grad.shape[-1]
    return Work(
        other_flops=2 * n,
        read_bytes=grad.nbytes + n * table.dtype.itemsize + indices.nbytes,
        factor=2,
        terms=(("n", n),),
    )


# ---------------------------------------------------------------- placing


@aten("scatter", kind="scatter")
def scatter(call: OpCall) -> Work:
    """Out of place the whole target is copied; in place only what is named is touched."""
    return _scattered(call, call.get("index").numel, accumulate=call.get("reduce") is not None)


@aten("scatter_add scatter_reduce", kind="scatter")
def scatter_add(call: OpCall) -> Work:
    return _scattered(call, call.get("index").numel, accumulate=True)


@aten("index_copy index_fill", kind="scatter")
def index_copy(call: OpCall) -> Work:
    """Whole slices of the target are named."""
    return _scattered(call, _slices(call), accumulate=False)


@aten("index_add index_reduce", kind="scatter")
def index_add(call: OpCall) -> Work:
    return _scattered(call, _slices(call), accumulate=True, scaled=call.get("alpha", 1) != 1)


def _slices(call: OpCall) -> int:
    target, dim = call.inputs[0], call.get("dim")
    length = target.shape[dim] if target.shape else 1
    return int(call.get("index").numel * (target.numel // max(length, 1)))


@aten("masked_scatter put", kind="scatter")
def put(call: OpCall) -> Work:
    named = call.get("source").numel
    return _scattered(call, named, accumulate=bool(call.get("accumulate")))


@aten("select_scatter slice_scatter diagonal_scatter as_strided_scatter", kind="scatter")
def view_scatter(call: OpCall) -> Work:
    return _scattered(call, call.get("src").numel, accumulate=False)


@aten(
    "index_put _index_put_impl _unsafe_index_put _unsafe_masked_index_put_accumulate",
    kind="scatter",
)
def index_put(call: OpCall) -> Work:
    accumulate = bool(call.get("accumulate")) or "accumulate" in call.name
    return _scattered(call, _indexed(call), accumulate=accumulate)


def _indexed(call: OpCall) -> int:
    """How many elements `target[indices]` has.

    A mask does not tell; then it is as many as there are values, or all where one value serves.
    """
    target, values = call.inputs[0], call.inputs[-1]
    given = enumerate(call.get("indices") or [])
    indices = {dim: index for dim, index in given if isinstance(index, TensorMeta)}
    if any(not index.dtype.is_signed for index in indices.values()):  # truth values
        return values.numel if values.numel > 1 else target.numel
    rest = prod(size for dim, size in enumerate(target.shape) if dim not in indices)
    return rest * prod(_broadcast([index.shape for index in indices.values()]))


def _broadcast(shapes: list[tuple[int, ...]]) -> list[int]:
    longest = max((len(shape) for shape in shapes), default=0)
    padded = [(1,) * (longest - len(shape)) + shape for shape in shapes]
    return [max(sizes) for sizes in zip(*padded, strict=True)]


def _scattered(call: OpCall, named: int, *, accumulate: bool, scaled: bool = False) -> Work:
    target, *rest = call.inputs
    touched = named * target.dtype.itemsize
    if call.name.endswith("_"):
        of_target, written = touched if accumulate else 0, touched
    else:
        of_target, written = target.nbytes, call.out.nbytes
    per_element = (1 + scaled) * accumulate * target.is_float
    return Work(
        other_flops=per_element * named,
        read_bytes=of_target + sum(t.nbytes for t in rest),
        written_bytes=written,
        factor=per_element,
        terms=(("n", named),),
    )


@aten(
    "reflection_pad1d_backward reflection_pad2d_backward reflection_pad3d_backward",
    "replication_pad1d_backward replication_pad2d_backward replication_pad3d_backward",
    kind="move",
)
def pad_backward(call: OpCall) -> Work:
    """Every gradient is added where its value came from; the input is not read."""
    grad = call.inputs[0]
    return Work(other_flops=grad.numel, read_bytes=grad.nbytes, terms=(("n", grad.numel),))


@aten(
    "select_backward slice_backward diagonal_backward value_selecting_reduction_backward",
    kind="move",
)
def view_backward(call: OpCall) -> Work:
    """A zero tensor of the input's shape with the gradient written into it."""
    return Work()


@aten("unfold_backward col2im", kind="move")
def overlapping(call: OpCall) -> Work:
    """Windows overlap: each of their elements is added."""
    n = call.inputs[0].numel
    return Work(other_flops=n, terms=(("n", n),))
