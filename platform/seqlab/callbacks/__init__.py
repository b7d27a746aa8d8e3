"""Callbacks that a fit runs besides training: checkpoints, exact resume, progress, tracking."""
