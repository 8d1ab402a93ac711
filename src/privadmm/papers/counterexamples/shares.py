"""Attack the proof of shared noise: the exact law of a sum of shares against what is certified of it.

n parties that do not collude each draw a share from the discrete Gaussian on the integers, of scale s. With P the law
of the sum of the shares of one number, and a query that moves by whole steps D_1, ..., D_d, exactly

    delta(eps) = sum over m of (P(m_1) ... P(m_d) - e^eps P(m_1 - D_1) ... P(m_d - D_d))_+                   (1)

Certified, with sigma = s sqrt(n) and mu = |D|/sigma (docs/privacy.md#secure-sums):

    delta(eps) = Phi(-eps/mu + mu/2) - e^eps Phi(-eps/mu - mu/2) + (1 + e^eps) d (1/(24 sigma^2) + tau)      (2)
    tau = sum_{h=1}^{n-1} 2 artanh(2 Q/(1 - Q^3)),   Q = exp(-2 pi^2 s^2 h/(h + 1))                          (3)

tau bounds |ln P - ln G|, where G is one discrete Gaussian of scale sigma. Here P and G are whole numbers of DIGITS
digits, multiplied as polynomials; the parts that are cut off or rounded have less than 1e-40 of their weight.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np

from privadmm.privacy import curves

DIGITS = 60
ONE = 10**DIGITS
WIDTH = 14  # standard deviations; beyond them lies less than 1e-42
SHARP = (0.25, 0.5, 1.0, 2.0)  # values of mu that are tried
Law = list[int]  # from -reach to reach, adding up to ONE except for rounding


def gaussian(scale: float, square: int = 1) -> Law:
    """The discrete Gaussian whose scale squared is square times this scale's."""
    reach = math.ceil(WIDTH * scale * math.sqrt(square)) + 3
    with localcontext(prec=DIGITS + 10):
        twice = 2 * square * Decimal(scale) ** 2
        weights = [(Decimal(-k * k) / twice).exp() for k in range(-reach, reach + 1)]
        total = sum(weights)
        return [int(weight / total * ONE) for weight in weights]


def sum_of(shares: int, scale: float) -> Law:
    """P, the law of the sum of this many shares of this scale, by repeated squaring."""
    share = gaussian(scale)
    law, count = share, 1
    for digit in bin(shares)[3:]:
        law, count = cut(times(law, law), 2 * count, scale), 2 * count
        if digit == "1":
            law, count = cut(times(law, share), count + 1, scale), count + 1
    return law


def times(a: Law, b: Law) -> Law:
    """The product of two polynomials, computed as a product of two long numbers with their coefficients as digits."""
    width = (max(a).bit_length() + max(b).bit_length() + len(a).bit_length()) // 8 + 1
    x, y = (int.from_bytes(b"".join(c.to_bytes(width, "little") for c in law), "little") for law in (a, b))
    product = (x * y).to_bytes(width * (len(a) + len(b)), "little")
    return [int.from_bytes(product[at * width : (at + 1) * width], "little") for at in range(len(a) + len(b) - 1)]


def cut(law: Law, shares: int, scale: float) -> Law:
    """A law of this many shares without its far tails, adding up to ONE again."""
    middle, reach = len(law) // 2, math.ceil(WIDTH * scale * math.sqrt(shares)) + 3
    law = law[max(0, middle - reach) : middle + reach + 1]
    total = sum(law)
    return [weight * ONE // total for weight in law]


def exact(law: Law, moves: Sequence[int], epsilon: float) -> float:
    """(1)"""
    pairs = [(1, 1)]
    for move in moves:
        pairs = [(p * a, q * b) for p, q in pairs for a, b in moved(law, move)]
    with localcontext(prec=DIGITS + 10):
        factor = int(Decimal(epsilon).exp() * ONE)
    more = sum(max(0, p * ONE - factor * q) for p, q in pairs)
    return float(Fraction(more, ONE * sum(p for p, _ in pairs)))


def moved(law: Law, move: int) -> Iterator[tuple[int, int]]:
    """P(m) and P(m - move)."""
    return ((weight, law[at - move] if 0 <= at - move < len(law) else 0) for at, weight in enumerate(law))


def tau(shares: int, scale: float) -> float:
    """(3); infinite where Q is too large for it."""
    total = 0.0
    for h in range(1, shares):
        Q = math.exp(-2 * math.pi**2 * scale**2 * h / (h + 1))
        inside = 2 * Q / (1 - Q**3)
        total += 2 * math.atanh(inside) if inside < 1 else math.inf
    return total


def certified(shares: int, scale: float, moves: Sequence[int], epsilon: float, apart: float) -> float:
    """(2) with `apart` in place of tau; no delta is above 1."""
    sigma = scale * math.sqrt(shares)
    eta = len(moves) * (curves.grid_distance(1, sigma) + apart)
    return min(1.0, curves.gdp_delta(math.hypot(*moves) / sigma, epsilon) + curves.slack(eta, epsilon))


@dataclass(frozen=True)
class Tightest:
    """Where the exact delta is the largest part of the certified one."""

    ratio: float
    moves: tuple[int, ...]
    epsilon: float
    exact: float
    certified: float


def tightest(shares: int, scale: float, apart: float, numbers: int = 1, noisy: int | None = None) -> Tightest:
    """Search over steps and epsilons; `noisy` is the real number of shares, if the bound counts on another one."""
    law, sigma, worst = sum_of(noisy or shares, scale), scale * math.sqrt(shares), Tightest(0.0, (), 0.0, 0.0, 0.0)
    for mu in SHARP:
        moves = (max(1, round(mu * sigma / math.sqrt(numbers))),) * numbers
        for epsilon in np.linspace(0, curves.tail(math.hypot(*moves) / sigma, 1e-6), 9).tolist():
            truth, bound = exact(law, moves, epsilon), certified(shares, scale, moves, epsilon, apart)
            if truth / bound > worst.ratio:
                worst = Tightest(truth / bound, moves, epsilon, truth, bound)
    return worst


def apart(shares: int, scale: float) -> float:
    """The largest |ln P - ln G| within six standard deviations, where both have 40 digits and more."""
    law, single = sum_of(shares, scale), gaussian(scale, shares)
    middle, reach = len(law) // 2, math.ceil(6 * scale * math.sqrt(shares))
    rows = zip(law[middle - reach : middle + reach + 1], single[len(single) // 2 - reach :], strict=False)
    return max(abs(math.log1p(Fraction(p - g, g))) for p, g in rows)
