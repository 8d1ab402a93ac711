"""What the dual perturbation paper says of its experiment, one check each."""

from collections.abc import Iterator

import numpy as np

from privadmm.phases import Floats
from privadmm.reproduce.dvp_privacy import privacy, the_box
from privadmm.reproduce.dvp_results import EARLY, LATE, Results, listed
from privadmm.reproduce.study import Check, claim, near
from privadmm.theory.figures import GOOD_OFF, GOOD_R2
from privadmm.theory.tradeoff import Fit, model


def checks(found: Results) -> Iterator[Check]:
    yield from figure_2(found)
    yield from figure_3(found)
    yield from the_box(found)
    yield from privacy(found)


def figure_2(found: Results) -> Iterator[Check]:
    alphas, last = found.alphas("proof"), found.over("proof", "loss", found.rounds)
    means = last.mean(axis=1)
    yield claim(
        "Figure 2: a larger alpha ends with a smaller loss (proof noise)",
        "falls with alpha",
        listed(alphas, means),
        bool(np.all(np.diff(means) < 0)),
        f"means of {last.shape[1]} runs; {apart(last)} of {len(alphas) - 1} neighbouring ranges do not touch",
    )
    ends = {a: found.seen("proof", a).loss.mean(axis=1) for a in alphas}
    rising = [a for a, loss in ends.items() if loss[-1] > loss[0]]
    yield claim(
        "Figure 2: the loss falls from round to round",
        "converges for every alpha, faster for a larger one",
        f"ends above its first round for alpha = {', '.join(f'{a:g}' for a in rising)}" if rising else "falls for all",
        not rising,
        "noise of earlier rounds stays in iterates and duals: the loss levels off above where it began"
        if rising
        else "",
    )  # fmt: skip
    by_rho = {rho: float(loss.mean()) for rho, loss in found.by_rho.items()}
    least = min(by_rho, key=lambda rho: by_rho[rho])
    yield claim(
        f"rho = 10^-2.5 has the least loss at alpha = {found.chosen:g}",
        "the best of a few values",
        listed(list(by_rho), list(by_rho.values()), "rho"),
        least == found.rho,
        f"the best of these is rho = {least:.3g}. Beside 2 eta N_p, which is 4 or more, a small rho changes nothing; a "
        "large one damps the noise",
    )


def figure_3(found: Results) -> Iterator[Check]:
    late = found.fits["proof", found.rounds]
    if isinstance(late, Fit):
        remark = "the paper's alphas, degrees and eta are not stated, and the constants depend on all of them"
        yield near("Figure 3: c5 of the loss (t > 1; proof noise)", LATE[1], late.c5, 10.0, remark)
        yield near("Figure 3: c4 of the loss (t > 1; proof noise)", LATE[0], late.c4, 10.0, remark)
        yield near(
            f"Figure 3: c6 is the loss averaged over t = {found.middle}..{found.rounds}",
            found.floor,
            late.c6,
            0.05,
            "the paper prints a rule (t = 20..100) and no figure; it is applied here to our run with the largest alpha",
            of="ours",
        )
        yield printed_curve(found)
        yield claim(
            "Figure 3: the losses follow c4 exp(-c5 alpha) + c6",
            "modelled by curve fitting",
            f"R^2 = {late.r2:.4f}, off by up to {100 * late.off:.0f} %",
            late.r2 >= GOOD_R2 and late.off <= GOOD_OFF,
            f"holds if R^2 is {GOOD_R2:g} or more and no loss is off by more than {100 * GOOD_OFF:.0f} %. Least "
            "squares follows the largest losses, at the smallest alphas, and may miss the small ones",
        )
        yield claim(
            "Figure 3: c4 = 0.2, c5 = 25 hold at all iterations",
            f"c4 = {EARLY[0]:g} beside c4 = {LATE[0]:g} for t > 1",
            f"c4 = {late.c4:.3g} after round {found.rounds}",
            bool(abs(late.c4 - EARLY[0]) <= 0.1),
            "the two printed pairs exclude one another for t > 1: 0.2 is a hundredth of 20",
        )
        top = found.best("proof", found.rounds)
        assert top is not None
        yield claim(
            "Figure 3: there is an alpha that balances privacy and accuracy",
            "a best alpha, not named",
            f"alpha = {top['alpha']:.3g}, {top['where']} of the range",
            top["where"] == "inside",
            "largest U_priv - L_acc for the printed weights; the rule is ours",
        )
    else:
        yield claim("Figure 3: the losses follow c4 exp(-c5 alpha) + c6", "fitted", late, False, late)
    alphas = found.alphas("proof")
    errors = found.over("proof", "error", found.rounds)
    means = errors.mean(axis=1)
    yield claim(
        "Figure 3(d): the error rate falls with alpha (proof noise)",
        "falls",
        listed(alphas, means),
        bool(np.all(np.diff(means) < 0)),
        f"means of {errors.shape[1]} runs",
    )


def printed_curve(found: Results) -> Check:
    """Constants of an exponential are badly determined; the curve they draw is less so."""
    alphas, losses = found.alphas("proof"), found.over("proof", "loss", found.rounds).mean(axis=1)
    printed = {pair: model(np.array(alphas), *pair, found.floor) / losses for pair in (LATE, EARLY)}
    off = {pair: float(np.max(np.maximum(ratio, 1 / ratio))) for pair, ratio in printed.items()}
    return claim(
        "Figure 3: the printed curve, 20 exp(-20 alpha) + c6, is near our losses",
        listed(alphas, model(np.array(alphas), *LATE, found.floor)),
        f"within a factor {off[LATE]:.3g} at every alpha (proof noise)",
        off[LATE] <= 1.5,
        f"holds within a factor 1.5, which is ours and was set with the curves at hand; the other printed pair, 0.2 "
        f"and 25, is off by up to {off[EARLY]:.3g}. c6 is of our own run",
        of="ours",
    )


def apart(values: Floats) -> int:
    """How many neighbouring rows of (points, runs) have ranges that do not touch."""
    return int(np.sum(values[1:].max(axis=1) < values[:-1].min(axis=1)))
