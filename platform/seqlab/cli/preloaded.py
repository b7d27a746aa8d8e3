"""All that a fit imports, MLflow at its end too: a process that has imported this forks fits that begin at once."""

from __future__ import annotations

from seqlab.cli.fit import import_lightning
from seqlab.tracking.aside import prepare_mlflow

import_lightning()
prepare_mlflow()

import mlflow.store.tracking.sqlalchemy_store  # noqa: E402, F401
