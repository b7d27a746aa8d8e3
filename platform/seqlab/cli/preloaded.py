"""Imports everything that a fit needs, including MLflow, so that fits forked from this process start at once."""

from __future__ import annotations

from seqlab.cli.fit import import_lightning
from seqlab.tracking.aside import prepare_mlflow

import_lightning()
prepare_mlflow()

import mlflow.store.tracking.sqlalchemy_store  # noqa: E402, F401
