"""Code that runs and verifies a bundle without PyTorch."""
