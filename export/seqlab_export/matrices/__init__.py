"""Matrices over blocks, precisions and runtimes, and their pages."""
