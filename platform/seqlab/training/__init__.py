"""What a fit needs besides the model: configs, checkpoints, exact resume, progress."""
