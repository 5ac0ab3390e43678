"""Captures that leave tensor cores out: their FLOPs are a lower bound, which has to be said."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ridgeline.profile.counter_ways import is_of_tensor_instructions
from ridgeline.profile.quantities import LOWER_BOUND, NO_TENSORS

if TYPE_CHECKING:
    import pandas as pd

    from ridgeline.profile.reading.counters import Counters

FIRST_WITH_TENSOR_CORES = 7  # compute capability 7.0
COLLECT = "collect sm__ops_path_tensor_src_*"
_OF_TENSORS = re.compile(  # parts of the names that libraries give to such kernels
    r"[hi]mma|gmma|tensor_?op|nvjet|_[sih](?:884|1688|16816|8816|16832)|"
    r"xmma_\w*(?:f16|bf16|tf32|i8|e4m3)|(?:tf32|bf16)(?:gemm|_)",
    re.IGNORECASE,
)


def unseen_tensors(kernels: pd.DataFrame, counters: Counters) -> list[str]:
    """A remark where FLOPs were counted, none of tensor cores, and there may be some."""
    columns = [str(name) for name in kernels.columns if kernels[name].notna().any()]
    if not any(name.startswith("flops_") for name in columns):
        return []
    is_told = any(map(is_of_tensor_instructions, counters.names))  # and spoken of already
    if is_told or any(name.endswith("_matrix") for name in columns):
        return []
    names = kernels["kernel"].astype(str)
    users = names[names.str.contains(_OF_TENSORS)]
    if len(users):
        return [
            f"{NO_TENSORS}, and {len(users):,} of {len(names):,} kernels use them by their names"
            f" ({users.iloc[0][:60]}): {LOWER_BOUND}; {COLLECT}"
        ]
    major = (counters.capability or "").partition(".")[0]
    if major.isdecimal() and int(major) >= FIRST_WITH_TENSOR_CORES:
        return [f"{NO_TENSORS}: {LOWER_BOUND} if kernels use them; {COLLECT}"]
    return []
