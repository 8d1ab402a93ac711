"""What a person sees in the terminal after a command: text, with colours only where they can be shown."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from privadmm.privacy.accounting import printed
from privadmm.runs.metrics import amount
from privadmm.runs.model import NOT_PRIVATE, SIMULATED

if TYPE_CHECKING:
    from privadmm.runs.demo import Pair
    from privadmm.runs.ending import Finished

# A label and what it stands for: prose in rich's markup, or a path, which is never broken.
Facts = list[tuple[str, str | Path]]


def percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.2f} %"


def guarantee(result: dict[str, Any]) -> str:
    if not result["private"]:
        return "[bold red]NOT PRIVATE[/]"
    return f"[bold green]epsilon = {printed(result['epsilon'])}[/], delta = {result['delta']:g}"


def run(done: "Finished") -> str:
    """The summary of one run."""
    r = done.result
    facts: Facts = [("algorithm", f"{r['algorithm']}, {amount(r['parties'], 'party')}, {amount(r['rounds'], 'round')}")]
    if r["private"]:
        facts.append(("privacy", f"{guarantee(r)}, certified, for each party"))
    else:
        facts.append(("privacy", f"[bold red]{NOT_PRIVATE}[/]"))
    if r["mode"] == "simulation":
        facts += [("mode", SIMULATED), *measured(r)]
    else:
        facts.append(("mode", "deployment: nothing is measured on private records"))
    facts += who(r["adversaries"]) + of_people(r) + absent(r) + budgets(done)
    facts += [("time", f"{r['seconds']:.1f} s"), ("run directory", Path(r["out"]))]
    return shown([rows(facts)])


def absent(r: dict[str, Any]) -> Facts:
    """Who left, what that cost them, and what the others' objective is."""
    facts: Facts = []
    for one in r.get("absent", ()):
        said = f"gave no answer from round {one['from_round']} on"
        if one["epsilon"] is not None:
            spent, aside = printed(one["epsilon"]), printed(one["set_aside"])
            said += f"; it had spent epsilon = {spent} of the {aside} set aside for it"
            said += f"; `privadmm ledger close` with job {one['job']} frees the rest"
        facts.append((f"party {one['party']}", said))
    if facts:
        facts.append(("those left", f"minimise their own losses with C = {r['C_present']:.6g}, at the planned weights"))
    return facts


def of_people(r: dict[str, Any]) -> Facts:
    """Of vertical parties: what a person loses at all of them together, and who answers for the labels."""
    facts: Facts = []
    if r.get("per_person") is not None:
        total = f"epsilon = {printed(r['per_person'])} at delta = {r['delta']:g}"
        facts.append(("per person", f"{total}, over all parties together: a person has a row at each"))
    if r["private"] and "label_holder" in r:
        labels = r["label_holder"]["epsilon"]
        bare = (
            "[bold red]labels are not protected[/]: what the coordinator sends is derived from them; "
            "\\[privacy] label_epsilon would randomise them"
        )
        facts.append(("labels", bare if labels is None else f"randomised once, epsilon = {labels:g}"))
    return facts


def who(views: dict[str, Any]) -> Facts:
    """What each adversary learns; nothing is said where nothing is protected."""

    def worth(view: dict[str, float] | str) -> str:
        if isinstance(view, str):
            return view
        at = f" at delta = {view['delta']:g}" if view["delta"] else ""
        return f"epsilon = {printed(view['epsilon'])}{at}"

    own, others = views["own_server"], views["others"]
    told = [("label alone" if what == "label" else what, view) for what, view in others.items()]
    if all(isinstance(view, str) for view in (*own.values(), *others.values())):
        return []
    return [
        ("own server", f"where the records are: features {own['features']}; a label {worth(own['label'])}"),
        (
            "others",
            "; ".join(f"{'its' if what == 'label alone' else 'a'} {what} {worth(view)}" for what, view in told),
        ),
    ]


def measured(r: dict[str, Any]) -> Facts:
    facts: Facts = []
    if r["accuracy_train"] is not None:
        facts.append(("accuracy", f"train {percent(r['accuracy_train'])}, test {percent(r['accuracy_test'])}"))
        facts.append(("majority", f"train {percent(r['majority_train'])}, test {percent(r['majority_test'])}"))
    value = "none: the model ran away" if r["objective"] is None else f"{r['objective']:.8g}"
    gap = "" if r["gap"] is None else f"; parties' own iterates within {r['gap']:.2g} of the model"
    return [*facts, ("objective", value + gap)]


def budgets(done: "Finished") -> Facts:
    """What is left to each party; of a ledger that only this run knows there is nothing to tell."""
    r, budget = done.result, done.ledger["budget"]
    durable = r["ledger"] not in (str(done.directory.ledger), str(done.directory.ledgers))
    if not durable:
        private = r["mode"] == "deployment" and r["private"]
        alone = "of this run alone; name \\[run] ledger to count other runs on these records with it"
        return [("ledger", alone)] if private else []
    facts: Facts = [("ledger", Path(r["ledger"]))]
    if budget is None:
        return facts
    for label, spent, left in alike(done.ledger["parties"], "epsilon", "left"):
        room = f"another run may ask for up to {left:.4g}" if left else "nothing is left"
        facts.append((label, f"epsilon {printed(spent)} of {budget['epsilon']:.4g} spent; {room}"))
    return facts


def alike(parties: list[dict[str, Any]], first: str, second: str) -> Iterator[tuple[str, Any, Any]]:
    """Neighbouring parties with the same two figures, on one line."""
    for (one, two), group in groupby(parties, key=lambda party: (party[first], party[second])):
        ids = [party["party"] for party in group]
        yield (f"party {ids[0]}" if len(ids) == 1 else f"parties {ids[0]} to {ids[-1]}"), one, two


def account(r: dict[str, Any], budget: float | None) -> str:
    """`budget` is what the config's ledger would allow each party in all."""
    facts: Facts = [("algorithm", f"{r['algorithm']}, {amount(r['rounds'], 'round')}")]
    if r["private"]:
        total = r["certified"]["epsilon"]
        facts.append(("certified", f"[bold green]epsilon = {printed(total, '.4f')}[/] at delta = {r['delta']:g}"))
        if budget is not None and total > budget:
            facts.append(("budget", f"[bold red]epsilon = {budget:g}[/] for each party: this run would be refused"))
    else:
        facts.append(("certified", f"[bold red]{NOT_PRIVATE}[/]"))
    claim = r["published"]
    said = "no claim" if claim["epsilon"] is None else f"epsilon = {claim['epsilon']:.4f}"
    facts.append(("published", f"{said} ({escape(claim['caveat'])})"))
    facts += [("counted for", counted(r["parties"])), *who(r["adversaries"]), *of_people(r)]
    if r["advice"] is not None:
        facts.append(("advice", escape(r["advice"])))
    return shown([rows(facts + outlook(r))])


def counted(parties: list[dict[str, Any]]) -> str:
    """The numbers of records on which the figures rest."""
    sizes, people = [party["records"] for party in parties], amount(len(parties), "party")
    if None in sizes:
        return f"{people}, whatever records they have"
    each = str(min(sizes)) if min(sizes) == max(sizes) else f"{min(sizes)} to {max(sizes)}"
    return f"{people} with {each} records to train on{' each' if len(sizes) > 1 else ''}"


def too_small(r: dict[str, Any]) -> Facts:
    """The warning, where there is cause for one."""
    problem = r.get("expected", {}).get("warning")
    return [] if problem is None else [("warning", f"[bold red]{escape(problem)}[/]")]


def outlook(r: dict[str, Any]) -> Facts:
    """Noise against signal, where the number of records is known; and what is recommended instead."""
    if (found := r.get("expected")) is None:
        return [("outlook", f"none: {escape(r['not_expected'])}")] if "not_expected" in r else []
    colour = {"good": "green", "thin": "yellow"}.get(found["verdict"], "bold red")
    said = f"{found['noise_to_signal']:.2g} times the signal of a middling data set: [{colour}]{found['verdict']}[/]"
    facts: Facts = [("noise", f"{said} (an estimate from public facts, not an accuracy)")]
    facts += too_small(r)
    if (best := r.get("recommended")) is not None:
        how = f"{best['method']} with moments, {best['rounds']} rounds, half-logistic loss, {best['encoding']} numbers"
        better = f"{best['expected']['noise_to_signal']:.2g} times the signal"
        facts.append(("recommended", f"{how}: {better}"))
    return facts


def demo(pair: "Pair") -> str:
    private, reference = pair.private.result, pair.reference.result
    models = Table(title="Adult census income, 10 parties that share no record", title_justify="left")
    for heading in ("model", "privacy of each party", "test accuracy"):
        models.add_column(heading, justify="right" if heading == "test accuracy" else "left")
    for name, r in (("private", private), ("non-private", reference)):
        models.add_row(name, guarantee(r), percent(r["accuracy_test"]))
    models.add_row("always the majority", "", percent(private["majority_test"]))
    spent = Table(title="Each party's own ledger", title_justify="left")
    for heading in ("party", "releases", "epsilon spent", "budget"):
        spent.add_column(heading, justify="right")
    budget = pair.private.ledger["budget"]["epsilon"]
    for party in pair.private.ledger["parties"]:
        releases = sum(event["count"] for event in party["events"])
        spent.add_row(str(party["party"]), str(releases), f"{printed(party['epsilon'], '.6f')}", f"{budget:g}")
    below = 100 * (reference["accuracy_test"] - private["accuracy_test"])
    above = 100 * (private["accuracy_test"] - private["majority_test"])
    directory = pair.private.directory
    facts: Facts = [
        ("in short", f"privacy costs {below:.1f} points of accuracy; {above:.1f} above the majority remain"),
        ("mode", SIMULATED),
        ("convergence", directory.convergence),
        ("epsilon by round", directory.spending),
    ]
    return shown([models, spent, rows(facts)])


def rows(facts: Facts) -> list[Text]:
    """A line for each fact; prose is wrapped under itself."""
    width = 2 + max(len(label) for label, _ in facts)
    lines = []
    for label, value in facts:
        if isinstance(value, Path):
            wrapped: Iterable[Text] = [Text(str(value))]
        else:
            room = max(20, min(console().width, 100) - width)
            wrapped = Text.from_markup(value, emoji=False).wrap(console(), room)
        for number, part in enumerate(wrapped):
            part.rstrip()
            lines.append(Text.assemble((f"{label if number == 0 else '':<{width}}", "dim"), part))
    return lines


def shown(parts: Iterable[Table | list[Text]]) -> str:
    """As text for standard output: plain unless that is a terminal."""
    screen = console()
    with screen.capture() as captured:
        for part in parts:
            for item in part if isinstance(part, list) else [part]:
                screen.print(item, soft_wrap=isinstance(item, Text))
    return captured.get()


def console() -> Console:
    return Console(highlight=False, emoji=False)


def plan(r: dict[str, Any]) -> str:
    facts: Facts = [
        ("algorithm", f"{r['algorithm']}, {amount(r['rounds'], 'round')}"),
        ("asked for", f"epsilon = {r['epsilon']:g} at delta = {r['delta']:g}, for each party"),
        ("counted for", counted(r["parties"])),
    ]
    for label, cost, _ in alike(r["parties"], "epsilon", "events"):
        facts.append((label, f"epsilon = {printed(cost, '.6g')} each, after all rounds"))
    facts += releases(r["parties"][0]["events"])
    marks = sorted(
        {0, len(r["epsilon_by_round"]) // 4, len(r["epsilon_by_round"]) // 2, len(r["epsilon_by_round"]) - 1}
    )
    spent = ", ".join(f"{printed(r['epsilon_by_round'][t])} after round {t + 1}" for t in marks)
    return shown([rows([*facts, ("spent", spent), *outlook(r)])])


def releases(events: list[dict[str, Any]]) -> Facts:
    """A line for each event; where noise is another in every round, one for all of a kind, from least to most."""
    facts: Facts = []
    for kind, group in groupby(sorted(events, key=lambda event: event["kind"]), lambda event: event["kind"]):
        alike = list(group)
        for some in [[event] for event in alike] if len(alike) <= 4 else [alike]:
            laws = {key: sorted({event[key] for event in some}) for key in some[0] if key not in ("kind", "count")}
            law = ", ".join(
                f"{key} {found[0]:.6g}" + (f" to {found[-1]:.6g}" if len(found) > 1 else "")
                for key, found in laws.items()
            )
            count = sum(event["count"] for event in some)
            facts.append(("release", f"{count} times {kind.replace('_', ' ')}, {law}"))
    return facts


def audit(r: dict[str, Any]) -> str:
    fits = r["epsilon_lower"] <= r["epsilon_certified"]
    verdict = "[bold green]consistent with the certificate[/]" if fits else "[bold red]ABOVE THE CERTIFICATE[/]"
    facts: Facts = [
        ("algorithm", f"{r['algorithm']}, {r['trials']:,} games on each of two neighbouring data sets"),
        ("certified", f"epsilon = {printed(r['epsilon_of_job'], '.4f')} at delta = {r['delta']:g}"),
        ("attacked", f"a small instance, certified at {printed(r['epsilon_certified'], '.4f')}"),
        (
            "attack",
            f"proves epsilon >= {r['epsilon_lower']:.4f} at {100 * r['confidence']:g} % confidence "
            f"({100 * r['tightness']:.0f} % of the instance's certificate): {verdict}",
        ),
        (
            "estimate",
            f"epsilon = {r['epsilon_fitted']:.4f}, if the likelihood ratios are Gaussian; not a bound",
        ),
    ]
    for control in r["negative_controls"]:
        missed = "[bold red]NOT CAUGHT[/] (raise --trials: with few games little can be proved)"
        state = "[green]caught[/]" if control["caught"] else missed
        facts.append(("planted bug", f"{control['name']}: {state}, epsilon >= {control['epsilon_lower']:.3g}"))
    return shown([rows(facts)])
