"""Files: what is read as one, atomic writes, places to write, the working folder, HTML pages."""
