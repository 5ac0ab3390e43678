"""A stand-in for CUPTI: knows two passes of counters, and hears what is launched through it.

Each metric of the n-th kernel counts 100 n and its own place in the list.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from typing import Any

from ridgeline.profile.cupti import DRIVER_CALLS, LAUNCHES, CallbackData

NAMES = (
    "dram__bytes_read", "dram__bytes_write", "gpu__time_duration",
    "sm__ops_path_tensor_src_fp16", "lts__t_bytes",
    *(f"smsp__sass_thread_inst_executed_op_{op}_pred_on" for op in ("fadd", "fmul", "ffma")),
)  # fmt: skip
PASSES = 2
OK, INVALID = 0, 1


class FakeLibrary:
    """Its functions by their names; `refuses` names one that fails, with which code."""

    def __init__(self, refuses: str = "", code: int = 35) -> None:
        self.refuses, self.code = refuses, code
        self.asked: list[str] = []
        self.hear: Callable[..., None] | None = None
        self.is_on = False
        self.counted: list[int] = []  # kernels of each pass
        self.most = 0
        self._kept: list[Any] = []  # memory that answers point to

    def __getattr__(self, name: str) -> Callable[..., int]:
        if not name.startswith("cupti"):
            raise AttributeError(name)
        words = re.findall("[A-Z][a-z]+", name)
        answer = getattr(type(self), "_" + "_".join(words).lower(), None)

        def call(*arguments: Any) -> int:
            self.asked.append(name)
            if name == self.refuses:
                return self.code
            return int(answer(self, *arguments) or OK) if answer is not None else OK

        return call

    def launch(self, kernel: str, call: int = LAUNCHES["cuLaunchKernel"][0]) -> None:
        """As a program would: heard before and after, and counted while counting is on."""
        data = CallbackData(site=0, symbol=kernel.encode())
        for data.site in (0, 1):
            if self.hear is not None:
                self.hear(None, DRIVER_CALLS, call, ctypes.pointer(data))
        if self.is_on:
            self.counted[-1] += 1

    def _get_version(self, found: Any) -> None:
        found._obj.value = 130001

    def _get_result_string(self, code: int, name: Any) -> None:
        names = {35: b"CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"}
        name._obj.value = names.get(code)

    def _subscribe(self, handle: Any, hear: Any, _: Any) -> None:
        self.hear = hear

    def _unsubscribe(self, handle: Any) -> None:
        self.hear = None

    def _device_get_chip_name(self, asked: Any) -> None:
        asked._obj.name = b"GH100"

    def _profiler_get_counter_availability(self, asked: Any) -> None:
        asked._obj.image_size = 8

    def _profiler_host_initialize(self, asked: Any) -> int:
        asked._obj.host = 7
        return OK if asked._obj.chip == b"GH100" else INVALID

    def _profiler_host_get_base_metrics(self, asked: Any) -> None:
        names = (ctypes.c_char_p * len(NAMES))(*(name.encode() for name in NAMES))
        self._kept.append(names)
        asked._obj.names, asked._obj.count = names, len(NAMES)

    def _profiler_host_get_config_image_size(self, asked: Any) -> None:
        asked._obj.config_size = 16

    def _profiler_host_get_num_of_passes(self, asked: Any) -> None:
        asked._obj.passes = PASSES

    def _range_profiler_enable(self, asked: Any) -> None:
        asked._obj.profiler = 9

    def _range_profiler_get_counter_data_size(self, asked: Any) -> None:
        asked._obj.data_size = 1000 * asked._obj.most_ranges

    def _range_profiler_set_config(self, asked: Any) -> None:
        self.most = asked._obj.most_ranges

    def _range_profiler_start(self, asked: Any) -> None:
        self.is_on = True
        self.counted.append(0)

    def _range_profiler_stop(self, asked: Any) -> None:
        self.is_on = False
        asked._obj.is_all = len(self.counted) == PASSES

    def _range_profiler_disable(self, asked: Any) -> None:
        self.is_on = False

    def _range_profiler_decode_data(self, asked: Any) -> None:
        asked._obj.dropped = max(0, self.counted[-1] - self.most)

    def _range_profiler_get_counter_data_info(self, asked: Any) -> None:
        asked._obj.ranges = self.counted[-1]

    def _profiler_host_evaluate_to_gpu_values(self, asked: Any) -> None:
        for place in range(asked._obj.count):
            asked._obj.values[place] = 100.0 * asked._obj.range + place
