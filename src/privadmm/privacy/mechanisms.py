"""Sources of noise. There are two: a simulation's keyed streams, and a deployment's OpenDP.

A simulation needs a seed and repeats itself bit for bit, whatever the partition of parties into blocks. A deployment
refuses a seed: its noise is discrete, on a grid finer than the scale, and comes from the operating system's entropy
(docs/privacy.md#discrete: continuous noise on raw doubles leaks through the low bits).
"""

import math
import secrets
from abc import ABC, abstractmethod
from collections.abc import Sequence
from decimal import Decimal, localcontext
from itertools import pairwise
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from privadmm.data.arrays import Floats, Ints
from privadmm.data.threads import hands, spread
from privadmm.errors import ConfigError, RefusedError
from privadmm.params import check_positive
from privadmm.privacy.events import STEPS, DiscreteGaussian, Gaussian

Words = NDArray[np.uint64]
Call = tuple[int, int, int]  # round, phase, number of the release within the tick
ONCE = 2**64 - 1  # in place of the round: what a party draws once, before all of them
LABELS, OWN = 0, 1  # in place of the phase there: its randomised labels, and what its algorithm keeps
WORDS = 4  # of 64 bits in a block of Philox
AT_ONCE = 1 << 15  # words
EFFORT = 1 << 6  # how many numbers can be read in the time of drawing one normal number
LEAST = 2.0**-960  # no standard deviation is smaller, so that its grid is within the range of doubles


class Noise(Protocol):
    """A source of noise: which Gaussian event it can honour, and how it does."""

    mode: ClassVar[str]
    kind: ClassVar[type[Gaussian] | type[DiscreteGaussian]]

    def gaussian(self, x: Floats, sensitivity: Floats, ratio: Floats, ids: Ints, call: Call) -> Floats:
        """Add N(0, (ratio sensitivity)^2 I) to x (..., P, d); sensitivity and ratio are (P,)."""
        ...

    def shares(self, shape: tuple[int, ...], scale: float, ids: Ints, call: Call) -> Ints:
        """Draw whole numbers of shape (..., P, d): the parties' shares of a sum's noise, `scale` steps of its grid."""
        ...

    def gamma(self, x: Floats, width: Floats, ids: Ints, call: Call) -> Floats:
        """Add noise of density proportional to exp(-|u|/width): |u| ~ Gamma(d, width), any direction."""
        ...

    def grid(self, scale: Floats) -> Floats:
        """The largest step of a grid on which Gaussian noise of this scale may lie; 0 if it is continuous."""
        ...

    def uniform(self, bound: float, shape: tuple[int, ...], ids: Ints, number: int = 0) -> Floats:
        """Draw numbers in (-bound, bound), shape (..., P, d), once for a party; `number` tells such draws apart."""
        ...

    def flips(self, epsilon: float, count: int, party: int) -> NDArray[np.bool_]:
        """Choose the labels that a party reports wrongly: each with probability 1/(1 + e^epsilon)."""
        ...


class Once(ABC):
    """Draws that are made once and kept, from uniform words of 64 bits: no rounding makes a probability smaller."""

    @abstractmethod
    def words(self, ids: Ints, call: Call, replica: int, width: int) -> Words:
        """Uniform words, (P, width): one row for each party."""
        ...

    def uniform(self, bound: float, shape: tuple[int, ...], ids: Ints, number: int = 0) -> Floats:
        check_positive(bound=bound)
        out = np.empty(shape)
        for replica, rows in enumerate(out.reshape(-1, *shape[-2:])):
            rows[:] = bound * (2 * fractions(self.words(ids, (ONCE, OWN, number), replica, shape[-1])) - 1)
        return out

    def flips(self, epsilon: float, count: int, party: int) -> NDArray[np.bool_]:
        words = self.words(np.array([party]), (ONCE, LABELS, 0), 0, count)
        return np.asarray(words[0] < flip_threshold(epsilon))


def fractions(words: Words) -> Floats:
    """Numbers strictly between 0 and 1, evenly spread and symmetric about 1/2, from the upper 52 bits of each word."""
    return np.asarray(((words >> np.uint64(12)) + 0.5) * 2.0**-52)


def consecutive(ids: Ints) -> list[tuple[int, int]]:
    """Cut into runs of consecutive numbers: the first number of each, and how many there are."""
    cuts = [0, *(np.flatnonzero(np.diff(ids) != 1) + 1).tolist(), len(ids)]
    return [(int(ids[start]), stop - start) for start, stop in pairwise(cuts) if stop > start]


def flip_threshold(epsilon: float) -> np.uint64:
    """The words below it are 2^64/(1 + e^epsilon) of them, and one more: a flip is never rarer than it must be."""
    check_positive(epsilon=epsilon)
    with localcontext(prec=60):
        return np.uint64(int(2**64 / (1 + Decimal(min(epsilon, 100.0)).exp())) + 1)  # beyond 100 it is 1


class Simulation(Once):
    """Philox words at an address: seed, phase and release are the key; replica, round, width, party, coordinate count.

    So a draw depends on nothing else, and parties with consecutive numbers draw theirs in one call. A normal takes one
    word, through the inverse of its distribution function.

    Two jobs with one seed draw the same noise. That is what makes methods comparable in a study, and one more reason
    why nothing that was simulated may be published.
    """

    mode: ClassVar[str] = "simulation"
    kind: ClassVar[type[Gaussian] | type[DiscreteGaussian]] = Gaussian

    def __init__(self, seed: int, threads: int | None = None) -> None:
        """`threads` may draw at a time; None: as many as this machine has cores. They change no bit."""
        if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**64:
            raise ConfigError(f"seed must be a whole number from 0 to 2^64 - 1 in a simulation, not {seed!r}")
        self.seed, self.threads = int(seed), threads
        self._philox = np.random.Philox(key=0)
        self._state: Any = self._philox.state

    def words(self, ids: Ints, call: Call, replica: int, width: int) -> Words:
        return np.asarray(self._drawn(consecutive(ids), call, range(replica, replica + 1), width)[0])

    def _drawn(self, runs: Sequence[tuple[int, int]], call: Call, replicas: Sequence[int], width: int) -> Words:
        """Words (R, P, width) of these replicas of parties with consecutive numbers, given as first number and count.

        Parties begin at whole blocks, so the words that a party draws beyond its width are left out.
        """
        blocks = -(-width // WORDS)  # of a party
        parts = list[Words]()
        for replica in replicas:
            for first, count in runs:
                self._seek(first * blocks, call, replica, width)
                parts.append(self._philox.random_raw(count * blocks * WORDS))
        drawn = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return drawn.reshape(len(replicas), -1, blocks * WORDS)[..., :width]

    def _seek(self, block: int, call: Call, replica: int, width: int) -> None:
        """Go to a block of four words. Its number has 96 bits, and none that follows it reaches the bits above them."""
        t, phase, number = call
        if number >> 32 or width >> 32:
            raise OverflowError("a release has no such number, or no such width")
        low, high = block & (2**64 - 1), block >> 64
        self._state["state"]["counter"][:] = (low, width << 32 | high, t, replica)
        self._state["state"]["key"][:] = (self.seed, phase << 32 | number)
        self._state["buffer_pos"] = WORDS
        self._philox.state = self._state

    def normal(self, shape: tuple[int, ...], ids: Ints, call: Call) -> Floats:
        """Draw standard normal numbers of shape (..., P, d)."""
        from scipy.special import ndtri

        out, (P, width) = np.empty(shape), shape[-2:]
        rows, threads = out.reshape(-1, P, width), hands(self.threads, EFFORT * out.size)
        # Parties and replicas whose words stay in the processor's cache.
        many = max(1, min(P, AT_ONCE // width))
        several = max(1, AT_ONCE // (many * width))

        def fill(first: int, start: int) -> None:
            part = rows[first : first + several, start : start + many]
            source = self if threads == 1 else Simulation(self.seed)  # each thread has a place of its own
            runs, replicas = consecutive(ids[start : start + many]), range(first, first + len(part))
            ndtri(fractions(source._drawn(runs, call, replicas, width)), out=part)

        places = [(first, start) for first in range(0, len(rows), several) for start in range(0, P, many)]
        spread(lambda place: fill(*place), places, threads)
        return out

    def shares(self, shape: tuple[int, ...], scale: float, ids: Ints, call: Call) -> Ints:
        return np.rint(scale * self.normal(shape, ids, call)).astype(np.int64)

    def gamma(self, x: Floats, width: Floats, ids: Ints, call: Call) -> Floats:
        from scipy.special import gammaincinv, ndtr

        d = x.shape[-1]
        drawn = self.normal((*x.shape[:-1], d + 1), ids, call)  # a direction, and a quantile of its length
        u = drawn[..., :d] / np.linalg.norm(drawn[..., :d], axis=-1, keepdims=True)
        length = gammaincinv(d, ndtr(drawn[..., d:]))
        return np.asarray(x + width[:, None] * length * u)

    def grid(self, scale: Floats) -> Floats:
        return np.zeros_like(scale)

    def gaussian(self, x: Floats, sensitivity: Floats, ratio: Floats, ids: Ints, call: Call) -> Floats:
        noise = self.normal(x.shape, ids, call)
        noise *= (sensitivity * ratio)[:, None]
        noise += x
        return noise


class Deployment(Once):
    """Discrete Gaussian noise through OpenDP (extra `deploy`), on a grid that follows the scale.

    The accountant relies on two facts of every release of d numbers, whatever its sensitivity: the standard deviation
    is at least ratio times the sensitivity of the query rounded to the grid, and at least STEPS sqrt(d) steps of it.
    What is drawn once needs no more than fair bits, which the operating system gives.
    """

    mode: ClassVar[str] = "deployment"
    kind: ClassVar[type[Gaussian] | type[DiscreteGaussian]] = DiscreteGaussian

    def __init__(self) -> None:
        try:
            import opendp.domains
            import opendp.measurements
            import opendp.metrics
            import opendp.mod
        except ImportError as error:
            raise ConfigError(
                "a deployment draws its noise with OpenDP, which is not installed: pip install 'privadmm[deploy]'"
            ) from error
        opendp.mod.enable_features("contrib")
        self._opendp = opendp

    def words(self, ids: Ints, call: Call, replica: int, width: int) -> Words:
        return np.frombuffer(secrets.token_bytes(8 * len(ids) * width), dtype=np.uint64).reshape(-1, width)

    def gaussian(self, x: Floats, sensitivity: Floats, ratio: Floats, ids: Ints, call: Call) -> Floats:
        out = np.empty_like(x)
        for index in np.ndindex(x.shape[:-1]):
            measurement = self.measurement(x.shape[-1], float(sensitivity[index[-1]]), float(ratio[index[-1]]))
            out[index] = measurement(x[index].tolist())
        return out

    def shares(self, shape: tuple[int, ...], scale: float, ids: Ints, call: Call) -> Ints:
        dp, noise = self._opendp, np.empty(shape, dtype=np.int64)
        space = dp.domains.vector_domain(dp.domains.atom_domain(T="i64"), size=shape[-1])
        draw = dp.measurements.make_gaussian(space, dp.metrics.l2_distance(T=float), scale)
        for row in noise.reshape(-1, shape[-1]):
            row[:] = draw([0] * shape[-1])
        return noise

    def gamma(self, x: Floats, width: Floats, ids: Ints, call: Call) -> Floats:
        raise RefusedError("gamma-norm noise is for simulations only; a deployment calibrates Gaussian noise")

    def grid(self, scale: Floats) -> Floats:
        # The largest power of two that is not above the scale, exactly: a logarithm could round up.
        _, exponent = np.frexp(np.maximum(scale, LEAST))
        return np.asarray(np.ldexp(1.0, exponent - 1) / STEPS)

    def measurement(self, size: int, sensitivity: float, ratio: float) -> Any:
        """OpenDP's measurement: rounds `size` numbers to the grid and adds the noise. Its `map` gives its own zCDP."""
        check_positive(sensitivity=sensitivity, ratio=ratio)
        whole = float(self.grid(np.array(ratio * sensitivity)))
        step = whole / 2 ** math.ceil((size - 1).bit_length() / 2)  # at most whole/sqrt(size)
        # Rounding the query to the grid can move it by half a step per coordinate, on either side. The last factor is
        # for the rounding of this line itself.
        scale = max(ratio * (sensitivity + step * math.sqrt(size)) * (1 + 2.0**-50), LEAST)
        check_positive(**{"ratio times sensitivity": scale})
        dp = self._opendp
        return dp.measurements.make_gaussian(
            dp.domains.vector_domain(dp.domains.atom_domain(T=float, nan=False), size=size),
            dp.metrics.l2_distance(T=float),
            scale,
            k=math.frexp(step)[1] - 1,
        )
