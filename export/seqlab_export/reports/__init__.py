"""Conformance and parity reports over blocks, precisions and runtimes, and their pages."""
