"""Who learns what of a record: the server of the party that holds it, and everybody who sees what left the party.

The own server holds the features in the clear, and the labels too unless they were randomised before: then it knows
each label up to that epsilon, for ever. The others see the transcript. Its noise was planned for the job's neighbours;
of a label alone, features fixed, the same noise hides more, and is counted here again:

    noise on a query                            ratio' = ratio s/s', less where it is on a grid
    noise in an objective                       ratio' = ratio s/s',   slope' = slope s'/s,   w' = w c'/c
    the cover of an inexact argmin              as it is

s and c are the most that a record's gradient and curvature differ between the job's neighbours, s' and c' between
labels. A computed query moves further than the exact one, by what it is inexact; `Local.moved` counts that s/s' times,
so that the first line holds whatever a coordinator sends. If the labels were randomised, this is what the transcript
tells of a reported label, and `curves.joint_label` makes of it the true one's.
See docs/privacy.md#views and docs/privacy.md#joint-label.
"""

import math
from dataclasses import replace
from functools import lru_cache, singledispatch
from typing import Any

from privadmm.engine.phases import Algorithm
from privadmm.engine.public import Public
from privadmm.privacy import curves
from privadmm.privacy.accounting import Plan, delta_curve, epsilon, totals, worst
from privadmm.privacy.calibration import Target
from privadmm.privacy.events import (
    STEPS,
    DiscreteGaussian,
    Event,
    GammaObjective,
    GammaOutput,
    Gaussian,
    GaussianObjective,
    Spent,
)

CLEAR = "in the clear"
BARE = "not protected"
AWAY = "not there: the coordinator holds it"
Guarantee = dict[str, float] | str


def views(algorithm: Algorithm, public: Public, plan: Plan) -> dict[str, Any]:
    """The worst party's guarantees, each (epsilon, delta) or the words that say there is none."""
    target, labels = public.privacy, public.label_epsilon
    own = {"features": CLEAR, "label": CLEAR if labels is None else guarantee(labels, 0.0)}
    record: Guarantee = BARE
    label: Guarantee = BARE if labels is None else guarantee(labels, 0.0)
    if isinstance(target, Target):
        spent = public.in_all(totals(plan, public.parties))
        total = guarantee(worst(spent, target.delta), target.delta)
        if target.adjacency == "column":
            return {
                "adjacency": public.adjacency,
                "own_server": {**own, "label": AWAY},
                "others": {"column": total, "record": BARE, "label": label},
            }
        if target.adjacency == "person":
            return {
                "adjacency": public.adjacency,
                "own_server": {**own, "label": AWAY},
                "others": {"row at one party": total, "label": label},
            }
        if target.adjacency != "label":
            record = total
        if target.adjacency in ("replace-one", "label"):
            # Of a start's releases it is known what they tell of a record, and so of its label, at most.
            spent = public.in_all(totals(label_plan(algorithm, public, plan), public.parties))
            label = guarantee(max(label_epsilon(one, target.delta, labels) for one in set(spent)), target.delta)
    return {"adjacency": public.adjacency, "own_server": own, "others": {"record": record, "label": label}}


def guarantee(total: float, at: float) -> Guarantee:
    return {"epsilon": total, "delta": at} if math.isfinite(total) else BARE


def label_epsilon(spent: Spent, at: float, randomised: float | None) -> float:
    """The epsilon of a true label. `spent` is counted between labels: the reported ones if they were randomised."""
    if randomised is None:
        return epsilon(spent, at)
    return curves.joint_label(randomised, delta_curve(spent), at)


def label_plan(algorithm: Algorithm, public: Public, plan: Plan) -> Plan:
    """The noise of `plan`, counted between data sets that differ in one label.

    Of an algorithm without a proof for labels nothing is known but that a label is part of a record.
    """
    if public.label_only or "label" not in algorithm.adjacencies or not isinstance(public.privacy, Target):
        return plan
    alone = replace(public, privacy=replace(public.privacy, adjacency="label"))
    inside = public.sensitivity / alone.sensitivity
    bend = 1.0 if alone.curvature == public.curvature else alone.curvature / public.curvature
    counted: dict[int, tuple[tuple[Event, ...], ...]] = {}
    for releases in plan.values():
        if id(releases) in counted:
            continue
        rows, cover = [], False
        for row in releases:
            solved = isinstance(row[0], GaussianObjective | GammaObjective)
            gain = 1.0 if cover else inside if solved else public.label_gain
            rows.append(tuple(hidden(event, gain, bend) for event in row))
            cover = solved
        counted[id(releases)] = tuple(rows)
    return {tick: counted[id(releases)] for tick, releases in plan.items()}


@singledispatch
def counted_again(event: Any, gain: float, bend: float) -> Event:
    """The event between neighbours `gain` times closer; one without a rule keeps what it has, which is no less."""
    found: Event = event
    return found


@counted_again.register
def counted_on_a_grid(event: DiscreteGaussian, gain: float, bend: float) -> Event:
    """1/ratio' <= 1/(gain ratio) + (1 - 1/gain) step sqrt(d)/scale: closer neighbours are rounded as far apart."""
    ratio = gain * event.ratio
    return DiscreteGaussian(ratio / (1 + ratio * max(0.0, 1 - 1 / gain) / STEPS))


counted_again.register(Gaussian, lambda event, gain, bend: Gaussian(gain * event.ratio))
counted_again.register(GammaOutput, lambda event, gain, bend: GammaOutput(gain * event.ratio))
counted_again.register(
    GaussianObjective, lambda event, gain, bend: GaussianObjective(gain * event.ratio, bend * event.w)
)
counted_again.register(GammaObjective, lambda event, gain, bend: GammaObjective(event.slope / gain, bend * event.w))
hidden = lru_cache(maxsize=65536)(counted_again)
