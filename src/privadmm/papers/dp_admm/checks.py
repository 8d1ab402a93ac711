"""What the DP-ADMM paper prints and says of its experiments, against what came out."""

from collections.abc import Iterator

import numpy as np

from privadmm.papers.dp_admm.runs import LAMBDA, PROVIDERS, RHO, Method, Penalty, Ran, attributes
from privadmm.papers.dp_admm.tables import METHODS, TABLE_III
from privadmm.papers.framework.study import Check, Claim, expect, falls, listed, near, spread_words
from privadmm.privacy import accounting
from privadmm.privacy.accounting import classical_ratio, moments_accountant
from privadmm.privacy.events import Gaussian

# Section VI-B: epsilon of a round at delta = 1e-3, and the total of 100 rounds.
TOTALS = {0.05: 0.5009, 0.1: 1.0193}
COMPLETE = 30162  # Table II
NEARLY = 0.01  # of accuracy: our reading of "nearly as good"
AMPLE = 0.5  # total epsilon from which on the paper sees no loss of accuracy
BOTH: tuple[Method, Method] = ("DP-ADMM", "Algorithm 2")

NEAR_MAJORITY = (
    "at rho = 1 so few rounds move w little: Algorithm 1 too is still near the majority's rate, where accuracy says "
    "nothing of the noise. The loss does"
)
FORGETS = (
    "the paper's noise for Algorithm 2 forgets the penalty rho, and is {times:.0f} times what its argmin needs. With "
    "its own sensitivity, at the same certified total, it is the better one at epsilon = {where} a round"
)


def checks(ran: Ran) -> Iterator[Check]:
    yield from printed()
    yield from convergence(ran, 1, "l1")
    yield accuracy(ran, 2, "l1")
    yield from convergence(ran, 3, "l2")
    yield from versus(ran)
    yield accuracy(ran, 6, "l2")
    yield from comparison(ran)
    yield from first_trial(ran)
    yield from table_iii(ran)


def mean(values: np.ndarray | list[float]) -> float:
    return float(np.mean(values))


def printed() -> Iterator[Check]:
    for epsilon, total in TOTALS.items():
        ours = moments_accountant(epsilon, 1e-3, 100)
        exact = accounting.epsilon(((Gaussian(classical_ratio(epsilon, 1e-3)), 100),), 1e-3)
        why = f"section VI-B prints {total}; here it is {ours:.5f}, and {exact:.4f} exactly"
        yield near(f"total of 100 rounds, epsilon = {epsilon:g}, delta = 1e-3", total, ours, 5e-5, why)
    yield near("Table II: complete records", COMPLETE, len(attributes()[1]), 0)


def convergence(ran: Ran, number: int, penalty: Penalty) -> Iterator[Check]:
    every = [curve for case, curve in ran.curves.items() if case.penalty == penalty and case.method == "DP-ADMM"]
    settled = [mean(curve.objective[-1]) < mean(curve.objective[len(curve.objective) // 2]) for curve in every]
    rising = sum(mean(curve.loss[-1]) > mean(curve.loss[len(curve.loss) // 2]) for curve in every)
    best = mean(ran.plain(penalty).objective[-1])
    by_epsilon = [mean(ran.of(penalty, "DP-ADMM", "published", e).objective[-1]) for e in ran.epsilons]
    deltas = sorted(ran.deltas)
    by_delta = [mean(ran.of(penalty, "DP-ADMM", "published", 0.1, delta).objective[-1]) for delta in deltas]
    why = "" if ran.rounds == 100 else f"after {ran.rounds} rounds in place of 100"
    title = f"Figure {number}: DP-ADMM converges under every epsilon and delta ({penalty})"
    yield Claim(title, "noise-resistant and convergent").judged(
        f"the objective still falls in the second half of {sum(settled)} of {len(settled)} curves",
        all(settled),
        f"of averaged iterates; the loss of the last iterate rises there in {rising} of them",
    )
    yield Claim(f"Figure {number}: a larger epsilon ends lower ({penalty})", "faster under a larger epsilon").judged(
        f"{listed(by_epsilon, '.4g')}; Algorithm 1 {best:.4g}", falls(by_epsilon), why
    )
    yield Claim(f"Figure {number}: a larger delta ends lower ({penalty})", "faster under a larger delta").judged(
        f"epsilon = 0.1, delta from {deltas[0]:g} up: {listed(by_delta, '.4g')}", falls(by_delta), why
    )


def accuracy(ran: Ran, number: int, penalty: Penalty) -> Check:
    name = f"Figure {number}: from a total of {AMPLE:g} on as accurate as Algorithm 1 ({penalty})"
    ample = [(e, delta) for e in ran.epsilons for delta in ran.deltas if ran.total(e, delta) > AMPLE]
    runs, plain = [ran.of(penalty, "DP-ADMM", "published", *pair) for pair in ample], ran.plain(penalty)
    if not runs:
        return Claim(name, "nearly as good").judged(
            "not run", None, f"{ran.rounds} rounds never cost more than {AMPLE:g}"
        )
    worst = max(mean(plain.accuracy) - mean(curve.accuracy) for curve in runs)
    loss = max(mean(curve.loss[-1]) for curve in runs)
    seen = (
        f"{worst:.4f} less accurate at most than {mean(plain.accuracy):.4f}; loss {loss:.4g} at most beside "
        f"{mean(plain.loss[-1]):.4g}"
    )
    return Claim(name, "nearly as good").judged(seen, worst <= NEARLY, NEAR_MAJORITY)


def versus(ran: Ran) -> Iterator[Check]:
    for number, what in ((4, "objective"), (5, "loss")):
        ends = [
            [mean(getattr(ran.of("l2", method, "published", epsilon), what)[-1]) for method in BOTH]
            for epsilon in (0.05, 0.1)
        ]
        title = f"Figure {number}: noise disrupts Algorithm 2 and not DP-ADMM ({what})"
        yield Claim(title, "disrupted seriously").judged(
            "; ".join(f"DP-ADMM {ours:.4g}, Algorithm 2 {theirs:.4g}" for ours, theirs in ends),
            all(ours < theirs for ours, theirs in ends),
            "with the paper's noise, for epsilon = 0.05 and 0.1",
        )


def comparison(ran: Ran) -> Iterator[Check]:
    rates = [[mean(ran.of("l2", method, "published", e).accuracy) for method in BOTH] for e in ran.epsilons]
    ours, theirs = ([mean(ran.of("l2", method, "certified", e).loss[-1]) for e in ran.epsilons] for method in BOTH)
    lost = [e for e, a, b in zip(ran.epsilons, ours, theirs, strict=True) if not a < b]
    title = "Figure 6: DP-ADMM is more accurate than Algorithm 2"
    yield Claim(title, "much better accuracy in the same privacy guarantee level").judged(
        "; ".join(f"{a:.4f} and {b:.4f}" for a, b in rates), all(a > b for a, b in rates), "with the paper's noise"
    )
    title = "the same with certified noise, by loss: DP-ADMM is better than Algorithm 2 at the same total"
    yield expect(title, "not in the paper, which has its own noise alone").judged(
        f"DP-ADMM {listed(ours, '.4g')}; Algorithm 2 {listed(theirs, '.4g')}",
        not lost,
        FORGETS.format(times=1 + RHO * PROVIDERS / LAMBDA, where=listed(lost, ".4g")) if lost else "",
    )


def first_trial(ran: Ran) -> Iterator[Check]:
    plain = mean(ran.plain("l2").accuracy)
    majority, best = mean(ran.known["majority"]), mean(ran.known["accuracy"])
    larger = ran.epsilons[-1]
    dp, pvp = (ran.of("l2", method, "certified", larger).loss[-1] for method in BOTH)
    title = f"first trial: after {ran.rounds} rounds all methods, Algorithm 1 too, are near the majority's rate"
    yield expect(title, "found in a first trial").judged(
        f"majority {majority:.4f}, Algorithm 1 {plain:.4f}, the exact optimum {best:.4f}",
        abs(plain - majority) < NEARLY,
        "14 columns with categories as numbers, and too few rounds: the loss is the better measure",
    )
    title = "first trial: Algorithm 2 with its correct sensitivity overtakes DP-ADMM at larger epsilon"
    yield expect(title, "found in a first trial").judged(
        f"epsilon = {larger:g} a round: Algorithm 2 {spread_words(pvp)}, DP-ADMM {spread_words(dp)}",
        np.max(pvp) < np.min(dp),
        "by loss, in every one of the runs",
    )


def table_iii(ran: Ran) -> Iterator[Check]:
    work = {method: [ran.work[epsilon, method] for epsilon in TABLE_III] for method in METHODS}
    yield Claim("Table III: DP-ADMM costs less than Algorithms 1 and 2", "3.06 s; 6.18 s; 70 to 369 s").judged(
        "passes over all records: " + "; ".join(f"{method} {listed(row, '.4g')}" for method, row in work.items()),
        all(ours < min(others) for *others, ours in zip(*work.values(), strict=True)),
        "one gradient a round, in place of an argmin",
    )
    yield Claim("Table III: Algorithm 2 costs less the larger epsilon is", "369, 212, 70 s").judged(
        f"passes {listed(work['Algorithm 2'], '.4g')}",
        falls(work["Algorithm 2"]),
        "the paper's solver seems to suffer where noise starts it far off; Newton's method here takes a few steps "
        "from anywhere",
    )
