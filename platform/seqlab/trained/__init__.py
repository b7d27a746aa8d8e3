"""Trained models: loaded from a run, used to initialise a fit, or imported."""
