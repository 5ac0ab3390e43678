"""The ceilings of a real GPU: plausible against its own properties, and steady."""

import pytest
import torch

from ridgeline.machine.ceilings_cuda import cuda_steps, measure_cuda
from ridgeline.machine.datasheets import datasheet_for
from ridgeline.machine.describe import describe


def test_a_quick_measurement_is_whole_and_obeys_physics() -> None:
    # when a device is measured quickly
    steps: list[str] = []
    ceilings, missing = measure_cuda(0, quick=True, progress=steps.append)
    assert len(steps) == cuda_steps()
    assert [m.reason for m in missing] == []
    # then memory levels are in order, and no roof is above what the datasheet allows
    read = {c.level: c.best for c in ceilings if c.kind == "bandwidth" and c.pattern == "read"}
    assert read["l1"] > read["l2"] > read["dram"]
    sheet = datasheet_for(torch.cuda.get_device_name(0))
    assert sheet is not None
    assert read["dram"] <= sheet.dram_bytes_per_s
    for ceiling in ceilings:
        if ceiling.kind == "compute":
            peak = sheet.peak(ceiling.path or "", ceiling.precision or "")
            assert peak is None or ceiling.best <= 1.02 * peak.flops_per_s, ceiling.precision


def test_vector_units_reach_nine_tenths() -> None:
    ceilings, _ = measure_cuda(0, quick=True)
    (fp32,) = [c for c in ceilings if (c.path, c.precision) == ("vector", "fp32")]
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    clock_hz = fp32.conditions.clock_hz
    if clock_hz is None:
        pytest.skip("NVML does not tell the clock")
    assert fp32.best >= 0.9 * sms * 128 * 2 * clock_hz


def test_the_description_is_of_this_device() -> None:
    (gpu, *_) = describe().gpus
    properties = torch.cuda.get_device_properties(0)
    assert gpu.name == properties.name
    assert gpu.index == 0
    assert gpu.compute_units == properties.multi_processor_count
    assert str(properties.uuid) in str(gpu.uuid)
