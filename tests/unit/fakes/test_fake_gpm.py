# SPDX-License-Identifier: Apache-2.0
"""GPM samples of the fake library."""

from __future__ import annotations

import pytest

from tests.fakes.machines import a100_node, h100_mig_node, h100_node

GRAPHICS, SM, OCCUPANCY, DRAM = 1, 2, 3, 10


def sample(nvml, handle, gi=None):
    taken = nvml.nvmlGpmSampleAlloc()
    if gi is None:
        return nvml.nvmlGpmSampleGet(handle, taken)
    return nvml.nvmlGpmMigSampleGet(handle, gi, taken)


def metrics(nvml, first, last, ids, version=1):
    request = nvml.c_nvmlGpmMetricsGet_t(version, len(ids), first, last)
    for place, metric in enumerate(ids):
        request.metrics[place].metricId = metric
    nvml.nvmlGpmMetricsGet(request)
    answers = [(m.nvmlReturn, m.value) for m in request.metrics[: len(ids)]]
    for taken in (first, last):
        nvml.nvmlGpmSampleFree(taken)
    return answers


def test_the_mean_between_two_samples(fake, nvml):
    (gpu,) = h100_node(fake, "h01", count=1)
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    assert nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice == 1
    first = sample(nvml, handle)
    fake.set_util(gpu.uuid, 80, at_ms=1_750, sm=60, occupancy=32, dram=20)
    fake.set_clock(2_050)
    answers = metrics(nvml, first, sample(nvml, handle), [GRAPHICS, SM, OCCUPANCY, DRAM, 20])
    # 80 % from 1,800 to 2,000 ms of the second that ends there: a fifth of it
    assert answers == [(0, 16.0), (0, 12.0), (0, 6.4), (0, 4.0), (3, 0.0)]


def test_each_gpu_instance_by_id_and_by_handle(fake, nvml):
    (board,) = h100_mig_node(fake, "h02")
    one, two = board.instances
    parent = nvml.nvmlDeviceGetHandleByIndex(0)
    fake.set_util(one.uuid, 100, at_ms=2_000)
    fake.set_util(two.uuid, 30, at_ms=2_000)
    fake.set_clock(2_000)
    first = (
        sample(nvml, parent, one.gi),
        sample(nvml, parent),
        sample(nvml, nvml.nvmlDeviceGetHandleByUUID(two.uuid)),
    )
    fake.set_clock(2_500)
    last = (
        sample(nvml, parent, one.gi),
        sample(nvml, parent),
        sample(nvml, nvml.nvmlDeviceGetHandleByUUID(two.uuid)),
    )
    by_id, whole, by_handle = (
        metrics(nvml, *pair, [GRAPHICS])[0] for pair in zip(first, last, strict=True)
    )
    assert (by_id, by_handle) == ((0, 100.0), (0, 30.0))
    assert whole == (0, pytest.approx((3 * 100 + 3 * 30) / 7))
    with pytest.raises(nvml.NVMLError_InvalidArgument):
        sample(nvml, parent, 9)


@pytest.mark.parametrize(("apart_ms", "code"), [(0, 21), (100, 21), (101, 0)])
def test_samples_must_be_more_than_100_ms_apart(fake, nvml, apart_ms, code):
    h100_node(fake, "h01", count=1)
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    first = sample(nvml, handle)
    fake.set_clock(1_000 + apart_ms)
    assert metrics(nvml, first, sample(nvml, handle), [GRAPHICS])[0][0] == code


def test_samples_of_two_devices_or_none_are_no_pair(fake, nvml):
    h100_node(fake, "h01", count=2)
    one, two = (sample(nvml, nvml.nvmlDeviceGetHandleByIndex(index)) for index in (0, 1))
    for last in (two, nvml.nvmlGpmSampleAlloc()):
        with pytest.raises(nvml.NVMLError_InvalidArgument):
            metrics(nvml, one, last, [GRAPHICS])


def test_the_request_names_its_version(fake, nvml):
    h100_node(fake, "h01", count=1)
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    with pytest.raises(nvml.NVMLError) as caught:
        metrics(nvml, sample(nvml, handle), sample(nvml, handle), [GRAPHICS], version=0)
    assert caught.value.value == nvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH


def test_before_hopper_there_is_no_gpm(fake, nvml):
    a100_node(fake, "gpu01", count=1)
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    assert nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice == 0
    with pytest.raises(nvml.NVMLError_NotSupported):
        sample(nvml, handle)
