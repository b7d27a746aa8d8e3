"""Parts of studies that several of them measure with."""
