"""What is captured of a model, and the weights that its graphs share."""
