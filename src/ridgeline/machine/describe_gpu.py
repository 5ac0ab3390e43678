"""The accelerators of a machine, by the tools of their makers."""

from __future__ import annotations

import json

from ridgeline.machine.describe_nvidia import nvidia_gpus
from ridgeline.machine.gpu import Gpu, Gpus
from ridgeline.machine.system_io import SystemIO

AMD_QUERY = (
    "rocm-smi", "--showproductname", "--showuniqueid", "--showmeminfo", "vram",
    "--showdriverversion", "--json",
)  # fmt: skip
MAC_QUERY = ("system_profiler", "SPDisplaysDataType", "-json")


def describe_gpus(io: SystemIO, *, ram_bytes: int | None) -> Gpus:
    """Whatever accelerators there are, by their own tools."""
    if io.system == "Darwin":
        return Gpus(found=parse_mac_gpus(io.run(MAC_QUERY) or "", ram_bytes=ram_bytes))
    nvidia = nvidia_gpus(io)
    return nvidia if nvidia.found else Gpus(found=parse_rocm_smi(io.run(AMD_QUERY) or ""))


def parse_mac_gpus(text: str, *, ram_bytes: int | None) -> tuple[Gpu, ...]:
    """The GPU of an Apple chip, from `system_profiler SPDisplaysDataType -json`.

    Those of older Macs are left out: torch does not compute on them.
    """
    try:
        listed = json.loads(text)["SPDisplaysDataType"]
    except (ValueError, KeyError, TypeError):
        return ()
    return tuple(
        Gpu(
            kind="mps",
            name=str(card["sppci_model"]),
            index=0,
            compute_units=int(card["sppci_cores"]) if card.get("sppci_cores") else None,
            memory_bytes=ram_bytes,  # the chip's GPU has no memory of its own
        )
        for card in listed
        if str(card.get("sppci_model", "")).startswith("Apple")
    )


def parse_rocm_smi(text: str) -> tuple[Gpu, ...]:
    """AMD devices, from the JSON of rocm-smi; the spelling of its keys differs by version."""
    try:
        listed = json.loads(text)
    except ValueError:
        return ()
    lowered = {
        card: {str(key).lower(): str(value) for key, value in row.items()}
        for card, row in listed.items()
    }
    driver = lowered.get("system", {}).get("driver version")
    cards = [(card, row) for card, row in lowered.items() if card.startswith("card")]
    return tuple(
        Gpu(
            kind="rocm",
            name=row.get("card series") or row.get("device name") or "AMD GPU",
            index=index,
            uuid=row.get("unique id"),
            system_index=int(card.removeprefix("card")),
            memory_bytes=int(row.get("vram total memory (b)", 0)) or None,
            driver=driver,
        )
        for index, (card, row) in enumerate(cards)
    )
