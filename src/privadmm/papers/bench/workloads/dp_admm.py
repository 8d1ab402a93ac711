"""DP-ADMM with many parties, and many times over: what per-party and per-run work costs."""

import importlib.util
import math
from functools import cache, cached_property
from itertools import count as numbers

import numpy as np

from privadmm.algorithms.dp_admm import DPADMM
from privadmm.data.arrays import Floats
from privadmm.data.shards import Shards
from privadmm.engine.block import cluster
from privadmm.engine.job import Job, train, weights
from privadmm.engine.party import Local, rounding
from privadmm.optim.losses import Logistic, Loss
from privadmm.papers.bench.workload import Agreement, Floor, Goal, Line, Part, Ready, Reference, workload
from privadmm.papers.bench.workloads import problems
from privadmm.papers.bench.workloads.problems import relative, same_noise
from privadmm.papers.dp_admm import runs
from privadmm.papers.dp_admm.abreast import abreast
from privadmm.papers.framework.optimum import shares
from privadmm.papers.framework.runs import accuracies
from privadmm.privacy.calibration import NoPrivacy, Target
from privadmm.privacy.mechanisms import Deployment, Simulation

D_W, RHO, WEIGHT = 30.0, 0.1, 1e-3
LOOP = "a plain loop over parties, without accounts or ledger"
STACKED = "all parties at once, without accounts or ledger"
ABREAST = "all parties of many runs at once, without accounts or ledger"


def job(shards: Shards, rounds: int, privacy: Target | NoPrivacy, replicas: int | None = None) -> Job:
    facts = problems.public(shards, rounds, weight=WEIGHT, privacy=privacy, replicas=replicas)
    return Job(DPADMM(D_w=D_W, rho=RHO), facts)


def trained(job: Job, shards: Shards) -> Floats:
    return weights(job, train(job, cluster(job, shards, Simulation(0))))


class Plain:
    """The same method in numpy alone, for parties of equally many records: equations (3a) to (3d) of its module."""

    def __init__(self, shards: Shards, rounds: int, z: float, *other: float) -> None:
        self.shards, self.rounds, self.z = shards, rounds, z
        self.D_w, self.rho, self.weight = other or (D_W, RHO, WEIGHT)
        self.m, self.d = int(shards.sizes[0]), shards.dim

    # Made when a reference first runs: ours does not pay for its memory.
    @cached_property
    def parties(self) -> list[tuple[Floats, Floats]]:
        return problems.apiece(self.shards)

    @cached_property
    def stack(self) -> Floats:
        return np.stack([A for A, _ in self.parties])

    @cached_property
    def y(self) -> Floats:
        return np.stack([y for _, y in self.parties])

    def steep(self, k: int) -> float:
        """1/eta of Theorem 4."""
        return 0.25 + self.weight + 2 * self.z * math.sqrt(2 * (k + 1)) / (self.m * self.D_w)

    def loop(self, seed: int, noisy: bool = True) -> Floats:
        """Party after party."""
        rng, w, N, d, rho = np.random.default_rng(seed), np.zeros(self.d), len(self.parties), self.d, self.rho
        wt, gamma = np.zeros((N, d)), np.zeros((N, d))
        for k in range(self.rounds):
            steep = self.steep(k)
            sigma = self.z * noisy * 2 / (self.m * (rho + steep))
            for i, (A, y) in enumerate(self.parties):
                own = wt[i]
                g = A.T @ (-y / (1 + np.exp(y * (A @ own)))) / self.m + self.weight * own
                x = (gamma[i] + rho * w + steep * own - g) / (rho + steep)
                wt[i] = x + sigma * rng.standard_normal(d)
            w = np.mean(wt - gamma / rho, axis=0)
            gamma -= rho * (wt - w)
        return w

    def stacked(self, seed: int, noisy: bool = True) -> Floats:
        """All parties in one array operation."""
        rng, w, y, rho = np.random.default_rng(seed), np.zeros(self.d), self.y, self.rho
        wt, gamma = np.zeros((len(y), self.d)), np.zeros((len(y), self.d))
        for k in range(self.rounds):
            steep = self.steep(k)
            g = -y / (1 + np.exp(y * np.matmul(self.stack, wt[:, :, None])[..., 0]))
            slope = np.matmul(g[:, None, :], self.stack)[:, 0] / self.m + self.weight * wt
            x = (gamma + rho * w + steep * wt - slope) / (rho + steep)
            wt = x + self.z * noisy * 2 / (self.m * (rho + steep)) * rng.standard_normal(wt.shape)
            w = np.mean(wt - gamma / rho, axis=0)
            gamma = gamma - rho * (wt - w)
        return w

    def abreast(self, seed: int, runs: int) -> Floats:
        """All parties of several runs in one array operation: their weights (runs, d)."""
        rng, rho, A, y = np.random.default_rng(seed), self.rho, self.stack, self.y[:, None, :]
        w, wt, gamma = (np.zeros((parties, runs, self.d)) for parties in (1, len(A), len(A)))
        for k in range(self.rounds):
            steep = self.steep(k)
            g = np.matmul(wt, A.swapaxes(1, 2))
            g *= y
            g = -y / (1 + np.exp(g, out=g))
            slope = np.matmul(g, A) / self.m + self.weight * wt
            x = (gamma + rho * w + steep * wt - slope) / (rho + steep)
            wt = x + self.z * 2 / (self.m * (rho + steep)) * rng.standard_normal(wt.shape)
            w = np.mean(wt - gamma / rho, axis=0, keepdims=True)
            gamma -= rho * (wt - w)
        return np.asarray(w[0])


def needed(
    shards: Shards, loss: Loss, times: float, lead: tuple[int, ...] = (), noise: Simulation | None = None
) -> tuple[Part, ...]:
    """What a round needs: gradients, noise, the digest, and the plain arithmetic of (3a) to (3d), all (*lead, P, d).

    The noise covers the rounding of three such terms, and so depends on how long they are, in its last bits.
    """
    stacks = cache(lambda: np.ones((4, *lead, len(shards.ids), shards.dim)))  # our side does not pay for its memory

    def arithmetic() -> Floats:
        (own, gamma, slope, drawn), w = stacks(), np.ones(shards.dim)
        gamma = gamma - RHO * (own - w)
        released = (gamma + RHO * w + 0.5 * own - slope) / (RHO + 0.5) + drawn
        return np.asarray(np.mean(released - gamma / RHO, axis=-2))

    return (
        *problems.first_order(shards, loss, times, lead, noise),
        Part("(3a) to (3d)", arithmetic, times),
        Part("the rounding of its terms", lambda: rounding(*stacks()[:3]), times),
    )


def ratio(this: Job) -> float:
    """The noise multiplier z that calibration chose, which the reference is given."""
    algorithm = this.algorithm
    assert isinstance(algorithm, DPADMM)
    return float(algorithm.ratio(this.public, 0)[0, 0])


@workload(
    "dp-admm-many",
    Line("loop", LOOP, Goal("faster", 5.0)),
    Line("stacked", STACKED, None),
    Line("memory", "the records themselves", Goal("over_data", 1.25)),
    unit="round",
)
def many(quick: bool) -> Ready:
    """DP-ADMM, 10,000 parties of 50 records, 100 features, a round.

    Fair: neither reference keeps accounts, checks budgets or writes a ledger, and both are given the calibrated noise;
    ours does all of that in the time shown. The loop is what the goal is about; the second line takes every advantage
    of equally many records, which no real federation has. Memory is what the process gained since its imports.
    """
    rounds, shards = 4, problems.crowd(1000 if quick else 10_000)
    this = job(shards, rounds, Target(1.0, 1e-6))
    plain = Plain(shards, rounds, ratio(this))

    @cache
    def exact() -> float:
        quiet = Plain(shards, rounds, 0.0)
        ours = trained(job(shards, rounds, NoPrivacy()), shards)
        return max(relative(ours, quiet.loop(0)), relative(ours, quiet.stacked(0)))

    centre = cache(lambda: plain.stacked(0, noisy=False))
    check = same_noise(centre, exact, 1.5)
    sides = {"loop": Reference(lambda: plain.loop(1), check), "stacked": Reference(lambda: plain.stacked(1), check)}
    sides["memory"] = Reference(None, same_noise(centre, exact, 1.5))
    floor = Floor(
        rounds * problems.size(shards), rounds * 4.0 * shards.cells, float(rounds * len(shards.ids) * shards.dim)
    )
    parts = needed(shards, this.public.loss, 1.0)
    return Ready(lambda: trained(this, shards), sides, floor, rounds, problems.size(shards), not quick, needed=parts)


@workload(
    "dp-admm-sweep",
    Line("loop", f"run after run: {LOOP}", Goal("faster", 10.0)),
    Line("stacked", f"run after run: {STACKED}", None),
    Line("abreast", ABREAST, None),
    unit="run",
)
def sweep(quick: bool) -> Ready:
    """A sweep of 240 DP-ADMM runs at once: Adult in 14 columns, 100 parties, 100 rounds.

    Fair: runs differ in noise alone, which is what lets ours share records between them, and the last reference, too;
    references do a few of the 240 runs, that one 48, and their time for one is compared. Ours includes calibration and
    opening ledgers.
    """
    rounds, count, few = (20, 24, 1) if quick else (100, 240, 3)
    several = min(48, count)
    shards = runs.draw(0).train
    plain = Plain(shards, rounds, ratio(job(shards, rounds, Target(1.0, 1e-6))))

    @cache
    def exact() -> float:
        quiet = Plain(shards, rounds, 0.0)
        ours = trained(job(shards, rounds, NoPrivacy(), replicas=2), shards)
        return max(relative(ours[1], quiet.loop(0)), relative(ours[0], quiet.stacked(0)))

    check = same_noise(cache(lambda: plain.stacked(0, noisy=False)), exact, 2.0)
    share = few / count
    return Ready(
        lambda: trained(job(shards, rounds, Target(1.0, 1e-6), replicas=count), shards),
        {
            "loop": Reference(lambda: np.stack([plain.loop(seed) for seed in range(few)]), check, share),
            "stacked": Reference(lambda: np.stack([plain.stacked(seed) for seed in range(few)]), check, share),
            "abreast": Reference(lambda: plain.abreast(1, several), check, several / count),
        },
        Floor(
            rounds * problems.size(shards),
            count * rounds * 4.0 * shards.cells,
            float(count * rounds * 100 * shards.dim),
        ),
        count,
        problems.size(shards),
        not quick,
        needed=needed(shards, Logistic(), rounds / count, (count,)),
    )


@workload(
    "dp-admm-reproduce",
    Line("loop", f"run after run: {LOOP}", Goal("faster", 10.0)),
    unit="run",
)
def reproduced(quick: bool) -> Ready:
    """DP-ADMM runs as `privadmm reproduce dp-admm` makes them, four epsilons on the records of each simulation.

    Fair: runs on the same records share passes over them, and simulations share nothing: each has records of its own.
    Ours also measures objective, loss and accuracy after every fifth round, which the loop does not; the loop does one
    of the runs. Records are those of the paper, drawn before the clock starts.
    """
    rounds, simulations = (20, 1) if quick else (100, 5)
    cases = [runs.Case("l2", "DP-ADMM", "certified", epsilon, 1e-3) for epsilon in (0.05, 0.1, 0.2, 0.4)]
    for seed in range(simulations):
        runs.reach(seed, "l2")  # draws records, and D_w from some of them
    shards, first = runs.draw(0).train, runs.job(cases[0], rounds, 0)
    reach, weight = runs.reach(0, "l2"), runs.LAMBDA / runs.PROVIDERS
    plain = Plain(shards, rounds, ratio(first), reach, runs.RHO, weight)

    def ours() -> Floats:
        found = runs.several(cases, rounds, simulations)
        return np.array([found[case].loss[-1].mean() for case in cases])

    def loop() -> Floats:
        scores = plain.stack @ plain.loop(0)
        return np.array([runs.PROVIDERS * np.logaddexp(0, -plain.y * scores).mean()])

    def check(mine: Floats, theirs: Floats) -> Agreement:
        """The loss of the first case is that of the loop, but for noise, and more budget makes it no worse."""
        worse = float(np.max(np.diff(mine), initial=0.0))
        return Agreement(max(abs(mine[0] - theirs[0]), worse) / theirs[0], 0.05)

    count = len(cases) * simulations
    passes = count * rounds
    floor = Floor(passes * problems.size(shards), passes * 4.0 * shards.cells, float(passes * 100 * shards.dim))
    side = {"loop": Reference(loop, check, 1 / count)}
    return Ready(ours, side, floor, count, full=not quick, needed=measured(cases, rounds))


def measured(cases: list[runs.Case], rounds: int) -> tuple[Part, ...]:
    """What one of these runs needs, of what they need together: passes over their records, noise and measurements."""
    records = runs.draw(0)
    first, times = runs.job(cases[0], rounds, 0), rounds / len(cases)
    many, shards, noise = abreast([runs.job(case, rounds, 0) for case in cases], records.train, 0)
    local, w = Local(first.public, records.train), np.zeros((len(cases), runs.PROVIDERS, shards.dim))
    return (
        *needed(shards, many.public.loss, times, noise=noise),
        Part(
            "measurements",
            lambda: (shares(local, w), shares(local, w), accuracies(records.test, w[:, 0])),
            len(runs.looked(rounds)) / len(cases),
        ),
    )


def no_secure_noise() -> str | None:
    found = importlib.util.find_spec("opendp")
    return None if found else "needs opendp, which is the extra `deploy`: pip install privadmm[deploy]"


@workload("deployment-noise", Line("numpy", "numpy's normals, not for deployment", None), missing=no_secure_noise)
def secure_noise(quick: bool) -> Ready:
    """Noise of a deployment for one release of 10,000 coordinates: discrete, from the system's secure source.

    Fair: the reference draws floating-point normals from a seed, which protects nobody from who reads the last bits;
    it is there to show what the exact discrete law costs. There is no goal.
    """
    noise, rng, zero = Deployment(), np.random.default_rng(0), np.zeros((1, 1000 if quick else 10_000))
    scale, ids, rounds = np.ones(1), np.zeros(1, dtype=np.int64), numbers()

    def ours() -> Floats:
        drawn = noise.gaussian(zero, scale, 5 * scale, ids, (next(rounds), 0, 0))
        return np.asarray(drawn)

    def check(mine: Floats, theirs: Floats) -> Agreement:
        return Agreement(abs(math.log(float(np.std(mine)) / float(np.std(theirs)))), 0.1)

    floor = Floor(normals=float(zero.size))
    return Ready(ours, {"numpy": Reference(lambda: 5 * rng.standard_normal(zero.shape), check)}, floor, full=not quick)
