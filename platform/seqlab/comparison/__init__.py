"""Tables, figures and reports of tracked runs."""
