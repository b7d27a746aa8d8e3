"""A bundle as one HTML file, in which a browser runs it without a network."""
