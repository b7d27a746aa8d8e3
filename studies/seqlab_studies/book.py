"""All studies: the one that each file beside this one declares."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

import seqlab_studies
from seqlab.study.find import declared_in
from seqlab.study.study import Study

MODULES = sorted(f"seqlab_studies.{module.name}" for module in iter_modules(seqlab_studies.__path__))
DECLARED = [made for name in MODULES if name != __name__ for made in declared_in(import_module(name))]
STUDIES: dict[str, Study] = {study.name: study for study in DECLARED}
