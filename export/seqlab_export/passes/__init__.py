"""What rewrites a graph that was captured."""
