"""Who learns what of a record: the server of the party that holds it, and everybody who sees what left the party.

The party's own server holds the features in the clear, and the labels too unless they were randomised before: then it
knows each label up to that epsilon, for ever. The others see the transcript. Its noise was planned for the job's
neighbours. Between data sets that differ in one label alone the same noise hides more, and is counted here again:

    noise on a query, or shared by a sum's      ratio' = ratio s/s', less where it is on a grid
    noise in an objective                       ratio' = ratio s/s',   slope' = slope s'/s,   w' = w c'/c
    the cover of an inexact argmin              as it is

s and c are the most that a record's gradient and curvature differ between the job's neighbours, s' and c' between
labels. A computed query moves further than the exact one, by its error; `Local.moved` counts that error s/s'
times, so that the first line holds whatever a coordinator sends. If the labels were randomised, this is what the
transcript tells of a reported label; `curves.joint_label` turns it into what it tells of the true one.
See docs/privacy.md#views and docs/privacy.md#joint-label.

In a secure sum others see less, as long as few enough of them tell what they know. `collusion` says what that rests on,
and what a record loses where it does not hold: docs/privacy.md#secure-sums.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial, singledispatch
from itertools import combinations_with_replacement
from typing import Any

from privadmm.data.files import finite
from privadmm.engine.phases import Algorithm
from privadmm.engine.public import Public
from privadmm.engine.sums import if_colluding
from privadmm.privacy import curves
from privadmm.privacy.accounting import Plan, delta_curve, distinct, epsilon, most_epsilon, printed, sort, totals, worst
from privadmm.privacy.alike import Alike
from privadmm.privacy.calibration import Target, scaled
from privadmm.privacy.events import (
    STEPS,
    WIDEST,
    DiscreteGaussian,
    Event,
    GammaObjective,
    GammaOutput,
    Gaussian,
    GaussianObjective,
    SharedGaussian,
    Spent,
    merge_all,
)

CLEAR = "in the clear"
BARE = "not protected"
AWAY = "not there: the coordinator holds it"
CRYPTOGRAPHY = "X25519, HKDF-SHA256 and ChaCha20"
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
        if target.adjacency in ("column", "person"):
            column = target.adjacency == "column"
            others = {"column": total, "record": BARE} if column else {"row at one party": total}
            own["label"] = AWAY
            return {"adjacency": public.privacy.adjacency, "own_server": own, "others": {**others, "label": label}}
        if target.adjacency != "label":
            record = total
        if target.adjacency in ("replace-one", "label"):
            # What a start's releases tell of a record is also the most that they tell of its label.
            spent = public.in_all(totals(label_plan(algorithm, public, plan), public.parties))
            label = guarantee(max(label_epsilon(one, target.delta, labels) for one in distinct(spent)), target.delta)
    return {"adjacency": public.privacy.adjacency, "own_server": own, "others": {"record": record, "label": label}}


def guarantee(total: float, at: float) -> Guarantee:
    return {"epsilon": total, "delta": at} if math.isfinite(total) else BARE


def label_epsilon(spent: Spent, at: float, randomised: float | None) -> float:
    """The epsilon of a true label. `spent` is counted between labels: the reported ones if they were randomised."""
    if randomised is None:
        return epsilon(spent, at)
    return curves.joint_label(randomised, delta_curve(spent), at)


def label_plan(algorithm: Algorithm, public: Public, plan: Plan) -> Plan:
    """The noise of `plan`, counted between data sets that differ in one label.

    Without a proof for labels an algorithm is counted as for whole records, since a label is part of one.
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
            closer = Alike.listed(public.ids, row).map(partial(hidden, gain=gain, bend=bend))
            rows.append(tuple(closer.listing()))
            cover = solved
        counted[id(releases)] = tuple(rows)
    return {tick: counted[id(releases)] for tick, releases in plan.items()}


@singledispatch
def counted_again(event: Any, gain: float, bend: float) -> Event:
    """The cost of an event between neighbours `gain` times closer; without a rule, its whole cost."""
    unchanged: Event = event
    return unchanged


def on_a_grid(ratio: float, gain: float, rounding: float) -> float:
    """1/ratio' <= 1/(gain ratio) + (1 - 1/gain) rounding: rounding moves closer neighbours just as far apart.

    `rounding` bounds step sqrt(d)/scale.
    """
    return gain * ratio / (1 + gain * ratio * max(0.0, 1 - 1 / gain) * rounding)


counted_again.register(Gaussian, lambda event, gain, bend: Gaussian(gain * event.ratio))
counted_again.register(
    DiscreteGaussian, lambda event, gain, bend: DiscreteGaussian(on_a_grid(event.ratio, gain, 1 / STEPS))
)
counted_again.register(
    SharedGaussian,
    lambda event, gain, bend: replace(event, ratio=on_a_grid(event.ratio, gain, math.sqrt(WIDEST) / STEPS)),
)
counted_again.register(GammaOutput, lambda event, gain, bend: GammaOutput(gain * event.ratio))
counted_again.register(
    GaussianObjective, lambda event, gain, bend: GaussianObjective(gain * event.ratio, bend * event.w)
)
counted_again.register(GammaObjective, lambda event, gain, bend: GammaObjective(event.slope / gain, bend * event.w))
hidden = lru_cache(maxsize=65536)(counted_again)


def collusion(public: Public, spent: Sequence[Spent]) -> dict[str, Any]:
    """What the guarantee of secure sums rests on, and what is lost where that does not hold; empty without any.

    `spent` is what each party releases in the job; what the start cost is added, and the start's sums count, too. An
    epsilon of None: it would be above `most_proved`, and there nothing is proved. A `most_proved` of None: nowhere.
    """
    target, parties, in_all = public.privacy, public.parties, public.in_all(spent)
    t = tolerated(in_all)
    if not isinstance(target, Target) or t is None:
        return {}
    fewest = None if target.sum is None else target.sum.least(parties)
    proved = [most_epsilon(one, target.delta) for one in distinct(in_all)]
    # How few parties may have been present in the jobs behind a start is not known.
    known = 0 if public.start is not None and public.start.past else fewest or 0
    rows = [
        (c, max(if_colluding(one, target.delta, c, known) for one in distinct(in_all)))
        for c in sorted({parties // 2, 3 * parties // 4, parties - 1})
        if c > t
    ]
    return {
        "parties": parties,
        "colluding": t,
        "fewest": fewest,
        "holds": "computational",
        "rests_on": CRYPTOGRAPHY,
        "sums": max(sum(n for event, n in one if isinstance(event, SharedGaussian)) for one in distinct(in_all)),
        "asked_for": max(target.party_epsilon, default=target.epsilon),
        "most_proved": finite(min(-math.inf if most is None else most for most in proved)),
        "if_colluding": [{"colluding": c, "epsilon": finite(total)} for c, total in rows],
        "at_two_parties": finite(at_two_parties(in_all, target.delta)),
    }


def tolerated(spent: Sequence[Spent]) -> int | None:
    """How many parties every sum among these releases tolerates to collude; None where there is no sum."""
    events = (event for one in distinct(spent) for event, _ in one)
    return min((event.colluding for event in events if isinstance(event, SharedGaussian)), default=None)


def summed(colluding: int, parties: int, pinned: bool) -> str:
    """What an epsilon of a secure sum does not cover, in a sentence; `pinned`: parties know each other's keys."""
    trusted = ". Where parties have not pinned each other's keys, the coordinator must follow the protocol"
    return (
        f"the guarantee is computational ({CRYPTOGRAPHY}), and holds against a coordinator and up to {colluding} of "
        f"the {parties} parties together: if more collude, more is lost{'' if pinned else trusted}"
    )


def so_many(colluding: int, parties: int) -> str:
    """So many parties, beside the one whose record it is about."""
    return f"{colluding} of the {parties} parties" if colluding < parties - 1 else "everybody else"


def less_than_asked(sums: Mapping[str, Any]) -> str | None:
    """Why a job has a smaller epsilon than was asked for, from what `collusion` says of it; None if it has not."""
    asked, most = sums.get("asked_for"), sums.get("most_proved")
    if asked is None or "most_proved" not in sums or (most is not None and asked <= most):
        return None
    noise = "none is proved" if most is None else f"there is noise for {printed(most)}"
    above = "" if most is None else "above that epsilon "
    return (
        f"epsilon = {asked:g} was asked for, and {noise}: the noise of secure sums is drawn on a grid, and of "
        f"{sums['sums']} such sums nothing is proved {above}at this delta. Use fewer rounds or a larger delta; "
        'sum = "local" has no such limit'
    )


def at_two_parties(spent: Sequence[Spent], delta: float) -> float:
    """The largest epsilon of a person with records at two parties of a secure sum."""
    owners = Counter(spent)
    kinds = list(owners)
    if all(isinstance(event, SharedGaussian) for kind in kinds for event, _ in kind):
        kinds = sorted(kinds, key=lambda kind: -sort(kind).mu)[:2]
    pairs = combinations_with_replacement(kinds, 2)
    return max(epsilon(of_both(a, b), delta) for a, b in pairs if a is not b or owners[a] > 1)


def of_both(first: Spent, second: Spent) -> Spent:
    """What two parties release about one person: in a sum both records move before the noise, so their mu are added.

    Everything else has noise of its own at each party, and composes.
    """
    parts = [tuple(item for item in spent if isinstance(item[0], SharedGaussian)) for spent in (first, second)]
    one, other = (sort(part).mu for part in parts)
    shared = tuple((scaled(event, one / (one + other)), count) for event, count in parts[0])
    rest = [tuple(item for item in spent if not isinstance(item[0], SharedGaussian)) for spent in (first, second)]
    return merge_all([shared, *rest])
