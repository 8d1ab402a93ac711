"""Noise that parties share: the exact law of small sums against the certificate, and bounds that are too small."""

import math

import numpy as np
import pytest

from privadmm.papers.counterexamples import shares
from privadmm.papers.counterexamples.shares import ONE, apart, exact, gaussian, sum_of, tau, tightest
from privadmm.privacy import accounting
from privadmm.privacy.events import STEPS, WIDEST

SMALL = [(2, 1.0), (2, 2.0), (3, 1.5), (10, 1.0), (10, 3.0), (100, 1.0)]


@pytest.mark.parametrize(("n", "s"), [(2, 0.4), (3, 1.0), (5, 2.5), (7, 1.0)])
def test_the_law_is_that_of_shares_added_one_by_one(n: int, s: float) -> None:
    one = np.array(gaussian(s), dtype=float) / ONE
    slow = one
    for _ in range(n - 1):
        slow = np.convolve(slow, one)
    law = np.array(sum_of(n, s), dtype=float) / ONE
    middle, reach = len(slow) // 2, len(law) // 2
    assert np.abs(slow[middle - reach : middle + reach + 1] - law).max() < 1e-15
    assert law.sum() == pytest.approx(1, abs=1e-15)


def test_one_share_is_the_discrete_gaussian() -> None:
    assert sum_of(1, 2.0) == gaussian(2.0)
    law = gaussian(2.0)
    assert law[len(law) // 2 + 3] / law[len(law) // 2] == pytest.approx(math.exp(-9 / 8), rel=1e-15)
    assert exact(law, (0, 0), 0.0) == 0
    assert exact(law, (1,), 0.0) == pytest.approx(law[len(law) // 2] / ONE, rel=1e-15)  # the mode, of one step


@pytest.mark.parametrize(("n", "s"), [*SMALL, (3, 0.5), (10, 0.5)])
def test_the_certificate_covers_the_exact_delta(n: int, s: float) -> None:
    assert 0.5 < tightest(n, s, tau(n, s)).ratio <= 1


@pytest.mark.parametrize(("n", "s"), [(2, 1.0), (2, 2.0), (3, 1.0)])
def test_it_covers_two_numbers_at_once(n: int, s: float) -> None:
    assert 0.5 < tightest(n, s, tau(n, s), numbers=2).ratio <= 1


@pytest.mark.parametrize(("n", "s", "over"), [(3, 0.35, 1.1), (10, 0.3, 2.5), (10, 0.5, 1.02), (100, 0.3, 15.0)])
def test_without_tau_it_does_not_where_the_grid_is_coarse(n: int, s: float, over: float) -> None:
    """The planted bound: a sum of shares taken for a discrete Gaussian."""
    assert tightest(n, s, 0.0).ratio > over
    assert tightest(n, s, tau(n, s)).ratio <= 1


@pytest.mark.parametrize(("n", "s"), SMALL)
def test_from_a_scale_of_one_on_tau_hardly_counts(n: int, s: float) -> None:
    assert tau(n, s) < 2.2e-4
    assert tightest(n, s, 0.0).ratio <= 1


def test_shares_of_those_who_collude_must_not_be_counted() -> None:
    """The planted fault: noise of ten parties is counted, and three of them know and subtract theirs."""
    assert tightest(10, 1.0, tau(10, 1.0), noisy=7).ratio > 1.3


@pytest.mark.parametrize(
    ("n", "s"), [(2, 0.5), (2, 1.0), (2, 1.5), (3, 0.5), (3, 1.0), (10, 0.5), (10, 1.0), (100, 0.5)]
)
def test_tau_is_how_far_the_law_is_from_one_discrete_gaussian(n: int, s: float) -> None:
    far = apart(n, s)
    assert 0 < far <= tau(n, s)
    assert n > 2 or far > 0.4 * tau(n, s)  # of two shares the bound is within a factor that the proof knows


def test_a_tau_of_other_widths_would_not_cover_it() -> None:
    """The planted bound: Q without h/(h + 1), as if every share were added to a law of infinite width."""
    assert 2 * 2 * math.exp(-2 * math.pi**2) < apart(2, 1.0) / 1000


def test_a_job_s_shares_are_so_wide_that_tau_is_nothing() -> None:
    """At STEPS its logarithm is below -10^24: the accountant's slack has room for a billion parties."""
    logarithm = -(math.pi**2) * STEPS**2 + math.log(4e9 * WIDEST)
    assert logarithm < -1e24
    assert tau(1000, STEPS) == 0.0
    assert accounting.WIDE > 1e-20


def test_far_from_the_middle_the_exact_delta_is_still_exact() -> None:
    """By hand: of two fair coins moved by one step."""
    law = [ONE // 4, ONE // 2, ONE // 4]
    assert exact(law, (1,), 0.0) == 0.5
    assert exact(law, (1,), math.log(1.5)) == pytest.approx(0.25 + 0.125)
    assert shares.certified(2, 1.0, (1,), 30.0, 0.0) == 1.0
