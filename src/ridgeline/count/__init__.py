"""Static cost of a model: FLOPs, bytes, parameters and memory, without running any arithmetic.

counting.py   the way in: a model's name or a module → CountResult
meta.py       models and inputs without data
step.py       one step run under the tracer
trace.py      the tracer; values.py, sdpa.py, autocast.py, modules.py, backward.py help it
call.py       one operator call, what formulas see
formulas/     operator → cost, by family
evaluate.py   traced calls + formulas → costs
result.py     the answer; layers.py is its table by module
memory.py     what is alive when
growth.py     how cost grows with batch and input size; capacity.py the largest batch
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ridgeline.count.result import CountResult


class _Room(ModuleType):
    """The room and its main function share a name: `ridgeline.count(model)` counts."""

    def __call__(self, *args: Any, **kwargs: Any) -> CountResult:
        from ridgeline.api import count

        return count(*args, **kwargs)


sys.modules[__name__].__class__ = _Room
