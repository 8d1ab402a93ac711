"""PDML's Theorem 1 beside a simulation: its measurable part, and its conditions.

Nobody has the records of the generalisation error. What is measured is on the records at hand: how far the averaged
classifiers are from the optimum of the parties' own objective (of the reported labels),

    E sum_i [ J_i(wbar_i(t)) - J_i(w*) ],    wbar_i(t) the mean of w_i(1), ..., w_i(t) before their noise

which all terms except those of (28) bound. Only a simulation knows an iterate before its noise.
"""

import math
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from privadmm.algorithms.pdml import PDML
from privadmm.data.arrays import Floats, Ints
from privadmm.data.shards import Shards
from privadmm.engine.block import cluster
from privadmm.engine.job import Job, train
from privadmm.engine.loop import View
from privadmm.engine.party import Local
from privadmm.engine.public import Public
from privadmm.errors import ConfigError, DivergedError
from privadmm.optim.losses import Debiased
from privadmm.papers.framework.optimum import condition, measured_record, optimum, shares
from privadmm.papers.pdml.bound import SAMPLE, TERMS, Facts
from privadmm.papers.pdml.lemma import Spectrum
from privadmm.params import check_positive, check_probability
from privadmm.privacy.calibration import Target
from privadmm.privacy.events import Gaussian
from privadmm.privacy.mechanisms import Call, Simulation

Done = Callable[[int, int], None]


class Watched(Simulation):
    """Noise of a simulation that remembers the values to which it was last added."""

    before: Floats

    def gaussian(self, x: Floats, sensitivity: Floats, ratio: Floats, ids: Ints, call: Call) -> Floats:
        self.before = x
        return super().gaussian(x, sensitivity, ratio, ids, call)


def facts(job: Job, radius: float | None, delta: float) -> Facts:
    """Derive the facts from what is public. Without a declared ball, take the one in which every optimum lies."""
    algorithm, public = job.algorithm, job.public
    assert isinstance(algorithm, PDML)
    check_probability(confidence=delta)
    loss, weight = public.loss, public.regularizer.strong_convexity
    plain = loss.loss if isinstance(loss, Debiased) else loss
    if not plain.classification or plain.flip_smoothness:
        raise ConfigError(
            "Theorem 1 needs two classes and a loss whose curvature does not depend on the label (Assumption 1): set "
            '[loss] name = "logistic"'
        )
    if not weight:
        raise ConfigError("Theorem 1 needs a strongly convex regulariser: set [regularizer] weight above 0")
    scale, ids = public.scale(public.ids)[:, 0], public.ids
    tilt = math.sqrt(public.dim) * algorithm.R / public.parties  # |eta_i|/n
    if radius is None:
        radius = (public.C * loss.lipschitz + tilt) / weight
        if loss is plain and not algorithm.R:
            # The objective at the optimum is no larger than at 0.
            radius = min(radius, math.sqrt(2 * public.C * float(loss.value(np.zeros(1), np.ones(1))[0]) / weight))
    check_positive(radius=radius)
    largest = float(plain.value(np.array([radius, -radius]), np.ones(2)).max())
    # Sensitivities also cover rounding and tolerance; the variances here do not.
    moves = public.sensitivity * scale / public.sizes / algorithm.curvature(public)[:, 0]
    plans = [job.plan[t, 0][0] for t in range(public.rounds)]
    ratios = [[event.ratio if isinstance(event, Gaussian) else 0.0 for event in events] for events in plans]
    return Facts(
        spectrum=Spectrum.of(public.graph),
        degrees=public.graph.degrees.astype(float),
        sizes=public.sizes.astype(float),
        dim=public.dim,
        beta=algorithm.beta,
        R=algorithm.R,
        weight=weight,
        c1=scale * largest,
        c2=scale * plain.lipschitz,
        c3=float(scale.max()) * loss.smoothness,
        slope=scale * loss.lipschitz + weight * radius + tilt,
        spread=loss.spread if isinstance(loss, Debiased) else 1.0,
        radius=radius,
        delta=delta,
        V2=np.square(np.array(ratios) * moves)[:, ids],
        decay=public.privacy.decay if isinstance(public.privacy, Target) and not public.privacy.profile else None,
    )


def pdml(
    job: Job, shards: Shards, seed: int, seeds: int, radius: float | None, delta: float, done: Done
) -> dict[str, Any]:
    """Every term of (27), printed and corrected, by round, and the measured curve."""
    known, noise = facts(job, radius, delta), Watched(seed)
    many = Job(job.algorithm, replace(job.public, replicas=seeds), job.allowance)
    parties = cluster(many, shards, noise)
    local = parties.workers[0].local
    assert isinstance(local, Local)
    best, total, off, largest = optimum(local), many.public.zeros(known.n), list[Floats](), 0.0

    def watch(view: View) -> None:
        nonlocal total, largest
        t = view.progress.round
        total = total + noise.before
        off.append(shares(local, total / t).sum(axis=-1) - known.n * best.value)
        largest = max(largest, float(np.linalg.norm(total / t, axis=-1).max()))
        done(t, view.public.rounds)

    train(many, parties, [watch])
    rounds, excess = range(1, job.public.rounds + 1), np.array(off)
    if not np.isfinite(excess).all():
        raise DivergedError("the iterates ran away, and there is no curve to draw: raise beta or [privacy] epsilon")
    printed, proved = ([terms(t) for t in rounds] for terms in (known.published, known.corrected))
    return {
        "theorem": 1,
        "lemma5": {
            "applies": known.chosen is not None,
            "statement": known.statement,
            "phi_max": known.lemma.phi_max,
            "needed": known.spectrum.ratio - 1,
            "kappa": known.lemma.kappa,
            "steep": known.lemma.steep,
            **asdict(known.spectrum),
            "chosen": None if known.chosen is None else known.chosen._asdict(),
        },
        "constants": {
            **{name: getattr(known, name) for name in ("radius", "delta", "beta", "R", "decay", "spread", "c3", "H3")},
            "c1": known.c1.tolist(),
            "c2": known.c2.tolist(),
            "V": np.sqrt(known.V2[0]).tolist(),
        },
        "terms": [
            {"term": words, "equation": where, "published": printed[-1][name], "corrected": proved[-1][name]}
            for name, (words, where) in TERMS.items()
        ],
        "rounds": list(rounds),
        "published": [total_of(terms) for terms in printed] if known.chosen is not None else None,
        "corrected": [total_of(terms) for terms in proved],
        "corrected_records": [total_of(terms, without=SAMPLE) for terms in proved],
        **measured_record(excess),
        "conditions": [
            condition("the optimum lies in the ball, |w*| <= W", float(np.linalg.norm(best.w)), known.radius),
            condition("the averaged classifiers stay in the ball", largest, known.radius),
        ],
        "deviations": deviations(job.public),
    }


def total_of(terms: dict[str, float | None], without: tuple[str, ...] = ()) -> float | None:
    """The sum of the terms; None if a term is missing."""
    kept = [value for name, value in terms.items() if name not in without]
    return None if None in kept else sum(value for value in kept if value is not None)


def deviations(public: Public) -> list[str]:
    """How this run deviates from the paper's, and what that means for the theorem."""
    omega = public.scale(public.ids)[:, 0] / public.C
    texts = [
        "the theorem averages the iterates before their noise; the model handed out is the mean of the noisy ones",
        "[regularizer] weight is the paper's a/n",
        "the ball |w| <= W is declared or follows from the regulariser; no iterate is projected on it",
    ]
    if np.ptp(omega) > 1e-12 or public.C != 1:
        texts.append("J_i carries C omega_i: c1, c2 and c3 are each party's own, and so is its share of the error")
    if public.label_epsilon is None:
        texts.append("labels are not randomised: (e^eps + 1)/(e^eps - 1) is its limit, 1")
    return texts
