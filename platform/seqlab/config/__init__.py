"""User input and how it is read: configs, options, errors, trust."""
