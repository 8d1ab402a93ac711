"""Who learns what of a record: the server of the party that holds it, and everybody who sees what left the party.

The party's own server holds the features in the clear. It holds the labels in the clear, too, unless they were
randomised before: then it knows each of them up to that epsilon, for ever. The others see the transcript. Its noise was
planned for the job's neighbours. Data sets that differ in one label alone are closer, and the noise is counted again:

    noise on a query, or shared by a sum's      ratio' = ratio s/s', less where it is on a grid
    noise in an objective                       ratio' = ratio s/s',   slope' = slope s'/s,   w' = w c'/c
    the cover of an inexact argmin              as it is

s and c are the most that a record's gradient and curvature differ between the job's neighbours, s' and c' between
labels. A computed query moves further than the exact one, by its error; `Local.moved` counts that error s/s'
times, so that the first line holds whatever a coordinator sends. If the labels were randomised, this guarantee is that
of a reported label, and `curves.joint_label` turns it into that of the true one.
See docs/privacy.md#views and docs/privacy.md#joint-label.

In a secure sum others see less, as long as not too many of them collude. `collusion` says what that rests on, and what
a record loses where it does not hold: docs/privacy.md#secure-sums.
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
    """The guarantees of the worst party: each is (epsilon, delta), or the words that there is none."""
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
            # Releases of the trainings before are counted for whole records: they tell no more of a label.
            spent = public.in_all(totals(label_plan(algorithm, public, plan), public.parties))
            worst_label = max(label_epsilon(tally, target.delta, labels) for tally in distinct(spent))
            label = guarantee(worst_label, target.delta)
    return {"adjacency": public.privacy.adjacency, "own_server": own, "others": {"record": record, "label": label}}


def guarantee(total: float, at: float) -> Guarantee:
    return {"epsilon": total, "delta": at} if math.isfinite(total) else BARE


def label_epsilon(spent: Spent, at: float, randomised: float | None) -> float:
    """The epsilon of a true label, from releases counted between labels: reported ones if labels were randomised."""
    if randomised is None:
        return epsilon(spent, at)
    return curves.joint_label(randomised, delta_curve(spent), at)


def label_plan(algorithm: Algorithm, public: Public, plan: Plan) -> Plan:
    """The noise of `plan`, counted between data sets that differ in one label.

    An algorithm without a proof for labels is counted as for whole records, since a label is part of a record.
    """
    if public.label_only or "label" not in algorithm.adjacencies or not isinstance(public.privacy, Target):
        return plan
    labels = replace(public, privacy=replace(public.privacy, adjacency="label"))
    inside = public.sensitivity / labels.sensitivity
    bend = 1.0 if labels.curvature == public.curvature else labels.curvature / public.curvature
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
    """What the guarantee of secure sums rests on, and what is lost where that does not hold; empty without sums.

    `spent` is what each party releases in the job; the cost of the start is added, and its sums count, too. An epsilon
    is None if it would be above `most_proved`, the largest that can be proved; that is None if none can be.
    """
    target, parties, in_all = public.privacy, public.parties, public.in_all(spent)
    t = tolerated(in_all)
    if not isinstance(target, Target) or t is None:
        return {}
    fewest = None if target.sum is None else target.sum.least(parties)
    tallies = distinct(in_all)
    proved = [most_epsilon(tally, target.delta) for tally in tallies]
    # It is not known how few parties were present in the jobs before, from whose weights this job starts.
    present = 0 if public.start is not None and public.start.past else fewest or 0
    colluders = sorted({parties // 2, 3 * parties // 4, parties - 1})
    rows = [(c, max(if_colluding(tally, target.delta, c, present) for tally in tallies)) for c in colluders if c > t]
    return {
        "parties": parties,
        "colluding": t,
        "fewest": fewest,
        "holds": "computational",
        "rests_on": CRYPTOGRAPHY,
        "sums": max(sum(n for event, n in tally if isinstance(event, SharedGaussian)) for tally in tallies),
        "asked_for": max(target.party_epsilon, default=target.epsilon),
        "most_proved": finite(min(-math.inf if most is None else most for most in proved)),
        "if_colluding": [{"colluding": c, "epsilon": finite(total)} for c, total in rows],
        "at_two_parties": finite(at_two_parties(in_all, target.delta)),
    }


def tolerated(spent: Sequence[Spent]) -> int | None:
    """How many colluding parties all sums among these releases tolerate; None where there is no sum."""
    events = (event for tally in distinct(spent) for event, _ in tally)
    return min((event.colluding for event in events if isinstance(event, SharedGaussian)), default=None)


def summed(colluding: int, parties: int, pinned: bool) -> str:
    """What an epsilon of a secure sum does not cover, in a sentence; `pinned`: parties know each other's keys."""
    trusted = ". Where parties have not pinned each other's keys, the coordinator must follow the protocol"
    return (
        f"the guarantee is computational ({CRYPTOGRAPHY}), and holds against a coordinator and up to {colluding} of "
        f"the {parties} parties together: if more collude, more is lost{'' if pinned else trusted}"
    )


def so_many(colluding: int, parties: int) -> str:
    """A number of colluding parties in words; "everybody else" if only the party of the record in question is left."""
    return f"{colluding} of the {parties} parties" if colluding < parties - 1 else "everybody else"


def less_than_asked(sums: Mapping[str, Any]) -> str | None:
    """Why a job's epsilon is smaller than was asked for, from the facts of `collusion`; None if it is not."""
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
    mu, other_mu = (sort(part).mu for part in parts)
    shared = tuple((scaled(event, mu / (mu + other_mu)), count) for event, count in parts[0])
    rest = [tuple(item for item in spent if not isinstance(item[0], SharedGaussian)) for spent in (first, second)]
    return merge_all([shared, *rest])
