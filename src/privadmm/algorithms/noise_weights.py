"""How much a release weighs in the model, and from that its best noise, and how much its party is to count.

*Over rounds.* To first order the model is sum_t a_t g_t of the released gradients, a_t >= 0, and a record's gradients
may all point the same way: it then moves that sum by Delta sum_t a_t. So whatever combinations of the g_t are
released, with noise that is independent or correlated over rounds, a transcript of GDP parameter mu leaves an unbiased
estimate of that sum a noise of Delta sum_t a_t/mu at least: of B(C G + Z) with B C = a it is |B| >= a.1/|C 1|.
Independent noise with a standard deviation in proportion to a_t^(-1/2) attains it, and leaves correlations no gain:

    s_t^2 = Delta^2 sum(a)/(mu^2 a_t):     sum_t Delta^2/s_t^2 = mu^2,    sum_t a_t^2 s_t^2 = (Delta sum(a)/mu)^2  (1)

*Over parties.* Of records alike at all parties, party i's mean misses the mean of all people by v/m_i (variance, of one
coordinate), the same in every round, and its noise over all rounds together adds (Delta Z_i/m_i)^2, Z_i being 1/mu_i.
The least noisy mean weighs by inverse variances,

    w_i ~ m_i / (1 + e_i/m_i),      e_i = (Delta Z_i)^2/v                                                       (2)

e_i being the number of records at which a party's noise is as large as its sampling error. With little noise this is
m_i, the pooled problem; with much it is (m_i/Z_i)^2. It is not the pooled problem where parties differ: then the model
is that of the mixture w, in which small and strict parties count less than their records. All of it is public.
"""

import math
from functools import lru_cache
from typing import Literal

import numpy as np

from privadmm.algorithms.method import Method, output_plan
from privadmm.data.arrays import Floats, Ints
from privadmm.engine.public import Public
from privadmm.privacy.accounting import Plan
from privadmm.privacy.calibration import NoPrivacy, scaled
from privadmm.privacy.events import WithRatio

# The factor between levels of noise. Few levels are easier to read and to count, and cost half a percent.
STEP = 2**0.25


@lru_cache(maxsize=256)
def profile(rounds: int, beta: float, average: int) -> tuple[float, ...]:
    """s_t of (1), relative to equal noise in all rounds at the same mu: the mean of 1/s^2 is 1, or a hair less.

    For heavy ball, and a model that is the mean of the last `average` iterates. Later steps correct an earlier one, so
    that its effect fades, by 1/e over the whole run.
    """
    ages = np.arange(rounds)
    # How much a gradient still counts in an iterate, by the rounds since.
    pull = (1 - beta ** (ages + 1)) * np.exp(-ages / rounds)
    last = range(rounds - average, rounds)
    a = np.array([sum(pull[end - t] for end in last if end >= t) / average for t in range(rounds)])
    s = STEP ** np.round(np.log(a / a.max()) / math.log(STEP) / -2)
    return tuple((s * math.sqrt(np.mean(s**-2.0)) * (1 + 1e-12)).tolist())


def by_noise(sizes: Ints, even: Floats) -> Floats:
    """The weights (2), which sum to 1, from columns of sizes and of e."""
    w = sizes / (1 + even / sizes)
    return np.asarray(w / w.sum())


def averaged_noise(public: Public, variances: Floats) -> float:
    """The noise of a mean, from the variance of each party's part. In a secure sum the largest one decides for all."""
    if public.privacy.sum is None:
        return math.sqrt(float(np.sum(variances)))
    honest = public.parties - public.privacy.sum.tolerated(public.parties)
    return math.sqrt(float(np.max(variances)) * public.parties / honest)


class NoiseWeighted(Method):
    """A method of one noisy gradient a round, whose noise may follow (1) and whose parties may count by (2)."""

    beta: float
    average: float  # the share of the rounds, the last ones, that the model averages
    schedule: Literal["weight", "even"]
    weights: Literal["records", "noise"]

    def averaged(self, public: Public) -> int:
        """The number of last iterates whose mean is the model."""
        return max(1, round(self.average * public.rounds))

    def planned(self, public: Public) -> Plan:
        """The noise of every round by its weight, unless the target says otherwise; each party's mu is the same."""
        even, target = output_plan(public), public.privacy
        if self.schedule == "even" or isinstance(target, NoPrivacy) or target.profile or target.decay != 1:
            return even
        levels = profile(public.rounds, self.beta, self.averaged(public))
        (row,) = even[(0, 0)]
        spread = {level: (tuple(scaled(event, level) for event in row),) for level in set(levels)}
        return {(t, 0): spread[level] for t, level in enumerate(levels)}

    def ratios(self, public: Public, t: int) -> Floats:
        """z of every party in round t."""
        (events,) = self.plan(public)[(t, 0)]
        return np.array([event.ratio for event in events if isinstance(event, WithRatio)])

    def spent(self, public: Public) -> Floats:
        """mu_i^2 of every party."""
        return np.asarray(sum(self.ratios(public, t) ** -2.0 for t in range(public.rounds)))

    def unit(self, public: Public) -> float:
        """The noise of an averaged release of unit sensitivity: (1) of first_order_consensus.py."""
        share = self.shares(public, public.ids, self.even(public))[:, 0]
        return averaged_noise(public, (share / public.sizes) ** 2 / self.spent(public))

    def even(self, public: Public) -> Floats:
        """The records at which a party's noise is as large as the sampling error of its gradient, a column.

        A gradient has norm <= L: each coordinate has a variance of L^2/d, if all have the same; and Delta = 2 L.
        """
        if isinstance(public.privacy, NoPrivacy):
            return np.zeros((public.parties, 1))
        return 4 * public.dim / self.spent(public)[:, None]

    def shares(self, public: Public, here: Ints, even: Floats) -> Floats:
        """How much each of these parties counts in a mean of what they released, a column that sums to 1."""
        return public.omega(here) / len(here) if self.weights == "records" else by_noise(public.sizes[here, None], even)

    def factors(self, public: Public, here: Ints) -> Floats:
        """Factors of the releases (3) that make the mean of those `here` weigh parties by `shares`, not by omega_i."""
        omega = public.scale(here) / public.C
        share = self.shares(public, here, self.even(public)[here])
        return np.asarray(len(here) * share * omega.mean() / omega)
