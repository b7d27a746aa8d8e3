"""Reference against which a bundle is verified: the model's own outputs and weights."""
