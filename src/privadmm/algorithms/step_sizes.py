"""Step sizes that noise allows, by public facts alone.

unit is the noise of an averaged release of unit sensitivity, d the features, T the rounds, L the largest derivative of
the loss, beta the momentum. For two classes, whose margins have no unit:

    eta = min(2.5/(1 + 20 unit sqrt(d))/unit, 300 T) / T                                                          (1)

For a number to predict, whose labels have the unit of label_bound:

    eta = min(1/(r (1 + r sqrt(d))), 100) / (C T),   r = 2 L unit / (label_bound/4)                               (2)

r is the noise that a step of 1 leaves in a prediction, over the usual spread of labels. So noise alone moves a
prediction by less than that spread; with few records or a small epsilon far less, since then there is little to learn;
and nobody goes further than was of use without noise. It is the same whatever the labels are measured in.
"""

import math
from typing import Annotated, Literal

from annotated_types import Gt

from privadmm.engine.public import Public
from privadmm.optim.losses import Squared

Step = Annotated[float, Gt(0)] | Literal["numbers"] | None
USUAL = 0.25  # spread of labels over their bound
FAR = 100.0  # steps times rounds that were enough without noise


def steady(public: Public, beta: float) -> float:
    """The largest step that is stable on features of norm <= 1, whatever the data."""
    return 2 * (1 + beta) / ((1 - beta) * public.C * min(public.loss.smoothness, 1.0))


def for_classes(public: Public, unit: float | None, beta: float) -> float:
    """(1), but no more than is stable; without privacy as much as that.

    The largest eigenvalue of d features in one scale is nearer to 1/d; an eighth of this factor d is counted on.
    """
    if unit is None:
        return steady(public, beta)
    rule = 2.5 / (1 + 20 * unit * math.sqrt(public.dim)) / (unit * public.rounds)
    return min(rule, 300.0, steady(public, beta) * max(1.0, public.dim / 8))


def for_numbers(public: Public, unit: float | None, beta: float) -> float:
    """(2), but no more than half of what is stable; without privacy as much as that."""
    if unit is None:
        return steady(public, beta) / 2
    loss = public.loss
    assert isinstance(loss, Squared)
    r = 2 * loss.lipschitz * unit / (USUAL * loss.label_bound)
    far = min(1 / (r * (1 + r * math.sqrt(public.dim))), FAR)
    return min(far / (public.C * public.rounds), steady(public, beta) / 2)
