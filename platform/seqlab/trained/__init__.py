"""Models that are trained: read from a run, given to a fit to begin with, imported."""
