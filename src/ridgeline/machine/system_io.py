"""How a machine is looked at: every command, file and setting that the answers are made of.

Tests put recorded text in place of each, so that a Mac, a cluster node with MIG slices and a
bare container can all be described here.
"""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from ridgeline.provenance import ReadText, RunCommand, read_text, run_command
from ridgeline.sensors.nvidia import start_nvml

_SLOW_LIMIT_S = 90  # the first import of torch from a network file system takes its time


def run_slow_command(command: Sequence[str]) -> str | None:
    """As `run_command`, for what may take a minute."""
    return run_command(command, limit_s=_SLOW_LIMIT_S)


def find_paths(pattern: str) -> list[str]:
    """Paths that match, in order; none if the folder does not exist."""
    path = Path(pattern)
    return sorted(
        str(found) for found in Path(path.anchor).glob(str(path.relative_to(path.anchor)))
    )


def package_version(name: str) -> str | None:
    """The installed version of a package, from its metadata: nothing is imported."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def package_folder(name: str) -> str | None:
    """Where a package is installed; it is not imported."""
    from importlib.util import find_spec

    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        return None
    return None if spec is None or spec.origin is None else str(Path(spec.origin).parent)


def free_bytes(path: str) -> int | None:
    """Room on the disk of a folder, or of the nearest one above it that exists."""
    try:
        return shutil.disk_usage(_existing(path)).free
    except OSError:
        return None


def is_writable(path: str) -> bool:
    """Whether a file can be put into a folder, or the folder can be made."""
    return os.access(_existing(path), os.W_OK)


def _existing(path: str) -> Path:
    here = Path(path).absolute()
    return next(folder for folder in (here, *here.parents) if folder.exists())


def pairs(text: str) -> dict[str, str]:
    """Lines of `key: value`, as /proc, sysctl and dmidecode write them."""
    rows = [line.partition(":") for line in text.splitlines()]
    return {key.strip(): value.strip() for key, colon, value in rows if colon}


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemIO:
    """The ways to ask. Each answers None, or nothing, where there is no answer."""

    run: RunCommand = run_command
    run_slow: RunCommand = run_slow_command
    read: ReadText = read_text
    find: Callable[[str], list[str]] = find_paths
    which: Callable[[str], str | None] = shutil.which
    version: Callable[[str], str | None] = package_version
    folder: Callable[[str], str | None] = package_folder
    nvml: Callable[[], Any] = start_nvml
    free_bytes: Callable[[str], int | None] = free_bytes
    is_writable: Callable[[str], bool] = is_writable
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    system: str = field(default_factory=platform.system)  # "Linux", "Darwin"
    architecture: str = field(default_factory=platform.machine)
    kernel: str = field(default_factory=platform.release)

    def line(self, path: str) -> str | None:
        """A file of one line, without its end."""
        text = self.read(path)
        return None if text is None else text.strip()

    def number(self, path: str) -> int | None:
        """A file that holds one whole number."""
        try:
            return int(self.line(path) or "")
        except ValueError:
            return None
