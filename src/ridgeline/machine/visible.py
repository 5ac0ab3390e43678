"""Which devices CUDA shows and in which order, by its environment variables alone.

The rules are those of the CUDA programming guide ("CUDA environment variables") and of the MIG user
guide. They are used where the driver itself cannot be asked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ridgeline.machine.gpu import Mig


def parse_gpu_list(text: str) -> dict[str, tuple[Mig, ...]]:
    """UUIDs of the devices and the slices of each, from `nvidia-smi -L`, in its order."""
    found: dict[str, tuple[Mig, ...]] = {}
    for line in text.splitlines():
        uuid = re.search(r"\(UUID: ((?:GPU|MIG)-[^)]+)\)", line)
        if uuid is None:
            continue
        profile = re.match(r"\s+MIG (\S+)", line)
        if profile is None:
            found[uuid[1]] = ()
        elif found:
            device = next(reversed(found))
            found[device] += (Mig(profile=profile[1], uuid=uuid[1]),)
    return found


def order_by_environment(
    gpus: Sequence[tuple[str, Sequence[Mig]]], environ: Mapping[str, str]
) -> dict[str, int]:
    """CUDA index by UUID. `gpus` are UUID and slices, in the order of the bus.

    The list ends at the first entry that names nothing, and is empty if one is named twice. Without
    a list, all devices are visible, and of the divided ones the first slice.
    """
    listed = environ.get("CUDA_VISIBLE_DEVICES")
    if listed is None:
        return _numbered([_whole_or_first(uuid, slices) for uuid, slices in gpus])
    chosen: list[str] = []
    for entry in listed.split(","):
        uuid = _named(entry.strip(), gpus)
        if uuid is None:
            break
        chosen.append(uuid)
    return _numbered(chosen) if len(set(chosen)) == len(chosen) else {}


def _numbered(uuids: Sequence[str]) -> dict[str, int]:
    return {uuid: index for index, uuid in enumerate(uuids)}


def _whole_or_first(uuid: str, slices: Sequence[Mig]) -> str:
    return slices[0].uuid if slices else uuid


def _named(entry: str, gpus: Sequence[tuple[str, Sequence[Mig]]]) -> str | None:
    """The device of `2`, `GPU-8932f937…` (the beginning is enough) or `MIG-…`."""
    if entry.isdigit():
        return _whole_or_first(*gpus[int(entry)]) if int(entry) < len(gpus) else None
    if entry.startswith("MIG-"):
        slices = [mig.uuid for _, migs in gpus for mig in migs]
        return entry if entry in slices else None
    if entry.startswith("GPU-"):
        matches = [gpu for gpu in gpus if gpu[0].startswith(entry)]
        return _whole_or_first(*matches[0]) if len(matches) == 1 else None
    return None
