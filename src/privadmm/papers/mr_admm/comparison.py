"""Figure 5 of the paper on recycled ADMM: its orderings, published and certified, beside the controls it lacks."""

from collections.abc import Iterator

from privadmm.papers.framework import nodes
from privadmm.papers.framework.study import Check, Whose, claim, rises, spread_words
from privadmm.papers.mr_admm.results import Results, listed, ranges
from privadmm.papers.mr_admm.runs import ADMM, GROWING, GROWTH, HALF, MR, M, R, Run

LETTERS = {"published": "alpha", "certified": "certified epsilon"}


def comparison(found: Results) -> Iterator[Check]:
    yield from stronger(found)
    for kind in ("published", "certified"):
        for level in found.levels(kind):
            yield from figure_5(found, kind, level)
    yield from totals(found)
    if found.tried[True]:
        yield from tuned(found)


def stronger(found: Results) -> Iterator[Check]:
    """Under more noise, MR-ADMM gains more."""
    levels = found.levels("published")
    if len(levels) < 2:
        return
    gains = [
        float(1 - found.run("published", MR, level).last.mean() / found.run("published", ADMM, level).last.mean())
        for level in levels
    ]  # fmt: skip
    yield claim(
        "Figure 5: the improvement is larger at a smaller total",
        "grows as alpha falls",
        listed(levels, gains, "share of ADMM's loss saved at alpha"),
        rises(gains),
        "judged by means, as a share of one mean has no range over runs",
    )


def figure_5(found: Results, kind: str, level: float) -> Iterator[Check]:
    names, at = found.names(kind, level), f"{LETTERS[kind]} = {level:g}"
    runs = {name: found.run(kind, name, level) for name in names}
    if ADMM in runs and M in runs:
        of: Whose = "paper" if kind == "published" else "ours"
        third, fourth = sorted((ADMM, M), key=lambda name: float(runs[name].last.mean()))
        means = bool(runs[MR].last.mean() < runs[R].last.mean() < min(runs[n].last.mean() for n in (ADMM, M)))
        yield claim(
            f"Figure 5: MR-ADMM below R-ADMM below ADMM and M-ADMM ({at})",
            "loss in this order",
            words(runs, (MR, R, ADMM, M)),
            means,
            ranges({name: runs[name].last for name in (MR, R, third, fourth)})
            + f". Least to most: {', '.join(sorted((MR, R, ADMM, M), key=lambda name: runs[name].last.mean()))}",
            of,
        )
        errors = {name: float(run.error.mean()) for name, run in runs.items()}
        yield claim(
            f"Figure 5(g): and so are the error rates ({at})",
            "error rates in this order",
            ", ".join(f"{name} {errors[name]:.4f}" for name in (MR, R, ADMM, M)),
            errors[MR] < errors[R] < min(errors[ADMM], errors[M]),
            ranges({name: runs[name].error for name in (MR, R, third, fourth)}),
            of,
        )
    yield control(f"Control: R-ADMM below ADMM stopped after half the rounds ({at})", runs, R, HALF)
    yield control(f"Control: MR-ADMM below the same with its growing penalty ({at})", runs, MR, GROWING)


def control(name: str, runs: dict[str, Run], ours: str, stopped: str) -> Check:
    """Both make the same releases; only one has the even steps."""
    recycled, plain = runs[ours].last, runs[stopped].last
    return claim(
        name,
        "not in the paper: the gain would be that of the even steps",
        words(runs, (ours, stopped)),
        bool(recycled.mean() < plain.mean()),
        f"the same releases, noise and cost; {ranges({ours: recycled, stopped: plain})}",
        "ours",
    )


def totals(found: Results) -> Iterator[Check]:
    runs = [found.run("published", n, a) for a in found.levels("published") for n in found.names("published", a)]
    ratios = [run.seen.epsilon / run.seen.claimed for run in runs if run.seen.epsilon and run.seen.claimed]
    yield claim(
        "Theorem V.1: the published totals hold",
        "beta of (32)",
        f"certified is {min(ratios):.2f} to {max(ratios):.2f} of the published total",
        max(ratios) <= 1,
        f"sound and loose; certified at delta = {nodes.DELTA:g}",
    )
    first = found.levels("published")[0]
    least = all(
        run.spent[-1] <= min(found.run("published", n, a).spent[-1] for n in (R, ADMM, M)) + 1e-9
        for a in found.levels("published")
        for run in [found.run("published", MR, a)]
    )
    yield claim(
        "Figure 5(d)-(f): MR-ADMM has the least published total",
        "lowest of all",
        ", ".join(f"{n} {found.run('published', n, first).spent[-1]:.4g}" for n in (MR, R, ADMM, M)),
        least,
        f"at alpha = {first:g}; ADMM and M-ADMM were set to R-ADMM's",
    )  # fmt: skip


def tuned(found: Results) -> Iterator[Check]:
    """The best settings of either kind at a certified epsilon of 1."""
    best = {}
    for even, runs in found.tried.items():
        more = {MR: (1.0, GROWTH), R: (1.0, 1.0)} if even else {GROWING: (1.0, GROWTH), HALF: (1.0, 1.0)}
        pool = runs | {(*more[n], found.pairs): found.run("certified", n, 1.0) for n in more}
        best[even] = min(pool.items(), key=lambda item: float(item[1].last.mean()))
    (ours, recycled), (theirs, plain) = best[True], best[False]
    ahead = float(1 - recycled.last.mean() / plain.last.mean())
    yield claim(
        "Control: at its best settings, recycling beats plain rounds (certified epsilon = 1)",
        "not in the paper",
        f"recycled {spread_words(recycled.last)} at eta, growth, releases = {ours}; "
        f"plain {spread_words(plain.last)} at {theirs}",
        ahead > 0,
        f"recycled is {100 * ahead:.1f} % ahead; {ranges({'recycled': recycled.last, 'plain': plain.last})}; "
        f"error rates {recycled.error.mean():.4f} and {plain.error.mean():.4f}",
        "ours",
    )


def words(runs: dict[str, Run], names: tuple[str, ...]) -> str:
    return "; ".join(f"{name} {spread_words(runs[name].last)}" for name in names)
