"""Dual variable perturbation (Zhang & Zhu), section 5: logistic regression on Adult, rho = 10^-2.5, C^R = 1750.

Figure 2 has the loss by round for several alpha; Figure 3 the loss and the error rate over alpha, the fitted
L_acc = c4 exp(-c5 alpha) + c6 and the utility of privacy. Each is run with three kinds of noise:

    proof       of the paper's proof for alpha
    certified   Gaussian, of which one round is certified to cost alpha
    box         of the paper's algorithm box, which is refused if its Phi is negative; here run all the same

The loss is divided by C^R, so it is the mean loss: the paper's constants and weights make sense for that alone.
"""

from typing import Any

from privadmm.algorithms.admm_graph import ADMMGraph
from privadmm.algorithms.dvp import DVP
from privadmm.papers.dvp.checks import checks
from privadmm.papers.dvp.results import Results, figures, grids
from privadmm.papers.dvp.tradeoff import WEIGHTS, costing
from privadmm.papers.framework import nodes
from privadmm.papers.framework.bench import Setting, Task
from privadmm.papers.framework.nodes import DELTA, PUBLISHED, TOLERANCE, Seen
from privadmm.papers.framework.study import Parameter, Study, listed, ours
from privadmm.privacy.calibration import NoPrivacy, Target
from privadmm.privacy.mechanisms import Simulation

NAME, TITLE = "dvp", "Dual variable perturbation"
RHO, CONTROL, ETA, ROUNDS = 10**-2.5, 1e-10, 1.0, 100
ALPHAS = (0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0)
CERTIFIED = (0.05, 0.1, 0.2, 0.5, 1.0)
BOXED = (0.1, 0.3, 0.5, 1.0)
CHOSEN = 0.3  # the alpha at which the paper chose rho
RHOS = (1e-10, 1.0, 10.0, 100.0)  # besides the paper's own


def parameters(ran: Results) -> tuple[Parameter, ...]:
    """The settings of this run."""
    whole = ran.rounds == ROUNDS
    stop = "as in Figure 2; when the final output stops is not stated"
    return (
        Parameter("C^R", "1750", True),
        Parameter("rho", "10^-2.5; 10^-10 without noise", True),
        Parameter("R(f), c_1", "|f|^2/2, 1/4", True),
        Parameter("rounds", str(ran.rounds), whole, stop if whole else f"a quick run; the paper has {ROUNDS}"),
        Parameter("omega_p1..4", listed(WEIGHTS), True),
        ours("eta", f"{ETA:g}", "not stated; the paper on recycled ADMM has 1 on the same data"),
        ours("alpha", listed(ran.alphas("proof")), "the text names 0.3 alone"),
        *nodes.OURS,
    )


def proof(alpha: float, rho: float, rounds: int, seeds: int) -> Seen:
    method = DVP(eta=ETA, tolerance=TOLERANCE, calibration="proof", alpha=alpha)
    return nodes.run(nodes.job(method, rounds, rho, PUBLISHED), seeds)


def certified(alpha: float, rounds: int, seeds: int) -> Seen:
    method = DVP(eta=ETA, tolerance=TOLERANCE)
    this = costing(lambda total: nodes.job(method, rounds, RHO, Target(total, DELTA, Simulation.kind)), alpha)
    return nodes.run(this, seeds)


def box(alpha: float, rounds: int, seeds: int, negative_phi: bool) -> Seen:
    method = DVP(eta=ETA, tolerance=TOLERANCE, calibration="box", alpha=alpha, negative_phi=negative_phi)
    return nodes.run(nodes.job(method, rounds, RHO, PUBLISHED), seeds, failing=True)


def plain(rho: float, rounds: int) -> Seen:
    """The paper's Algorithm 1: no noise, one run."""
    return nodes.run(nodes.job(ADMMGraph(eta=ETA, tolerance=TOLERANCE), rounds, rho, NoPrivacy()), 1)


def tasks(setting: Setting) -> list[Task]:
    quick, seeds = setting.quick, setting.seeds
    rounds, short = (6, 4) if quick else (ROUNDS, 30)
    alphas, gaussian = ((0.05, 0.1, 0.3, 1.0), (0.1, 1.0)) if quick else (ALPHAS, CERTIFIED)
    boxed, rhos, printed = ((0.3,), (10.0,), 8) if quick else (BOXED, RHOS, 20)
    noise, arguments = "noise, alpha =", (rounds, seeds)
    return [
        *(Task(("proof", a), proof, (a, RHO, *arguments), f"the proof's {noise} {a:g}", 25.0) for a in alphas),
        *(Task(("certified", a), certified, (a, *arguments), f"certified {noise} {a:g}", 20.0) for a in gaussian),
        *(Task(("box", a), box, (a, printed, 3, True), f"the box's {noise} {a:g}", 6.0) for a in boxed),
        *(Task(("rho", rho), proof, (CHOSEN, rho, short, seeds), f"rho = {rho:g}", 10.0) for rho in rhos),
        Task(("plain", CONTROL), plain, (CONTROL, rounds), "no noise", 4.0),
        Task(("refused", CHOSEN), box, (CHOSEN, 1, 1, False), "the box", 1.0, may_fail=True),
    ]


def study(setting: Setting, results: dict[Any, Any]) -> Study:
    rounds = len(next(seen.loss for (kind, _), seen in results.items() if kind == "proof"))
    ran = Results(results, rho=RHO, chosen=CHOSEN, middle=max(1, rounds // 5))
    notes = [
        "The figures of the paper are drawings without numbers: their trends are checked as the text tells them.",
        "Figure 3(c) is the final output. Without a stop time it is the last round's, the same points as 3(b).",
    ]
    if setting.quick:
        notes.append(f"Quick: {rounds} rounds of {ROUNDS} and {setting.seeds} seeds; orderings may come out otherwise.")
    return Study(NAME, TITLE, parameters(ran), tuple(checks(ran)), figures(ran), grids(ran), notes)
