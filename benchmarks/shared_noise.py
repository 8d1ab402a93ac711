"""The noise that parties of a secure sum share: its exact law in small cases against what is certified of it.

    python benchmarks/shared_noise.py [--json]

The law of n shares is computed with integers of 60 digits (privadmm.papers.counterexamples.shares), and from it delta
at every epsilon. First both deltas at some epsilons, of a query that moves by about one standard deviation. Then each
row is the largest ratio of the exact to the certified delta over how far a query moves and over epsilon, for one number
and for two at once. A certified ratio must be at most 1. Rows marked * are wrong bounds: without tau, which is what a
sum of shares differs from one discrete Gaussian; and with shares of parties that collude counted.
"""

import argparse
import json
import math
from collections.abc import Iterator
from typing import Any

from privadmm.papers.counterexamples.shares import apart, certified, exact, sum_of, tau, tightest

SHARES = (2, 10, 100)
SCALES = (1.0, 2.0, 3.0, 4.0, 6.0, 8.0)
EPSILONS = (0.0, 0.5, 1.0, 2.0, 4.0)
PAIRS = ((2, 1.0), (2, 2.0), (10, 1.0))  # two numbers at once
COARSE = ((3, 0.35), (10, 0.3), (10, 0.5))  # scales at which tau is no small thing


def curves() -> Iterator[dict[str, Any]]:
    """Exact and certified delta of a query that moves by about one standard deviation."""
    for n in SHARES:
        for s in SCALES:
            law, moves = sum_of(n, s), (max(1, round(s * math.sqrt(n))),)
            told = [(exact(law, moves, eps), certified(n, s, moves, eps, tau(n, s))) for eps in EPSILONS]
            yield {"shares": n, "scale": s, "moves": moves, "deltas": told}


def rows() -> Iterator[dict[str, Any]]:
    for n in SHARES:
        for s in SCALES:
            yield row("certified", n, s, tightest(n, s, tau(n, s)))
    for n, s in PAIRS:
        yield row("certified, two numbers", n, s, tightest(n, s, tau(n, s), numbers=2))
    for n, s in COARSE:
        yield row("* without tau", n, s, tightest(n, s, 0.0))
    for n, s in ((10, 1.0), (10, 4.0)):
        yield row("* without tau, which is nothing here", n, s, tightest(n, s, 0.0))
        yield row("* three of ten shares are known", n, s, tightest(n, s, tau(n, s), noisy=n - 3))


def row(bound: str, n: int, s: float, found: Any) -> dict[str, Any]:
    facts = {"bound": bound, "shares": n, "scale": s, "ratio": found.ratio, "moves": found.moves}
    return {**facts, "epsilon": found.epsilon, "exact": found.exact, "certified": found.certified}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found, drawn = list(rows()), list(curves())
    laws = [{"shares": n, "apart": apart(n, 1.0), "tau": tau(n, 1.0)} for n in SHARES]
    if given.json:
        print(json.dumps({"curves": drawn, "rows": found, "laws": laws}))
        return
    print("exact/certified delta at epsilon =", "  ".join(f"{eps:<17g}" for eps in EPSILONS))
    for curve in drawn:
        told = "  ".join(f"{truth:.2e}/{bound:.2e}" for truth, bound in curve["deltas"])
        print(f"  {curve['shares']:>3} shares of scale {curve['scale']:g}: {'':<11}{told}")
    print(f"{'bound':<37} {'shares':>6} {'scale':>5} {'epsilon':>8} {'exact':>10} {'certified':>10} {'ratio':>8}")
    for one in found:
        print(
            f"{one['bound']:<37} {one['shares']:>6} {one['scale']:>5g} {one['epsilon']:>8.3f} {one['exact']:>10.4g} "
            f"{one['certified']:>10.4g} {one['ratio']:>8.5f}"
        )
    for law in laws:
        print(
            f"{law['shares']} shares of scale 1 differ from one discrete Gaussian by {law['apart']:.3g} in the "
            f"logarithm; tau is {law['tau']:.3g}"
        )
    highest = max(one["ratio"] for one in found if not one["bound"].startswith("*"))
    highest = max(highest, *(truth / bound for curve in drawn for truth, bound in curve["deltas"]))
    met = "met" if highest <= 1 and all(law["apart"] <= law["tau"] for law in laws) else "missed"
    print(f"largest ratio of exact to certified delta: {highest:.6f} (goal: at most 1; {met})")


if __name__ == "__main__":
    main()
