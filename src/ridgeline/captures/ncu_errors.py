"""What the words of Nsight Compute mean when it could not count, and what to do about it.

The way out differs: a step that is profiled now can be marked or made smaller; a file that was
captured elsewhere has to be captured again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ridgeline.errors import RidgelineError
from ridgeline.machine.profilers import NCU_VARIABLE

WITHOUT = "--tier time needs no counters: kernel times and where they belong"
NO_KERNELS = "No kernels were profiled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why there is nothing, in our words, and the way out."""

    marks: tuple[str, ...] = ()  # words of ncu that no other program prints
    also: str = ""  # a pattern of others, which are looked for only where ncu speaks
    problem: str
    here: str  # what to do for a step that is profiled now …
    elsewhere: str = ""  # … and for a file, where that differs
    is_of_counters: bool = True  # kernel times can be had all the same

    def is_told(self, said: str) -> bool:
        """Whether this is what ncu says."""
        patterns = [*map(re.escape, self.marks), *filter(None, [self.also])]
        return re.search("|".join(patterns), said, flags=re.IGNORECASE) is not None

    @property
    def hint_here(self) -> str:
        return f"{self.here}; {WITHOUT}" if self.is_of_counters else self.here

    @property
    def hint_for_file(self) -> str:
        return self.elsewhere or self.here


REASONS = (  # the cause before its consequences
    Reason(
        marks=("ERR_NVGPUCTRPERM",),
        also="permission issue",
        problem="the profiler may not read the GPU's counters (ERR_NVGPUCTRPERM)",
        here="as root, put `options nvidia NVreg_RestrictProfilingToAdminUsers=0` into a file in"
        " /etc/modprobe.d and reboot; or start ridgeline as root; in a container, give it"
        " --cap-add=SYS_ADMIN",
        elsewhere="capture it as root, or have an administrator open the counters to all users:"
        " https://developer.nvidia.com/ERR_NVGPUCTRPERM",
    ),
    Reason(
        marks=("driver resource was unavailable",),
        also="no other tool|UnsupportedOperation.*profiler",
        problem="another profiler held the GPU's counters (DCGM, Nsight Systems, another ncu)",
        here="stop it for a while (for DCGM: `dcgmi profile --pause`) and profile again",
    ),
    Reason(
        marks=("InterprocessLockFailed",),
        also="file lock|lock file",
        problem="ncu cannot take its lock file, which another user's ncu may have left",
        here="set TMPDIR to a folder of your own and profile again",
    ),
    Reason(
        also="driver is not compatible|not supported on this|unsupported (?:gpu|device)"
        "|Unknown chip",
        problem="this ncu does not know this GPU or its driver",
        here=f"install an ncu as new as the driver, or name one by {NCU_VARIABLE}",
        elsewhere="capture it again with an ncu as new as the driver",
    ),
    Reason(
        marks=("LaunchFailed",),
        also="Failed to launch|failed to profile",
        problem="a kernel could not be launched again for counting",
        here="it may need memory that cannot be put back (managed or mapped memory, NCCL);"
        " try a smaller batch",
        elsewhere="see that the program runs without the profiler, then capture again with less in"
        " GPU memory or with --replay-mode application",
    ),
    Reason(
        marks=("The application returned an error code",),
        problem="the program that was profiled ended with an error",
        here="see that it runs without the profiler, then profile again",
        is_of_counters=False,
    ),
    Reason(
        marks=(NO_KERNELS, "No kernels were captured"),
        problem="no kernels were profiled",
        here="none ran between the marks: in a program of your own, mark the step with `with"
        " ridgeline.profile_step():` (or cudaProfilerStart and Stop), and see that it gets there",
        elsewhere="a filter (--kernel-name, --nvtx-include, --launch-skip) matched none, or kernels"
        " come from child processes: --target-processes all",
        is_of_counters=False,
    ),
)
MARKS = re.compile("|".join(re.escape(mark) for reason in REASONS for mark in reason.marks))


def explained(said: str, otherwise: str) -> RidgelineError:
    """What went wrong here, from the words of ncu; `otherwise`, and its words, if that is new."""
    for reason in REASONS:
        if reason.is_told(said):
            return RidgelineError(reason.problem, hint=reason.hint_here)
    lines = [line for line in said.splitlines() if "==ERROR==" in line] or said.splitlines()[-3:]
    words = " ".join(" ".join(lines).split())[:300]
    return RidgelineError(f"{otherwise}: {words}" if words else otherwise, hint=WITHOUT)
