"""One thread everywhere (two fight for two busy cores), and a fixed seed for every test."""

from __future__ import annotations

import os

import pytest
import torch

torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"  # for the processes that tests start


@pytest.fixture(autouse=True)
def _fixed_seed() -> None:
    torch.manual_seed(0)
