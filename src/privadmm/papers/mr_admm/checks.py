"""Checks of the claims in the paper on recycled ADMM about its experiments, and controls that it lacks."""

from collections.abc import Iterator, Mapping
from itertools import pairwise

import numpy as np

from privadmm.algorithms.mr_admm import MRADMM
from privadmm.data.arrays import Floats
from privadmm.papers.framework import nodes
from privadmm.papers.framework.nodes import Seen
from privadmm.papers.framework.study import Check, Claim, expect, falls, listed, near, pairs, rises, spread_words
from privadmm.papers.mr_admm.results import KINDS, Results
from privadmm.papers.mr_admm.runs import ADMM, GAMMA, GROWING, GROWTH, HALF, MR, RHO, STILL, M, R, Run
from privadmm.privacy.calibration import NoPrivacy

LETTERS = {"published": "alpha", "certified": "certified epsilon"}
ORDER = (MR, R, ADMM, M)


def checks(ran: Results) -> Iterator[Check]:
    held = nodes.held(5)
    count = int(held.nodes.sizes.sum() + held.test.sizes.sum())
    yield near("Records of Adult without missing cells", 45223.0, float(count), 1.0)
    yield near("Columns of a record", 105.0, float(held.nodes.dim), 0.0)
    yield from figure_1(ran)
    yield figure_2(ran)
    for alpha in ran.levels("published"):
        if ran.varied(alpha):
            yield from figures_3_and_4(ran, alpha)
    yield from stronger(ran)
    for kind in KINDS:
        for level in ran.levels(kind):
            yield from figure_5(ran, kind, level)
    yield from totals(ran)
    if ran.tried(recycled=True):
        yield tuned(ran)


def oscillation(seen: Seen) -> float:
    """By how much an even iterate raises the loss above the odd iterate before it, averaged over pairs."""
    return float(np.maximum(seen.even - seen.loss, 0).mean())


def ranges(runs: Mapping[str, Floats]) -> str:
    """Say which neighbouring ranges overlap; `runs` are in the order of their means."""
    touching = [(a, b) for a, b in pairwise(runs) if runs[a].max() >= runs[b].min() and runs[b].max() >= runs[a].min()]
    if not touching:
        return "judged by means; neighbouring ranges do not touch"
    return "judged by means; ranges overlap: " + ", ".join(f"{a} and {b}" for a, b in touching)


def words(runs: dict[str, Run], names: tuple[str, ...]) -> str:
    return "; ".join(f"{name} {spread_words(runs[name].last)}" for name in names)


def figure_1(ran: Results) -> Iterator[Check]:
    for size, runs in ran.gammas.items():
        gammas = [gamma for gamma in runs if gamma < STILL]
        swings = [oscillation(runs[gamma]) for gamma in gammas]
        moves = [float(np.abs(runs[gamma].even - runs[gamma].loss).mean()) for gamma in gammas]
        yield Claim(f"Figure 1(a): a larger gamma oscillates less ({size} nodes)", "falls with gamma").judged(
            pairs("gamma", gammas, swings),
            np.all(np.diff(swings) <= 0) and swings[0] > swings[-1],
            "by how much an even iterate raises the loss, on average, 0 where none does. As a distance either "
            f"way, which also counts steps that lower it: {pairs('gamma', gammas, moves)}",
        )
        ends = [float(runs[gamma].last[0]) for gamma in gammas]
        name = f"Figure 1(a): a larger gamma converges more slowly ({size} nodes)"
        yield Claim(name, "loss rises with gamma").judged(pairs("gamma", gammas, ends), rises(ends))
        plain, recycled = float(runs[STILL].last[0]), ends[0]
        title = f"Figure 1(a): in odd iterations R-ADMM is as fast as ADMM ({size} nodes)"
        yield Claim(title, "a similar rate").judged(
            f"ADMM {plain:.4f}, R-ADMM {recycled:.4f}",
            abs(plain - recycled) <= 0.005,
            f"loss after {len(runs[STILL].loss)} iterations, of which R-ADMM solves half; similar: within 0.005",
        )
    own = "with rates of the nodes' own the limit is not the paper's either: it weights node i by 1/eta_i"
    for place, name, why in (("(b)", "apart", own), ("(c)", "alike", "")):
        speeds = {k: float(seen.last[0]) for k, seen in ran.speeds(name).items()}
        title = f"Figure 1{place}: penalties that grow faster slow convergence down"
        yield Claim(title, "loss rises with the growth").judged(
            pairs("k", speeds, speeds.values()), rises(list(speeds.values())), why
        )
    method = MRADMM(eta=1.0, gamma=GAMMA)
    smallest = method.smallest_gamma(nodes.job(method, 1, RHO / 5, NoPrivacy()).public)
    yield Claim("Theorem IV.1 covers gamma = 0.5", "sufficient conditions, easily met").judged(
        "no gamma meets them" if smallest is None else f"they ask for gamma >= {smallest:.3g}",
        smallest is not None and smallest <= GAMMA,
        "they rest on M_i = C c + rho/N = 437; the runs converge far below",
    )


def figure_2(ran: Results) -> Check:
    errors = {rho: float(seen.error[-1, 0]) for rho, seen in ran.overfitting.items()}
    least = min(errors, key=lambda rho: errors[rho])
    record = 1 / nodes.held(5).test.sizes.sum()
    near_least = [rho for rho, error in errors.items() if error <= errors[least] + 10 * record]
    return Claim("Figure 2: the error rate is least at rho = 0.22", "minimum near 0.22").judged(
        pairs("rho", errors, errors.values()),
        RHO in near_least and min(near_least) >= RHO,
        f"least at {least:g}; within ten test records of that: {listed(near_least)}. Smaller rho do as well: a floor, "
        "not a minimum",
    )


def figures_3_and_4(ran: Results, alpha: float) -> Iterator[Check]:
    runs = ran.varied(alpha)
    by_gamma = {gamma: run.last for (gamma, growth), run in runs.items() if growth == 1.01}
    yield Claim(f"Figure 3: gamma hardly matters (alpha = {alpha:g})", "no significant effect").judged(
        pairs("gamma", by_gamma, [loss.mean() for loss in by_gamma.values()]),
        max(loss.min() for loss in by_gamma.values()) <= min(loss.max() for loss in by_gamma.values()),
        "no order is claimed, and so this is about ranges: it holds where those of all gamma share a point",
    )
    by_growth = {growth: run for (gamma, growth), run in runs.items() if gamma == GAMMA}
    if len(by_growth) > 1:
        means = [float(run.last.mean()) for run in by_growth.values()]
        totals = [float(run.spent[-1]) for run in by_growth.values()]
        title = f"Figure 4: a faster growing penalty ends with less loss (alpha = {alpha:g})"
        yield Claim(title, "falls with the growth").judged(
            pairs("growth", by_growth, means),
            falls(means),
            ranges({f"{growth:g}": run.last for growth, run in by_growth.items()}),
        )
        name = f"Figure 4: and with a smaller published total (alpha = {alpha:g})"
        yield Claim(name, "falls with the growth").judged(pairs("growth", by_growth, totals), falls(totals))


def stronger(ran: Results) -> Iterator[Check]:
    """Check that MR-ADMM gains more under more noise."""
    levels = ran.levels("published")
    runs = [ran.runs("published", level) for level in levels]
    gains = [float(1 - by_name[MR].last.mean() / by_name[ADMM].last.mean()) for by_name in runs]
    if len(levels) > 1:
        yield Claim("Figure 5: the improvement is larger at a smaller total", "grows as alpha falls").judged(
            pairs("share of ADMM's loss saved at alpha", levels, gains),
            rises(gains),
            "judged by means, as a share of one mean has no range over runs",
        )


def figure_5(ran: Results, kind: str, level: float) -> Iterator[Check]:
    """Check the paper's orderings, and the controls: pairs with as many releases, one method with even steps."""
    runs, at = ran.runs(kind, level), f"{LETTERS[kind]} = {level:g}"
    if ADMM in runs and M in runs:
        judge = Claim if kind == "published" else expect
        means = {name: float(runs[name].last.mean()) for name in ORDER}
        errors = {name: float(runs[name].error.mean()) for name in ORDER}
        by_means = (MR, R, *sorted((ADMM, M), key=lambda name: means[name]))
        yield judge(f"Figure 5: MR-ADMM below R-ADMM below ADMM and M-ADMM ({at})", "loss in this order").judged(
            words(runs, ORDER),
            means[MR] < means[R] < min(means[ADMM], means[M]),
            ranges({name: runs[name].last for name in by_means})
            + f". Least to most: {', '.join(sorted(ORDER, key=lambda name: means[name]))}",
        )
        yield judge(f"Figure 5(g): and so are the error rates ({at})", "error rates in this order").judged(
            ", ".join(f"{name} {errors[name]:.4f}" for name in ORDER),
            errors[MR] < errors[R] < min(errors[ADMM], errors[M]),
            ranges({name: runs[name].error for name in by_means}),
        )
    controls = {
        "R-ADMM below ADMM stopped after half the rounds": (R, HALF),
        "MR-ADMM below the same with its growing penalty": (MR, GROWING),
    }
    for name, names in controls.items():
        recycled, plain = (runs[method].last for method in names)
        yield expect(f"Control: {name} ({at})", "not in the paper: the gain would be that of the even steps").judged(
            words(runs, names),
            recycled.mean() < plain.mean(),
            f"the same releases, noise and cost; {ranges(dict(zip(names, (recycled, plain), strict=True)))}",
        )


def totals(ran: Results) -> Iterator[Check]:
    runs = {alpha: ran.runs("published", alpha) for alpha in ran.levels("published")}
    seen = [run.seen for by_name in runs.values() for run in by_name.values()]
    ratios = [each.epsilon / each.claimed for each in seen if each.epsilon and each.claimed]
    yield Claim("Theorem V.1: the published totals hold", "beta of (32)").judged(
        f"certified is {min(ratios):.2f} to {max(ratios):.2f} of the published total",
        max(ratios) <= 1,
        f"sound and loose; certified at delta = {nodes.DELTA:g}",
    )
    spent = [{name: by_name[name].spent[-1] for name in ORDER} for by_name in runs.values()]
    yield Claim("Figure 5(d)-(f): MR-ADMM has the least published total", "lowest of all").judged(
        ", ".join(f"{name} {total:.4g}" for name, total in spent[0].items()),
        all(each[MR] <= min(each[name] for name in (R, ADMM, M)) + 1e-9 for each in spent),
        f"at alpha = {next(iter(runs)):g}; ADMM and M-ADMM were set to R-ADMM's",
    )


def tuned(ran: Results) -> Check:
    """Compare recycled and plain rounds, each at its best settings, at a certified epsilon of 1."""
    best, known = [], ran.runs("certified", 1.0)
    for even, (growing, still) in ((True, (MR, R)), (False, (GROWING, HALF))):
        pool = ran.tried(even)
        pool |= {(1.0, GROWTH, ran.pairs): known[growing], (1.0, 1.0, ran.pairs): known[still]}
        best.append(min(pool.items(), key=lambda item: float(item[1].last.mean())))
    (ours, recycled), (theirs, plain) = best
    ahead = float(1 - recycled.last.mean() / plain.last.mean())
    title = "Control: at its best settings, recycling beats plain rounds (certified epsilon = 1)"
    return expect(title, "not in the paper").judged(
        f"recycled {spread_words(recycled.last)} at eta, growth, releases = {ours}; "
        f"plain {spread_words(plain.last)} at {theirs}",
        ahead > 0,
        f"recycled is {100 * ahead:.1f} % ahead; {ranges({'recycled': recycled.last, 'plain': plain.last})}; "
        f"error rates {recycled.error.mean():.4f} and {plain.error.mean():.4f}",
    )
