"""The fields of a passport that anything reads, and what each must be."""

from __future__ import annotations

from ridgeline.fields import (
    FLAG,
    INDEX,
    LIST,
    MAPPING,
    NAME,
    NOT_NEGATIVE,
    NUMBER,
    NUMBERS,
    TEXT,
    TEXTS,
    Fields,
)

NEEDED: Fields = {
    "machine": NAME,
    "measured_at": TEXT,
    "is_quick": FLAG,
    "ceilings": LIST,
    "ceilings.*": MAPPING,
    "ceilings.*.kind": TEXT,
    "ceilings.*.device": TEXT,
    "ceilings.*.how": TEXT,
    "ceilings.*.samples": NUMBERS,
    "missing": LIST,
    "missing.*": MAPPING,
    "missing.*.what": TEXT,
    "missing.*.reason": TEXT,
    "description": MAPPING,
    "description.gpus.*": MAPPING,
    "description.cpu.caches.*": MAPPING,
    "description.cpu.caches.*.level": INDEX,
    "provenance": MAPPING,
}
OPTIONAL: Fields = {
    **{
        f"ceilings.*.{name}": TEXT
        for name in ("path", "precision", "accumulator", "level", "pattern", "what", "power_state")
    },
    **{
        f"ceilings.*.{name}": NUMBER
        for name in ("threads", "working_set_bytes", "energy_j_per_flop", "energy_j_per_byte",
                     "clock_hz", "memory_clock_hz", "temperature_c", "power_w")
    },
    "ceilings.*.throttle_reasons": TEXTS,
    "description.os": TEXT,
    "description.cpu": MAPPING,
    "description.cpu.model": TEXT,
    "description.cpu.usable_cores": NUMBER,
    "description.cpu.caches": LIST,
    "description.cpu.caches.*.kind": TEXT,
    "description.cpu.caches.*.size_bytes": NOT_NEGATIVE,
    "description.cpu.caches.*.instances": NOT_NEGATIVE,
    "description.memory": MAPPING,
    "description.memory.total_bytes": NOT_NEGATIVE,
    "description.drivers": MAPPING,
    "description.drivers.*": TEXT,
    "description.gpus": LIST,
    **{f"description.gpus.*.{name}": TEXT for name in ("kind", "name", "uuid", "driver")},
    "description.gpus.*.index": INDEX,
    **{
        f"description.gpus.*.{name}": NOT_NEGATIVE
        for name in ("compute_units", "memory_bytes", "l2_bytes")
    },
    "provenance.command": TEXTS,
    "provenance.libraries": MAPPING,
    "provenance.libraries.*": TEXT,
}  # fmt: skip
