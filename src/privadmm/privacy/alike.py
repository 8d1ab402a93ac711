"""A value for each party of a block, held once for all parties that have the same.

Most parties of a large block have equal histories and equal events. What is computed of them (a tally, a check against
a budget, a line of the ledger) is then computed once for each kind of party, and not for each party.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from privadmm.data.arrays import Ints

T = TypeVar("T")
U = TypeVar("U")
NOTHING: Any = object()


@dataclass(eq=False, repr=False)
class Alike(Mapping[int, T]):
    """An immutable mapping from parties to values: party ids[i] has kinds[which[i]].

    Kinds are numbered as they first appear, and each belongs to a party at least. Two kinds may be equal.
    """

    ids: Ints
    which: Ints
    kinds: tuple[T, ...]

    @staticmethod
    def of(values: Mapping[int, U]) -> "Alike[U]":
        """Make an Alike of a mapping from parties to values. Parties with the same object are of one kind."""
        if isinstance(values, Alike):
            return values
        ids = np.array(list(values)) if values else np.empty(0, dtype=np.int64)
        if ids.dtype.kind != "i":
            raise TypeError("parties are whole numbers")
        return Alike.listed(ids.astype(np.int64), list(values.values()))

    @staticmethod
    def listed(ids: Ints, values: Sequence[U]) -> "Alike[U]":
        """Make an Alike of values in the order of `ids`. Parties with the same object are of one kind."""
        objects = np.fromiter(map(id, values), np.uint64, len(values))
        return _numbered(ids, objects, lambda place: values[place])

    @staticmethod
    def same(ids: Ints, value: U) -> "Alike[U]":
        """One value for all of these parties."""
        return Alike(ids, np.zeros(len(ids), dtype=np.int64), (value,) if len(ids) else ())

    @cached_property
    def _places(self) -> dict[int, int]:
        return {party: place for place, party in enumerate(self.ids.tolist())}

    def __getitem__(self, party: int) -> T:
        return self.kinds[int(self.which[self._places[party]])]

    def __iter__(self) -> Iterator[int]:
        return iter(self.ids.tolist())

    def __len__(self) -> int:
        return len(self.ids)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mapping):
            return NotImplemented
        try:
            others = Alike.of(other).over(self.ids)
        except (KeyError, TypeError):
            return False
        return len(self) == len(other) and all(mine == its for mine, its in together(self, others).kinds)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(dict(self))

    def map(self, make: Callable[[T], U]) -> "Alike[U]":
        """Apply a function, once for each kind."""
        return Alike(self.ids, self.which, tuple(make(kind) for kind in self.kinds))

    def over(self, ids: Ints, default: Any = NOTHING) -> "Alike[Any]":
        """The values of these parties in this order. A party without a value has `default`, or is a KeyError."""
        if same_array(ids, self.ids):
            return self
        order = np.argsort(self.ids)
        place = np.minimum(np.searchsorted(self.ids, ids, sorter=order), len(self.ids) - 1)
        which = self.which[order[place]] if len(self.ids) else np.zeros(len(ids), dtype=np.int64)
        absent = self.ids[order[place]] != ids if len(self.ids) else np.ones(len(ids), dtype=bool)
        if absent.any():
            if default is NOTHING:
                raise KeyError(int(ids[absent][0]))
            which = np.where(absent, len(self.kinds), which)
        kinds = (*self.kinds, default)
        return _numbered(ids, which, lambda place: kinds[which[place]])

    def firsts(self) -> list[int]:
        """The first party of each kind."""
        if len(self.kinds) == 1:
            return [int(self.ids[0])]
        first = np.empty(len(self.kinds), dtype=np.int64)
        first[self.which[::-1]] = self.ids[::-1]  # of several assignments the last one stays
        parties: list[int] = first.tolist()
        return parties

    def listing(self) -> list[T]:
        """The values in the order of `ids`."""
        return [self.kinds[kind] for kind in self.which.tolist()]

    def groups(self) -> list[Ints]:
        """The parties of each kind."""
        if len(self.kinds) == 1:
            return [self.ids]
        ends = np.cumsum(np.bincount(self.which, minlength=len(self.kinds)))
        return np.split(self.ids[np.argsort(self.which, kind="stable")], ends[:-1])


def same_array(one: Ints, other: Ints) -> bool:
    """Whether two lists of whole numbers are equal; np.array_equal takes three times as long for short ones."""
    return one is other or (one.shape == other.shape and bool((one == other).all()))


def together(first: Alike[Any], *others: Alike[Any]) -> Alike[tuple[Any, ...]]:
    """Tuples of each party's values in all of these, for the parties of the first; a KeyError if another lacks one."""
    ids, which = first.ids, first.which
    columns: list[Sequence[Any]] = [first.kinds]  # for each argument so far, its value of every kind of party
    for other in (other.over(ids) for other in others):
        known, more = len(columns[0]), len(other.kinds)
        if more == 1:
            columns.append(other.kinds * known)
        elif known == 1:
            which, columns = other.which, [*([column[0]] * more for column in columns), other.kinds]
        elif same_array(which, other.which):
            columns.append(other.kinds)
        else:
            pairs = _numbered(ids, which * more + other.which, lambda place: place)
            left, right = which[[*pairs.kinds]].tolist(), other.which[[*pairs.kinds]].tolist()
            columns = [*([column[kind] for kind in left] for column in columns), [other.kinds[kind] for kind in right]]
            which = pairs.which
    return Alike(ids, which, tuple(zip(*columns, strict=True)))


def _numbered(ids: Ints, codes: Any, kind_at: Callable[[int], U]) -> Alike[U]:
    """Make an Alike of codes, one for each party: equal codes are one kind, whose value is kind_at(its first place)."""
    if not len(ids) or (codes == codes[0]).all():
        return Alike(ids, np.zeros(len(ids), dtype=np.int64), (kind_at(0),) if len(ids) else ())
    _, place, which = np.unique(codes, return_index=True, return_inverse=True)
    order = np.argsort(place)
    number = np.empty(len(order), dtype=np.int64)
    number[order] = np.arange(len(order))
    return Alike(ids, number[which], tuple(kind_at(at) for at in place[order].tolist()))
