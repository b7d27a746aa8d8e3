"""Capture of a model's graphs, and the weights that they share."""
