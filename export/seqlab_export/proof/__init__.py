"""Reference that a bundle is proven against: the model's own numbers and weights."""
