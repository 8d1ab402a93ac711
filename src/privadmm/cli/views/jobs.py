"""What `account`, `plan` and `audit` print about a job: its cost, and what this cost assumes."""

from collections.abc import Iterable
from itertools import groupby
from typing import Any

from privadmm.algorithms.evaluation_noise import accuracy_words
from privadmm.cli.views import screen
from privadmm.cli.views.screen import Facts, escape
from privadmm.engine.guarantees import less_than_asked, so_many
from privadmm.privacy.accounting import printed
from privadmm.runs.metrics import amount
from privadmm.runs.model import NOT_PRIVATE

CATCHES, GAMES = 1e-3, 400_000  # the delta and the games at which an audit catches every planted bug


def guarantee(r: dict[str, Any]) -> str:
    if not r["private"]:
        return "[bold red]NOT PRIVATE[/]"
    return f"[bold green]epsilon = {printed(r['epsilon'])}[/], delta = {printed(r['delta'], '.6g')}"


def adversaries(views: dict[str, Any]) -> Facts:
    """What each adversary learns; no lines if nothing is protected."""

    def learns(view: dict[str, float] | str) -> str:
        if isinstance(view, str):
            return view
        at = f" at delta = {printed(view['delta'], '.6g')}" if view["delta"] else ""
        return f"epsilon = {printed(view['epsilon'])}{at}"

    own, others = views["own_server"], views["others"]
    if all(isinstance(view, str) for view in (*own.values(), *others.values())):
        return []
    names = {what: "its label alone" if what == "label" else f"a {what}" for what in others}
    return [
        ("own server", f"where the records are: features {own['features']}; a label {learns(own['label'])}"),
        ("others", "; ".join(f"{names[what]} {learns(view)}" for what, view in others.items())),
    ]


def of_people(r: dict[str, Any]) -> Facts:
    """What a person loses over all parties that hold columns, and whether labels are protected."""
    person = labels = None
    if r.get("per_person") is not None:
        total = f"epsilon = {printed(r['per_person'])} at delta = {printed(r['delta'], '.6g')}"
        person = f"{total}, over all parties together: a person has a row at each"
    if r["private"] and "label_holder" in r:
        labels = (
            "[bold red]labels are not protected[/]: what the coordinator sends is derived from them; "
            "\\[privacy] label_epsilon would randomise them"
        )
        if (own := r["label_holder"]["epsilon"]) is not None:
            labels = f"randomised once, epsilon = {printed(own, '.6g')}"
    return [("per person", person), ("labels", labels)]


ROSTERS = {
    "simulated": "simulated in one process: there are no keys, and nothing is hidden from it",
    "pinned": "pinned: a party takes keys only from those whose public keys are in its own directory",
    "not pinned": "[bold red]not pinned[/]: nobody checked whose keys are whose, so this is against a coordinator who "
    "follows the protocol, and not against one who hands out keys of its own",
}


def in_sums(r: dict[str, Any]) -> Facts:
    """What the epsilon of secure sums assumes, and what is lost if that does not hold."""
    if (sums := r.get("secure_sum")) is None:
        return []
    few, parties, most = sums["colluding"], sums["parties"], sums.get("most_proved")
    rows = [(shown_epsilon(row["epsilon"], most), so_many(row["colluding"], parties)) for row in sums["if_colluding"]]
    bounds, last = ", ".join(f"{cost} with {who}" for cost, who in rows), "the last" if len(rows) > 1 else "that"
    more = f"{bounds}, if the coordinator also picks who is present; {last} also if the cryptography is broken"
    both = sums["at_two_parties"]
    lost = "[bold red]no proved bound on what[/] a person with records at two of them loses"
    two = lost if both is None else f"a person with records at two of them loses {shown_epsilon(both, most)}"
    return [
        ("less than asked", less_than_asked(sums)),
        (
            "secure sum",
            f"computational ({sums['rests_on']}); holds against the coordinator together with up to {few} of "
            f"the {parties} parties"
            + ("" if sums["fewest"] is None else f"; fewest parties in a sum: {sums['fewest']}"),
        ),
        ("if more collude", more if bounds else None),
        ("at two parties", f"{two}: in a sum both records move before the noise"),
        ("roster", ROSTERS[sums["roster"]] if "roster" in sums else None),
    ]


def shown_epsilon(total: float | None, most: float | None) -> str:
    """An epsilon, or the words that none is proved; `most` is the largest epsilon that a proof covers."""
    if total is not None:
        return f"epsilon = {printed(total)}"
    return "[bold red]no proved epsilon[/]" + ("" if most is None else f" (the most that is proved: {printed(most)})")


def account(r: dict[str, Any], budget: float | None) -> str:
    """`budget` is what the config's ledger would allow each party in all."""
    facts: Facts = [("algorithm", f"{r['algorithm']}, {amount(r['rounds'], 'round')}")]
    if r["private"]:
        total = r["certified"]["epsilon"]
        facts.append(
            ("certified", f"[bold green]epsilon = {printed(total, '.4f')}[/] at delta = {printed(r['delta'], '.6g')}")
        )
        if budget is not None and total > budget:
            facts.append(("budget", f"[bold red]epsilon = {budget:g}[/] for each party: this run would be refused"))
    else:
        facts.append(("certified", screen.alarm(NOT_PRIVATE)))
    claim, caveat = screen.given("epsilon = {:.4f}", r["published"]["epsilon"]), escape(r["published"]["caveat"])
    facts += [("published", f"{claim or 'no claim'} ({caveat})"), ("counted for", counted(r["parties"]))]
    facts += [*adversaries(r["adversaries"]), *of_people(r), *in_sums(r)]
    advice = None if r["advice"] is None else escape(r["advice"])
    return screen.shown(screen.rows([*facts, ("advice", advice), *outlook(r)]))


def counted(parties: list[dict[str, Any]]) -> str:
    """For how many parties and records the figures were computed."""
    people, each = amount(len(parties), "party"), " each" if len(parties) > 1 else ""
    if any(party["records"] is None for party in parties):
        return f"{people}, whatever records they have"
    held = [party.get("held_out", 0) for party in parties]
    trained = between(party["records"] - out for party, out in zip(parties, held, strict=True))
    evaluated = f", and {between(held)} held out to evaluate by" if any(held) else ""
    return f"{people} with {trained} records to train on{evaluated}{each}"


def between(numbers: Iterable[int]) -> str:
    """The least and the greatest of these numbers, or a single number if all are equal."""
    few, many = min(several := list(numbers)), max(several)
    return str(few) if few == many else f"{few} to {many}"


def outlook(r: dict[str, Any]) -> Facts:
    """Estimates and warnings: noise against signal, what is recommended instead, a large epsilon or delta."""
    even = screen.given(
        "for the estimates below: {:,} records to train on, dealt out evenly", (r.get("assumed") or {}).get("records")
    )
    return [
        ("assumed", even),
        *noise(r),
        ("warning", screen.alarm(r.get("epsilon_warning"))),
        ("warning", screen.alarm(r.get("delta_warning"))),
        *vagueness(r.get("evaluation")),
    ]


def vagueness(evaluation: dict[str, Any] | None) -> Facts:
    """How exact the accuracy from a private evaluation will be."""
    if evaluation is None:
        return []
    if "unknown" in evaluation:
        return [("evaluation", f"how vague it will be is not known: {escape(evaluation['unknown'])}")]
    of = f"private, {evaluation['records']:,} held-out records, {evaluation['share']:.0%} of the budget"
    return [("evaluation", f"{of}: {accuracy_words(evaluation)}"), ("warning", screen.alarm(evaluation["warning"]))]


def noise(r: dict[str, Any]) -> Facts:
    if (noisy := r.get("regression")) is not None:
        moved = f"a prediction moves by +- {noisy['prediction_noise']:.3g} by noise alone, one standard deviation"
        beside = f"labels lie within {noisy['label_bound']:g} (an estimate on invented records)"
        learned = screen.given("{:.0%} of the spread of labels that nothing is easier to learn than", noisy["learned"])
        return [
            ("noise", f"{moved}; {beside}"),
            ("learned", learned if noisy["warning"] is None else None),
            ("warning", screen.alarm(noisy["warning"])),
        ]
    if (expected := r.get("expected")) is None:
        return [("outlook", f"none: {escape(r['not_expected'])}")] if "not_expected" in r else []
    times = f"{expected['noise_to_signal']:.2g} times the signal of a middling data set"
    estimate = "(an estimate from public facts, not an accuracy)"
    facts: Facts = [("noise", f"{times}: {screen.verdict(expected['verdict'])} {estimate}")]
    facts.append(("warning", screen.alarm(expected.get("warning"))))
    if (better := r.get("with_secure_sum")) is not None:
        gain = f'\\[privacy] sum = "secure" would bring it to {better["noise_to_signal"]:.2g} times'
        facts.append(("secure sums", f"{gain}: {screen.verdict(better['verdict'])}"))
    if (best := r.get("recommended")) is not None:
        how = f"{best['method']} with moments, {best['rounds']} rounds, half-logistic loss, {best['encoding']} numbers"
        how += " in secure sums" if best["sum"] == "secure" else ""
        facts.append(("recommended", f"{how}: {best['expected']['noise_to_signal']:.2g} times the signal"))
    return facts


def plan(r: dict[str, Any]) -> str:
    facts: Facts = [
        ("algorithm", f"{r['algorithm']}, {amount(r['rounds'], 'round')}"),
        ("asked for", f"epsilon = {r['epsilon']:g} at delta = {printed(r['delta'], '.6g')}, for each party"),
        ("counted for", counted(r["parties"])),
    ]
    for label, cost, _ in screen.alike(r["parties"], "epsilon", "events"):
        facts.append((label, f"epsilon = {printed(cost, '.6g')} each, after all rounds"))
    facts += releases(r["parties"][0]["events"])
    by_round = r["epsilon_by_round"]
    marks = sorted({0, len(by_round) // 4, len(by_round) // 2, len(by_round) - 1})
    spent = ", ".join(f"{printed(by_round[t])} after round {t + 1}" for t in marks)
    return screen.shown(screen.rows([*facts, ("spent", spent), *in_sums(r), *outlook(r)]))


def releases(events: list[dict[str, Any]]) -> Facts:
    """A line for each event; more than four of one kind share a line, with their noise from least to most."""
    facts: Facts = []
    for kind, group in groupby(sorted(events, key=lambda event: event["kind"]), lambda event: event["kind"]):
        of_kind = list(group)
        for some in [[event] for event in of_kind] if len(of_kind) <= 4 else [of_kind]:
            laws = {key: sorted({event[key] for event in some}) for key in some[0] if key not in ("kind", "count")}
            law = ", ".join(
                f"{key} {values[0]:.6g}" + (f" to {values[-1]:.6g}" if len(values) > 1 else "")
                for key, values in laws.items()
            )
            count = sum(event["count"] for event in some)
            facts.append(("release", f"{count} times {kind.replace('_', ' ')}, {law}"))
    return facts


def proves_more(trials: int, delta: float) -> str:
    """What to change so that an audit proves more."""
    if delta >= CATCHES:
        return "raise --trials: with few games little can be proved"
    more = f", with {GAMES:,} games (--trials)" if trials < GAMES else ""
    return f"delta = {delta:g} hides it: audit a copy of the config that has delta = {CATCHES:g}{more}"


def audit(r: dict[str, Any]) -> str:
    fits = r["epsilon_lower"] <= r["epsilon_certified"]
    verdict = "[bold green]consistent with the certificate[/]" if fits else "[bold red]ABOVE THE CERTIFICATE[/]"
    proved = f"proves epsilon >= {r['epsilon_lower']:.4f} at {100 * r['confidence']:g} % confidence"
    facts: Facts = [
        ("algorithm", f"{r['algorithm']}, {r['trials']:,} games on each of two neighbouring data sets"),
        ("certified", f"epsilon = {printed(r['epsilon_of_job'], '.4f')} at delta = {printed(r['delta'], '.6g')}"),
        *in_sums(r),
        ("attacked", f"a small instance, certified at {printed(r['epsilon_certified'], '.4f')}"),
        ("attack", f"{proved} ({100 * r['tightness']:.0f} % of the instance's certificate): {verdict}"),
        ("estimate", f"epsilon = {r['epsilon_fitted']:.4f}, if the likelihood ratios are Gaussian; not a bound"),
    ]
    missed = f"[bold red]NOT CAUGHT[/] ({proves_more(r['trials'], r['delta'])})"
    for control in r["negative_controls"]:
        state = "[green]caught[/]" if control["caught"] else missed
        facts.append(("planted bug", f"{control['name']}: {state}, epsilon >= {control['epsilon_lower']:.3g}"))
    return screen.shown(screen.rows(facts))
