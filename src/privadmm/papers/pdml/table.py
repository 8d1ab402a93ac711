"""PDML, Table I: accuracy on seven of Raetsch's sets. Every seed has a split, labels and noise of its own."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from privadmm.data.arrays import Floats
from privadmm.data.shards import Shards
from privadmm.engine.block import cluster
from privadmm.engine.job import train, weights
from privadmm.engine.party import Local
from privadmm.papers.framework import sets
from privadmm.papers.framework.optimum import optimum
from privadmm.papers.framework.runs import accuracies
from privadmm.papers.pdml.runs import SERVERS, TENTH, Setup, against
from privadmm.privacy.mechanisms import Simulation

INTERCEPT = 0.2**0.5  # the constant is half as long as a row: (2, 1)/sqrt(5)
BRIEF = 20  # rounds of the certified columns
SWEEP = (0.01, 0.03, 0.05, 0.15, 0.3, 1.0)  # of a
APART = 1000  # the first seed of the sweep

COUNTS = {"german": 1000, "image": 2086, "ringnorm": 7400, "banana": 5300}  # section VI-A1
COUNTS |= {"splice": 2991, "twonorm": 7400, "waveform": 5000}
Configuration = tuple[float | None, float]  # epsilon, R
CONFIGURATIONS: tuple[Configuration, ...] = ((None, 0), (0.4, 0), (1.0, 0), (0.4, 1), (0.4, 9), (1.0, 1), (1.0, 9))
TABLE = {  # Table I, in per cent, as printed
    "german": ("75.00", "71.00", "74.00", "69.67", "64.00", "74.33", "67.67"),
    "image": ("75.56", "70.13", "72.84", "69.33", "63.10", "70.45", "65.50"),
    "ringnorm": ("77.38", "73.44", "76.82", "73.74", "66.18", "75.77", "70.23"),
    "banana": ("58.22", "54.33", "56.06", "54.28", "43.11", "55.89", "54.44"),
    "splice": ("56.60", "46.84", "56.60", "54.94", "46.39", "55.83", "52.50"),
    "twonorm": ("97.90", "96.59", "97.38", "96.51", "92.28", "97.41", "94.77"),
    "waveform": ("88.93", "84.60", "87.93", "84.07", "80.47", "87.67", "81.73"),
}
PRINTED = {name: np.array([float(cell) for cell in row]) for name, row in TABLE.items()}


def stated(label: float | None, R: float = 0.0, share: float = 1.0) -> Setup:
    """A configuration of the paper, with a share of its eta."""
    return Setup(label, R * share, "printed" if R else "off")


def certified(label: float, rho: float = 1.0) -> Setup:
    """A configuration with certified noise, equal in all rounds or falling by rho as in the paper."""
    return Setup(label, noise="certified", rho=rho, rounds=BRIEF)


CELLS = (
    *(stated(label, R) for label, R in CONFIGURATIONS),
    *(stated(label, R, TENTH) for label, R in CONFIGURATIONS if R),
    *(certified(label) for label in (0.4, 1.0)),
    certified(1.0, rho=0.8),
)


def fits(size: int, cells: tuple[str, ...]) -> bool:
    """Whether every printed figure is, to two decimals, the share of a whole number out of `size`."""
    counts = {cell: int(float(cell) * size / 100) for cell in cells}
    return all(
        any(f"{100 * right / size:.2f}" == cell for right in range(max(0, count - 1), count + 3))
        for cell, count in counts.items()
    )


def allowed_sizes(name: str) -> list[int]:
    """The test sizes that fit all figures of a row, with equally many training records at every server."""
    count = COUNTS[name]
    return [size for size in range(1, count) if (count - size) % SERVERS == 0 and fits(size, TABLE[name])]


def split(data: Path, name: str, seed: int) -> tuple[Shards, Shards]:
    """Deal out records to ten servers; returns them and the pooled test records."""
    raw = sets.raetsch(data, name)
    order, size = np.random.default_rng(seed).permutation(len(raw.y)), allowed_sizes(name)[0]
    parts = np.split(order[size:], SERVERS), [order[:size]]
    train, test = (Shards.build(raw.X, raw.y, part, row_bound=1.0, intercept=INTERCEPT) for part in parts)
    return train, test


def accuracy(setup: Setup, records: tuple[Shards, Shards], seed: int) -> float:
    """The accuracy of the model that is handed out, in per cent."""
    job = setup.job(records[0])
    done = train(job, cluster(job, records[0], Simulation(seed)))
    return 100 * float(accuracies(records[1], weights(job, done)))


def row(data: Path, name: str, seeds: range) -> Floats:
    """Run every cell of a set, (cells, seeds)."""
    records = {seed: split(data, name, seed) for seed in seeds}
    return np.array([[accuracy(cell, records[seed], seed) for seed in seeds] for cell in CELLS])


def sweep(data: Path, name: str, seeds: int) -> tuple[Floats, Floats, Floats]:
    """Run every a on splits that Table I does not use.

    Returns the columns without phase 2, (a, 3); the first of these at the exact optimum, (a,); and, for twonorm only,
    the column with the most noise as printed, (a,).
    """
    own = range(APART, APART + seeds)
    records = {seed: split(data, name, seed) for seed in own}

    def mean(cell: Setup, a: float) -> float:
        return float(np.mean([accuracy(replace(cell, a=a), records[seed], seed) for seed in own]))

    quiet = [[mean(stated(*pair), a) for pair in CONFIGURATIONS[:3]] for a in SWEEP]
    exact = [np.mean([at_optimum(a, records[seed]) for seed in own]) for a in SWEEP]
    loud = [mean(stated(*CONFIGURATIONS[-1]), a) for a in SWEEP] if name == "twonorm" else []
    return np.array(quiet), np.array(exact), np.array(loud)


def at_optimum(a: float, records: tuple[Shards, Shards]) -> float:
    """The accuracy of the minimiser of (1), the limit of ADMM."""
    best = optimum(Local(Setup(a=a).job(records[0]).public, records[0]))
    return 100 * float(accuracies(records[1], best.w))


def signal(data: Path, name: str) -> tuple[float, float]:
    """The length of the loss's mean gradient at 0, and of the servers' mean eta/n when R = 9 (root mean square)."""
    records = split(data, name, 0)[0]
    slope = records.pull(-records.y / 2).sum(axis=0) / records.size
    spread = 9 / 3**0.5 / SERVERS**0.5 / SERVERS
    return float(np.linalg.norm(slope)), spread * records.dim**0.5


def majority(data: Path, name: str) -> float:
    """The accuracy of always answering the commoner class, in per cent."""
    y = sets.raetsch(data, name).y
    return 100 * float(max((y > 0).mean(), (y < 0).mean()))


def costs(data: Path, name: str) -> list[tuple[float | None, float | None]]:
    """The epsilons against other servers, (record, label), by cell; they do not depend on the seed."""
    records = split(data, name, 0)[0]
    return [against(cell.job(records)) for cell in CELLS]
