"""What a user writes, and how it is read: configs, options, errors, trust."""
