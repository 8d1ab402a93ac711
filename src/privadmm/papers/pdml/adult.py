"""PDML, Figures 3 and 4: Adult at ten servers of 4,500 records. Every seed has labels and noise of its own."""

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import pairwise

import numpy as np

from privadmm.data import adult
from privadmm.data.arrays import Floats
from privadmm.data.shards import Shards
from privadmm.engine.inprocess import InProcess
from privadmm.engine.loop import View
from privadmm.optim.losses import Logistic
from privadmm.papers.framework.bench import Setting, Task
from privadmm.papers.framework.runs import follow
from privadmm.papers.framework.study import Check, Claim, Figure, Line, Panel, expect, falls, rises, spread_words
from privadmm.papers.pdml.runs import SERVERS, TENTH, Setup, against
from privadmm.papers.pdml.table import certified
from privadmm.runs.palette import Meaning

USED, FEW = 45_000, 4_500  # records; FEW in a quick run
LABEL, LOUD = 1.0, 0.3  # LOUD is V: a third of a converged weight's norm, so that the noise's decay can be seen
CLOSE = 0.005  # distance from the last risk that counts as converged
BOUNDS, RATES, LABELS = (1.0, 3.0, 9.0), (0.6, 0.8, 0.9), (0.2, 0.4, 0.6, 1.0)
ZERO = math.log(2)  # the risk of weights that are all 0

Found = dict[Setup, Floats]  # the results of `curves`

PLAIN = Setup()
PHASE_ONE = {label: Setup(label) for label in LABELS}
CERTIFIED = certified(LABEL)


def perturbed(R: float, rho: float = 0.8, label: float = LABEL) -> Setup:
    return Setup(label, R, "printed", rho, V=LOUD)


def used(setting: Setting) -> int:
    return FEW if setting.quick else USED


@cache
def records(count: int) -> Shards:
    every = adult.load("onehot")
    parts = np.split(np.random.default_rng(0).permutation(len(every.y))[:count], SERVERS)
    return Shards.build(every.X, every.y, parts, row_bound=adult.SCHEMA.row_bound)


def risk(shards: Shards, w: Floats, a: float) -> Floats:
    """(1) at the servers' own classifiers w (..., n, d) with the true labels, divided by n: (...,)."""
    losses = shards.sums(Logistic().value(shards.margins(w), shards.y)) / shards.sizes
    return np.asarray((losses + a / (2 * SERVERS) * np.square(w).sum(axis=-1)).mean(axis=-1))


def curves(setup: Setup, seeds: int, count: int) -> Floats:
    """Measure, after every round, the largest difference of two servers' norms, and the risk: (2, rounds, seeds)."""
    shards = records(count)

    def look(view: View, parties: InProcess) -> Floats:
        w = parties.local_models()
        return np.stack([np.ptp(np.linalg.norm(w, axis=-1), axis=-1), risk(shards, w, setup.a)])

    # Labels are drawn once for all replicas, so every seed is a run of its own.
    runs = [follow(setup.job(shards), shards, 1, look, seed)[..., 0].T for seed in range(seeds)]
    return np.stack(runs, axis=-1)


def settings(quick: bool) -> dict[Setup, int]:
    """The configurations to run, and how often; 0 means once for every seed."""
    labels, rates, bounds = (LABELS[1::2], RATES[1:], BOUNDS[::2]) if quick else (LABELS, RATES, BOUNDS)
    many = [PHASE_ONE[label] for label in labels]
    many += [perturbed(TENTH, label=label) for label in labels]
    many += [perturbed(TENTH, rho) for rho in rates]
    many += [perturbed(TENTH * R) for R in bounds]
    many += [perturbed(R) for R in (bounds[:1] if quick else bounds[::2])]
    return {PLAIN: 1, **dict.fromkeys([*many, CERTIFIED], 0)}


def tasks(setting: Setting) -> list[Task]:
    count = used(setting)
    return [
        Task(("adult", setup), curves, (setup, once or setting.seeds, count), f"Adult, {words(setup)}", 12.0)
        for setup, once in settings(setting.quick).items()
    ]


def words(setup: Setup) -> str:
    if setup.label is None:
        return "no privacy"
    if setup.noise == "off":
        return f"phase 1 alone, epsilon = {setup.label:g}"
    if setup.noise == "certified":
        return f"certified, epsilon = {setup.label:g}"
    return f"epsilon = {setup.label:g}, R = {setup.R:g}, rho = {setup.rho:g}"


def promised(setup: Setup, setting: Setting) -> str:
    """The epsilons certified against other servers."""
    record, label = ("bare" if cost is None else f"{cost:.3g}" for cost in against(setup.job(records(used(setting)))))
    return f"others: record {record}, label {label}"


def span(setups: Sequence[Setup], setting: Setting) -> str:
    """The certified epsilons of a record, for the first and the last configuration."""
    costs = [against(setup.job(records(used(setting))))[0] for setup in (setups[0], setups[-1])]
    known = [f"{cost:.3g}" for cost in costs if cost is not None]
    return f"others: record {' to '.join(known) or 'bare'}"


def figures(setting: Setting, measured: Found) -> tuple[Figure, ...]:
    gap, loss = ({setup: value[i] for setup, value in measured.items()} for i in (0, 1))
    three = (PLAIN, PHASE_ONE[LABEL], perturbed(TENTH), perturbed(1.0), CERTIFIED)
    bounds, labels = bounds_of(loss), labels_of(loss)
    final, risks = "risk (1)/n after the last round", "risk (1)/n"
    by_R = [loss[perturbed(R)][-1] for R in bounds]
    of_R = Line.of(f"epsilon = 1 ({promised(perturbed(1.0), setting)})", by_R, bounds)
    phases = {
        "phase 1 alone": [PHASE_ONE[e] for e in labels],
        "phase 2, R = 0.1": [perturbed(TENTH, label=e) for e in labels],
    }
    of_labels = [
        Line.of(f"{name} ({span(setups, setting)})", [loss[setup][-1] for setup in setups], labels)
        for name, setups in phases.items()
    ]
    plain = np.repeat(loss[PLAIN][-1:], len(labels), axis=0)
    of_labels.append(Line.of("no privacy", plain, labels, dashed=True, meaning="non_private"))
    rates, apart = [setup for setup in loss if rated(setup)], "largest difference of norms"
    convergence = (
        Panel("(a) servers apart", "round", apart, lines(setting, gap, three[1:]), yscale="log"),
        Panel("(b) empirical risk", "round", risks, lines(setting, loss, three)),
    )
    effects = (
        Panel("(a) R, rho = 0.8", "R", final, [of_R], "log", "log"),
        Panel("(b) rho, R = 0.1", "round", risks, lines(setting, loss, rates)),
        Panel("(c) epsilon of labels", "epsilon", final, of_labels),
    )
    return (
        Figure("figure-3", "Figure 3: convergence on Adult", convergence),
        Figure("figure-4", "Figure 4: effects of R, rho and epsilon on Adult", effects),
    )


def bounds_of(setups: Iterable[Setup]) -> list[float]:
    """The R that were run at rho = 0.8 and epsilon = LABEL."""
    return sorted(s.R for s in setups if s.noise == "printed" and s.rho == 0.8 and s.label == LABEL)


def labels_of(setups: Iterable[Setup]) -> list[float]:
    """The epsilons that were run."""
    return sorted(s.label for s in setups if s.noise == "off" and s.label is not None)


def rated(setup: Setup) -> bool:
    """Whether this is one of the runs that compare rho."""
    return setup.noise == "printed" and setup.R == TENTH and setup.label == LABEL


def lines(setting: Setting, values: dict[Setup, Floats], setups: Sequence[Setup]) -> list[Line]:
    """Curves by round, each labelled with its certified epsilons."""
    labels = {
        setup: words(setup) if setup == PLAIN else f"{words(setup)} ({promised(setup, setting)})" for setup in setups
    }
    return [Line.of(labels[s], values[s], dashed=s == PLAIN, series=words(s), meaning=meaning(s)) for s in setups]


def meaning(setup: Setup) -> Meaning | None:
    return "non_private" if setup == PLAIN else "certified" if setup == CERTIFIED else None


def rounds_to_end(values: Floats) -> Floats:
    """The first round from which on a run (rounds, seeds) stays within CLOSE of its last value."""
    far = np.abs(values - values[-1]) > CLOSE
    return np.where(far.any(axis=0), len(values) - np.argmax(far[::-1], axis=0) + 1.0, 1.0)


def checks(setting: Setting, measured: Found) -> Iterator[Check]:
    last = {setup: value[1, -1] for setup, value in measured.items()}
    slow = {setup: rounds_to_end(value[1]) for setup, value in measured.items()}
    one, two, loud, least = PHASE_ONE[LABEL], perturbed(TENTH), perturbed(1.0), float(last[PLAIN].mean())
    gaps = {setup: (float(measured[setup][0].max()), float(measured[setup][0][-1].max())) for setup in (one, two, loud)}
    stays = f"rounds until the risk stays within {CLOSE:g} of its last value"
    title = "Figure 3(a): the servers come to agree, with phase 2 and without"
    yield Claim(title, "both distances converge to 0").judged(
        "; ".join(f"{words(s)}: {most:.2g} to {end:.2g}" for s, (most, end) in gaps.items()),
        all(end < 0.05 * most for most, end in gaps.values()),
        "largest of all runs; of the released classifiers, noise included",
    )
    yield Claim("Figure 3(b): neither reaches the risk without privacy", "both end above it").judged(
        f"phase 1 {spread_words(last[one])}, with phase 2 (a tenth of eta) {spread_words(last[two])}; "
        f"without privacy {least:.4f}",
        last[one].min() > least and last[two].min() > last[one].max(),
    )
    yield Claim("Figure 3(b): phase 2 makes convergence longer", "more rounds").judged(
        f"{spread_words(slow[one], 3)} without, {spread_words(slow[two], 3)} with it, a tenth of eta",
        slow[two].min() > slow[one].max(),
        stays,
    )
    title = "Figure 3(b), 4(c): with R = 1 as printed, the risk is near the one without privacy"
    yield Claim(title, "close to the reference for epsilon > 0.6").judged(
        f"{spread_words(last[loud])} against {least:.4f}; weights of 0 have {ZERO:.4f}",
        last[loud].mean() < 1.1 * least,
        "at this a, which is ours, eta/n moves the optimum by more than all that is learnt",
    )
    ends = {R: last[perturbed(R)] - least for R in bounds_of(measured)}
    yield Claim("Figure 4(a): the larger R, the larger the gap to the reference", "grows with R").judged(
        "; ".join(f"R = {R:g}: {spread_words(gap, 3)}" for R, gap in ends.items()),
        all((a < b).all() for a, b in pairwise(ends.values())) if len(ends) > 1 else None,
        "gap of the risk; holds if it grows in every run, as a seed's eta is one draw scaled by R",
    )
    rates = {rho: slow[perturbed(TENTH, rho)] for rho in sorted({s.rho for s in measured if rated(s)})}
    yield Claim("Figure 4(b): a larger rho needs more rounds", "grows with rho").judged(
        "; ".join(f"rho = {rho:g}: {spread_words(rounds, 3)}" for rho, rounds in rates.items()),
        rises([rounds.mean() for rounds in rates.values()]),
        f"{stays}, R = 0.1",
    )
    both = {e: (last[PHASE_ONE[e]], last[perturbed(TENTH, label=e)]) for e in labels_of(measured)}
    title = "Figure 4(c): the risk falls with epsilon, and phase 2 adds to it at every epsilon"
    yield Claim(title, "falls; larger with phase 2").judged(
        "; ".join(f"{e:g}: {spread_words(x)}, {spread_words(y)}" for e, (x, y) in both.items()),
        (falls([x.mean() for x, _ in both.values()]) and falls([y.mean() for _, y in both.values()]))
        and all(y.mean() > x.mean() for x, y in both.values()),
        "phase 1 alone, and with phase 2 (a tenth of R = 1)",
    )
    high = [float(y.mean()) / least - 1 for e, (_, y) in both.items() if e >= 0.6]
    known = len(high) > 1
    title = "Figure 4(c): from epsilon = 0.6 on the risk is near the reference"
    yield Claim(title, "close, and no longer changing").judged(
        (", ".join(f"{100 * x:.2g} %" for x in high) or "nothing") + " above it",
        max(high) < 0.05 and max(high) - min(high) < 0.01 if known else None,
        "with phase 2 at a tenth of R = 1; within 5 %, changing by less than 1 %"
        if known
        else f"{len(high)} epsilon of 0.6 or more was run, and a change needs two",
    )
    yield expect("Figure 3, certified: phase 2 with a total of 1 for a record", "no figure in the paper").judged(
        f"{spread_words(last[CERTIFIED])}, {promised(CERTIFIED, setting)}",
        last[CERTIFIED].mean() < last[loud].mean(),
        f"{CERTIFIED.rounds} rounds of equal noise on the iterates, no eta; holds if below R = 1 as printed",
    )
