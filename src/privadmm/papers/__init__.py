"""The papers' own experiments, run again: what they printed beside what comes out here, and the same certified.

One folder for each paper. Its paper.py lists what it runs as tasks, which are independent of one another, and makes a
study of their results: checks, tables, figures. In framework/, bench.py runs tasks, study.py says what a study is,
runs.py follows a job over many noise seeds at once, sets.py finds data, store.py keeps results so that a run that was
killed goes on, pages.py, drawing.py and web.py write studies down. references.py says where papers appeared, and
counterexamples/ holds the proofs as searches for records that would break them.
"""

from importlib import import_module
from types import ModuleType

PAPERS = ("dvp", "mr-admm", "dp-admm", "pdml", "sharing")


def paper(name: str) -> ModuleType:
    """The module of a paper: NAME, TITLE, NEEDS, `tasks(setting)` and `study(setting, results)`."""
    return import_module(f"privadmm.papers.{name.replace('-', '_')}.paper")
