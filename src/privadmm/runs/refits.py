"""Keep a record of what a series of fits has released; an estimator's warm start is charged by it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from privadmm.data.arrays import Floats
from privadmm.data.frame import Frame
from privadmm.engine.job import Job
from privadmm.errors import ConfigError
from privadmm.privacy.accounting import totals, worst
from privadmm.privacy.events import Spent, merge
from privadmm.privacy.history import AFRESH, Past, Start, composed, digest
from privadmm.privacy.ledger import Ledger, Statement, export
from privadmm.privacy.policy import Budget
from privadmm.runs.model import Model

NO_START = (
    "warm_start=True needs a method without moments: with them, as the default has, every fit maps features "
    "anew, and none can start from the last one's weights. Nothing was fitted: choose algorithm=DPFedSGD(step=1.0), "
    "say, from the first fit on, or warm_start=False"
)


@dataclass(frozen=True)
class Fit:
    """A running fit, with the jobs that it has begun."""

    parties: tuple[str, ...]  # their names
    dealt: bool  # whether rows were dealt out to them, and not named by the caller
    before: tuple[Past, ...]  # what earlier fits released that this one starts from, oldest first
    jobs: list[Job] = field(default_factory=list)
    ledgers: list[Ledger] = field(default_factory=list)

    def foreseen(self, jobs: Sequence[Job]) -> list[Spent]:
        """Events that each party will have released after these jobs, one for each class, and earlier fits.

        Refuses jobs whose cost cannot be composed with that of the earlier fits.
        """
        return list(composed((*self.before, self._past(jobs[0], [job.costs for job in jobs]))))

    def begin(self, job: Job, ledger: Ledger) -> None:
        self.jobs.append(job)
        self.ledgers.append(ledger)

    @property
    def delta(self) -> float | None:
        return self.jobs[0].delta

    def broken(self) -> Past:
        """Record what the fit may have released before it failed."""
        spent = [begun(job, ledger) for job, ledger in zip(self.jobs, self.ledgers, strict=False)]
        return self._past(self.jobs[0], spent)

    def finished(self, models: Sequence[Model]) -> tuple[Past, ...]:
        """Record what the earlier fits released and what this one did, which hands out these models."""
        spent = [[ledger.spent(party) for party in ledger.ids] for ledger in self.ledgers]
        return (*self.before, replace(self._past(self.jobs[0], spent), models=digests(models)))

    def exports(self, total: float) -> tuple[dict[str, Any], ...]:
        """Export each job's ledger with the releases of earlier fits added; `total` is epsilon over all fits."""
        exported, private = [], self.delta is not None and math.isfinite(total)
        for job, ledger in zip(self.jobs, self.ledgers, strict=True):
            statement = Statement.of(ledger)
            if self.before:
                spent = job.public.in_all([statement.charged[party] for party in statement.ids])
                charged = dict(zip(statement.ids, spent, strict=True))
                policy = replace(statement.policy, budget=Budget(total, self.delta or 0.0) if private else None)
                statement = replace(statement, policy=policy, charged=charged)
            exported.append(export(statement))
        return tuple(exported)

    def _past(self, first: Job, spends: Sequence[Sequence[Spent]]) -> Past:
        total = list(spends[0])
        for spent in spends[1:]:
            total = [merge(before, more) for before, more in zip(total, spent, strict=True)]
        return self._named(first.public.past(total)[-1])

    def _named(self, past: Past) -> Past:
        return replace(past, parties=self.parties, dealt=self.dealt)


def cost(history: Sequence[Past]) -> float:
    """Epsilon of the worst party over all of these fits; infinite if they are not private."""
    spent, delta = composed(history), history[-1].delta
    return math.inf if delta is None else worst(list(spent), delta)


def begun(job: Job, ledger: Ledger) -> list[Spent]:
    """Charges of every tick that was begun, by party: those in the ledger, and the one that may have failed."""
    last, ticks = ledger.latest(job.id), sorted(job.plan)
    done = 0 if last is None else sum(tick <= (last[0].round, last[0].phase) for tick in ticks)
    return totals({tick: job.plan[tick] for tick in ticks[: done + 1]}, job.public.parties)


def digests(models: Sequence[Model]) -> tuple[str, ...]:
    return tuple(digest(model.weights) for model in models)


def coefficients(models: Sequence[Model]) -> tuple[Floats, Floats] | None:
    """Compute coef_ and intercept_ for rows within the bound; None if the models map features first."""
    frame, d = models[0].frame, len(models[0].frame.names)
    if models[0].features is not None:
        return None
    scale = np.full(d, 1 / frame.row_bound)
    # An intercept takes a share of the row's norm, so its features shrink; with column parties, only the last one's.
    scale[list(frame.groups[-1]) if frame.groups else slice(None)] *= math.sqrt(1 - frame.intercept**2)
    coef = np.stack([model.weights[:d] for model in models]) * scale
    constant = [frame.intercept * model.weights[d] if frame.intercept else 0.0 for model in models]
    return coef, np.array(constant)


def starts_of(fitted: Any, frame: Frame, number: int) -> list[Start]:
    """Start the next fit from this estimator's last models, with what all its fits cost; empty before the first.

    Refuses weights that the last fit did not release: nobody knows what they cost.
    """
    models, history = getattr(fitted, "models_", []), getattr(fitted, "history_", ())
    if not models and not history:
        return []
    if frame.groups:
        raise ConfigError("parties that hold columns start from 0: set warm_start=False")
    if not models:  # every fit so far failed before it ended
        return [Start(np.zeros(len(frame.columns)), history)] * number
    handed_out = next((past.models for past in reversed(history) if past.models), ())
    if handed_out != digests(models) or not untouched(fitted, models):
        raise ConfigError(
            "a warm start takes the weights that the last fit released, and models_, coef_ or intercept_ are not those "
            "any more, or history_ does not say what they cost: leave fitted attributes as fit made them (to hand them "
            f"on, copy the whole estimator), {AFRESH}"
        )
    if models[0].features is not None:
        raise ConfigError(
            "the last fit mapped the features by moments of its own, and its weights are of no use with others: choose "
            f"a method without moments from the first fit on, {AFRESH}"
        )
    if len(models) != number:
        raise ConfigError(
            f"the last fit made {len(models)} model(s), and these classes need {number}: declare the same classes, "
            f"{AFRESH}"
        )
    return [Start(model.weights, history) for model in models]


def untouched(fitted: Any, models: Sequence[Model]) -> bool:
    """Tell whether coef_ and intercept_ are still those of the models."""
    linear = zip(("coef_", "intercept_"), coefficients(models) or (), strict=False)
    return all(np.array_equal(getattr(fitted, name, value), value) for name, value in linear)
