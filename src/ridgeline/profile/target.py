"""The program under the profiler: builds a model and takes the step that is looked at.

`python -m ridgeline.profile.target TASK` with a pickled `Task`; what to do with the step is in the
job that the environment names. It loads what it needs and leaves the device alone until it is told
to begin. Autotuners are off: every process must launch the same kernels.
"""

from __future__ import annotations

import os
import pickle
import sys
from dataclasses import replace
from pathlib import Path

import torch

from ridgeline.errors import RidgelineError
from ridgeline.measure.backends import choose_backend
from ridgeline.measure.marks import NoMarks
from ridgeline.measure.measurement import build_stepper
from ridgeline.measure.precision import choose_precision
from ridgeline.measure.step import torch_settings
from ridgeline.measure.tasks import Task
from ridgeline.profile.cupti.inside import count_inside, refuse_without_cupti
from ridgeline.profile.step_mark import INSIDE, job_here, profile_step, wait_for
from ridgeline.workloads import resolve

BAD_INPUT = 2
COMPILE_THREADS = "TORCHINDUCTOR_COMPILE_THREADS"  # others are processes, which ncu waits for
SMALL_SCALE = 2.0**7  # of the loss: gradients stay finite, and every step is taken


def main(task: Task) -> None:
    """Take marked steps until `profile_step` ends the program."""
    job = job_here()
    assert job is not None
    os.environ[COMPILE_THREADS] = "1"
    workload = resolve(task.spec)
    if job.role == INSIDE:
        refuse_without_cupti(job)
    wait_for(job, "begin", after="loaded")
    settings = replace(task.settings, cudnn_benchmark=False, nvtx=False)
    backend = choose_backend(settings.backend, settings.device)
    with torch_settings(settings, choose_precision(settings.precision, backend)):
        stepper = build_stepper(workload, task.spec, settings)
        if stepper.scaler is not None:  # no step may be skipped in one process and not in another
            stepper.scaler = torch.amp.GradScaler(backend.kind, init_scale=SMALL_SCALE)
        nobody = NoMarks()
        if job.role == INSIDE:
            count_inside(job, settings.device, lambda: stepper.step(nobody))
            sys.exit(0)
        for _ in range(job.warmup + job.steps):
            with profile_step():
                stepper.step(nobody)


if __name__ == "__main__":
    try:
        main(pickle.loads(Path(sys.argv[1]).read_bytes()))
    except RidgelineError as error:
        sys.stderr.write(f"ridgeline: {error}\n")
        sys.exit(BAD_INPUT)
    except SystemExit as ended:
        if ended.code != 0:
            raise
        # others wait for this process to be gone, and there is nothing to clean up
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
