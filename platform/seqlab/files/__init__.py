"""Files: checks of input files, atomic writes, output locations, the working folder, HTML pages."""
