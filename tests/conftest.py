"""One thread everywhere (two fight for two busy cores), and a fixed seed for every test."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
