"""Labels that the coordinator holds, where parties hold columns."""

from contextlib import closing
from pathlib import Path

import numpy as np

from privadmm.config import build
from privadmm.config.file import Config
from privadmm.data.arrays import Floats
from privadmm.data.columns import align, read_labels
from privadmm.data.label_source import LabelSource
from privadmm.deploy.federation.desk.records import digest
from privadmm.deploy.federation.facts import Facts
from privadmm.engine.job import Job
from privadmm.errors import ConfigError, DataError, LedgerError
from privadmm.privacy.calibration import Adjacency
from privadmm.privacy.labels import reported_by_holder
from privadmm.privacy.policy import Policy
from privadmm.privacy.sqlite_ledger import SqliteLedger
from privadmm.privacy.verification import sound

LABELS = "labels.sqlite"  # ledger of the labels that were reported; beside job.toml


def label_ledger(path: Path, adjacency: Adjacency, label_epsilon: float, mode: str) -> SqliteLedger:
    """Ledger of a coordinator that holds labels: it keeps the labels as they were reported, once for all jobs."""
    return SqliteLedger(path, (0,), Policy(None, adjacency=adjacency, label_epsilon=label_epsilon), mode)


def labels(config: Config, job: Job, first: Facts) -> Floats | None:
    """The coordinator's labels in the order of the parties' people; randomised once, if the job says so."""
    if not job.public.columns:
        return None
    table = config.data
    if table.id is None or table.label is None:
        raise ConfigError(f"{config.path}: parties that hold columns need [data] id and label")
    source = config.resolve(table.source)
    ids, y = read_labels(source, table.format, table.id, table.label, table.classes)
    (order,) = align([(str(source), ids)])
    if digest(ids[order]) != first.people:
        raise DataError(f"{source}: has labels of other people than the parties hold; agree on the people first")
    own: Floats = np.asarray(y[order], dtype=np.float64)
    if (chosen := job.public.label_epsilon) is None:
        return own
    path, mode = config.resolve(LABELS), config.run.mode
    if mode == "deployment" and not path.exists():
        raise LedgerError(
            f"{path}: there is no ledger of reported labels there, and a deployment does not make one: another report "
            "of the same labels would tell more of them. `privadmm federation init` made it; put it back, or copy that "
            "of the last federation on these labels"
        )
    if path.exists():
        sound(path)
    people = LabelSource.declared(table.label, table.classes, [first.people])
    with closing(label_ledger(path, job.policy.adjacency, chosen, mode)) as ledger:
        return reported_by_holder(own, people, ledger, build.noise(config), chosen)
