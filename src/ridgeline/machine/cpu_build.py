"""The C kernels as a library: found in the user's cache, or compiled on the spot.

The name of a cached library is a hash of what it was made from: source, compiler, flags and
processor. A cache that is shared between machines therefore never hands out the wrong one.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ridgeline.provenance import read_text

SOURCE = Path(__file__).with_name("cpu_kernels.c")
COMPILERS = ("cc", "gcc", "clang")
FLAGS = ("-O3", "-ffp-contract=fast", "-fPIC", "-shared")
TARGETS = (("-march=native",), ("-mcpu=native",), ())  # the first that the compiler takes
OPTIONAL = (("-fopenmp",), ())  # Apple's compiler comes without OpenMP
LIMIT_S = 120

Which = Callable[[str], str | None]
Run = Callable[[Sequence[str]], "subprocess.CompletedProcess[str]"]


class BuildError(Exception):
    """Why there are no C kernels; becomes the reason of what is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiler:
    """A C compiler that answered."""

    path: str
    version: str  # the first line of what it says about itself


def run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """A command with its output; never for longer than two minutes."""
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)


def find_compiler(
    *, which: Which = shutil.which, run: Run = run, environ: Mapping[str, str] = os.environ
) -> Compiler:
    """The first compiler that answers: $CC, then cc, gcc, clang."""
    for name in filter(None, (environ.get("CC"), *COMPILERS)):
        path = which(name)
        if path is None:
            continue
        try:
            said = run([path, "--version"])
        except (OSError, subprocess.SubprocessError):
            continue
        if said.returncode == 0 and said.stdout.strip():
            return Compiler(path=path, version=said.stdout.splitlines()[0].strip())
    raise BuildError(f"no C compiler ({', '.join(COMPILERS)}) was found")


def cache_folder(environ: Mapping[str, str] = os.environ, system: str = sys.platform) -> Path:
    """Where the user keeps what can be made again."""
    if environ.get("XDG_CACHE_HOME"):
        return Path(environ["XDG_CACHE_HOME"]) / "ridgeline"
    caches = Path("Library", "Caches") if system == "darwin" else Path(".cache")
    return Path.home() / caches / "ridgeline"


def processor(read: Callable[[str], str | None] = read_text) -> str:
    """What tells one processor from another: its model and its instructions."""
    lines = (read("/proc/cpuinfo") or "").splitlines()
    names = ("model name", "flags", "Features", "CPU part", "CPU implementer")
    told = [line for line in lines if line.partition(":")[0].strip() in names]
    return "\n".join([platform.machine(), platform.processor(), *dict.fromkeys(told)])


def library(
    vector_bytes: int,
    compiler: Compiler,
    *,
    folder: Path | None = None,
    source: Path = SOURCE,
    cpu: str | None = None,
    run: Run = run,
) -> ctypes.CDLL:
    """The kernels for one width of a vector, loaded."""
    path = _cached(vector_bytes, compiler, folder or cache_folder(), source, cpu or processor())
    if path.exists():
        try:
            return ctypes.CDLL(str(path))
        except OSError:
            path.unlink(missing_ok=True)  # half a file, or of another system: made again
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError:  # a home that cannot be written to: good for this run only
        path = Path(tempfile.mkdtemp(prefix="ridgeline-")) / path.name
    compile_source(source, path, vector_bytes, compiler, run=run)
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise BuildError(f"the compiled kernels do not load: {error}") from error


def compile_source(
    source: Path, path: Path, vector_bytes: int, compiler: Compiler, *, run: Run = run
) -> None:
    """Compile under a temporary name, then rename: a killed compiler leaves nothing behind."""
    said = ""
    for target in TARGETS:
        for optional in OPTIONAL:
            made = path.with_name(f"{path.name}.{os.getpid()}")
            command = [compiler.path, *FLAGS, *target, *optional, f"-DVECTOR_BYTES={vector_bytes}",
                       str(source), "-o", str(made)]  # fmt: skip
            try:
                done = run(command)
            except (OSError, subprocess.SubprocessError) as error:
                raise BuildError(f"{Path(compiler.path).name} could not be run: {error}") from error
            if done.returncode == 0 and made.exists():
                made.replace(path)
                return
            made.unlink(missing_ok=True)
            said = said or done.stderr.strip()
    first = next((line for line in said.splitlines() if "error" in line), "no message")
    raise BuildError(f"{Path(compiler.path).name} did not compile the kernels: {first}")


def _cached(vector_bytes: int, compiler: Compiler, folder: Path, source: Path, cpu: str) -> Path:
    made_from = "\n".join(
        (source.read_text(encoding="utf-8"), compiler.path, compiler.version, cpu,
         repr((FLAGS, TARGETS, OPTIONAL)), str(vector_bytes))
    )  # fmt: skip
    digest = hashlib.sha256(made_from.encode()).hexdigest()[:20]
    return folder / "kernels" / f"cpu-{vector_bytes}-{digest}.so"
