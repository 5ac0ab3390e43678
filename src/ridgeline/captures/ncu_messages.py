"""Messages of a profiler: what they mean when it could not count, and those around a table."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from ridgeline.errors import RidgelineError
from ridgeline.machine.system import NCU_VARIABLE

WITHOUT = "--tier time needs no counters: kernel times and where they belong"
NO_KERNELS = "No kernels were profiled"


@dataclass(frozen=True, slots=True)
class Reason:
    """Why there is nothing, in our words, and the way out."""

    pattern: str  # in a message of ncu
    problem: str
    hint: str
    is_of_counters: bool = True  # kernel times can be had all the same

    def matches(self, text: str) -> bool:
        """Whether this is what ncu says."""
        return re.search(self.pattern, text, flags=re.IGNORECASE) is not None


REASONS = (  # the cause before its consequences
    Reason(
        "ERR_NVGPUCTRPERM|permission issue",
        "the profiler may not read the GPU's counters (ERR_NVGPUCTRPERM)",
        "run it as root; or open the counters to all users: put `options nvidia"
        " NVreg_RestrictProfilingToAdminUsers=0` into a file in /etc/modprobe.d and reboot"
        " (https://developer.nvidia.com/ERR_NVGPUCTRPERM); in a container, --cap-add=SYS_ADMIN",
    ),
    Reason(
        "driver resource was unavailable|no other tool|UnsupportedOperation.*profiler",
        "another profiler held the GPU's counters (DCGM, Nsight Systems, another ncu)",
        "stop it for a while (for DCGM: `dcgmi profile --pause`) and profile again",
    ),
    Reason(
        "InterprocessLockFailed|file lock|lock file",
        "ncu cannot take its lock file, which another user's ncu may have left",
        "set TMPDIR to a folder of your own and profile again",
    ),
    Reason(
        "driver is not compatible|not supported on this|unsupported (?:gpu|device)|Unknown chip",
        "this ncu does not know this GPU or its driver",
        f"use an ncu as new as the driver; here, {NCU_VARIABLE} names one",
    ),
    Reason(
        "LaunchFailed|Failed to launch|failed to profile",
        "a kernel could not be launched again for counting",
        "see that it runs without the profiler; it may need memory that cannot be put back (managed"
        " or mapped memory, NCCL): try a smaller batch, with ncu also --replay-mode application",
    ),
    Reason(
        "The application returned an error code",
        "the program that was profiled ended with an error",
        "see that it runs without the profiler, then profile again",
        is_of_counters=False,
    ),
    Reason(
        f"{NO_KERNELS}|No kernels were captured",
        "no kernels were profiled",
        "mark the step with `with ridgeline.profile_step():`, and see that the program gets there;"
        " with ncu, a filter may match none, or kernels come from child processes:"
        " --target-processes all",
        is_of_counters=False,
    ),
)


def explain_failure(output: str, otherwise: str) -> RidgelineError:
    """What went wrong here, from the words of ncu; `otherwise`, and its words, if that is new."""
    for reason in REASONS:
        if reason.matches(output):
            hint = f"{reason.hint}; {WITHOUT}" if reason.is_of_counters else reason.hint
            return RidgelineError(reason.problem, hint=hint)
    every = output.splitlines()
    lines = [line for line in every if "==ERROR==" in line] or every[-3:]
    words = " ".join(" ".join(lines).split())[:_LONGEST]
    return RidgelineError(f"{otherwise}: {words}" if words else otherwise, hint=WITHOUT)


_MESSAGE = re.compile(r"==(?P<level>ERROR|WARNING)==\s*(?P<text>.*)")
_MOST_MESSAGES = 50
_LONGEST = 300  # characters of a message
_CUT_OFF = "the file is cut off: its last line is not used"
_OTHER_TABLE = "another table follows and is not read: put it into a file of its own"
_MAYBE_EMPTY = "it may have been cut off, or it is of a program that launched none"


@dataclass(slots=True)
class ReadingLog:
    """Collected while a file is read."""

    messages: list[str] = field(default_factory=list)  # of the profiler
    skipped: int = 0  # lines inside a table that are not rows of it
    is_cut: bool = False  # the last line has no end
    has_other_table: bool = False

    def add_line(self, line: str) -> None:
        """Keep a line that is a message of the profiler."""
        if _MESSAGE.match(line) and len(self.messages) < _MOST_MESSAGES:
            self.messages.append(line.strip()[:_LONGEST])

    def add_skipped(self, row: list[str]) -> None:
        """Count a row that is not one of a kernel; an empty one is nothing."""
        self.skipped += any(text.strip() for text in row)

    def add_other_line(self, line: str, *, is_header: bool) -> None:
        """Note a line that is not a row: a message, another table, or something else."""
        self.add_line(line)
        self.has_other_table |= is_header
        self.skipped += not self.has_other_table and not line.startswith("==")

    def drop_messages(self, lines: Iterator[str]) -> Iterator[str]:
        """The lines that are not the profiler's own."""
        for line in lines:
            if line.startswith("=="):
                self.add_line(line)
            else:
                yield line

    @property
    def errors(self) -> list[str]:
        matches = map(_MESSAGE.match, self.messages)
        return [match["text"] for match in matches if match and match["level"] == "ERROR"]

    def refusal(self, file: object, problem: str, hint: str = "") -> RidgelineError:
        """The error for a file without anything to use; the profiler's reason comes first."""
        problem = f"{file} {problem}"
        for reason in REASONS:
            if any(map(reason.matches, self.messages)):
                return RidgelineError(f"{problem}: {reason.problem}", hint=reason.hint)
        if self.errors:
            problem = f"{problem}: the profiler said {self.errors[0]!r}"
            return RidgelineError(problem, hint="resolve that and capture again")
        return RidgelineError(problem, hint=hint or f"{_MAYBE_EMPTY}; capture and export it again")

    def notes(self) -> list[str]:
        notes = [f"the profiler reported an error: {text}" for text in self.errors[:1]]
        if self.skipped:
            notes.append(f"lines inside the table that are not rows are skipped: {self.skipped:,}")
        return notes + [_OTHER_TABLE] * self.has_other_table + [_CUT_OFF] * self.is_cut
