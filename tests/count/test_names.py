"""Every formula is for an operator that exists: a misspelt name would never be used."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from ridgeline.count import formulas

ONLY_IN_SOME_VERSIONS = frozenset({"aten::shallow_copy_data_"})
"""Operators that some of the supported versions of PyTorch do not have."""


def existing() -> set[str]:
    full: list[str] = torch._C._dispatch_get_all_op_names()
    return {name.split(".")[0] for name in full} | set(full)


def aten(names: Iterable[str]) -> set[str]:
    return {name for name in names if name.startswith("aten::")}


def test_formulas() -> None:
    assert aten(formulas.FORMULAS) - existing() - ONLY_IN_SOME_VERSIONS == set()


def test_free_operators() -> None:
    assert aten(formulas.FREE) - existing() - ONLY_IN_SOME_VERSIONS == set()


def test_no_operator_is_both_free_and_counted() -> None:
    assert formulas.FREE & set(formulas.FORMULAS) == set()
