"""System metrics, sampled on the training thread, because MLflow's sampling thread would write to the store itself."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from typing import Any

import psutil
import torch

SECONDS = 10.0


class SystemMetrics:
    """MLflow's system metrics (CPU, memory, disk, network; GPUs where `nvidia-ml-py` is installed).

    A sample takes about 0.2 ms on a machine without a GPU.
    """

    def __init__(self) -> None:
        from mlflow.system_metrics.metrics.cpu_monitor import CPUMonitor
        from mlflow.system_metrics.metrics.disk_monitor import DiskMonitor
        from mlflow.system_metrics.metrics.gpu_monitor import GPUMonitor
        from mlflow.system_metrics.metrics.network_monitor import NetworkMonitor

        kinds: list[Any] = [CPUMonitor, DiskMonitor, NetworkMonitor]
        self._monitors = [kind() for kind in kinds]
        with suppress(ImportError, RuntimeError):
            self._monitors.append(GPUMonitor())  # type: ignore[no-untyped-call]
        psutil.cpu_percent()  # the first call has no reference and returns 0
        self._sampled_at = time.monotonic()

    def sample(self) -> dict[str, float]:
        """Metrics by MLflow's names; empty if the last sample is less than 10 s old."""
        if time.monotonic() - self._sampled_at < SECONDS:
            return {}
        self._sampled_at = time.monotonic()
        metrics: dict[str, float] = {}
        for monitor in self._monitors:
            monitor.collect_metrics()
            metrics |= {f"system/{name}": value for name, value in monitor.aggregate_metrics().items()}
            monitor.clear_metrics()
        return metrics


def peak_memory_mb(device: torch.device) -> float:
    """Peak memory so far in 10^6 bytes: allocated tensors on a GPU, otherwise resident memory of the process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 1e6
    if sys.platform == "win32":
        return float(psutil.Process().memory_info().peak_wset) / 1e6
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6
