"""Operators on data: moves, gathers and scatters, pooling and interpolation, reductions, sorts."""

from __future__ import annotations

from functools import partial
from math import prod

import torch

from ridgeline.costs import data as costs
from ridgeline.costs.work import Work
from ridgeline.count.call import FREE, Formula, OpCall, TensorMeta, add_rows, aten_names

FREE.update(aten_names(
    "unsafe_split unsafe_split_with_sizes unsafe_chunk empty empty_like empty_strided new_empty"
    " new_empty_strided empty_permuted _unsafe_view _reshape_alias lift lift_fresh lift_fresh_copy"
    " t_ transpose_ squeeze_ unsqueeze_ resize_ resize_as_ set_ as_strided_ detach_ swapaxes_"
    " swapdims_ requires_grad_ _assert_async _assert_scalar _assert_tensor_metadata"
    " _functional_assert_async _functional_assert_scalar sym_size sym_stride sym_numel"
    " sym_storage_offset sym_constrain_range sym_constrain_range_for_size is_same_size is_set_to"
    " is_pinned pin_memory record_stream _has_same_storage_numel _local_scalar_dense item"
    " _nested_tensor_size is_coalesced _backward retain_grad sparse_dim dense_dim _coalesced_"
    " _sparse_coo_tensor_unsafe _sparse_coo_tensor_with_dims_and_tensors copy_sparse_to_sparse_"
    " _version _fw_primal _make_dual _unpack_dual conj _conj _neg_view _use_cudnn_ctc_loss"
    " _use_miopen_ctc_loss _fused_sdp_choice _linalg_check_errors shallow_copy_data_ _nnz _dimI"
    " _dimV"
))  # fmt: skip
# allocation, metadata, choices and views in disguise

add_rows("move", {
    # each element is read once and written once
    "clone copy _to_copy _to_dense cat stack _stack repeat flip roll rot90 expand_copy view_copy"
    " permute_copy transpose_copy slice_copy select_copy split_copy split_with_sizes_copy"
    " unbind_copy unfold_copy squeeze_copy unsqueeze_copy view_as_real_copy view_as_complex_copy"
    " narrow_copy diagonal_copy constant_pad_nd reflection_pad1d reflection_pad2d reflection_pad3d"
    " replication_pad1d replication_pad2d replication_pad3d pixel_shuffle pixel_unshuffle"
    " channel_shuffle im2col tril triu repeat_interleave diag_embed block_diag masked_select"
    " nonzero nonzero_static _chunk_cat masked_scatter_backward lu_unpack dequantize"
    " quantize_per_tensor quantize_per_tensor_dynamic quantize_per_channel int_repr"
    " _pack_padded_sequence to_padded_tensor _to_sparse _coalesce": lambda c: Work(),
    # values are put at their indices, zeros elsewhere
    "max_unpool2d max_unpool3d": lambda c: Work(),
    # a zero tensor of the input's shape with the gradient written into it
    "select_backward slice_backward diagonal_backward value_selecting_reduction_backward":
        lambda c: Work(),
    # the target is overwritten, not read
    "copy_": lambda c: Work(read_bytes=c.inputs[1].nbytes),
    # every gradient is added where its value came from; the input is not read
    "reflection_pad1d_backward reflection_pad2d_backward reflection_pad3d_backward"
    " replication_pad1d_backward replication_pad2d_backward replication_pad3d_backward":
        lambda c: Work.per_element(c.inputs[0].numel, 1, read_bytes=c.inputs[0].nbytes),
    # windows overlap: each of their elements is added
    "unfold_backward col2im": lambda c: Work.per_element(c.inputs[0].numel, 1),
})  # fmt: skip
# The arithmetic of random generators is not floating-point work.
add_rows("fill", {
    # written, never read
    "zeros ones full zeros_like ones_like full_like new_zeros new_ones new_full arange range"
    " linspace logspace eye scalar_tensor fill fill_ zero_ zero tril_indices triu_indices"
    " _efficientzerotensor fill_diagonal_ hann_window hamming_window blackman_window"
    " bartlett_window kaiser_window fft_fftfreq fft_rfftfreq rand randn randint rand_like"
    " randn_like randint_like randperm normal_ uniform_ uniform bernoulli_ random_"
    " random exponential_ exponential normal_functional log_normal_ log_normal"
    " cauchy_ cauchy geometric_ geometric": lambda c: Work(read_bytes=0),
    # the distribution is given by a tensor
    "multinomial poisson bernoulli normal binomial _standard_gamma": lambda c: Work(),
})  # fmt: skip

# ---------------------------------------------------------------- gathers and scatters


def _embedding_bag(call: OpCall) -> Work:
    is_weighted = call.get("per_sample_weights") is not None
    return costs.embedding_bag(
        call.inputs[0],
        call.inputs[1:],
        call.outputs,
        mode=call.get("mode", costs.BAG_SUM),
        flops=1 + is_weighted,
    )


def _embedding_bag_backward(call: OpCall) -> Work:
    """Each named row gets its bag's gradient: an addition, and a factor if mean or weighted."""
    grad, indices = call.inputs[:2]
    mode = call.get("mode", costs.BAG_SUM)
    n = grad.numel if mode == costs.BAG_MAX else indices.numel * grad.shape[-1]
    weights = call.get("per_sample_weights")
    places = call.get("maximum_indices") if mode == costs.BAG_MAX else None
    read = sum(t.nbytes for t in (grad, indices, weights, places) if isinstance(t, TensorMeta))
    return Work.per_element(
        n, 2 if mode == costs.BAG_MEAN or weights is not None else 1, read_bytes=read
    )


def _scatter(call: OpCall, named: int, flops: int) -> Work:
    """So many elements of the target are named; in place only these are touched."""
    target, *rest = call.inputs
    out = None if call.name.endswith("_") else call.out
    return costs.scatter(target, rest, named, flops=flops, out=out)


def _slices(call: OpCall) -> int:
    """Elements of the whole slices of the target that are named."""
    target, dim = call.inputs[0], call.get("dim")
    length = target.shape[dim] if target.shape else 1
    return int(call.get("index").numel * (target.numel // max(length, 1)))


def _indexed(call: OpCall) -> int:
    """How many elements `target[indices]` has.

    A mask does not tell; then it is as many as there are values, or all where one value serves.
    """
    target, values = call.inputs[0], call.inputs[-1]
    numbered = enumerate(call.get("indices") or [])
    indices = {dim: index for dim, index in numbered if isinstance(index, TensorMeta)}
    if any(not index.dtype.is_signed for index in indices.values()):  # truth values
        return values.numel if values.numel > 1 else target.numel
    rest = prod(size for dim, size in enumerate(target.shape) if dim not in indices)
    return rest * int(prod(torch.broadcast_shapes(*[index.shape for index in indices.values()])))


add_rows("gather", {
    "embedding index_select gather take take_along_dim index _unsafe_index _unsafe_masked_index":
        lambda c: costs.gather(c.inputs[0], c.inputs[1:], c.out.numel),
    "_embedding_bag _embedding_bag_forward_only embedding_bag": _embedding_bag,
})  # fmt: skip
add_rows("scatter", {
    # a dense gradient of the whole table is written; each looked-up row is added into it
    "embedding_dense_backward embedding_backward": lambda c: Work.per_element(
        c.inputs[0].numel, 1
    ),
    "_embedding_bag_dense_backward _embedding_bag_backward": _embedding_bag_backward,
    "scatter": lambda c: _scatter(c, c.get("index").numel, int(c.get("reduce") is not None)),
    "scatter_add scatter_reduce": lambda c: _scatter(c, c.get("index").numel, 1),
    "index_copy index_fill": lambda c: _scatter(c, _slices(c), 0),
    "index_add index_reduce": lambda c: _scatter(c, _slices(c), 1 + (c.get("alpha", 1) != 1)),
    "masked_scatter put": lambda c: _scatter(
        c, c.get("source").numel, int(bool(c.get("accumulate")))
    ),
    "select_scatter slice_scatter diagonal_scatter as_strided_scatter": lambda c: _scatter(
        c, c.get("src").numel, 0
    ),
    "index_put _index_put_impl _unsafe_index_put": lambda c: _scatter(
        c, _indexed(c), int(bool(c.get("accumulate")))
    ),
    "_unsafe_masked_index_put_accumulate": lambda c: _scatter(c, _indexed(c), 1),
})  # fmt: skip

# ---------------------------------------------------------------- pooling and interpolation


def _dims(call: OpCall) -> int:
    """How many dimensions are pooled: the digit in the operator's name."""
    return int(call.name.split("pool")[1][0])


def _window(call: OpCall) -> int:
    size = call.get("kernel_size")
    sizes = list(size) if isinstance(size, list | tuple) else [size]
    return int(prod(sizes if len(sizes) > 1 else sizes * _dims(call)))


def _pool_backward(call: OpCall) -> Work:
    """One division per gradient, one addition per window element; the input is not read."""
    grad = call.inputs[0]
    work = costs.pool_windows(grad.numel, _window(call), last=1)
    return work.with_bytes(read=grad.nbytes)


def _max_pool_backward(call: OpCall) -> Work:
    """Each gradient is added at its index; the input's values are not read."""
    grad, indices = call.inputs[0], call.inputs[-1]
    return Work.per_element(grad.numel, 1, read_bytes=grad.nbytes + indices.nbytes)


def _adaptive_pool(call: OpCall, *, divides: bool) -> Work:
    x, out = call.inputs[0].shape, call.out
    return costs.adaptive_pool(x, out.shape, _dims(call), results=out.numel * divides)


def _adaptive_pool_backward(call: OpCall) -> Work:
    """One division per gradient, one addition per window element; the input is not read."""
    grad, x = call.inputs[:2]
    work = costs.adaptive_pool(x.shape, grad.shape, _dims(call), results=grad.numel)
    return work.with_bytes(read=grad.nbytes)


add_rows("pool", {
    "max_pool2d_with_indices max_pool3d_with_indices fractional_max_pool2d fractional_max_pool3d":
        lambda c: costs.pool_windows(c.out.numel, _window(c)),
    "avg_pool2d avg_pool3d": lambda c: costs.pool_windows(c.out.numel, _window(c), last=1),
    "_adaptive_avg_pool2d _adaptive_avg_pool3d": partial(_adaptive_pool, divides=True),
    "adaptive_max_pool2d adaptive_max_pool3d": partial(_adaptive_pool, divides=False),
    "max_pool2d_with_indices_backward max_pool3d_with_indices_backward"
    " adaptive_max_pool2d_backward adaptive_max_pool3d_backward"
    " fractional_max_pool2d_backward fractional_max_pool3d_backward": _max_pool_backward,
    "avg_pool2d_backward avg_pool3d_backward": _pool_backward,
    "_adaptive_avg_pool2d_backward _adaptive_avg_pool3d_backward": _adaptive_pool_backward,
    "torchvision::roi_pool torchvision::ps_roi_align torchvision::ps_roi_pool":
        lambda c: Work.per_element(c.out.numel, 1),
})  # fmt: skip

TAPS = {
    "upsample_nearest1d": 1, "upsample_nearest2d": 1, "upsample_nearest3d": 1,
    "_upsample_nearest_exact1d": 1, "_upsample_nearest_exact2d": 1, "_upsample_nearest_exact3d": 1,
    "upsample_linear1d": 2, "upsample_bilinear2d": 4, "_upsample_bilinear2d_aa": 4,
    "upsample_trilinear3d": 8, "upsample_bicubic2d": 16, "_upsample_bicubic2d_aa": 16,
}  # fmt: skip
GRID_TAPS = {0: 4, 1: 1, 2: 16}  # bilinear, nearest, bicubic, in two dimensions


def _grid_taps(call: OpCall) -> int:
    taps = GRID_TAPS[call.get("interpolation_mode")]
    return 8 if taps == 4 and "3d" in call.name else taps


def _upsample(taps: int) -> Formula:
    return lambda c: costs.interpolate(c.out.numel, taps)


def _upsample_backward(taps: int) -> Formula:
    return lambda c: costs.interpolate_backward(c.inputs[0].numel, taps)


add_rows("interpolate", {
    **{name: _upsample(taps) for name, taps in TAPS.items()},
    **{f"{name}_backward": _upsample_backward(taps) for name, taps in TAPS.items()},
    "grid_sampler_2d grid_sampler_3d _grid_sampler_2d_cpu_fallback": lambda c: costs.interpolate(
        c.out.numel, _grid_taps(c)
    ),
    # into the input's gradient and the grid's
    "grid_sampler_2d_backward grid_sampler_3d_backward": lambda c: costs.interpolate_backward(
        c.inputs[0].numel, _grid_taps(c), gradients=2
    ),
    "affine_grid_generator": lambda c: costs.affine_grid(c.out.numel, c.inputs[0].shape[-1]),
    "torchvision::roi_align": lambda c: costs.roi_align(c.out.numel, c.get("sampling_ratio")),
    "torchvision::_roi_align_backward": lambda c: costs.roi_align(
        c.inputs[0].numel, c.get("sampling_ratio")
    ),
})  # fmt: skip
add_rows("boxes", {"torchvision::nms": lambda c: costs.suppress_boxes(c.inputs[0].shape[0])})

# ---------------------------------------------------------------- reductions


def _reduction(flops: int, per_result: int = 0, each: int = 0) -> Formula:
    return lambda c: costs.reduction(c.inputs[0], c.out, flops, per_result, each)


def _norm(call: OpCall) -> Work:
    order = call.get("ord", call.get("p"))
    n, results = call.inputs[0].numel, call.out.numel
    return costs.vector_norm(n, results, 2 if order is None else order)


def _sort(call: OpCall) -> Work:
    x, dim = call.inputs[0], call.get("dim", -1)
    length = x.shape[dim if isinstance(dim, int) else -1] if x.shape else 1
    return costs.sort(x, length)


def _search_sorted(call: OpCall) -> Work:
    ordered = call.get("boundaries", call.get("sorted_sequence"))
    return costs.search_sorted(call.out.numel, ordered.shape[-1], is_float=call.is_float)


def _fft(call: OpCall) -> Work:
    big = max((*call.inputs, call.out), key=lambda t: t.numel)
    points = prod(big.shape[d] for d in call.get("dim"))
    is_real = call.name != "aten::_fft_c2c"
    return costs.fourier_transform(points, big.numel // max(points, 1), is_real=is_real)


add_rows("reduce", {
    "sum nansum prod amax amin max min argmax argmin cumsum cumprod cummax cummin"
    " _cummax_helper _cummin_helper trace count_nonzero mode median nanmedian kthvalue":
        _reduction(1),
    "aminmax _aminmax": _reduction(2),
    "var var_mean": _reduction(4),
    "std std_mean": _reduction(4, 1),
    "mean": lambda c: costs.mean(c.inputs[0], c.out.numel),
    "norm linalg_vector_norm native_norm": _norm,
    # the norm of a difference
    "dist": lambda c: Work.per_element(max(t.numel for t in c.inputs), 3, transcendentals=1),
    # the norm of each slice, and a scale
    "renorm": lambda c: Work.per_element(
        c.inputs[0].numel, 3, transcendentals=c.inputs[0].shape[c.get("dim")]
    ),
    "logsumexp": _reduction(3, 1, 1),
    "logcumsumexp": _reduction(3, 0, 2),
    "all any equal is_nonzero allclose _is_all_true _is_any_true": lambda c: Work(),
})  # fmt: skip
add_rows("sort", {
    "sort argsort msort": _sort,
    "topk": lambda c: costs.topk(c.inputs[0], c.get("k")),
    "searchsorted bucketize": _search_sorted,
    "histc histogram bincount unique_dim _unique _unique2 unique_consecutive"
    " unique_dim_consecutive": lambda c: Work(),
})  # fmt: skip
add_rows("fft", {"_fft_c2c _fft_r2c _fft_c2r": _fft})
