"""The papers' own experiments, run again: their printed figures beside ours, and the same with certified noise.

Each paper has a folder. Its paper.py lists independent tasks, and makes a study of their results: checks, tables,
figures. In framework/, bench.py runs tasks, study.py defines a study, runs.py follows a job over many noise seeds at
once, sets.py finds data, store.py keeps results so that a killed run can be resumed, and pages.py, drawing.py and
web.py write studies to files. references.py says where papers appeared. counterexamples/ tests the proofs: it searches
for records that would break them.
"""

from importlib import import_module
from types import ModuleType

PAPERS = ("dvp", "mr-admm", "dp-admm", "pdml", "sharing")


def paper(name: str) -> ModuleType:
    """The module of a paper: NAME, TITLE, NEEDS, `tasks(setting)` and `study(setting, results)`."""
    return import_module(f"privadmm.papers.{name.replace('-', '_')}.paper")
