"""What a budget can buy, estimated from public facts alone, and the method to spend it on.

Write c = |mean of (y - mean y) phi| for how much the labels say about features phi of norm <= 1: 1 is the most that
any data can have. At W = 0 the mean gradient is s c long in the direction that tells classes apart, s = |loss'(0)|. To
first order every method here sums T steps along released gradients. Their signal adds up as T, their noise as sqrt(T),
and the noise of each grows by sqrt(T) because they share one budget: the rounds cancel. What is left, in every
coordinate of the averaged gradient, is

    noise = sqrt(sum_i (omega_i Delta/(m_i mu_i))^2) / N      = Delta unit, unit = sqrt(sum_i 1/mu_i^2)/n       (1)
            in a secure sum that tolerates t who collude:       unit = sqrt(N/(N - t)) max_i 1/mu_i / n

with Delta = 2 L, mu_i the GDP parameter of what party i spends on gradients, and omega_i its weight. A record has norm
at most 1, so the noise moves its score by `noise` (standard deviation) however many features there are; the signal
moves it by s c^2, up for one class and down for the other. So

    noise-to-signal = noise / (s c^2)       half-logistic: 2 unit/c^2       logistic: 4 unit/c^2                  (2)

and the noise alone, before the data's own spread, leaves classes 2/(noise-to-signal) standard deviations apart. c is
the data's secret. SIGNAL stands for it, about the median of nine public data sets: c is 0.09 to 0.28 there once they
are centred and scaled, and less by the factor CENTRED as they stand. docs/recommend.md has them, and what was measured
on each side of THIN and TOO_SMALL. This is an estimate, and it is not an accuracy. To give people an idea, points of
accuracy that the recommended method lost at the same noise on Adult stand beside it (`Expected.on_adult`).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from privadmm.algorithms.evaluated import Evaluated
from privadmm.algorithms.moments import Centred
from privadmm.algorithms.noise_weights import averaged_noise
from privadmm.data.schema import Encoding
from privadmm.engine.job import Job
from privadmm.errors import ConfigError
from privadmm.optim.losses import Debiased
from privadmm.params import check_positive, check_probability, check_whole
from privadmm.privacy import events
from privadmm.privacy.accounting import epsilon as cost
from privadmm.privacy.accounting import totals
from privadmm.privacy.calibration import Target, gdp_parameter
from privadmm.privacy.events import Event, Gaussian, Spent
from privadmm.privacy.meaning import large_delta, large_epsilon
from privadmm.privacy.sums import SecureSum
from privadmm.runs.accuracy_lost import Lost, curve
from privadmm.runs.charges import held_out_by

Verdict = Literal["good", "thin", "too small"]
LEAST = 1e-6  # of a signal: with less there is nothing to find
SIGNAL, CENTRED = 1 / 6, 1.3  # c of a middling data set with moments, and over that without
THIN, TOO_SMALL = 0.25, 2.0  # noise-to-signal from which on a part is lost, and from which on nearly all is
METHOD, ROUNDS = "first_order_consensus", 40
SHARE = 0.1  # of the budget, for the moments, which take one more round
FINE = 5e-3  # unit below which ten bins for a number are worth their noise (docs/recommend.md)
HELD_OUT = 0.2  # of the records, to measure accuracy by, in a config that `init` writes
LEAST_PARTIES = 3  # of two, one may collude, and the other has all of the noise to add
GRID = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


@dataclass(frozen=True)
class Facts:
    """Public facts. `dims` is the number of encoded features, by encoding, where that is known."""

    records: int  # all that the parties hold
    epsilons: tuple[float, ...]  # one for each party
    delta: float
    dims: Mapping[Encoding, int] = field(default_factory=dict)
    sum: SecureSum | None = None  # how messages are summed securely; None: each has noise of its own
    held_out: int = 0  # of the records, those that are not trained on

    def __post_init__(self) -> None:
        check_whole(records=self.records, parties=len(self.epsilons))
        check_probability(delta=self.delta)
        for value in self.epsilons:
            check_positive(epsilon=value)
        if self.trained < self.parties:
            raise ConfigError(
                f"{self.trained} records to train on are fewer than {self.parties} parties; each needs one"
            )
        if self.sum is not None:
            self.sum.check(self.parties)

    @property
    def parties(self) -> int:
        return len(self.epsilons)

    @property
    def trained(self) -> int:
        """How many of the records are trained on."""
        return self.records - self.held_out

    @property
    def unit(self) -> float:
        """The noise of an averaged release of unit sensitivity."""
        return self.noise(self.sum)

    def noise(self, sum: SecureSum | None) -> float:
        """The noise of such a release if messages were summed like this."""
        each = [1 / gdp_parameter(value, self.delta) for value in self.epsilons]
        if sum is None:
            return math.hypot(*each) / self.trained
        honest = self.parties - sum.tolerated(self.parties)
        return math.sqrt(self.parties / honest) * max(each) / self.trained

    @property
    def instead(self) -> SecureSum | None:
        """The secure sum that would have less noise; None where there is one, or too few parties to gain by it."""
        return SecureSum() if self.sum is None and self.parties >= LEAST_PARTIES else None


@dataclass(frozen=True)
class Expected:
    """The estimate (2), and what it means."""

    noise_to_signal: float
    signal: float = SIGNAL

    @property
    def verdict(self) -> Verdict:
        return "too small" if self.noise_to_signal >= TOO_SMALL else "thin" if self.noise_to_signal >= THIN else "good"

    @property
    def meaning(self) -> str:
        return {
            "good": "most of what the data can tell should get through",
            "thin": "a part of what the data can tell is lost; where classes are unequal it may be all, and always "
            "the larger one as good",
            "too small": "do not expect to beat a constant, unless the data are far easier than most",
        }[self.verdict]

    @property
    def on_adult(self) -> Lost:
        """What the recommended method lost on Adult at the same noise, whatever the signal here."""
        return curve().at(self.noise_to_signal, self.signal)

    @property
    def table(self) -> dict[str, Any]:
        return {"noise_to_signal": self.noise_to_signal, "signal": self.signal, "verdict": self.verdict}

    @property
    def beside_adult(self) -> dict[str, Any]:
        """The table of an estimate for the recommended method."""
        return {**self.table, "lost_on_adult": self.on_adult.table}


def expected(job: Job) -> Expected | None:
    """Estimate (2) for a job; None where it says nothing: no noise, no classes, parties that hold columns."""
    return job.public.once((job.algorithm, "expected"), lambda: judged(job))


def judged(job: Job) -> Expected | None:
    public, method = job.public, job.algorithm
    if isinstance(method, Evaluated):  # what an evaluation takes teaches the model nothing
        return expected(replace(job, algorithm=method.method, public=method.inside(public), leave={}))
    if not job.private or public.columns or not public.loss.classification:
        return None
    ahead = 1 if isinstance(method, Centred) else 0  # the moments tell nothing about labels
    rounds = {key: releases for key, releases in job.plan.items() if key[0] >= ahead}
    spent = totals(rounds, public.parties)
    squares = {party: mu_squared(party, public.dim + ahead) for party in set(spent)}
    mu = np.sqrt([squares[party] for party in spent])
    if not (mu > 0).all():
        return None
    omega = public.scale(public.ids)[:, 0] / public.C
    each = omega * public.sensitivity / (public.sizes * mu)
    whole = averaged_noise(public, each**2)
    noise = whole / public.parties  # (1)
    loss = public.loss.loss if isinstance(public.loss, Debiased) else public.loss  # equal in expectation
    slope = float(abs(loss.deriv(np.zeros(1), np.ones(1))[0]))
    c = SIGNAL if ahead else SIGNAL / CENTRED
    return Expected(noise / (slope * c**2))  # (2)


def mu_squared(spent: Spent, dim: int) -> float:
    """Sum of 1/z^2, z the noise in one coordinate over the sensitivity; nan if some event cannot be judged."""

    def of(event: Event) -> float:
        match event:
            case Gaussian() | events.DiscreteGaussian() | events.SharedGaussian() | events.GaussianObjective():
                return 1 / event.ratio**2
            case events.GammaObjective():  # a mean square of dim (dim + 1)/zeta^2, spread over dim coordinates
                return event.slope**2 / (dim + 1)
            case events.GammaOutput():
                return 1 / event.ratio**2 / (dim + 1)
        return math.nan

    return sum(count * of(event) for event, count in spent)


def warning(job: Job) -> str | None:
    """The warning before a job whose budget is too small; None if it is not, or cannot be judged."""
    estimate, target = expected(job), job.public.privacy
    if estimate is None or not isinstance(target, Target):
        return None
    asked = max(target.party_epsilon, default=target.epsilon or job.epsilon or 0.0)
    trained = int(job.public.sizes.sum()) - sum(held_out_by(job) or ())
    return too_small(estimate, trained, job.public.parties, asked, target.delta)


def warnings_of(job: Job, spends: Sequence[Spent] | None = None) -> list[str]:
    """All warnings before a job, from public facts; `spends` as in `Job.weak_promise`."""
    found = (warning(job), job.weak_promise(spends), job.weak_delta())
    return [problem for problem in found if problem is not None]


def expected_fields(job: Job) -> dict[str, Any] | None:
    """What a result and an account tell of `expected`, with the warning."""
    estimate = expected(job)
    return None if estimate is None else {**estimate.table, "warning": warning(job)}


def too_small(expected: Expected, records: int, parties: int, epsilon: float, delta: float) -> str | None:
    """The warning, if the budget is too small for this many records to train on."""
    if expected.verdict != "too small":
        return None
    short = expected.noise_to_signal / THIN
    more = f"{math.ceil(records * short)} records to train on"
    more_epsilon = needed(epsilon, delta, short) if delta else math.inf
    enough = f"{more}, or epsilon = {more_epsilon:.2g}," if more_epsilon <= GRID[-1] else more
    return (
        f"the budget is too small for these data: with {records} records to train on, {parties} "
        f"{'party' if parties == 1 else 'parties'} and epsilon = {epsilon:.4g} the noise is "
        f"{expected.noise_to_signal:.2g} times the signal that data usually have. {expected.meaning.capitalize()}. "
        f"{enough} would bring it down to {THIN:g} times (an estimate from public facts)"
    )


def needed(epsilon: float, delta: float, factor: float) -> float:
    """The epsilon whose GDP parameter mu is that of this one times the factor."""
    return cost(((Gaussian(1 / (gdp_parameter(epsilon, delta) * factor)), 1),), delta)


@dataclass(frozen=True)
class Recommendation:
    """The recommended method's settings, and the estimate (2) for it and for alternatives."""

    facts: Facts
    encoding: Encoding
    expected: Expected
    methods: tuple[tuple[str, Expected], ...]
    secure: Expected | None = None  # with `facts.instead`
    own: Expected | None = None  # where there is a secure sum: if each party had noise of its own
    rounds: int = ROUNDS + 1

    @property
    def dim(self) -> int | None:
        return self.facts.dims.get(self.encoding)

    @property
    def warning(self) -> str | None:
        facts = self.facts
        return too_small(self.expected, facts.trained, facts.parties, max(facts.epsilons), facts.delta)

    @property
    def gain(self) -> dict[str, Any] | None:
        """What a secure sum would gain, where there is none and could be one."""
        if self.secure is None or self.facts.instead is None:
            return None
        less = self.expected.noise_to_signal / self.secure.noise_to_signal
        colluding = self.facts.instead.tolerated(self.facts.parties)
        return {"colluding": colluding, "times_less_noise": less, **self.secure.beside_adult}

    @property
    def table(self) -> dict[str, Any]:
        facts = self.facts
        return {
            "records": facts.records,
            "trained_on": facts.trained,
            "delta": facts.delta,
            "parties": facts.parties,
            "epsilon": max(facts.epsilons),
            "unit": facts.unit,
            "sum": "local" if facts.sum is None else "secure",
            "colluding": None if facts.sum is None else facts.sum.tolerated(facts.parties),
            "method": METHOD,
            "rounds": self.rounds,
            "moments_share": SHARE,
            "loss": "half_logistic",
            "encoding": self.encoding,
            "dim": self.dim,
            "expected": self.expected.beside_adult,
            "methods": [{"method": name, **row_of(name, expected)} for name, expected in self.methods],
            "with_secure_sum": self.gain,
            "with_own_noise": None if self.own is None else self.own.beside_adult,
            "warning": self.warning,
            "epsilon_warning": large_epsilon(max(facts.epsilons)),
            "delta_warning": large_delta(facts.delta, facts.records),
        }


def row_of(name: str, expected: Expected) -> dict[str, Any]:
    """The estimate for a line of `methods`. Only the recommended method was measured on Adult."""
    return expected.beside_adult if name.startswith("recommended") else expected.table


def recommend(facts: Facts, signal: float = SIGNAL) -> Recommendation:
    """Choose METHOD's settings for these facts. A number gets ten bins where noise is small, else five."""
    if not LEAST <= signal <= 1:
        raise ConfigError(
            f"signal must lie between {LEAST:g} and 1, which is all that any data can have; it is {signal!r}"
        )

    def ratio(unit: float, sensitivity: float = 1.0, c: float = signal) -> Expected:
        return Expected(2 * sensitivity * unit / c**2, signal)

    unit, own, rest = facts.unit, facts.noise(None), math.sqrt(1 - SHARE)
    most = max(gdp_parameter(value, facts.delta) for value in facts.epsilons)
    plain = signal / CENTRED
    secure = None if facts.instead is None else ratio(facts.noise(facts.instead) / rest)
    alone = None if facts.sum is None else ratio(own / rest)
    methods = (
        ("recommended: first_order_consensus, moments, half-logistic", ratio(unit / rest)),
        ("other methods, half-logistic, no moments", ratio(own, c=plain)),
        ("other methods, logistic, no moments", ratio(own, 2.0, plain)),
        ("recommended, one party alone", ratio(facts.parties / (facts.trained * most) / rest)),
        ("recommended, a trusted curator with all records", ratio(1 / (facts.trained * most) / rest)),
        *([] if secure is None else [("recommended, in secure sums", secure)]),
        *([] if alone is None else [("recommended, each party with noise of its own", alone)]),
    )
    encoding: Encoding = "binned" if unit < FINE else "coarse"
    return Recommendation(facts, encoding, methods[0][1], methods, secure, alone)


def frontier(facts: Facts, grid: Sequence[float] = GRID, signal: float = SIGNAL) -> dict[str, Any]:
    """Estimate (2) of the recommended method by epsilon, equal for all parties; the least epsilon for each verdict."""
    if not grid:
        raise ConfigError("a frontier needs an epsilon at least")
    lines: list[dict[str, Any]] = []
    for value in sorted(grid):
        advice = recommend(replace(facts, epsilons=(value,) * facts.parties), signal)
        gain = {} if advice.secure is None else {"with_secure_sum": advice.secure.beside_adult}
        lines.append({"epsilon": value, "encoding": advice.encoding, **advice.expected.beside_adult, **gain})

    def least(line: dict[str, Any]) -> dict[str, float]:
        limits = {"not too small": TOO_SMALL, "good": THIN}
        start, ratio = lines[0]["epsilon"], line["noise_to_signal"]
        return {word: needed(start, facts.delta, ratio / limit) for word, limit in limits.items()}

    secure = lines[0].get("with_secure_sum")
    return {
        "records": facts.records,
        "trained_on": facts.trained,
        "parties": facts.parties,
        "delta": facts.delta,
        "signal": signal,
        "sum": "local" if facts.sum is None else "secure",
        "lines": lines,
        "least_epsilon": least(lines[0]),
        **({} if secure is None else {"least_epsilon_with_secure_sum": least(secure)}),
    }
