"""PDML, Table I: printed figures beside ours, and checks of the printed figures alone."""

from collections.abc import Iterator

import numpy as np

from privadmm.data.arrays import Floats
from privadmm.papers.framework.study import Check, Claim, Grid, Row, expect, near
from privadmm.papers.pdml.runs import DELTA, RECORD, SERVERS, TENTH, A, Setup
from privadmm.papers.pdml.table import CELLS, CONFIGURATIONS, COUNTS, PRINTED, SWEEP, allowed_sizes, certified, stated

Rows = dict[str, Floats]  # by set: (cells, seeds)
Costs = dict[str, list[tuple[float | None, float | None]]]  # by set and cell: of a record, of a label
POINTS = 2.0
QUIET, NOISY = range(3), range(3, 7)  # columns of the table without phase 2, and with it
# Test sizes that an earlier trial found.
PRINTED_SIZES = {"german": 300, "image": 626, "ringnorm": 3900, "banana": 1800}
PRINTED_SIZES |= {"splice": 901, "twonorm": 3900, "waveform": 1500}


def place(column: int, share: float = 1.0) -> int:
    """The index in CELLS of a column of Table I."""
    return CELLS.index(stated(*CONFIGURATIONS[column], share))


LOUD = place(CONFIGURATIONS.index((1.0, 1)))  # as printed, epsilon = 1, R = 1
EQUAL, FALLING = (CELLS.index(certified(1.0, rho)) for rho in (1.0, 0.8))


def between(epsilons: list[float | None], digits: str) -> str:
    """The least and the largest epsilon; no guarantee counts as infinity."""
    known = [np.inf if epsilon is None else epsilon for epsilon in epsilons]
    return " to ".join(dict.fromkeys(f"{end:{digits}}" for end in (min(known), max(known))))


def off(rows: Rows, columns: range, share: float = 1.0) -> Floats:
    """Ours less the printed figure, in points: (sets, columns)."""
    return np.array([[row[place(j, share)].mean() - PRINTED[name][j] for j in columns] for name, row in rows.items()])


def words(column: int) -> str:
    label, R = CONFIGURATIONS[column]
    return "no privacy" if label is None else f"epsilon = {label:g}, R = {R:g}"


def sizes_words(sizes: dict[str, int]) -> str:
    return ", ".join(f"{name} {size}" for name, size in sizes.items())


def spread(values: Floats) -> str:
    return f"{values.mean():.2f} (sd {values.std(ddof=1):.2f})"


def grids(rows: Rows, costs: Costs) -> tuple[Grid, ...]:
    """Tables of every cell, of the sets with certified noise, and of the epsilons of each set's records and labels.

    The same printed noise protects more on a server with more records.
    """
    every = list[Row]()
    for name, row in rows.items():
        for j, (_, R) in enumerate(CONFIGURATIONS):
            cells = [row[place(j, share)] for share in ((1.0, TENTH) if R else (1.0,))]
            shown = [text for cell in cells for text in (spread(cell), f"{cell.mean() - PRINTED[name][j]:+.2f}")]
            every.append((name, words(j), f"{PRINTED[name][j]:.2f}", *[*shown, "", ""][:4]))
    kinds = {kind(cell): i for i, cell in enumerate(CELLS) if cell.noise == "certified"}
    at = (LOUD, *kinds.values())
    ends = [(name, f"{PRINTED[name][5]:.2f}", *(spread(row[i]) for i in at)) for name, row in rows.items()]
    promised = list[Row]()
    for name, own in costs.items():
        known = [" and ".join("none" if epsilon is None else f"{epsilon:.4g}" for epsilon in own[i]) for i in at]
        promised.append((name, str((COUNTS[name] - allowed_sizes(name)[0]) // SERVERS), *known))
    columns = ("set", "configuration", "published", "ours", "off by", "a tenth of eta", "off by")
    total = f"Table I, certified: accuracy with a total of {RECORD:g} for a record"
    learnt = (
        f"Table I: what other servers learn, epsilon of a record and of a label at delta = {DELTA:g} (a label's own "
        "server: the column's epsilon)"
    )
    headings = ("set", "published, epsilon = 1, R = 1", "ours as printed", *kinds)
    servers = ("set", "records of a server", "as printed, epsilon = 1, R = 1", *kinds)
    return (
        Grid("table-1", "Table I: accuracy in per cent, every cell", columns, every),
        Grid("table-1-certified", total, headings, ends),
        Grid("table-1-guarantees", learnt, servers, promised),
    )


def kind(cell: Setup) -> str:
    noise = f"{cell.rounds} rounds, {'equal noise' if cell.rho == 1 else f'noise falling by {cell.rho:g}'}"
    return f"certified, epsilon = {cell.label:g}, {noise}"


def of_print() -> Iterator[Check]:
    """Check the printed table alone."""
    smallest = {name: allowed_sizes(name)[0] for name in PRINTED}
    shares = {name: 1 - size / COUNTS[name] for name, size in smallest.items()}
    pairs = [(i, j) for i in range(1, 7) for j in range(1, 7) if better(i, j)]
    wrong = [
        f"{name} {words(i)} {row[i]:.2f} < {words(j)} {row[j]:.2f}"
        for name, row in PRINTED.items()
        for i, j in pairs
        if row[i] < row[j]
    ]
    drop = np.array([row[0] - row[4] for row in PRINTED.values()])
    below = [f"{name} {cell:.2f}" for name, row in PRINTED.items() for cell in row if cell < 50]
    title = "Table I: test sizes behind the printed decimals"
    yield expect(title, f"{sizes_words(PRINTED_SIZES)} (an earlier trial)").judged(
        sizes_words(smallest),
        smallest == PRINTED_SIZES,
        "confirmed. The smallest size of which all seven figures of a row are whole shares, with equally many "
        f"training records at each of {SERVERS} servers. So each figure is of one run, not a mean",
    )
    yield Claim("Table I: about 70 % of each set for training", "70 : 30").judged(
        ", ".join(f"{name} {100 * share:.0f}" for name, share in shares.items()),
        all(abs(share - 0.7) < 0.05 for share in shares.values()),
        "the printed decimals say 3,500 records to train on wherever there are more than 5,000",
    )
    yield Claim("Table I: larger epsilon and smaller R give better accuracy", "in every row").judged(
        f"not in {len(wrong)} of {7 * len(pairs)} printed pairs: {'; '.join(wrong)}",
        not wrong,
        "single runs: a cell's own spread is one to two points, and on splice far more",
    )
    yield expect("Table I: two printed cells are below chance", "2 (an earlier trial)").judged(
        f"{len(below)}: {', '.join(below)}",
        len(below) == 2,
        "refuted: three are below 50 per cent; splice at epsilon = 0.4, R = 0 even without noise of phase 2",
    )
    yield Claim("Table I: comparable accuracy at epsilon = 0.4, R = 9", "comparable to that without privacy").judged(
        f"{drop.min():.1f} to {drop.max():.1f} points less, by the printed figures",
        drop.max() < 5,
        "the paper's own figures: comparable is read as within 5 points",
    )


def better(i: int, j: int) -> bool:
    """Whether column i has less noise than column j: epsilon no smaller and R no larger, and not both the same."""
    (e, R), (f, S) = CONFIGURATIONS[i], CONFIGURATIONS[j]
    assert e is not None
    assert f is not None
    return (e >= f and R <= S) and (e, R) != (f, S)


def checks(
    rows: Rows, costs: Costs, signals: dict[str, tuple[float, float]], chance: dict[str, float], sweep: bool = True
) -> Iterator[Check]:
    """`sweep`: whether there is a table of several a to point to."""
    see, names = " (see the sweep)" if sweep else "", list(rows)
    quiet, loud, tenth = off(rows, QUIET), off(rows, NOISY), off(rows, NOISY, TENTH)
    inside, inside_loud, inside_tenth = (int((np.abs(gaps) <= POINTS).sum()) for gaps in (quiet, loud, tenth))
    outside = [f"{names[i]} {words(j)} {quiet[i, j]:+.1f}" for i, j in np.argwhere(np.abs(quiet) > POINTS)]
    louder = [f"{name} {slope:.2f} against {eta:.2f}" for name, (slope, eta) in signals.items()]
    target = -(-16 * quiet.size // 21)
    title = f"Table I: cells without phase 2 within {POINTS:g} points"
    yield expect(title, f"{target} of {quiet.size} at least (our target)").judged(
        f"{inside} of {quiet.size}; outside: {', '.join(outside) or 'none'}",
        inside >= target,
        "a and the constant column are not stated, and were chosen for these cells",
    )
    title = f"Table I: cells with R > 0 within {POINTS:g} points, noise as printed"
    yield Claim(title, f"{loud.size} of {loud.size}").judged(
        f"{inside_loud} of {loud.size}; mean distance {np.abs(loud).mean():.1f}",
        inside_loud == loud.size,
        "R = 9 drowns the records: the loss's gradient at 0, and eta's mean over n in (14), are as long as "
        + "; ".join(louder),
    )
    yield expect("Table I: a tenth of eta is nearer to the printed R > 0 columns", "nearer (an earlier trial)").judged(
        f"{inside_tenth} of {tenth.size} within {POINTS:g}; mean distance {np.abs(tenth).mean():.1f}, as printed "
        f"{np.abs(loud).mean():.1f}",
        np.abs(tenth).mean() < np.abs(loud).mean(),
        "a second 1/n (n = 10) would explain it; so would a law of eta with a tenth of the uniform "
        "one's spread, as the paper states its bound alone. The text does not decide",
    )
    if "twonorm" in rows:
        name, ours = "Table I: twonorm, epsilon = 1, R = 9, noise as printed", float(rows["twonorm"][place(6)].mean())
        why = "the easiest set: nothing but the noise brings it down" + (f", and no a mends it{see}" if sweep else "")
        yield near(name, float(PRINTED["twonorm"][6]), ours, POINTS, why)
    if "splice" in rows:
        yield near(
            "Table I: splice without privacy is the commoner class",
            chance["splice"],
            float(rows["splice"][place(0)].mean()),
            POINTS,
            "beside the share of the commoner class. The paper prints 56.60 twice, as a constant answer would "
            f"give; at the optimum for a small a the model does far better{see}",
            "ours",
        )
    records, labels = ([own[LOUD][which] for own in costs.values()] for which in (0, 1))
    title = "Phase 2 strengthens the guarantee of labels against other servers"
    yield Claim(title, "stronger than phase 1's epsilon").judged(
        f"by set: label {between(labels, '.6f')} of 1, record {between(records, '.3g')}, with V = 0.1 and "
        "rho = 0.8 over 40 rounds",
        all(label is not None and label < 0.9 for label in labels),
        "V is ours, as none is stated; noise that falls by rho a round is gone when most is told. "
        f"Certified: {between([own[EQUAL][1] for own in costs.values()], '.3f')}",
    )
    gains, lost = (
        np.array([row[EQUAL].mean() - row[other].mean() for row in rows.values()]) for other in (LOUD, FALLING)
    )
    title = f"Table I, certified: a total of {RECORD:g} for a record, against eta as printed with R = 1"
    yield expect(title, "no figure in the paper").judged(
        f"{gains.min():+.1f} to {gains.max():+.1f} points by set, in the mean {gains.mean():+.1f}",
        gains.mean() > 0,
        "holds if certified noise is better in the mean; small sets lose most: noise falls with a server's records",
    )
    title = "Table I, certified: at the same total, noise that decays (16) is better than equal noise"
    yield expect(title, "not in the paper, which has decaying noise alone").judged(
        f"{lost.min():.1f} to {lost.max():.1f} points worse",
        lost.max() < 0,
        "for a given total the first rounds get noise far above the last one's, and the mean over rounds keeps it",
    )


def swept(sweeps: dict[str, tuple[Floats, Floats, Floats]]) -> tuple[Grid, list[Check]]:
    """Show how a was chosen, over all sets: most of the 21 cells within POINTS, on splits that Table I does not use."""
    names = list(sweeps)
    run = np.array([sweeps[name][0] - PRINTED[name][:3] for name in names])  # (sets, a, 3)
    exact = np.array([sweeps[name][1] - PRINTED[name][0] for name in names])  # (sets, a)
    inside, limit = np.abs(run) <= POINTS, np.abs(exact) <= POINTS
    distance = np.abs(exact).mean(axis=0)
    count, loud, reach = inside.sum(axis=(0, 2)), sweeps["twonorm"][2], PRINTED["twonorm"][6]
    rows = [
        (
            f"{a:g}",
            *(f"{sweeps[name][0][i, 0]:.1f} ({sweeps[name][1][i]:.1f})" for name in names),
            f"{np.abs(run[:, i, 0]).mean():.2f} ({distance[i]:.2f})",
            f"{inside[:, i, 0].sum()} ({limit[:, i].sum()}) of {len(names)}",
            f"{count[i]} of {inside[:, i].size}",
            f"{loud[i]:.1f}",
        )
        for i, a in enumerate(SWEEP)
    ]
    ends = ("mean distance", "within 2", "within 2, with R = 0", "twonorm, epsilon = 1, R = 9")
    caption = "Accuracy without privacy by a, after 40 rounds (at the exact optimum), splits of its own"
    best, image, chosen = SWEEP[int(np.argmin(distance))], names.index("image"), SWEEP[int(np.argmax(count))]
    fit = [f"{SWEEP[k]:g} ({limit[:, k].sum() - 1} of {len(names) - 1} others)" for k in np.flatnonzero(limit[image])]
    distances = ", ".join(f"{a:g}: {value:.2f}" for a, value in zip(SWEEP, distance, strict=True))
    return Grid("sweep", caption, ("a", *names, *ends), rows), [
        expect("Table I: the a used here is the sweep's", f"{A:g} (ours)").judged(
            f"{chosen:g}, with {count.max()} of {inside[:, 0].size} cells within {POINTS:g}",
            chosen == A,
            "the a with most cells without phase 2 within two points; three splits, which move a set by one to three",
        ),
        expect("Table I: a near 0.15 fits the column without privacy best", "0.15 (an earlier trial)").judged(
            f"{best:g}, mean distance {distance.min():.2f} points",
            0.1 <= best <= 0.2,
            f"at the exact optimum, rows clipped to norm 1 with a constant column; distances: {distances}",
        ),
        expect("Table I: image never fits together with all other sets", "never (an earlier trial)").judged(
            f"at the exact optimum image fits at a = {', '.join(fit) or 'none'}",
            not limit.all(axis=0).any(),
            "holds if no a has all seven within two points; the table shows which sets are in the way",
        ),
        Claim("Table I: some a reaches twonorm at epsilon = 1, R = 9, noise as printed", f"{reach:.2f}").judged(
            f"at most {loud.max():.1f}",
            abs(float(loud.max()) - reach) <= POINTS,
            "eta and the signal are shrunk alike by a larger a",
        ),
    ]
