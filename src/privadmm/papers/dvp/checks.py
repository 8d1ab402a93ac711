"""Checks of the dual perturbation paper's claims about its experiment, privacy and algorithm box."""

from collections.abc import Iterator

import numpy as np

from privadmm.optim.losses import Logistic
from privadmm.papers.counterexamples.rows import DvpParty, search_dvp
from privadmm.papers.dvp.results import EARLY, KINDS, LATE, Results
from privadmm.papers.dvp.tradeoff import GOOD_OFF, GOOD_R2, Fit, model
from privadmm.papers.framework import nodes
from privadmm.papers.framework.bench import Failed
from privadmm.papers.framework.study import Check, Claim, Whose, expect, falls, listed, near, pairs, spread_words

NEAR = 1.5  # factor within which a printed curve counts as near our losses
BUDGET = 5000  # instances that a search may try
STAYS = "noise of earlier rounds stays in iterates and duals: the loss levels off above where it began"
FOLLOW = "Figure 3: the losses follow c4 exp(-c5 alpha) + c6"


def checks(ran: Results) -> Iterator[Check]:
    yield from figure_2(ran)
    yield from figure_3(ran)
    yield from the_box(ran)
    yield from privacy(ran)


def figure_2(ran: Results) -> Iterator[Check]:
    alphas, last = ran.alphas("proof"), ran.over("proof", "loss", ran.rounds)
    means, apart = last.mean(axis=1), int(np.sum(last[1:].max(axis=1) < last[:-1].min(axis=1)))
    yield Claim("Figure 2: a larger alpha ends with a smaller loss (proof noise)", "falls with alpha").judged(
        pairs("alpha", alphas, means),
        falls(means),
        f"means of {last.shape[1]} runs; {apart} of {len(alphas) - 1} neighbouring ranges do not touch",
    )
    curves = {alpha: ran.seen("proof", alpha).loss.mean(axis=1) for alpha in alphas}
    rising = [alpha for alpha, loss in curves.items() if loss[-1] > loss[0]]
    title = "Figure 2: the loss falls from round to round"
    yield Claim(title, "converges for every alpha, faster for a larger one").judged(
        f"ends above its first round for alpha = {listed(rising)}" if rising else "falls for all",
        not rising,
        STAYS if rising else "",
    )
    by_rho = {rho: float(loss.mean()) for rho, loss in ran.by_rho.items()}
    least = min(by_rho, key=lambda rho: by_rho[rho])
    yield Claim(f"rho = 10^-2.5 has the least loss at alpha = {ran.chosen:g}", "the best of a few values").judged(
        pairs("rho", by_rho, by_rho.values()),
        least == ran.rho,
        f"the best of these is rho = {least:.3g}. Beside 2 eta N_p, which is 4 or more, a small rho changes nothing; a "
        "large one damps the noise",
    )


def figure_3(ran: Results) -> Iterator[Check]:
    late, alphas = ran.fits["proof", ran.rounds], ran.alphas("proof")
    yield from constants(ran, late)
    yield from printed_curves(ran)
    if isinstance(late, Fit):
        yield Claim(FOLLOW, "modelled by curve fitting").judged(
            f"R^2 = {late.r2:.4f}, off by up to {100 * late.off:.0f} %",
            late.good,
            f"holds if R^2 is {GOOD_R2:g} or more and no loss is off by more than {100 * GOOD_OFF:.0f} %. Least "
            "squares follows the largest losses, at the smallest alphas, and may miss the small ones",
        )
    else:
        yield Claim(FOLLOW, "fitted").judged("no fit", False if len(alphas) >= 4 else None, late)
    yield balance(ran)
    errors = ran.over("proof", "error", ran.rounds)
    means, runs = errors.mean(axis=1), f"means of {errors.shape[1]} runs"
    name = "Figure 3(d): the error rate falls with alpha (proof noise)"
    yield Claim(name, "falls").judged(pairs("alpha", alphas, means), falls(means), runs)


def constants(ran: Results, late: Fit | str) -> Iterator[Check]:
    """Check c4, c5, c6 of a good fit; a curve that the losses do not follow has no constants to compare."""
    depends = "the paper's alphas, degrees and eta are not stated, and the constants depend on all of them"
    rule = "the paper prints a rule (t = 20..100) and no figure; it is applied here to our run with the largest alpha"
    averaged = f"Figure 3: c6 is the loss averaged over t = {ran.middle}..{ran.rounds}"
    asked: tuple[tuple[str, str, float, float, str, Whose], ...] = (
        ("c5", "Figure 3: c5 of the loss (t > 1; proof noise)", LATE[1], 10.0, depends, "paper"),
        ("c4", "Figure 3: c4 of the loss (t > 1; proof noise)", LATE[0], 10.0, depends, "paper"),
        ("c6", averaged, ran.floor, 0.05, rule, "ours"),
    )
    poor = "the losses do not follow the curve, so it has no constants"
    for constant, name, published, tolerance, why, of in asked:
        if isinstance(late, str):
            yield Check(name, published, "no fit", None, tolerance, late, of)
        elif late.good:
            yield near(name, published, getattr(late, constant), tolerance, why, of)
        else:
            seen = f"{getattr(late, constant):.4g}, by a poor fit"
            yield Check(name, published, seen, None, tolerance, poor, of)


def printed_curves(ran: Results) -> Iterator[Check]:
    """Compare the curves of the printed constants with our losses, whatever our own fit gives."""
    alphas, losses = ran.alphas("proof"), ran.over("proof", "loss", ran.rounds).mean(axis=1)
    printed = {pair: model(np.array(alphas), *pair, ran.floor) for pair in (LATE, EARLY)}
    off = {pair: float(np.max(np.maximum(curve / losses, losses / curve))) for pair, curve in printed.items()}
    title = "Figure 3: the printed curve, 20 exp(-20 alpha) + c6, is near our losses"
    yield expect(title, pairs("alpha", alphas, printed[LATE])).judged(
        f"within a factor {off[LATE]:.3g} at every alpha (proof noise)",
        off[LATE] <= NEAR,
        f"holds within a factor {NEAR:g}, which is ours and was set with the curves at hand. c6 is of our own run",
    )
    yield Claim("Figure 3: c4 = 0.2, c5 = 25 hold at all iterations", pairs("alpha", alphas, printed[EARLY])).judged(
        f"off by up to a factor {off[EARLY]:.3g} after round {ran.rounds} (proof noise)",
        off[EARLY] <= NEAR,
        f"holds within a factor {NEAR:g}, as above. The two printed pairs exclude one another for t > 1: 0.2 is a "
        "hundredth of 20",
    )


def balance(ran: Results) -> Check:
    """Check, by measured losses, whether an optimum lies between the smallest and the largest alpha that were run."""
    alphas, tops = ran.alphas("proof"), {kind: ran.best(kind, ran.rounds) for kind in KINDS}
    seen = {
        kind: f"alpha = {top['alpha']:g}" + (", inside" if top["where"] == "inside" else f", the {top['where']}")
        for kind, top in tops.items()
    }
    title = f"Figure 3: an alpha between {alphas[0]:g} and {alphas[-1]:g} balances privacy and accuracy (proof noise)"
    return Claim(title, "a best alpha, not named").judged(
        f"{seen['proof']} of those run",
        tops["proof"]["where"] == "inside" if len(alphas) > 2 else None,
        "largest U_priv less measured mean loss, for the printed weights; the rule is ours. Beyond these alphas "
        f"nothing was measured. With certified noise: {seen['certified']} of those run",
    )


def the_box(ran: Results) -> Iterator[Check]:
    refused = ran.of["refused", ran.chosen]
    failed = isinstance(refused, Failed)
    yield Claim(f"Algorithm 2 as printed can be run at alpha = {ran.chosen:g}", "the paper's own alpha").judged(
        "refused" if failed else "it runs", not failed, refused.message if failed else "it can be run"
    )
    for alpha in ran.alphas("box"):
        loss = ran.seen("box", alpha).loss.mean(axis=1)
        away = not np.isfinite(loss).all() or loss[-1] > 10 * loss[0]
        end = "then it runs away" if away else f"{loss[-1]:.3g} after round {len(loss)}"
        yield Claim(f"Figure 2: Algorithm 2 as printed converges at alpha = {alpha:g}", "converges").judged(
            f"loss {loss[0]:.3g} after the first round, {end}",
            not away,
            "the inverted fraction asks for Phi < 0, and the iterates run away"
            if away
            else "here no node's Phi is negative, so that it runs; it is not alpha-DP all the same",
        )


def privacy(ran: Results) -> Iterator[Check]:
    alpha = max(ran.alphas("box"))
    cost, shown = ran.seen("box", alpha).one_round, exposed(alpha, ran.rho)
    yield Claim(f"Theorem 1: a round of Algorithm 2 as printed costs alpha = {alpha:g}", f"{alpha:g}").judged(
        f"{shown:.4g} or more; certified {cost:.4g}",
        shown <= alpha,
        "the log density ratio of two neighbours, found by search: the box lacks the factor 1/2 of the proof's zeta",
    )
    costs = {a: ran.seen("proof", a).one_round for a in ran.alphas("proof")}
    worst = max(cost / a for a, cost in costs.items() if cost is not None)
    yield Claim("Theorem 1: a round with the proof's noise costs at most alpha", "alpha").judged(
        f"at most {worst:.4g} alpha", worst <= 1, "certified, with the noise that covers inexact solves"
    )
    total = ran.seen("proof", ran.chosen).epsilon
    assert total is not None
    title = "Section 2.2: privacy does not depend on the number of iterations"
    yield Claim(title, f"alpha = {ran.chosen:g}, whatever the rounds").judged(
        f"epsilon = {total:.4g} after {ran.rounds} rounds",
        total <= ran.chosen,
        "an adversary sees every round, so they compose",
    )
    runs = {a: (ran.seen("certified", a), ran.seen("proof", a)) for a in ran.alphas("certified")}
    title = "Certified noise of the same cost a round has less loss, and a smaller total, than the proof's"
    yield expect(title, "not in the paper").judged(
        ", ".join(f"{a:g}: {spread_words(x.last, 3)} against {y.last.mean():.3g}" for a, (x, y) in runs.items()),
        all(x.last.max() < y.last.min() and (x.epsilon or 0) < (y.epsilon or 0) for x, y in runs.values()),
        "Gaussian noise has norm s sqrt(d), Gamma noise d/zeta, and its rounds add up like a root",
    )


def exposed(alpha: float, rho: float) -> float:
    """The largest log density ratio that a search finds for a round of the box, at any node (eta = 1)."""
    network, loss, rng = nodes.network(5), Logistic(), np.random.default_rng(0)
    records = nodes.TRAINING // network.n
    parties = [DvpParty(alpha, rho, 1.0, degree, nodes.C, records) for degree in sorted(set(network.degrees.tolist()))]
    return max(alpha * search_dvp(party, party.box(loss), loss, rng, BUDGET).ratio for party in parties)
