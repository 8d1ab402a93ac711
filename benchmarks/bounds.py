"""How close attacks come to the privacy bounds, and how far they exceed bounds that are wrong.

    python benchmarks/bounds.py [--json] [--quick]

Each row is a search over neighbours: the largest ratio of truth to bound, which for a certified bound must stay at or
below 1. Rows marked "restricted" look only where a second term of the bound counts, since most attacks end where one
term alone is nearly all of it.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from privadmm.data.arrays import Floats
from privadmm.optim.losses import HalfLogistic, Logistic
from privadmm.papers.counterexamples import columns as vertical
from privadmm.papers.counterexamples import rows as bounds
from privadmm.papers.counterexamples.rows import DVP_PAPER, Pairs, Worst
from privadmm.privacy import curves
from privadmm.privacy.ridge_sensitivity import lemma_1


@dataclass(frozen=True)
class Row:
    name: str
    certified: bool
    budget: int
    search: Callable[..., Worst[Any]]


def gaussian_part(pairs: Pairs, alpha: Floats) -> Floats:
    return curves.gaussian_rdp(alpha, pairs.delta / pairs.scale)  # type: ignore[arg-type]


def label(pairs: Pairs, alpha: Floats) -> Floats:
    """Delta_label = 1 for both losses."""
    return curves.objective_rdp(alpha, pairs.scale, pairs.w)  # type: ignore[arg-type]


def both_terms(pairs: Pairs) -> Floats:
    """The pure bound where each of its terms is at least a third of it."""
    whole, curvature = bounds.pure_bound(pairs), np.log1p(pairs.w)
    return np.where(np.abs(curvature / whole - 0.5) < 1 / 6, whole, np.inf)


def mostly_curvature(pairs: Pairs, alpha: Floats) -> Floats:
    whole = bounds.renyi_bound(pairs, alpha)
    return np.where(2 * gaussian_part(pairs, alpha) < whole, whole, np.inf)


def clipped(people: vertical.People) -> Floats:
    return vertical.scores_ratio(people, vertical.ridge_then_clip)


def rows() -> Iterator[Row]:
    for loss in (Logistic(), HalfLogistic()):
        pure, renyi = partial(bounds.search_pure, loss), partial(bounds.search_renyi, loss)
        name = type(loss).__name__
        for d in (1, 2, 3):
            yield Row(f"pure noise, {name}, d = {d}", True, 200_000, partial(pure, d))
        yield Row(f"pure noise, {name}, d = 2, restricted", True, 200_000, partial(pure, 2, bound=both_terms))
        yield Row(f"Gaussian noise, {name}, d = 1", True, 20_000, partial(renyi, 1))
        yield Row(f"Gaussian noise, {name}, d = 2", True, 4000, partial(renyi, 2))
        yield Row(
            f"Gaussian noise, {name}, d = 2, restricted",
            True,
            2000,
            partial(renyi, 2, bound=mostly_curvature),
        )
        yield Row(f"Gaussian noise, {name}, label flip", True, 10_000, partial(renyi, 1, bound=label, flip=True))
        yield Row(f"  w term forgotten, {name}", False, 2000, partial(renyi, 1, bound=gaussian_part))
    for B in (8000, 1750, 100):
        party, loss = replace(DVP_PAPER, B=B), Logistic()
        search = partial(bounds.search_dvp, party, loss=loss)
        yield Row(f"DVP, {B} records", True, 40_000, partial(search, noise=party.certified(loss)))
        yield Row(f"  DVP as printed, {B} records", False, 40_000, partial(search, noise=party.box(loss)))
    for d in (1, 2, 3):
        person = partial(vertical.search_person, d)
        yield Row(f"person, scores, d = {d}", True, 200_000, person)
        yield Row(f"person, scores, d = {d}, restricted", True, 200_000, partial(person, ratio=vertical.fit_ratio))
        yield Row(f"person, weights, d = {d}", True, 200_000, partial(person, ratio=vertical.weights_ratio))
    yield Row("  ridge, then clip", False, 20_000, partial(vertical.search_person, 2, ratio=clipped))
    for N, d in ((2, 1), (4, 2), (5, 3)):
        column = partial(vertical.search_column, N, d)
        yield Row(f"column, {N} people, d = {d}", True, 200_000, column)
    inside = partial(vertical.search_column, 4, 2, inside_ball=True)
    yield Row("column in a ball, |t|", True, 100_000, partial(inside, bound=vertical.target_bound))
    yield Row("  column in a ball, |t| s/(1+s)", False, 100_000, inside)
    yield Row("  Lemma 1 of the sharing paper", False, 1, lemma1)


def lemma1(rng: np.random.Generator, budget: int) -> Worst[vertical.Columns]:
    """Not a search: the stored neighbours, against the published sensitivity for two parties."""
    case = vertical.lemma1_counterexample()
    claimed = float(lemma_1(100, rho=1.0, lam=0.01, parties=2, b1=1.0))
    return Worst(float(case.moved()[0]) / claimed, case, 1, 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true", help="a tenth of the instances")
    options = parser.parse_args()
    results = []
    if not options.json:
        print(f"{'bound':<46} {'best ratio':>12} {'instances':>10} {'unresolved':>10} {'seconds':>8}")
    for number, row in enumerate(rows()):
        budget, start = max(1, row.budget // (10 if options.quick else 1)), time.perf_counter()
        found = row.search(rng=np.random.default_rng(number), budget=budget)
        results.append(
            {
                "bound": row.name.strip(),
                "certified": row.certified,
                "ratio": found.ratio,
                "instances": found.tried,
                "unresolved": found.unresolved,
                "seconds": time.perf_counter() - start,
            }
        )
        if not options.json:
            print(
                f"{row.name:<46} {found.ratio:>12.6f} {found.tried:>10} {found.unresolved:>10} "
                f"{results[-1]['seconds']:>8.1f}",
                flush=True,
            )
    if options.json:
        print(json.dumps(results))
    else:
        highest = max(result["ratio"] for result in results if result["certified"])
        print(f"certified bounds: highest ratio 1 {highest - 1:+.1e} (goal: at most 1, and rounding)")
        print("indented rows are wrong bounds")


if __name__ == "__main__":
    main()
