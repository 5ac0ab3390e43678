"""What the server of processes imports once for all of them.

A torch that cannot be imported must not end the server: the process that needs it says why.
"""

import os
from contextlib import suppress
from pathlib import Path

with suppress(Exception):
    import ridgeline.measure.measure_workload
    import ridgeline.measure.run_record  # noqa: F401

with suppress(KeyError, OSError):  # nobody waits for it
    Path(os.environ.pop("RIDGELINE_LOADED")).touch()
