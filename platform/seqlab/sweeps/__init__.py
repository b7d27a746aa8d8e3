"""Sweeps: fits of one config with varying options chosen by Optuna, each in a separate process."""
