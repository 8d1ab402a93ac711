"""What an exact ADMM round costs: Adult, ten parties, every local problem solved to a gradient norm of 1e-9.

    python benchmarks/solver.py [--json] [--quick]

Two methods, each without and with fresh Gaussian noise in the objective: a star at C = 1, and the graph method of the
DVP paper at C = 1750. The unit is one pass: margins, derivatives and pull over all 45,222 records. Passes are
interleaved with the rounds, and both are taken at their medians, since machines are noisy. Hessians are
included. Beside it, scipy's L-BFGS-B started from the same points, party by party, asked for the same gradient norm.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.sparse import csr_array
from threadpoolctl import threadpool_limits

from privadmm.data import adult
from privadmm.data.shards import Shards
from privadmm.losses import HalfLogistic, HuberHinge, Logistic, Loss
from privadmm.solvers import Cache, argmin, reanchor

Array = NDArray[np.float64]
PARTIES, TOLERANCE = 10, 1e-9


@dataclass(frozen=True)
class Round:
    linear: Array
    quadratic: float
    start: Array
    anchor: Array


@dataclass(frozen=True)
class Star:
    """min (C/m) sum loss + <gamma_i - rho z, x> + (lambda + rho)/2 |x|^2; the anchor is the average z."""

    C: float = 1.0
    weight: float = 1e-3
    rho: float = 0.01

    def rounds(self, shards: Shards, noise: float, solve: Callable[[Round], Array], count: int) -> None:
        x = gamma = anchor = np.zeros((PARTIES, shards.dim))
        z = np.zeros(shards.dim)
        for t, b in enumerate(noises(shards, noise * self.C, count)):
            anchor = reanchor(anchor, np.broadcast_to(z, x.shape), t)
            x = solve(Round(gamma - self.rho * z + b, self.weight + self.rho, x, anchor))
            z = np.mean(x + gamma / self.rho, axis=0)
            gamma = gamma + self.rho * (x - z)


@dataclass(frozen=True)
class Graph:
    """min (C/m) sum loss + rho/2 |f|^2 + 2 <lambda_i, f> + eta sum_j |f - (f_i + f_j)/2|^2, three neighbours each."""

    C: float = 1750.0
    rho: float = 10**-2.5
    eta: float = 1.0

    def rounds(self, shards: Shards, noise: float, solve: Callable[[Round], Array], count: int) -> None:
        shift = np.arange(PARTIES)
        near = np.zeros((PARTIES, PARTIES))
        for step in (1, -1, PARTIES // 2):
            near[shift, (shift + step) % PARTIES] = 1
        f = dual = anchor = np.zeros((PARTIES, shards.dim))
        for t, b in enumerate(noises(shards, noise * self.C, count)):
            anchor = reanchor(anchor, (f + near @ f) / 4, t)
            f = solve(Round(2 * dual - self.eta * (3 * f + near @ f) + b, self.rho + 6 * self.eta, f, anchor))
            dual = dual + self.eta / 2 * (3 * f - near @ f)


def noises(shards: Shards, scale: float, count: int) -> Iterator[Array]:
    rng = np.random.default_rng(1)
    for _ in range(count):
        yield scale / shards.sizes[:, None] * rng.normal(size=(PARTIES, shards.dim))


@dataclass
class Counting:
    """A loss that counts what it is asked: gradients and Hessians, in passes over all records."""

    loss: Loss
    records: int
    gradients: float = 0.0
    hessians: float = 0.0

    @property
    def smoothness(self) -> float:
        return self.loss.smoothness

    def deriv(self, m: Array, y: Array) -> Array:
        self.gradients += m.size / self.records
        return self.loss.deriv(m, y)

    def curv(self, m: Array, y: Array) -> Array:
        self.hessians += m.size / self.records
        return self.loss.curv(m, y)


def records(sparse: bool) -> Shards:
    """One-hot Adult: 105 columns and an intercept."""
    found = adult.load()
    rows = np.array_split(np.random.default_rng(0).permutation(len(found.y)), PARTIES)
    X = csr_array(found.X) if sparse else found.X
    return Shards.build(X, found.y, rows, row_bound=adult.SCHEMA.row_bound, intercept=0.3)


def one_pass(shards: Shards, loss: Loss) -> float:
    x, begin = np.zeros((PARTIES, shards.dim)), time.perf_counter()
    shards.pull(loss.deriv(shards.margins(x), shards.y))
    return time.perf_counter() - begin


def measure(shards: Shards, loss: Loss, method: Star | Graph, noise: float, count: int) -> dict[str, Any]:
    """Amortised over all rounds, the first included, which starts from nothing."""
    counting, cache = Counting(loss, shards.size), Cache()
    passes, spent, tape = list[float](), list[float](), list[Round]()

    def solve(problem: Round) -> Array:
        passes.extend(one_pass(shards, loss) for _ in range(3))
        tape.append(problem)
        p, begin = problem, time.perf_counter()
        x = argmin(
            shards,
            counting,
            method.C,
            p.linear,
            p.quadratic,
            p.start,
            p.anchor,
            TOLERANCE,
            cache,  # type: ignore[arg-type]
        )
        spent.append(time.perf_counter() - begin)
        return x

    method.rounds(shards, noise, solve, count)
    unit = statistics.median(passes)
    return {
        "method": type(method).__name__.lower(),
        "C": method.C,
        "loss": type(loss).__name__,
        "noise": noise,
        "pass_ms": 1e3 * unit,
        "round_ms": 1e3 * statistics.fmean(spent),
        "round_passes": statistics.fmean(spent) / unit,
        "median_round_passes": statistics.median(spent) / unit,
        "gradients": counting.gradients / count,
        "hessians": counting.hessians / count,
        **against_scipy(shards, loss, method, tape, spent),
    }


def against_scipy(
    shards: Shards, loss: Loss, method: Star | Graph, tape: list[Round], spent: list[float]
) -> dict[str, float]:
    """Three settled rounds again by L-BFGS-B, which has no way to use the anchor: time, and the norm it stopped at."""
    chosen = sorted({len(tape) // 2, 3 * len(tape) // 4, len(tape) - 1})
    parties = [(shards.take([i]), method.C / int(shards.sizes[i])) for i in range(PARTIES)]
    slow, reached = 0.0, 0.0
    for t in chosen:
        p = tape[t]
        for i, (party, weight) in enumerate(parties):

            def both(
                x: Array,
                party: Shards = party,
                weight: float = weight,
                b: Array = p.linear[i],
                k: float = p.quadratic,
            ) -> tuple[float, Array]:
                m = party.margins(x[None])
                value = weight * float(np.sum(loss.value(m, party.y))) + b @ x + k / 2 * x @ x
                return value, weight * party.pull(loss.deriv(m, party.y))[0] + b + k * x

            options = {"maxiter": 10_000, "maxfun": 20_000, "ftol": 0.0, "gtol": TOLERANCE / shards.dim}
            begin = time.perf_counter()
            found = minimize(both, p.start[i], jac=True, method="L-BFGS-B", options=options)
            slow += time.perf_counter() - begin
            reached = max(reached, float(np.linalg.norm(both(found.x)[1])))
    return {"lbfgs_ratio": slow / sum(spent[t] for t in chosen), "lbfgs_norm": reached}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="one JSON line per case")
    parser.add_argument(
        "--quick", action="store_true", help="12 rounds of the logistic loss on dense records"
    )
    options = parser.parse_args()
    count = 12 if options.quick else 50
    losses = [Logistic()] if options.quick else [Logistic(), HalfLogistic(), HuberHinge(0.5)]
    cases = [("dense", loss) for loss in losses] + ([] if options.quick else [("csr", Logistic())])
    if not options.json:
        print(
            f"Adult, {PARTIES} parties, {count} rounds to gradient norm {TOLERANCE:g}; 1 pass = one pooled gradient"
        )
        print(
            f"{'records':8}{'loss':14}{'method':8}{'C':>6}{'noise':>7}{'pass ms':>9}{'round ms':>10}{'round/pass':>12}"
            f"{'(median)':>10}{'gradients':>11}{'Hessians':>10}{'L-BFGS-B':>10}{'stopped at':>12}"
        )
    with threadpool_limits(1):
        blocks = {
            storage: records(storage == "csr") for storage in dict.fromkeys(storage for storage, _ in cases)
        }
        for storage, loss in cases:
            for method in (Star(), Graph()):
                for noise in (0.0, 10.0):
                    r = {"records": storage} | measure(blocks[storage], loss, method, noise, count)
                    if options.json:
                        print(json.dumps(r), flush=True)
                        continue
                    print(
                        f"{storage:8}{r['loss']:14}{r['method']:8}{r['C']:6g}{noise:7g}{r['pass_ms']:9.2f}"
                        f"{r['round_ms']:10.1f}{r['round_passes']:12.2f}{r['median_round_passes']:10.2f}"
                        f"{r['gradients']:11.2f}{r['hessians']:10.2f}{r['lbfgs_ratio']:9.0f}x{r['lbfgs_norm']:12.0e}",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
