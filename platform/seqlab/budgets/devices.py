"""Device limits from NVIDIA's data sheets: operations per second on dense matrices, and memory. The sheets also list
figures with sparsity, which are twice as large."""

from __future__ import annotations

from typing import NamedTuple

import torch


class Device(NamedTuple):
    """Peak operations per second in bfloat16 or float16, in TF32 and in float32; memory in bytes."""

    half: float
    tf32: float
    float32: float
    memory: float


_H100 = Device(989e12, 494e12, 67e12, 80e9)
_A100 = Device(312e12, 156e12, 19.5e12, 40e9)
DEVICES = {
    "H100": _H100,
    "H200": _H100._replace(memory=141e9),
    "H100-PCIe": Device(756e12, 378e12, 51e12, 80e9),
    "A100": _A100,
    "A100-80GB": _A100._replace(memory=80e9),
}
DRIVER_NAMES = {
    "NVIDIA H100 80GB HBM3": "H100",
    "NVIDIA H200": "H200",
    "NVIDIA H100 PCIe": "H100-PCIe",
    "NVIDIA A100-SXM4-40GB": "A100",
    "NVIDIA A100-PCIE-40GB": "A100",
    "NVIDIA A100-SXM4-80GB": "A100-80GB",
    "NVIDIA A100 80GB PCIe": "A100-80GB",
}
"""Devices by full name from torch.cuda.get_device_name. A partition of a device (MIG) has a longer name."""


def peak_of(name: str, precision: str) -> float | None:
    """Peak operations per second of a device; None = unknown.

    Args:
        name: device name as reported by the driver.
        precision: precision name of Lightning's Trainer; "32-true" counts as TF32 if PyTorch may use it.
    """
    device = DEVICES.get(DRIVER_NAMES.get(name, ""))
    if device is None:
        return None
    if precision.startswith(("bf16", "16")):
        return device.half
    if precision != "32-true":
        return None
    return device.float32 if torch.get_float32_matmul_precision() == "highest" else device.tf32
