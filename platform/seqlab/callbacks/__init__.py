"""What a fit does besides training: checkpoints, exact resume, progress, tracking."""
