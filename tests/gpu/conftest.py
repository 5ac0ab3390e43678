"""Tests in this folder need an NVIDIA GPU; elsewhere they are skipped, and say why."""

import pytest
import torch


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = "needs an NVIDIA GPU that torch can use (torch.cuda.is_available() is False)"
    for item in items:
        if "tests/gpu" in item.path.as_posix():
            item.add_marker(pytest.mark.gpu)
            if not torch.cuda.is_available():
                item.add_marker(pytest.mark.skip(reason=reason))
