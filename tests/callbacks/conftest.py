from __future__ import annotations

import pytest
import torch

from seqlab.config.quiet import quiet


@pytest.fixture(autouse=True)
def _quiet_and_single_threaded() -> None:
    quiet()
    torch.set_num_threads(1)
