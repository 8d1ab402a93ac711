"""What a party phase may read where parties hold columns about the same people, and what it can do with them.

The public facts are then those of the messages: dim is the number N of people, and so is every party's size. There are
no labels here: they sit at the coordinator.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from privadmm.data.arrays import Floats, Ints
from privadmm.data.columns import Columns
from privadmm.errors import RefusedError
from privadmm.optim import ridge
from privadmm.phases import Public
from privadmm.privacy import ridge_sensitivity


@dataclass(frozen=True)
class Vertical:
    """As `Local`, for a block of vertical parties. Targets are (..., P, N), weights a list of (R, d_m)."""

    public: Public
    columns: Columns
    kept: Mapping[str, Floats] = field(default_factory=dict)
    certain: bool = False

    @property
    def ids(self) -> Ints:
        return self.columns.ids

    def take(self, at: Ints) -> "Vertical":
        """The block of these positions alone."""
        kept = {name: drawn[..., at, :] for name, drawn in self.kept.items()}
        return Vertical(self.public, self.columns.take(at), kept, self.certain)

    def fits(self, target: Floats, mu: float, ball: float | None, l1: float = 0.0) -> list[Floats]:
        """Every party's argmin of mu/2 |x|^2 + l1 |x|_1 + 1/2 |D_m x - t_m|^2, within the ball if there is one."""
        found = []
        for party, (D, t) in enumerate(zip(self.columns.features, each(target), strict=True)):
            F = self.columns.frobenius(party)
            found.append(ridge.lasso(D, t, mu, l1) if l1 else ridge.fit(D, t, mu, ball, F, self.certain))
        return found

    def moves(self, target: Floats, mu: float, ball: float | None, q: float | None) -> tuple[Floats, Floats]:
        """How far the job's neighbours move the scores and the weights of each party's fit, two columns (P, 1)."""
        bound, adjacency = self.columns.column_bound, self.public.adjacency
        if adjacency is None:
            return np.ones((len(self.ids), 1)), np.ones((len(self.ids), 1))  # no noise will ask
        kept = bound is None if adjacency == "person" else bound is not None and q is not None and bound <= q
        if not kept:
            raise RefusedError(
                f'the data were not prepared for adjacency = "{adjacency}": rows are to be clipped to the unit ball '
                "for a person, and columns scaled down to column_bound for a column. Nothing was released"
            )
        found = [
            ridge_sensitivity.moves(adjacency, t, D.width, mu, ball, q, self.columns.frobenius(party))
            for party, (D, t) in enumerate(zip(self.columns.features, each(target), strict=True))
        ]
        scores, weights = np.array(found).T[..., None]
        return scores, weights

    def scores(self, x: Sequence[Floats], rows: tuple[int, ...]) -> Floats:
        """D_m x_m, (*rows, N)."""
        found = [D.scores(weights) for D, weights in zip(self.columns.features, x, strict=True)]
        return np.stack(found, axis=1).reshape(*rows, -1)

    def possible(self, u: Floats, ball: float | None) -> Floats:
        """Scores as released, cut to what scores can be: rows in the unit ball give |u| <= b. It costs nothing."""
        if ball is None or self.columns.column_bound is not None:
            return u
        return np.clip(u, -ball, ball)

    def padded(self, x: Sequence[Floats], rows: tuple[int, ...]) -> Floats:
        """The weights filled up to the widest party's, (*rows, widest)."""
        widest = max(self.public.columns)
        found = [np.pad(weights, ((0, 0), (0, widest - weights.shape[1]))) for weights in x]
        return np.stack(found, axis=1).reshape(*rows, -1)

    def cut(self, w: Floats) -> list[Floats]:
        """`padded` undone."""
        return [part[:, : D.width] for part, D in zip(each(w), self.columns.features, strict=True)]

    def pull(self, g: Floats) -> list[Floats]:
        """D_m^T g of every party, for g (..., 1, N) that all of them hear."""
        return [D.pull(g.reshape(-1, g.shape[-1])) for D in self.columns.features]


def each(target: Floats) -> Floats:
    """(..., P, N) -> (P, R, N)"""
    return np.moveaxis(target.reshape(-1, *target.shape[-2:]), 1, 0)
