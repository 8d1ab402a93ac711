"""PDML's Theorem 1: the bound on the generalisation error of averaged classifiers, term by term.

n parties, of degrees N_i on a graph of E edges, minimise J_i(w) = C omega_i/m_i sum loss + lambda/2 |w|^2 (the paper's
a kappa/n is lambda), with |eta_i|_inf <= R in the objective and noise of variance V_i^2 decay^(k-1) on round k's w_i.
With Sum = sum_i d V_i^2 and f = (e^eps + 1)/(e^eps - 1), 1 where labels are not randomised, printed (27) is

    C/(2t (1 - C)) (H1 + decay H2/(C - decay) Sum)                        Lemma 5                           (34)
    + n R^2/2                                                                                               (34)
    + beta/t H3  +  beta/t (S+^2/(2 S-^2) + S-) Sum/(1 - decay)           S- the largest eigenvalue of L-   (31)
    + R^2/(n kappa)                                                                                         (32)
    + 4 f sum_i c2 Rad_i  +  8 f sum_i c1 sqrt(2 ln(4/delta)/m_i)         probability 1 - delta             (28)

A ball |w| <= W is declared. Rad_i <= W/sqrt(m_i), as |x| <= 1; c1 is the largest loss in the ball, c2 = L;
H3 = |r(0)|^2 + |w(0) - w*|^2_(L+/2) = 2 E |w*|^2 <= 2 E W^2 from w(0) = 0; |w(0) - w*|^2 <= n W^2; and |r_opt|^2 <=
n g^2/(4 beta^2 q^2), g a bound on the gradient of J_i in the ball.

Corrected. (a) Of n parties' objectives in n variables the strong convexity is lambda and the smoothness c3 + lambda,
not n times that (Lemmas 1 and 3). (b) |eta|^2 is up to n d R^2, and (24) forgets the 1/n before eta. (c) The sum over k
of C^-k E|theta(k)|^2 is at most Sum/(C - decay), without the decay above. (d) (28) needs all n parties, and both signs,
at once: ln(8n/delta). (e) In (31) one ratio of eigenvalues has no dimension, and its neighbour has one. Written out,
(15) to (17) give

    grad J(w(k+1)) = -2 beta Q r(k+1) - beta L+ (wt(k+1) - wt(k)) + 2 beta D theta(k+1),   D the degrees

and, with convexity, Young's inequality for L+ and theta independent of the past, for every graph and beta

    E [J(wbar(t)) - J(w*)] <= beta/t [ H3 + Noise(t) ],    Noise(t) = sum_i N_i d sum_{k<=t} V_i(k)^2       (A)

Measured from the saddle point instead, the left side is at least lambda/2 times the mean |w(k) - w*|^2, so

    E |wbar(t) - w*|^2 <= 2 beta/(lambda t) [ |r_opt|^2 + H3 + Noise(t) ]                                   (B)

which stands for Lemma 5 and needs no condition such as (25):  (34) becomes  sqrt(d n) R/n sqrt((B)), and is 0 if R is.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from privadmm.data.arrays import Floats
from privadmm.papers.pdml.lemma import Chosen, Lemma5, Spectrum


@dataclass(frozen=True)
class Facts:
    """The arguments of (27): public facts and declared constants."""

    spectrum: Spectrum
    degrees: Floats
    sizes: Floats
    dim: int
    beta: float
    R: float
    weight: float  # lambda
    c1: Floats  # by party, with C omega_i
    c2: Floats
    c3: float
    slope: Floats  # g
    spread: float  # f
    radius: float  # W
    delta: float
    V2: Floats  # (rounds, n): the variances
    decay: float | None  # None: the noise does not decay geometrically

    @property
    def n(self) -> int:
        return len(self.sizes)

    @property
    def noise(self) -> float:
        """Sum"""
        return self.dim * float(self.V2[0].sum())

    @property
    def H3(self) -> float:  # noqa: N802
        return float(self.degrees.sum()) * self.radius**2

    @property
    def dual(self) -> float:
        """The bound on |r_opt|^2."""
        return float(np.sum(self.slope**2)) / (4 * self.beta**2 * self.spectrum.q2)

    @cached_property
    def lemma(self) -> Lemma5:
        """Lemma 5 with the paper's constants: n times those of one party."""
        n = self.n
        return Lemma5(self.spectrum, n * self.weight, n * (self.c3 + self.weight), n * self.radius**2, self.dual)

    @cached_property
    def chosen(self) -> Chosen | None:
        if self.decay is None or not 0 < self.decay < 1 or not self.lemma.feasible:
            return None
        return self.lemma.best(self.beta, self.decay, self.noise)

    @property
    def statement(self) -> str:
        """Say whether Lemma 5, and with it the printed (27), applies to this run."""
        s, lemma = self.spectrum, self.lemma
        if not lemma.feasible:
            return (
                f"(25) cannot be satisfied on this graph: 1 + phi is at most {1 + lemma.phi_max:.6g}, whatever b and "
                f"lambda1 are, and has to exceed (sigma_max/sigma_min)^2 of L+, {s.ratio:.6g}"
            )
        if self.decay is None or not 0 < self.decay < 1:
            return "(25) can be satisfied, but Theorem 1 needs noise that decays: set [privacy] decay below 1"
        if self.chosen is None:
            low, high = lemma.betas
            room = f"above {low:.4g}" + ("" if high == math.inf else f" and below {high:.4g}")
            return (
                f"(25) can be satisfied, but no parameters of Lemma 5 give this beta, {self.beta:g}, and C above the "
                f"decay {self.decay:g}: it needs a beta {room}"
            )
        return f"Lemma 5 applies, with C = {self.chosen.C:.6g}"

    def published(self, t: int) -> dict[str, float | None]:
        """The terms of (27) as printed; None where a condition fails."""
        s, decay, lemma, through = self.spectrum, self.decay, None, None
        if (chosen := self.chosen) is not None and decay is not None:
            late = decay * chosen.H2 / (chosen.C - decay) * self.noise
            lemma = chosen.C / (2 * t * (1 - chosen.C)) * (chosen.H1 + late)
        if decay is not None and decay < 1:
            ratio = s.plus_max**2 / (2 * s.minus_max**2) + s.minus_max
            through = self.beta / t * ratio * self.noise / (1 - decay)
        return {
            "lemma": lemma,
            "eta": self.n * self.R**2 / 2,
            "start": self.beta / t * self.H3,
            "noise": through,
            "optimum": self.R**2 / (self.n * self.lemma.kappa),
            **self.sample(math.log(4 / self.delta)),
        }

    def corrected(self, t: int) -> dict[str, float | None]:
        """The terms by (A) and (B), for any graph."""
        n, noise = self.n, self.dim * float((self.V2[:t] @ self.degrees).sum())
        apart = 2 * self.beta / (self.weight * t) * (self.dual + self.H3 + noise)
        return {
            "lemma": math.sqrt(self.dim / n) * self.R * math.sqrt(apart),
            "eta": 0.0,
            "start": self.beta / t * self.H3,
            "noise": self.beta / t * noise,
            "optimum": self.dim * self.R**2 / (n * self.weight),
            **self.sample(math.log(8 * n / self.delta)),
        }

    def sample(self, log: float) -> dict[str, float | None]:
        """(28)"""
        return {
            "rademacher": 4 * self.spread * float(np.sum(self.c2 * (self.radius / np.sqrt(self.sizes)))),
            "confidence": 8 * self.spread * float(np.sum(self.c1 * np.sqrt(2 * log / self.sizes))),
        }


TERMS = {
    "lemma": ("noise on the iterates, through the objective's own noise", "(34)"),
    "eta": ("noise in the objective", "(34)"),
    "start": ("distance of the start from the optimum", "(31)"),
    "noise": ("noise on the iterates", "(31)"),
    "optimum": ("how far noise in the objective moves the optimum", "(32)"),
    "rademacher": ("finitely many records, by the ball's Rademacher complexity", "(28)"),
    "confidence": ("finitely many records, by the largest loss", "(28)"),
}
SAMPLE = ("rademacher", "confidence")  # the other terms bound the error in the parties' own objective
