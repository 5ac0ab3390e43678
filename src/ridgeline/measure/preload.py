"""What the server of processes imports once for all of them.

A torch that cannot be imported must not end the server: the process that needs it says why.
"""

from contextlib import suppress

with suppress(Exception):
    import ridgeline.measure.measure_workload
    import ridgeline.measure.run_record  # noqa: F401
