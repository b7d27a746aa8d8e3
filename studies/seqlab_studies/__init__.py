"""Studies: claims of the field, each with what is measured for it and the rule that decides."""
