"""MLflow: where runs are stored, what is stored of each, and how they are found. See docs/tracking.md."""
