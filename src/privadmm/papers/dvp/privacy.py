"""What the dual perturbation paper says of privacy, and of its algorithm box, one check each."""

from collections.abc import Iterator

import numpy as np

from privadmm.optim.losses import Logistic
from privadmm.papers.counterexamples.rows import DvpParty, search_dvp
from privadmm.papers.dvp.results import Results
from privadmm.papers.framework import nodes
from privadmm.papers.framework.bench import Failed
from privadmm.papers.framework.study import Check, claim, spread_words

BUDGET = 5000  # instances that a search may try


def the_box(found: Results) -> Iterator[Check]:
    refused = found.of["refused", found.chosen]
    said = refused.message if isinstance(refused, Failed) else "it can be run"
    yield claim(
        f"Algorithm 2 as printed can be run at alpha = {found.chosen:g}",
        "the paper's own alpha",
        "refused" if isinstance(refused, Failed) else "it runs",
        not isinstance(refused, Failed),
        said,
    )
    for alpha in found.alphas("box"):
        loss = found.seen("box", alpha).loss.mean(axis=1)
        away = not np.isfinite(loss).all() or loss[-1] > 10 * loss[0]
        yield claim(
            f"Figure 2: Algorithm 2 as printed converges at alpha = {alpha:g}",
            "converges",
            f"loss {loss[0]:.3g} after the first round, "
            + ("then it runs away" if away else f"{loss[-1]:.3g} after round {len(loss)}"),
            not away,
            "the inverted fraction asks for Phi < 0, and the iterates run away"
            if away
            else "here no node's Phi is negative, so that it runs; it is not alpha-DP all the same",
        )


def privacy(found: Results) -> Iterator[Check]:
    alpha = max(found.alphas("box"))
    cost, shown = found.seen("box", alpha).one_round, exposed(alpha, found.rho)
    yield claim(
        f"Theorem 1: a round of Algorithm 2 as printed costs alpha = {alpha:g}",
        f"{alpha:g}",
        f"{shown:.4g} or more; certified {cost:.4g}",
        shown <= alpha,
        "the log density ratio of two neighbours, found by search: the box lacks the factor 1/2 of the proof's zeta",
    )
    costs = [found.seen("proof", a).one_round for a in found.alphas("proof")]
    worst = max(cost / a for cost, a in zip(costs, found.alphas("proof"), strict=True) if cost is not None)
    yield claim(
        "Theorem 1: a round with the proof's noise costs at most alpha",
        "alpha",
        f"at most {worst:.4g} alpha",
        worst <= 1,
        "certified, with the noise that covers inexact solves",
    )
    seen = found.seen("proof", found.chosen)
    total = seen.epsilon
    assert total is not None
    yield claim(
        "Section 2.2: privacy does not depend on the number of iterations",
        f"alpha = {found.chosen:g}, whatever the rounds",
        f"epsilon = {total:.4g} after {found.rounds} rounds",
        total <= found.chosen,
        "an adversary sees every round, so they compose",
    )
    better = []
    for alpha in found.alphas("certified"):
        ours, theirs = found.seen("certified", alpha), found.seen("proof", alpha)
        better.append(bool(ours.last.max() < theirs.last.min()) and (ours.epsilon or 0) < (theirs.epsilon or 0))
    pairs = ", ".join(
        f"{a:g}: {spread_words(found.seen('certified', a).last, 3)} against {found.seen('proof', a).last.mean():.3g}"
        for a in found.alphas("certified")
    )
    yield claim(
        "Certified noise of the same cost a round has less loss, and a smaller total, than the proof's",
        "not in the paper",
        pairs,
        all(better),
        "Gaussian noise has norm s sqrt(d), Gamma noise d/zeta, and its rounds add up like a root",
        of="ours",
    )


def exposed(alpha: float, rho: float) -> float:
    """The largest log density ratio that a search finds for a round of the box, at any node (eta = 1)."""
    network, loss = nodes.network(5), Logistic()
    parties = [
        DvpParty(alpha, rho, 1.0, degree, nodes.C, nodes.TRAINING // network.n)
        for degree in sorted(set(network.degrees.tolist()))
    ]
    rng = np.random.default_rng(0)
    return max(alpha * search_dvp(one, one.box(loss), loss, rng, BUDGET).ratio for one in parties)
