"""What a simulation may know and a deployment may not: figures of the current model on the pooled records."""

import csv
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np

from privadmm.data.shards import Shards
from privadmm.drive import View
from privadmm.engines.inprocess import InProcess
from privadmm.phases import Floats, Public


@dataclass(frozen=True)
class Row:
    """After `round` rounds. `gap` is the largest distance of a party's own iterate from the model."""

    round: int
    epsilon: float | None
    objective: float
    accuracy_train: float | None
    accuracy_test: float | None
    gap: float


def pooled(shards: Shards, w: Floats) -> Floats:
    """a.w for every record of the block."""
    return shards.margins(np.broadcast_to(w, (len(shards.ids), shards.dim)))


def in_party_order(shards: Shards, per_record: Floats) -> float:
    """The sum over records: within each party, then over parties by id, so that no partition changes its bits."""
    return float(np.sum(shards.sums(per_record)[np.argsort(shards.ids)]))


def objective(public: Public, shards: Shards, w: Floats) -> float:
    """C mean(loss) + R(w)."""
    losses = public.loss.value(pooled(shards, w), shards.y)
    return public.C * in_party_order(shards, losses) / int(shards.sizes.sum()) + float(
        public.regularizer.value(w)
    )


def accuracy(public: Public, shards: Shards | None, w: Floats) -> float | None:
    if shards is None or not public.loss.classification:
        return None
    right = (np.where(pooled(shards, w) > 0, 1.0, -1.0) == shards.y).astype(np.float64)
    return in_party_order(shards, right) / int(shards.sizes.sum())


def majority(public: Public, shards: Shards | None) -> float | None:
    """The accuracy of always naming the more frequent class: what any model has to beat."""
    if shards is None or not public.loss.classification:
        return None
    share = in_party_order(shards, (shards.y > 0).astype(np.float64)) / int(shards.sizes.sum())
    return max(share, 1 - share)


@dataclass
class Observer:
    """A callback that keeps a row every so many rounds, in memory and, if asked, in a CSV file."""

    train: Shards
    test: Shards | None
    cluster: InProcess
    epsilon_by_round: list[float]
    every: int = 1
    path: Path | None = None

    def __post_init__(self) -> None:
        self.rows: list[Row] = []

    def __call__(self, view: View) -> None:
        t = view.progress.round
        if t == view.public.rounds or (self.every and t % self.every == 0):
            self.rows.append(self.measure(view))
            if self.path is not None:
                write(self.path, self.rows[-1:], append=True)

    def measure(self, view: View) -> Row:
        t, w, public = view.progress.round, view.model, view.public
        return Row(
            round=t,
            epsilon=self.epsilon_by_round[t - 1] if self.epsilon_by_round else None,
            objective=objective(public, self.train, w),
            accuracy_train=accuracy(public, self.train, w),
            accuracy_test=accuracy(public, self.test, w),
            gap=float(np.linalg.norm(self.cluster.local_models() - w, axis=-1).max()),
        )


def write(path: Path, rows: list[Row], append: bool = False) -> None:
    fresh = not append or not path.exists()
    with path.open("a" if append else "w", newline="") as file:
        table = csv.DictWriter(file, [item.name for item in fields(Row)])
        if fresh:
            table.writeheader()
        table.writerows(asdict(row) for row in rows)


def read(path: Path) -> list[Row]:
    with path.open(newline="") as file:
        return [
            Row(
                int(row["round"]),
                *(float(row[item.name]) if row[item.name] else None for item in fields(Row)[1:]),
            )  # type: ignore[arg-type]
            for row in csv.DictReader(file)
        ]
