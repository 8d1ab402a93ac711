"""Secure sums: every party adds a share of the noise, and only the sum of all parties' messages can be read.

N parties, of which t may tell all they know to whoever reads the sum; S are those present, at least S_min of them. One
grid of step gamma = 2^k serves a whole job. Of a release in which party i's message x_i moves by at most Delta_i:

    sigma = max_i ratio_i (Delta_i + gamma sqrt(d))                  the noise of the |S| - t who do not collude    (1)
    s = sigma/(gamma sqrt(|S| - t)), rounded up                      the scale of one share, in steps               (2)
    k = floor(log2 of the smallest sigma/sqrt(N - t)) - 40           so that s >= 2^40, whoever is absent           (3)
    y_i = rint(x_i/gamma) + n_i + masks   mod 2^64                   what leaves; n_i discrete Gaussian of scale s  (4)
    sum_i y_i mod 2^64, centred, times gamma                         what is read: masks cancel                     (5)

All of (4) is whole numbers: floating point would round off what must cancel. A plan whose sum could wrap is refused.
One more word is 1 from each party: unless it adds up to |S|, somebody was told, or answered, something else than the
others, and what was added up is noise. Masks are in masks.py, the proof in docs/privacy.md#secure-sums.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from privadmm.data.arrays import Floats, Ints
from privadmm.errors import ConfigError, MessageError, RefusedError
from privadmm.params import check_whole
from privadmm.privacy.events import STEPS, WIDEST, DiscreteGaussian, Event, Gaussian, SharedGaussian

Words = NDArray[np.uint64]
At = tuple[int, int]  # round and phase
ROOM = 2.0**62  # no sum of messages and noise comes near this
DIGITS = 21  # binary digits of s: machines whose sigma differs in the last digit must have the same s


@dataclass(frozen=True)
class SecureSum:
    """How many parties may collude, and how few may be present; None: what is usual for the number of parties."""

    colluding: int | None = None
    fewest: int | None = None

    def __post_init__(self) -> None:
        for name in ("colluding", "fewest"):
            if (value := getattr(self, name)) is not None:
                check_whole(**{name: value})

    def tolerated(self, parties: int) -> int:
        """t, or a third of the parties: their sum then has at most sqrt(3/2) times a curator's noise."""
        return usual_colluding(parties) if self.colluding is None else self.colluding

    def least(self, parties: int) -> int:
        """S_min, or nine tenths of the parties."""
        return max(self.tolerated(parties) + 1, usual_fewest(parties)) if self.fewest is None else self.fewest

    def below_usual(self, parties: int) -> dict[str, int | None]:
        """t and S_min, or None in place of one that is not below what a party's policy asks for by default."""
        t, least = self.tolerated(parties), self.least(parties)
        return {
            "colluding": t if t < usual_colluding(parties) else None,
            "fewest": least if least < usual_fewest(parties) else None,
        }

    def check(self, parties: int) -> None:
        t, least = self.tolerated(parties), self.least(parties)
        if parties < 2:
            raise ConfigError(
                f'a secure sum needs two parties at least, not {parties}: remove [privacy] sum = "secure" '
                "(secure_sum=True of an estimator)"
            )
        if t >= parties:
            raise ConfigError(
                f"colluding = {t} of {parties} parties leaves nobody whose noise protects the others: give "
                f"{parties - 1} at most"
            )
        if not t < least <= parties:
            raise ConfigError(
                f"fewest = {least} must be above colluding = {t}, and at most the number of parties, {parties}"
            )


def usual_colluding(parties: int) -> int:
    """A third of the parties."""
    return max(1, parties // 3)


def usual_fewest(parties: int) -> int:
    """Nine tenths of the parties: the fewer are in a sum, the more its reader learns of each if many collude."""
    return -(-9 * parties // 10)


@dataclass(frozen=True)
class Summands:
    """Bounds on the messages of one round that follow from public facts: one number for each party."""

    moves: Floats  # (N,), how far a message moves between neighbours
    reach: Floats  # (N,), the largest number in it


@dataclass(frozen=True)
class Sums:
    """The sums of a job: the same at every party, and known to everybody before the first round."""

    colluding: int
    fewest: int
    exponent: int  # k of (3)
    deviation: Mapping[At, float]  # sigma of (1)
    reach: Mapping[At, Floats]  # (N,)
    kind: type[Gaussian] | type[DiscreteGaussian]  # the noise that may be drawn: a simulation's, or a deployment's

    @staticmethod
    def planned(
        asked: SecureSum,
        releases: Mapping[At, tuple[Sequence[Event], Summands, int]],
        kind: type[Gaussian] | type[DiscreteGaussian] = Gaussian,
    ) -> "Sums":
        """Plan sums. A release is given by its events (one for each party), its summands, and its width d."""
        parties = len(next(iter(releases.values()))[0])
        asked.check(parties)
        t, fewest = asked.tolerated(parties), asked.least(parties)
        least = min(float(np.max(ratios(row) * own.moves)) for row, own, _ in releases.values())
        if not 2.0**-900 < least < 2.0**900:
            raise ConfigError("the noise of a secure sum is too small or too large for its grid: change C")
        exponent = math.frexp(least / math.sqrt(parties - t))[1] - 1 - round(math.log2(STEPS))
        step = math.ldexp(1.0, exponent)
        deviation, reach = {}, {}
        for at, (row, own, d) in releases.items():
            if d >= WIDEST:
                raise ConfigError(f"a secure sum has less than {WIDEST} numbers, and this one {d}")
            deviation[at] = float(np.max(ratios(row) * (own.moves + step * math.sqrt(d)))) * (1 + 2.0**-50)
            reach[at] = own.reach
            loud = 40 * deviation[at] / step * math.sqrt(fewest / (fewest - t))
            if not float(own.reach.sum()) / step + loud < ROOM:
                raise ConfigError(
                    "a secure sum of these messages has too many digits for words of 64 bits: there are too many "
                    "records for so little noise. Lower epsilon, have more rounds or fewer records, or remove "
                    '[privacy] sum = "secure": with so many records local noise does little harm'
                )
        return Sums(t, fewest, exponent, deviation, reach, kind)

    @property
    def step(self) -> float:
        """gamma"""
        return math.ldexp(1.0, self.exponent)

    def share(self, at: At, present: int) -> float:
        """s of (2)"""
        return rounded_up(self.deviation[at] / (self.step * math.sqrt(present - self.colluding)) * (1 + 2.0**-50))

    def noise(self, at: At, present: int) -> float:
        """The standard deviation of the sum, if nobody leaves noise out."""
        return self.share(at, present) * self.step * math.sqrt(present)

    def check_present(self, present: int) -> None:
        if present < self.fewest:
            raise RefusedError(
                f"the job sums over {self.fewest} parties at least, and {present} are present. Nothing was released"
            )


def ratios(row: Sequence[Event]) -> Floats:
    if not all(isinstance(event, SharedGaussian) for event in row):
        raise RefusedError("a secure sum needs a planned share of its noise for every party. Nothing was released")
    return np.array([event.ratio for event in row if isinstance(event, SharedGaussian)])


def evened(row: tuple[Event, ...], moves: Floats) -> tuple[Event, ...]:
    """The events of a release, with the ratio that each party has under the one noise of all: the strictest decides it.

    Ratios that differ in their last digits alone stay as planned, so that parties alike have equal events.
    """
    planned = ratios(row)
    given = np.max(planned * moves) / moves
    better = np.where(given > planned * (1 + 1e-9), given, planned)
    shared = [event for event in row if isinstance(event, SharedGaussian)]
    return tuple(replace(event, ratio=float(z)) for event, z in zip(shared, better, strict=True))


def rounded_up(scale: float) -> float:
    mantissa, exponent = math.frexp(scale)
    return math.ldexp(math.ceil(math.ldexp(mantissa, DIGITS)), exponent - DIGITS)


@dataclass(frozen=True)
class Summing:
    """What a block's door knows of one release into a secure sum."""

    sums: Sums
    at: At
    present: int  # |S|
    whole: bool  # all of the block's parties in S answer; else nobody can read the sum
    hide: Callable[[int, tuple[int, ...]], Words]  # masks by the release's number within the tick, and shape

    def sealed(self, x: Floats, ids: Ints, noise: Ints, call: int) -> Words:
        """(4), of all parties of the block together, and the word that counts them: (..., 1, d + 1)."""
        reach = self.sums.reach[self.at][ids][:, None]
        steps = np.rint(np.clip(x, -reach, reach) / self.sums.step).astype(np.int64)
        rows = steps.view(np.uint64) + noise.view(np.uint64)
        total = rows.sum(axis=-2, keepdims=True, dtype=np.uint64)
        count = np.full((*total.shape[:-1], 1), len(ids), dtype=np.uint64)
        words = np.concatenate([total, count], axis=-1)
        if not self.whole:
            words = np.zeros_like(words)  # masks would hide the words anyway, but a block of all parties has none
        return words + self.hide(call, words.shape)


def opened(words: Words, present: int, step: float) -> Floats:
    """(5), the sum of everybody's words (..., 1, d + 1) as numbers (..., 1, d)."""
    if not np.all(words[..., -1] == present):
        raise MessageError(
            "the parties' messages add up to noise: one of them was told other facts than the others (who is present, "
            "the round, the noise, the roster), or sent something else. The run ends: what was released is charged, "
            "and nothing was trained on it"
        )
    total: Floats = words[..., :-1].view(np.int64).astype(np.float64) * step
    return total
