"""Evaluate a fitted estimator on rows with known answers: exact figures, overall and by group.

Use it on rows that you may look at. Exact figures of private records are a release that no ledger counts; for these,
`[evaluation]` of a config makes noisy figures that are charged.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privadmm.data.arrays import Floats
from privadmm.errors import DataError, visible
from privadmm.runs.measures import Scored, evaluated
from privadmm.runs.report.safe import safe

NAMES = {"auc": "AUC", "r2": "R^2", "rmse": "RMSE", "rmse_constant": "RMSE of the constant", "log_loss": "log loss"}
NAMES |= {"brier": "Brier score"}
SHOWN = 20  # groups that are printed


@dataclass(frozen=True, repr=False)
class Evaluation:
    """Figures of a model: `figures` is a dictionary of all, and `evaluation["auc"]` looks one of them up."""

    figures: dict[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.figures[name]

    @property
    def line(self) -> dict[str, str]:
        """The figures that are single numbers, by name, formatted for people."""
        return shown(self.figures)

    def __repr__(self) -> str:
        groups = [f"\n  {visible(row['party'])}: {in_words(shown(row))}" for row in self.figures["parties"]]
        more = [f"\n  and {len(groups) - SHOWN} more in figures['parties']"] if len(groups) > SHOWN else []
        return f"Evaluation({in_words(self.line)}{''.join([*groups[:SHOWN], *more])})"

    def _repr_html_(self) -> str:
        heads = ["", *self.line]
        rows = [("all", self.figures), *((str(row["party"]), row) for row in self.figures["parties"])]
        head = "".join(f'<th scope="col">{safe(name)}</th>' for name in heads)
        body = "".join(
            f'<tr><th scope="row">{safe(name)}</th>'
            + "".join(f"<td>{safe(shown(row).get(column, ''))}</td>" for column in heads[1:])
            + "</tr>"
            for name, row in rows
        )
        return f"<table><caption>Evaluation on {safe(self.figures['on'])}</caption><tr>{head}</tr>{body}</table>"


def in_words(line: dict[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in line.items())


def shown(figures: dict[str, Any]) -> dict[str, str]:
    """Format the figures that are single numbers: counts as whole numbers, others with four digits."""
    singles = {key: value for key, value in figures.items() if isinstance(value, int | float) and key != "party"}
    words = {key: f"{value:,}" if isinstance(value, int) else f"{value:.4f}" for key, value in singles.items()}
    return {NAMES.get(key, key): value for key, value in words.items()}


def places(groups: ArrayLike | None, rows: int) -> dict[Any, NDArray[Any]]:
    """Row numbers of each group, by the sorted names of the groups."""
    if groups is None:
        return {}
    names = np.asarray(groups)
    if names.shape != (rows,):
        raise DataError(f"groups names the party of each row: it has shape {names.shape}, and there are {rows} rows")
    return {name: np.flatnonzero(names == name) for name in np.unique(names).tolist()}


def of_classes(
    scores: Floats, chances: Floats | None, answers: NDArray[Any], kinds: NDArray[Any], groups: ArrayLike | None
) -> Evaluation:
    """Evaluate a classifier. More than two classes get only the figures that are defined for them."""
    if len(answers) != len(scores):
        raise DataError(f"y has a label for each row: it has {len(answers)}, and X has {len(scores)} rows")
    if not np.isin(answers, kinds).all():
        raise DataError(f"y has labels that are not among the declared classes {kinds.tolist()}")
    if not len(answers):
        raise DataError("there are no rows to evaluate on; give at least one")
    by_group = places(groups, len(answers))
    if scores.ndim == 1:
        scored = Scored(scores, np.where(answers == kinds[1], 1.0, -1.0), None if chances is None else chances[:, 1])
        return Evaluation(evaluated(scored, "these rows", by_group))
    true = np.argmax(answers[:, None] == kinds, axis=1)

    def figures(at: Any) -> dict[str, Any]:
        mine, chosen = true[at], scores[at].argmax(axis=1)
        areas = [Scored(scores[at][:, k], np.where(mine == k, 1.0, -1.0)).auc for k in range(len(kinds))]
        defined = [area for area in areas if area is not None]
        given = None if chances is None else chances[at][np.arange(len(mine)), mine]
        return {
            "records": len(mine),
            "auc": float(np.mean(defined)) if defined else None,  # each class against the rest, on average
            "log_loss": None if given is None else float(-np.log(np.maximum(given, 1e-300)).mean()),
            "accuracy": float(np.mean(mine == chosen)),
            "majority": float(np.bincount(mine).max() / len(mine)),
        }

    table = np.zeros((len(kinds), len(kinds)), dtype=np.int64)
    np.add.at(table, (true, scores.argmax(axis=1)), 1)
    parties = [{"party": name, **figures(at)} for name, at in by_group.items()]
    return Evaluation({"on": "these rows", **figures(slice(None)), "confusion": table.tolist(), "parties": parties})
