"""Runs papers' experiments into a folder: tasks that can be resumed, a study of each paper, and a page of all."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from privadmm.data.files import write_json, write_text
from privadmm.papers import paper
from privadmm.papers.framework import bench, pages, web
from privadmm.papers.framework.bench import Done, Setting, Task
from privadmm.papers.framework.store import Store, identity
from privadmm.papers.framework.study import Study

PAGE, COUNTS = "index.html", "counts.json"


@dataclass(frozen=True)
class Reproduction:
    """Studies of some papers, in the folder `out`; if there are several, each in a folder inside."""

    papers: tuple[str, ...]
    setting: Setting
    out: Path

    def folder(self, name: str) -> Path:
        return self.out / name if len(self.papers) > 1 else self.out

    @property
    def tasks(self) -> list[Task]:
        """The tasks of all papers; a missing data set is found here."""
        return [
            replace(task, key=(name, task.key), label=f"{name}: {task.label}")
            for name in self.papers
            for task in paper(name).tasks(self.setting)
        ]

    def run(self, tasks: Sequence[Task], resume: bool, workers: int | None, done: Done) -> list[Study]:
        """Run the tasks that are not done yet, and write all results."""
        facts = identity(self.papers, self.setting.quick, self.setting.data)
        store = Store.open(self.out, facts) if resume else Store.new(self.out, facts)
        results = bench.run(tasks, workers, done, store)
        studies = [
            paper(name).study(self.setting, {key: value for (of, key), value in results.items() if of == name})
            for name in self.papers
        ]
        self.save(studies)
        return studies

    def save(self, studies: Sequence[Study]) -> None:
        """Write each study, the counts of verdicts, and last the page of all."""
        quick = self.setting.quick
        for study in studies:
            pages.save(study, self.folder(study.paper), quick)
        write_json(self.out / COUNTS, {"quick": quick, "papers": {study.paper: study.verdicts for study in studies}})
        folders = {study.paper: self.folder(study.paper) for study in studies}
        write_text(self.out / PAGE, web.page(studies, folders, quick))
