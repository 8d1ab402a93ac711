"""What the paper on recycled ADMM says of its experiments, one check each."""

from collections.abc import Iterator

import numpy as np

from privadmm.algorithms.mr_admm import MRADMM
from privadmm.papers.framework import nodes
from privadmm.papers.framework.study import Check, claim, falls, near, rises
from privadmm.papers.mr_admm.comparison import comparison
from privadmm.papers.mr_admm.results import Results, listed, oscillation, ranges
from privadmm.papers.mr_admm.runs import GAMMA, RHO, STILL
from privadmm.privacy.calibration import NoPrivacy


def checks(found: Results) -> Iterator[Check]:
    yield from data()
    yield from figure_1(found)
    yield from figure_2(found)
    for alpha in found.levels("published"):
        if found.varied(alpha):
            yield from figures_3_and_4(found, alpha)
    yield from comparison(found)


def data() -> Iterator[Check]:
    held = nodes.held(5)
    count = int(held.nodes.sizes.sum() + held.test.sizes.sum())
    yield near("Records of Adult without missing cells", 45223.0, float(count), 1.0)
    yield near("Columns of a record", 105.0, float(held.nodes.dim), 0.0)


def figure_1(found: Results) -> Iterator[Check]:
    for size in found.sizes():
        runs = found.gammas(size)
        gammas = [gamma for gamma in runs if gamma < STILL]
        swings = [oscillation(runs[gamma]) for gamma in gammas]
        moves = [float(np.abs(runs[gamma].even - runs[gamma].loss).mean()) for gamma in gammas]
        yield claim(
            f"Figure 1(a): a larger gamma oscillates less ({size} nodes)",
            "falls with gamma",
            listed(gammas, swings),
            bool(np.all(np.diff(swings) <= 0) and swings[0] > swings[-1]),
            "by how much an even iterate raises the loss, on average, 0 where none does. As a distance either "
            f"way, which also counts steps that lower it: {listed(gammas, moves)}",
        )
        ends = [float(runs[gamma].last[0]) for gamma in gammas]
        yield claim(
            f"Figure 1(a): a larger gamma converges more slowly ({size} nodes)",
            "loss rises with gamma",
            listed(gammas, ends),
            rises(ends),
        )
        plain, recycled = float(runs[STILL].last[0]), float(runs[gammas[0]].last[0])
        yield claim(
            f"Figure 1(a): in odd iterations R-ADMM is as fast as ADMM ({size} nodes)",
            "a similar rate",
            f"ADMM {plain:.4f}, R-ADMM {recycled:.4f}",
            abs(plain - recycled) <= 0.005,
            f"loss after {len(runs[STILL].loss)} iterations, of which R-ADMM solves half; similar: within 0.005",
        )
    for place, name in (("(b)", "apart"), ("(c)", "alike")):
        speeds = found.speeds(name)
        ends = [float(seen.last[0]) for seen in speeds.values()]
        yield claim(
            f"Figure 1{place}: penalties that grow faster slow convergence down",
            "loss rises with the growth",
            listed(list(speeds), ends, "k"),
            rises(ends),
            "with rates of the nodes' own the limit is not the paper's either: it weights node i by 1/eta_i"
            if name == "apart"
            else "",
        )
    method = MRADMM(eta=1.0, gamma=GAMMA)
    smallest = method.smallest_gamma(nodes.job(method, 1, RHO / 5, NoPrivacy()).public)
    yield claim(
        "Theorem IV.1 covers gamma = 0.5",
        "sufficient conditions, easily met",
        "no gamma meets them" if smallest is None else f"they ask for gamma >= {smallest:.3g}",
        smallest is not None and smallest <= GAMMA,
        "they rest on M_i = C c + rho/N = 437; the runs converge far below",
    )


def figure_2(found: Results) -> Iterator[Check]:
    errors = {rho: float(seen.error[-1, 0]) for rho, seen in sorted(found.overfitting.items())}
    least = min(errors, key=lambda rho: errors[rho])
    one = 1 / nodes.held(5).test.sizes.sum()
    near_least = [rho for rho, error in errors.items() if error <= errors[least] + 10 * one]
    yield claim(
        "Figure 2: the error rate is least at rho = 0.22",
        "minimum near 0.22",
        listed(list(errors), list(errors.values()), "rho"),
        RHO in near_least and min(near_least) >= RHO,
        f"least at {least:g}; within ten test records of that: {', '.join(f'{rho:g}' for rho in near_least)}. "
        "Smaller rho do as well: a floor, not a minimum",
    )


def figures_3_and_4(found: Results, alpha: float) -> Iterator[Check]:
    runs = found.varied(alpha)
    by_gamma = {gamma: run for (gamma, growth), run in runs.items() if growth == 1.01}
    losses = [run.last for run in by_gamma.values()]
    yield claim(
        f"Figure 3: gamma hardly matters (alpha = {alpha:g})",
        "no significant effect",
        listed(list(by_gamma), [loss.mean() for loss in losses], "gamma"),
        bool(max(loss.min() for loss in losses) <= min(loss.max() for loss in losses)),
        "no order is claimed, and so this is about ranges: it holds where those of all gamma share a point",
    )
    by_growth = {growth: run for (gamma, growth), run in runs.items() if gamma == GAMMA}
    means = [float(run.last.mean()) for run in by_growth.values()]
    if len(means) > 1:
        yield claim(
            f"Figure 4: a faster growing penalty ends with less loss (alpha = {alpha:g})",
            "falls with the growth",
            listed(list(by_growth), means, "growth"),
            falls(means),
            ranges({f"{growth:g}": run.last for growth, run in by_growth.items()}),
        )
        totals = [float(run.spent[-1]) for run in by_growth.values()]
        yield claim(
            f"Figure 4: and with a smaller published total (alpha = {alpha:g})",
            "falls with the growth",
            listed(list(by_growth), totals, "growth"),
            falls(totals),
        )
