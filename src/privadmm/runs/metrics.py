"""Measure the current model on the pooled records, which a simulation may look at and a deployment may not."""

import csv
import io
from dataclasses import dataclass, field, fields
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from privadmm.data import moments_map
from privadmm.data.arrays import Floats
from privadmm.data.columns import People
from privadmm.data.files import write_text
from privadmm.data.moments_map import Map
from privadmm.data.shards import Shards
from privadmm.engine.loop import Parties, View
from privadmm.engine.public import Public
from privadmm.optim.losses import Debiased

if TYPE_CHECKING:
    from privadmm.config.build import Prepared

Data = Shards | People


@dataclass(frozen=True)
class Row:
    """A line of metrics.csv, after `round` rounds.

    Accuracies are None unless two classes are declared; without held-out records `accuracy_test` is None, too. `gap` is
    the largest distance of a party's own iterate from the model. It is None if the round was replayed from a ledger,
    which keeps only a party's last iterate.
    """

    round: int
    epsilon: float | None
    objective: float
    accuracy_train: float | None
    accuracy_test: float | None
    gap: float | None


def through(shards: Data, features: Map | None) -> Data:
    """Map the records as a model with this map does."""
    if features is None or isinstance(shards, People):
        return shards
    return moments_map.through(shards, features)


def scores(shards: Data, w: Floats) -> Floats:
    """Score every record of the block: a.w."""
    if isinstance(shards, People):
        return shards.scores(w)
    return shards.margins(np.broadcast_to(w, (len(shards.ids), shards.dim)))


def mean(shards: Data, per_record: Floats) -> float:
    """Average over records: within each party, then over parties by id, so that the bits do not depend on the split."""
    if isinstance(shards, People):
        return float(np.mean(per_record))
    total = np.sum(shards.sums(per_record)[np.argsort(shards.ids)])
    return float(total) / int(shards.sizes.sum())


def objective(public: Public, shards: Data, w: Floats, scores: Floats) -> float:
    """Objective C mean(loss) + R(w) with the true labels, given the records' scores."""
    true = public.loss.loss if isinstance(public.loss, Debiased) else public.loss
    return public.C * mean(shards, true.value(scores, shards.y)) + float(public.regularizer.value(w))


def accuracy(shards: Data, scores: Floats) -> float:
    """Share of records whose score has the sign of their label, -1 or +1."""
    return int(np.count_nonzero((scores > 0) == (shards.y > 0))) / len(shards.y)


def majority(shards: Data) -> float:
    """Accuracy of always naming the more frequent class, which any model has to beat."""
    positive = mean(shards, (shards.y > 0).astype(np.float64))
    return max(positive, 1 - positive)


@dataclass
class Observer:
    """Callback that adds a row every so many rounds and after the last, in memory and in a CSV file."""

    data: "Prepared"
    cluster: Parties
    epsilon_by_round: list[float]
    every: int
    path: Path
    rows: list[Row] = field(default_factory=list)
    _mapped: tuple[bytes, Data, Data | None] | None = None

    def recover(self) -> None:
        """Read the rows of an interrupted run, whose rounds are not measured again."""
        if self.path.exists():
            self.rows[:] = read(self.path)
            write(self.path, self.rows)

    def __call__(self, view: View) -> None:
        t = view.progress.round
        wanted = t == view.public.rounds or (self.every and t % self.every == 0)
        # Vertical parties hand their weights over in the last round only; before that there is no model to measure.
        if wanted and not (self.rows and t <= self.rows[-1].round) and not np.isnan(view.model).all():
            self.rows.append(self.measure(view))
            append(self.path, self.rows[-1])

    def measure(self, view: View) -> Row:
        t, w, data = view.progress.round, view.model, self.data
        epsilon = self.epsilon_by_round[t - 1] if self.epsilon_by_round else None
        # The row itself shows that a model has diverged; no warning is needed.
        with np.errstate(over="ignore", invalid="ignore"):
            train, test = self._seen(view.features)
            margins = scores(train, w)
            value = objective(view.public, data.train, w, margins)
            # Vertical parties have no iterate of the whole model.
            iterates = None if isinstance(data.train, People) else self.cluster.iterates(t)
            gap = None if iterates is None else float(np.linalg.norm(iterates - w, axis=-1).max())
            if not data.classifier:
                return Row(t, epsilon, value, None, None, gap)
            right = None if test is None else accuracy(test, scores(test, w))
            return Row(t, epsilon, value, accuracy(data.train, margins), right, gap)

    def _seen(self, features: Map | None) -> tuple[Data, Data | None]:
        """Map the training and the test records as the model does; cached until its map changes."""
        key = b"" if features is None else features.key
        if self._mapped is None or self._mapped[0] != key:
            test = None if self.data.test is None else through(self.data.test, features)
            self._mapped = key, through(self.data.train, features), test
        return self._mapped[1:]


NAMES = [item.name for item in fields(Row)]
cells = attrgetter(*NAMES)  # values of a Row, in the order of NAMES


def write(path: Path, rows: list[Row]) -> None:
    """Write the whole table, atomically."""
    table = io.StringIO(newline="")
    csv.writer(table, lineterminator="\n").writerows([NAMES, *map(cells, rows)])
    write_text(path, table.getvalue())


def append(path: Path, row: Row) -> None:
    if not path.exists():
        return write(path, [row])
    with path.open("a", newline="") as file:
        csv.writer(file, lineterminator="\n").writerow(cells(row))


def read(path: Path) -> list[Row]:
    """Read the rows of a table up to the first that is out of order or was cut short by a crash."""
    rows: list[Row] = []
    whole = [line for line in path.read_text(errors="replace").splitlines(keepends=True) if line[-1] == "\n"]
    for line in csv.reader(whole[1:]):
        try:
            number, epsilon, value, train, test, gap = (float(cell) if cell else None for cell in line)
        except ValueError:
            break
        if number is None or value is None or (rows and number <= rows[-1].round):
            break
        rows.append(Row(int(number), epsilon, value, train, test, gap))
    return rows


def held_by(records: int, trained: int, parties: int) -> str:
    """3,000 records at 3 parties, 2,400 of them to train on."""
    part = "all" if trained == records else f"{trained:,}"
    return f"{records:,} records at {amount(parties, 'party')}, {part} of them to train on"


def amount(count: int, what: str) -> str:
    """1 round, 2 rounds; 1 party, 2 parties."""
    plural = what.removesuffix("y") + "ies" if what.endswith("y") else what + "s"
    return f"{count} {what if count == 1 else plural}"
