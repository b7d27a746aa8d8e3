"""Conformance and parity matrices over blocks, precisions and runtimes, and their pages."""
