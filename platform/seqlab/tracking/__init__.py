"""MLflow tracking: storing and finding runs. See docs/tracking.md."""
