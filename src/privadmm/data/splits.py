"""Split records or columns between the parties of a simulation; the same seed gives the same split.

A split of n records is an array `owner` (n,) of party numbers 0 .. N-1, in which every party holds at least one record.
Parties that really are separate need no split, and do not use this module.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privadmm.data.arrays import Ints
from privadmm.data.raw import words
from privadmm.errors import ConfigError, DataError
from privadmm.params import check_positive, check_probability

ATTEMPTS = 100


def even(n: int, parties: int, seed: int) -> Ints:
    """Permute the records at random and cut them into parts whose sizes differ by at most one."""
    sizes = even_sizes(n, parties)
    owner = np.empty(n, dtype=np.int64)
    owner[_rng(seed).permutation(n)] = np.repeat(np.arange(parties), sizes)
    return owner


def even_sizes(n: int, parties: int, what: str = "records") -> Ints:
    """How many records (or `what` is split) each party has after an even split."""
    _enough(n, parties, what)
    return n // parties + (np.arange(parties) < n % parties)


def by_column(values: NDArray[Any]) -> tuple[Ints, tuple[str, ...]]:
    """Make a party of each distinct value, in sorted order: the owners and the parties' names."""
    values = np.asarray(values)
    cells = words(values)
    if blank := cells.count(""):
        raise DataError(f"splitting by a column: {blank} of {len(cells)} rows are blank; fill them in or drop them")
    if not cells:
        raise DataError("splitting by a column: there are no records; give at least one")
    distinct, owner = np.unique(values if values.dtype.kind in "biuf" else np.array(cells), return_inverse=True)
    return owner.astype(np.int64), tuple(words(distinct))


def dirichlet(y: NDArray[Any], parties: int, alpha: float, seed: int) -> Ints:
    """Split with label skew: each class is dealt out in shares drawn from Dirichlet(alpha, ..., alpha).

    A small alpha gives parties of nearly one class and of very different sizes; a large one is close to `even`. A draw
    that leaves a party empty is repeated, up to ATTEMPTS times.
    """
    y = np.asarray(y)
    check_positive(alpha=alpha)
    _enough(len(y), parties, "records")
    rng = _rng(seed)
    for _ in range(ATTEMPTS):
        owner = np.empty(len(y), dtype=np.int64)
        for value in np.unique(y):
            rows = rng.permutation(np.flatnonzero(y == value))
            shares = np.nan_to_num(rng.dirichlet(np.full(parties, alpha)))
            cuts = np.floor(np.cumsum(shares)[:-1] * len(rows)).astype(np.int64)
            owner[rows] = np.searchsorted(cuts, np.arange(len(rows)), side="right")
        if len(np.unique(owner)) == parties:
            return owner
    raise DataError(
        f"dirichlet split: with alpha = {alpha} and {len(y)} records, one of {parties} parties stayed empty "
        f"in {ATTEMPTS} draws; use a larger alpha or fewer parties"
    )


def by_columns(d: int, parties: int | Sequence[int]) -> list[Ints]:
    """The columns that each vertical party holds, in runs from left to right.

    `parties` is their number, for runs that differ by at most one column, or the length of each run: [66, 57].
    """
    if isinstance(parties, int | np.integer):
        sizes = even_sizes(d, parties, "columns")
    else:
        sizes = np.asarray(parties, dtype=np.int64)
        if sizes.ndim != 1 or (sizes < 1).any() or sizes.sum() != d:
            raise ConfigError(f"columns per party must be 1 or more each and sum to {d}, not {list(parties)!r}")
    return np.split(np.arange(d), np.cumsum(sizes)[:-1])


def by_lists(d: int, lists: Sequence[Sequence[int]]) -> list[Ints]:
    """Check declared lists of the columns that each party holds; each of the d columns must be at exactly one party."""
    held = [np.asarray(columns, dtype=np.int64).reshape(-1) for columns in lists]
    for party, columns in enumerate(held):
        if len(columns) == 0:
            raise ConfigError(f"party {party} holds no columns; give it at least one or leave it out")
        if ((columns < 0) | (columns >= d)).any():
            raise ConfigError(f"columns are numbered 0 to {d - 1}; a party's list goes beyond that")
    count = np.bincount(np.concatenate(held), minlength=d) if held else np.zeros(d, dtype=np.int64)
    if (count != 1).any():
        column = int(np.flatnonzero(count != 1)[0])
        raise ConfigError(f"column {column} is held by {count[column]} parties; give each column to exactly one")
    return held


def train_test(n: int, test_fraction: float, seed: int) -> tuple[Ints, Ints]:
    """Row numbers to train on and to test on, each in ascending order."""
    return _cut(_rng(seed).permutation(n), held_out(n, test_fraction))


def held_out(n: int, test_fraction: float) -> int:
    """How many of n records `train_test` leaves to test on."""
    check_probability(test_fraction=test_fraction)
    held_out = round(n * test_fraction)
    if not 0 < held_out < n:
        raise DataError(
            f"test_fraction = {test_fraction} of {n} records leaves {n - held_out} to train on and "
            f"{held_out} to test on; each needs at least one"
        )
    return held_out


def of_party(n: int, test_fraction: float, seed: int, party: int) -> tuple[Ints, Ints]:
    """Like `train_test`, among the records of one party; a small party may keep all of them to train on."""
    check_probability(test_fraction=test_fraction)
    return _cut(_rng(seed, party).permutation(n), min(round(n * test_fraction), n - 1))


def _cut(order: Ints, held_out: int) -> tuple[Ints, Ints]:
    return np.sort(order[held_out:]), np.sort(order[:held_out])


def gather(X: Any, owner: NDArray[Any], parties: int | None = None) -> list[Ints]:
    """The row numbers of X that each party holds, ascending, in party order.

    `parties` is their number; without it the largest owner decides, and an empty last party goes unseen.
    """
    owner = np.asarray(owner)
    if owner.shape != X.shape[:1]:
        raise DataError(f"owner has shape {owner.shape}, but there are {X.shape[0]} records; give one owner each")
    if owner.size == 0 or owner.dtype.kind not in "iu" or owner.min() < 0:
        raise DataError("owner must hold whole numbers from 0 up, one for each of at least one record")
    count = int(owner.max()) + 1 if parties is None else parties
    sizes = np.bincount(owner, minlength=count)
    if len(sizes) > count:
        raise DataError(f"owner names party {len(sizes) - 1}, but there are {count}; parties are numbered from 0")
    if (sizes == 0).any():
        raise DataError(f"party {int(sizes.argmin())} has no records; give it at least one or leave it out")
    return np.split(np.argsort(owner, kind="stable"), np.cumsum(sizes)[:-1])


def _rng(seed: int, *stream: int) -> np.random.Generator:
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ConfigError(f"split seed must be a whole number, 0 or above, not {seed!r}")
    return np.random.default_rng(np.random.SeedSequence(int(seed), spawn_key=stream))


def _enough(n: int, parties: int, what: str) -> None:
    if parties < 1:
        raise ConfigError(f"the number of parties must be 1 or more, not {parties!r}")
    if n < parties:
        raise DataError(f"{parties} parties cannot share {n} {what}; each needs at least one, use fewer parties")
