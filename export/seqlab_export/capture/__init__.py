"""The plan of an export, the capture of a model's graphs, and the weights that they share."""
