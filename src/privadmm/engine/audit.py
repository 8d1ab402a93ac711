"""A distinguishing game on whole transcripts: what an attacker can prove, beside what is certified.

The adversary knows everything but which of two neighbouring data sets a party holds, sends the party whatever inbox it
likes, sees every release, and computes the exact likelihood ratio of the transcript. It plays many games on each data
set, all at once along the replica axis. The threshold is chosen on one half of the games and judged on the other, with
Clopper-Pearson limits, so that `epsilon_lower` is a bound at the stated confidence, and not an estimate.

Only the ratios of a plan matter to its guarantee, so the game is played on the smallest instance that is a worst case:
one party, one record, two features. The records p and q have a small equal part along the weights that the adversary
steers to, and opposite parts across. With both margins deep on the wrong side, both slopes are at the Lipschitz bound
and the query moves by nearly the whole sensitivity.

In a secure sum the game has all parties of the job: the adversary knows the shares of those who collude, and hears the
sum of the others. The victim is one of these, and the records of the rest are no secret.

Noise that enters an objective shows in its argmin f: the adversary knows the public part of the objective, so each data
set D says which noise G_D(f) must have been drawn, and f has density law(G_D(f)) times the determinant of the Hessian.

Negative controls are the same game against an implementation with a bug planted in it; they must be caught, that is,
`epsilon_lower` must exceed the claim.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from privadmm.data.arrays import Floats, Ints
from privadmm.data.shards import Shards
from privadmm.engine.attacks import steer
from privadmm.engine.party import Local
from privadmm.engine.phases import Algorithm, AtParties, Mapped, Wrapped, one_time_draws, vertical
from privadmm.engine.public import Public
from privadmm.engine.sums import planned_sums
from privadmm.errors import ConfigError
from privadmm.optim import graphs
from privadmm.privacy import curves
from privadmm.privacy.accounting import epsilon, totals
from privadmm.privacy.calibration import Target
from privadmm.privacy.events import GammaObjective, GammaOutput, Gaussian, SharedGaussian
from privadmm.privacy.mechanisms import Simulation
from privadmm.privacy.release import Door, Released, Sealed, ratios
from privadmm.privacy.sums import Summing, Sums, opened

DEPTH = 1e5  # how far the adversary steers the weights: every loss is at its steepest there, noise or not
ALONG = 0.05  # the records' common part
BATCH = 25_000  # games at a time
# Methods in which this game shows that a raw iterate was kept; the tests that replay transcripts show it in any.
RAW_SHOWS = frozenset({"dp_admm"})


class Bulk(Simulation):
    """Independent noise for every replica at once, `factor` times what is charged: for games, never for data."""

    def __init__(self, seed: Any, factor: float = 1.0) -> None:
        super().__init__(0)
        self._generator, self._factor = np.random.default_rng(seed), factor

    def gaussian(self, x: Floats, sensitivity: Floats, ratio: Floats, ids: Ints, call: Any) -> Floats:
        return x + self._factor * (sensitivity * ratio)[:, None] * self._generator.standard_normal(x.shape)

    def shares(self, shape: tuple[int, ...], scale: float, ids: Ints, call: Any) -> Ints:
        return np.rint(self._factor * scale * self._generator.standard_normal(shape)).astype(np.int64)

    def gamma(self, x: Floats, width: Floats, ids: Ints, call: Any) -> Floats:
        u = self._generator.standard_normal(x.shape)
        length = self._generator.gamma(x.shape[-1], size=(*x.shape[:-1], 1))
        u *= length / np.linalg.norm(u, axis=-1, keepdims=True)
        return x + self._factor * width[:, None] * u


class Overheard(Local):
    """A party that tells the door the public part of its objective."""

    def perturbed(self, release: Door, linear: Floats, k: Floats, *rest: Any, **more: Any) -> Released:
        assert isinstance(release, Listening)
        release.party, release.linear, release.k = self, linear, k
        return super().perturbed(release, linear, k, *rest, **more)


class Listening(Door):
    """A door that records what the adversary knows of a release. If `said` is set before, it repeats that release."""

    said: Released | Sealed | None = None
    query: Floats | None = None
    party: Local  # the block as its objective sees it: with mapped features, if there is a map
    linear: Floats
    k: Floats
    scale: float  # of the Gaussian, or 1/zeta of the gamma law

    def output(self, x: Floats, sensitivity: Floats | float) -> Released:
        if self.query is None and not self._calls:
            self.query, (event, *_) = x, self._planned_now().kinds
            self.law = type(event)
            self.scale = float((self._column(sensitivity) * ratios([event]))[0])
        if self.said is None:
            self.said = super().output(x, sensitivity)
        assert isinstance(self.said, Released)
        return self.said

    def summand(self, x: Floats, sensitivity: Floats | float) -> Released | Sealed:
        if self._summing is None:
            return super().summand(x, sensitivity)
        summing, self.law = self._summing, SharedGaussian
        self.query = x.sum(axis=-2, keepdims=True)
        share = summing.sums.share(summing.at, summing.present) * summing.sums.step
        self.scale = share * math.sqrt(len(self.ids))
        if self.said is None:
            self.said = super().summand(x, sensitivity)
        return self.said

    @property
    def heard(self) -> Floats:
        """The released values as the adversary reads them."""
        if isinstance(self.said, Sealed):
            assert self._summing is not None
            return opened(Sealed.words_of(self.said), len(self.ids), self._summing.sums.step)
        assert self.said is not None
        return self.said.value

    def objective(self, solve: Any, like: Floats, *args: Any, **declared: Any) -> Released:
        (event, *_) = self._planned_now().kinds
        self.law, loud = type(event), declared["sensitivity"]
        self.scale = loud / event.slope if isinstance(event, GammaObjective) else loud * float(ratios([event])[0])
        released = self.said or super().objective(solve, like, *args, **declared)
        assert isinstance(released, Released)
        return released

    def likelihood(self, factor: float) -> Floats:
        """Log-likelihood of the release under this data set, up to a term that is the same for all data sets."""
        f, bend = self.heard, np.zeros(())
        if self.query is not None:
            noise = f - self.query
        else:
            pulled = self.party.gradient(f) + self.linear + self.k * f
            noise, bend = pulled / self.party.weight, hessian(self.party, f, self.k)  # G_D(f), up to its sign
        size = np.linalg.norm(noise, axis=(-1, -2)) / (factor * self.scale)
        return np.asarray(bend - (size if self.law in (GammaObjective, GammaOutput) else size**2 / 2))


def hessian(local: Local, f: Floats, k: Floats) -> Floats:
    """ln det of the Hessian of a party with one record a, det(k I + h a a^T) = k^d (1 + h |a|^2/k), without k^d."""
    h = local.weight[0] * local.public.loss.curv(local.shards.margins(f), local.shards.y)
    return np.asarray(np.log1p(h * local.shards.kernel()[0, 0] / np.ravel(k)[0])[..., 0])


@dataclass(frozen=True)
class Game:
    """An implementation to attack: its algorithm, its public facts, and its planted bug if it has one."""

    algorithm: Algorithm
    public: Public
    claimed: float
    noise_factor: float = 1.0
    keeps_raw: bool = False

    def records(self, games: int) -> tuple[Local, Local]:
        """The two data sets: the victim's only record is p in the first, and q in the second."""
        public, across = replace(self.public, replicas=games), math.sqrt(1 - ALONG**2)
        p, q = (np.array([[ALONG, side]]) for side in (across, -across))
        if public.label_only:
            p, q = (np.array([[ALONG, across]]),) * 2
        signs = (1.0, -1.0 if public.label_only else 1.0)
        first, second = (
            Shards.from_parties([(row, np.array([sign])), *[(p, np.ones(1))] * (self.heard - 1)], row_bound=1.0)
            for row, sign in zip((p, q), signs, strict=True)
        )
        # The adversary knows what a party drew once for the job, and subtracts it: here it is 0.
        drawn = one_time_draws(self.algorithm, Local(public, first), Bulk(0))
        kept = {name: np.zeros_like(value) for name, value in drawn.items()}
        return Overheard(public, first, kept=kept), Overheard(public, second, kept=kept)

    @property
    def sums(self) -> Sums | None:
        return planned_sums(self.algorithm, self.public)

    @property
    def heard(self) -> int:
        """The number of parties whose messages the adversary sees added up. The first of them is the victim."""
        return 1 if self.sums is None else self.public.parties - self.sums.colluding

    @property
    def public_map(self) -> bool:
        """Whether moments are released before the rounds: their release has no dual that could keep a raw iterate."""
        memory = self.algorithm.start(self.public)[0]
        return isinstance(memory.inner if isinstance(memory, Wrapped) else memory, Mapped)

    def summing(self, at: tuple[int, int]) -> Summing | None:
        """The secure sum that these parties take part in; None without one. Their masks cancel, and are 0 here."""
        if self.sums is None:
            return None
        return Summing(self.sums, at, self.public.parties, True, lambda call, shape: np.zeros(shape, dtype=np.uint64))

    def play(self, truth: int, games: int, seed: Any) -> Floats:
        """Log-likelihood ratios, the first data set against the second, of transcripts of data set `truth`.

        The adversary computes a state for either data set, from the transcript and that data set. The two states are
        equal as long as the implementation keeps released values only.
        """
        worlds, noise = self.records(games), Bulk(seed, self.noise_factor)
        public, plan = worlds[0].public, self.algorithm.plan(self.public)
        number, phase = next(
            (i, phase) for i, phase in enumerate(self.algorithm.phases) if isinstance(phase, AtParties)
        )
        states = [self.algorithm.init(public, worlds[0].ids) for _ in worlds]
        rows = 1 if self.algorithm.topology != "relay" else self.heard
        target = np.broadcast_to(np.array([-DEPTH, 0.0]), (games, rows, 2))
        ratio = np.zeros(games)
        for t in range(public.rounds):
            inbox = steer(self.algorithm, number, t, worlds[0], states[0], target)
            summing = self.summing((t, number))
            doors = [
                Listening(
                    worlds[0].ids, plan[(t, number)], noise, t, number, lambda _: None, (games, self.heard), summing
                )
                for _ in worlds
            ]
            for b in (truth, 1 - truth):
                doors[b].said = doors[truth].said
                states[b], _ = phase.run(t, worlds[b], states[b], inbox, doors[b])
                if self.keeps_raw:
                    states[b] = with_raw(states[b], doors[b])
            logs = [door.likelihood(self.noise_factor) for door in doors]
            ratio += logs[0] - logs[1]
        return ratio


def with_raw(state: Any, door: Listening) -> Any:
    """The classic bug: the state keeps the un-noised query in place of what was released."""
    raw = {
        item.name: door.query
        for item in fields(state)
        if isinstance(door.said, Released) and getattr(state, item.name) is door.said.value
    }
    return replace(state, **raw)


@dataclass(frozen=True)
class Finding:
    """What the games show. `epsilon_lower` is a bound; `epsilon_fitted` trusts that the ratios are Gaussian."""

    epsilon_lower: float
    epsilon_fitted: float


def limits(hits: Floats, n: int, confidence: float) -> tuple[Floats, Floats]:
    """Clopper-Pearson limits of a proportion from `hits` of n, each one-sided at (1 - confidence)/2."""
    from scipy.stats import beta

    level = (1 - confidence) / 2
    low = np.where(hits > 0, beta.ppf(level, np.maximum(hits, 1), n - hits + 1), 0.0)
    high = np.where(hits < n, beta.ppf(1 - level, hits + 1, np.maximum(n - hits, 1)), 1.0)
    return low, high


def proved(hits: Any, false: Any, n: int, delta: float, confidence: float) -> Floats:
    """The epsilon that n games on each data set prove: ln((power - delta) / false alarms), each rate at its limit."""
    power, alarm = limits(np.asarray(hits, float), n, confidence)[0], limits(np.asarray(false, float), n, confidence)[1]
    return np.log(np.maximum(power - delta, 1e-300) / alarm)


def judge(first: Floats, second: Floats, delta: float, confidence: float) -> Finding:
    """Fit the ratios of a tenth of the games, choose the threshold that should prove most, and try it on the rest."""
    from scipy.special import ndtr

    pilot = len(first) // 10
    a, b = first[:pilot], second[:pilot]
    cuts = np.linspace(a.mean(), a.mean() + 6 * a.std(), 2000)
    n = len(first) - pilot
    hits, false = (n * ndtr((part.mean() - cuts) / part.std()) for part in (a, b))
    cut = cuts[int(np.argmax(proved(hits, false, n, delta, confidence)))]
    hits, false = (int(np.sum(part[pilot:] > cut)) for part in (first, second))
    mu = (first.mean() - second.mean()) / math.sqrt((first.var() + second.var()) / 2)
    return Finding(
        max(0.0, float(proved(hits, false, n, delta, confidence))),
        curves.gdp_epsilon(max(float(mu), 0.0), delta),
    )


def attack(
    game: Game,
    trials: int,
    delta: float,
    confidence: float,
    seed: int,
    done: Callable[[int], None] = lambda n: None,
) -> Finding:
    """Play `trials` games on each data set."""
    ratios: tuple[list[Floats], list[Floats]] = ([], [])
    for start in range(0, trials, BATCH):
        games = min(BATCH, trials - start)
        for truth in (0, 1):
            ratios[truth].append(game.play(truth, games, [seed, truth, start]))
        done(games)
    return judge(np.concatenate(ratios[0]), np.concatenate(ratios[1]), delta, confidence)


def instance(algorithm: Algorithm, public: Public) -> Game:
    """The job's algorithm, loss, regulariser, rounds and noise on one party with one record."""
    if not isinstance(public.privacy, Target):
        raise ConfigError(f"{algorithm.name} is not private: there is no claim to audit")
    if vertical(algorithm):
        raise ConfigError(f"no attack is written for {algorithm.name}, whose parties hold columns")
    if public.privacy.kind is not Gaussian:
        raise ConfigError('audit the simulation: set [run] mode = "simulation"')
    # On a graph the victim has one neighbour, the adversary. C gives its record the largest weight of any in the job.
    parties = 2 if algorithm.topology == "graph" else 1 if public.privacy.sum is None else public.parties
    small = replace(
        public,
        sizes=np.ones(parties, dtype=np.int64),
        dim=2,
        graph=graphs.complete(2) if algorithm.topology == "graph" else graphs.star(parties),
        C=float(np.max(public.scale(public.ids)[:, 0] / public.sizes)),
        privacy=replace(public.privacy, party_epsilon=public.privacy.party_epsilon[:1] * parties),
        replicas=None,
    )
    cost = totals(algorithm.plan(small), parties)[0]
    return Game(algorithm, small, epsilon(cost, public.privacy.delta))


def controls(game: Game) -> dict[str, Game]:
    """Implementations with planted bugs, which have shipped elsewhere; each claims what the sound one claims.

    Noise that covers n of the rounds is sqrt(n/rounds) times the noise that covers all of them.
    """
    rounds = game.public.rounds
    bug = {"the un-noised iterate in the dual": replace(game, keeps_raw=True)}
    raw = bug if game.algorithm.name in RAW_SHOWS and not game.public_map else {}
    trusting = "shares of the noise as if nobody colluded"
    shared = {trusting: replace(game, noise_factor=math.sqrt(game.heard / game.public.parties))} if game.sums else {}
    return {
        "half the noise": replace(game, noise_factor=0.5),
        **raw,
        **shared,
        "half of the rounds not counted": replace(game, noise_factor=math.sqrt(max(1, rounds // 2) / rounds)),
        "one round's epsilon printed as the total": replace(game, noise_factor=math.sqrt(1 / rounds)),
    }


def audit(
    algorithm: Algorithm,
    public: Public,
    trials: int = 400_000,
    confidence: float = 0.95,
    seed: int = 0,
    done: Callable[[int, int], None] = lambda games, total: None,
) -> dict[str, Any]:
    """Play `trials` games on each data set, against the sound implementation and against every planted bug."""
    game = instance(algorithm, public)
    assert isinstance(public.privacy, Target)
    delta, bugs, played = public.privacy.delta, controls(game), 0

    def progress(games: int) -> None:
        nonlocal played
        played += games
        done(played, trials * (1 + len(bugs)))

    finding = attack(game, trials, delta, confidence, seed, progress)
    caught = []
    for number, (name, bug) in enumerate(bugs.items(), start=1):
        lower = attack(bug, trials, delta, confidence, seed + number, progress).epsilon_lower
        caught.append({"name": name, "epsilon_lower": lower, "caught": lower > game.claimed})
    return {
        "algorithm": algorithm.name,
        "epsilon_lower": finding.epsilon_lower,
        "epsilon_fitted": finding.epsilon_fitted,
        "epsilon_certified": game.claimed,
        "delta": delta,
        "tightness": finding.epsilon_lower / game.claimed,
        "trials": trials,
        "confidence": confidence,
        "negative_controls": caught,
    }
