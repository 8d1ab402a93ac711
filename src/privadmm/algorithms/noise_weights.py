"""How much a release weighs in the model, and hence how much noise it is best given, or how much its party counts.

*Over rounds.* To first order the model is sum_t a_t g_t of the released gradients, a_t >= 0, and a record's gradients
may all point the same way: it then moves that sum by Delta sum_t a_t. So whatever combinations of the g_t are
released, with noise that is independent or correlated over rounds, a transcript of Gaussian worth mu leaves an unbiased
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

import numpy as np

from privadmm.data.arrays import Floats, Ints

# Between levels of noise: few of them are easier to read and to count, and half a percent is lost.
STEP = 2**0.25


@lru_cache(maxsize=256)
def profile(rounds: int, beta: float, average: int) -> tuple[float, ...]:
    """(1): every round's noise relative to that of rounds alike at the same mu: the mean of 1/s^2 is 1, or a hair less.

    For heavy ball, and a model that is the mean of the last `average` iterates. A step is forgotten as later ones
    correct it: by 1/e over the whole run.
    """
    ages = np.arange(rounds)
    # Of a gradient on the iterate so many rounds later.
    pull = (1 - beta ** (ages + 1)) * np.exp(-ages / rounds)
    last = range(rounds - average, rounds)
    a = np.array([sum(pull[end - t] for end in last if end >= t) / average for t in range(rounds)])
    s = STEP ** np.round(np.log(a / a.max()) / math.log(STEP) / -2)
    return tuple((s * math.sqrt(np.mean(s**-2.0)) * (1 + 1e-12)).tolist())


def by_noise(sizes: Ints, even: Floats) -> Floats:
    """(2), of sizes and e as columns; they sum to 1."""
    w = sizes / (1 + even / sizes)
    return np.asarray(w / w.sum())
