"""Guarantees in plain words: what one record is, what an epsilon means, and who learns what.

Numbers are rounded up, so that no sentence promises more than was proved.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from privadmm.engine.guarantees import AWAY, so_many
from privadmm.errors import apart
from privadmm.privacy.accounting import printed
from privadmm.privacy.meaning import FALSELY, ONE, large_epsilon, of_hundred, power
from privadmm.runs.report.card import Person
from privadmm.runs.report.safe import SHORT, visible

NOT_RECORDED = "not recorded"
RECORDS = {
    "replace-one": (
        "One record is one row at one party: all that it says, its features and its label. The guarantee compares the "
        "data with the same data in which one such row says anything else. How many rows a party has is not hidden. "
        "A person with several rows loses more: up to as many times epsilon as there are rows, and at a larger delta."
    ),
    "label": (
        "One record is the label of one row. The guarantee compares the data with the same data in which that one "
        "label is another. The features of a row are not protected by it."
    ),
    "person": (
        "One record is what one party holds of one person: the person's row, in the columns of that party. The "
        "guarantee compares the data with the same data in which that row says anything else."
    ),
    "column": (
        "One record is one whole column at one party. The guarantee compares the data with the same data in which that "
        "column says anything else. What several columns say together of one person is not protected by it."
    ),
}
NOTHING = "No promise is made about any record: nothing limits what those who read the messages learn of it."
# What no epsilon of this library covers, whatever the job.
NEVER_COVERED = (
    "How many records each party has, the columns and their declared ranges: they are public.",
    "That a party took part, when it answered, and how long it took.",
    "What the model tells about people in general. A conclusion that would also follow without a person's record is "
    "not a loss of that person's privacy in this sense.",
    "Records outside of this: copies elsewhere, and earlier releases that no ledger counted. People whose records "
    "stand in several rows or at several parties lose more than is said of one record.",
    "The machines that hold the records. Whoever breaks into a party's own server reads what is stored there.",
)


def unit(adjacency: str | None) -> str:
    """What one record is, for the guarantee between such neighbours."""
    return NOTHING if adjacency is None else RECORDS[adjacency]


def sentence(epsilon: float | None, delta: float | None, adjacency: str | None, simulation: bool) -> str:
    """What epsilon and delta mean, for a reader who knows no mathematics."""
    if epsilon is None or delta is None or adjacency is None:
        return NOTHING
    would, most = "would let" if simulation else "lets", of_hundred(power(epsilon, delta), "at most ")
    return (
        f"Suppose somebody suspects something of one {ONE[adjacency]}, knows all the others, and is content to accuse "
        f"wrongly in {100 * FALSELY:g} of 100 cases. Reading everything that left the parties {would} them confirm a "
        f"true suspicion in {most} of 100 cases; blind guessing confirms {100 * FALSELY:g}."
    )


def weak(epsilon: float | None, views: Mapping[str, Any], people: Mapping[str, Any]) -> str | None:
    """The warning of an epsilon that promises little; None if it promises more, or nothing at all.

    The arguments are those fields of a run's result.
    """
    label: Any = views.get("own_server", {}).get("label")
    if label == AWAY:
        label = views["others"]["label"]
    randomised = label["epsilon"] if isinstance(label, Mapping) else None
    if (total := people.get("per_person")) is not None:
        return large_epsilon(total, "people", randomised)
    return large_epsilon(epsilon, views.get("adjacency") or "replace-one", randomised)


def notation(epsilon: float, delta: float, adjacency: str | None) -> str:
    """The same in the usual notation."""
    one, most = ONE[adjacency or "replace-one"], math.exp(min(epsilon, 700.0))
    factor = f"{math.ceil(most):,}" if 1e3 <= most < 1e6 else printed(most, ".3g")
    odds = f" (one in {math.floor((1 + 1e-9) / delta):,})" if delta else ""  # 1 / 1e-5 is a little below 100,000
    return (
        f"epsilon = {printed(epsilon)} at delta = {printed(delta)}: one {one} changes the probability of any outcome "
        f"by a factor of at most {factor}, plus {printed(delta)}{odds}."
    )


def of_person(person: Person, delta: float | None) -> str:
    """What a person loses in all, where the epsilon of a page is one party's part of it."""
    others = "Parties whose ledgers are not here and that hold columns of the same people add to it."
    part = "The epsilon above is one party's part of a person, who has a row at every party that holds columns."
    if person.parties == 1 and not person.all_parties:
        return (
            f"{part} What the others release of the same person is not counted here, and a person loses more in all: "
            "the report of the run, or of a folder with the ledgers of all parties, has that figure."
        )
    whose = f"{'all' if person.all_parties else 'the'} {person.parties} parties{'' if person.all_parties else ' here'}"
    if person.epsilon is None or delta is None:
        return f"{part} What a person loses over the messages of {whose} together is more, and not known."
    total = f"epsilon = {printed(person.epsilon)} at delta = {printed(delta)}"
    more = "" if person.all_parties else f" {others}"
    return f"{part} Over the messages of {whose} together a person loses {total}.{more}"


def whole_person(person: Person, delta: float | None) -> str:
    """The cell of a person's total in the table of who learns what."""
    if person.epsilon is None or delta is None or (person.parties == 1 and not person.all_parties):
        return "more than at one party; not known here"
    return f"{guarantee({'epsilon': person.epsilon, 'delta': delta})}" + (
        "" if person.all_parties else f", of the {person.parties} parties here; other parties add to it"
    )


def guarantee(found: Any) -> str:
    """A guarantee of `engine.guarantees`: its epsilon and delta, or the words that say there is none."""
    if isinstance(found, Mapping):
        return f"epsilon = {printed(found['epsilon'])} at delta = {printed(found['delta'])} at most"
    return str(found)


def learners(views: Mapping[str, Any], sums: Mapping[str, Any] | None, people: Mapping[str, Any]) -> list[list[str]]:
    """Who learns what, as rows of two cells; the arguments are those fields of a run's result."""
    private = any(isinstance(found, Mapping) for found in views["others"].values())
    rows = [[f"The party's own server: {what}", guarantee(found)] for what, found in views["own_server"].items()]
    rows += [
        [f"All others who read every message: {what}", guarantee(found)] for what, found in views["others"].items()
    ]
    if sums:
        few = f"The coordinator with up to {sums['colluding']} of the {sums['parties']} parties, who tell all they know"
        rows.append([few, "the same as all others, as long as the cryptography holds"])
        rows += [colluding(row["colluding"], sums, row["epsilon"]) for row in sums["if_colluding"]]
        rows.append(["Of a person with records at two parties", proved(sums["at_two_parties"], sums)])
    elif private:
        alike = "the same as all others: each message carries all of its noise itself"
        rows.append(["The coordinator with any number of other parties, or with everybody else", alike])
    if (total := people.get("per_person")) is not None:
        rows.append(["Of a person, over the messages of all parties together", cost(total)])
    return rows


def colluding(count: int, sums: Mapping[str, Any], epsilon: float | None) -> list[str]:
    """The row of so many parties that tell the coordinator all they know."""
    return [f"The coordinator with {so_many(count, sums['parties'])}", proved(epsilon, sums)]


def proved(epsilon: float | None, sums: Mapping[str, Any]) -> str:
    """A cost of secure sums, or that none is proved: it would be above the most that is."""
    if epsilon is not None:
        return cost(epsilon)
    most = sums.get("most_proved")
    return "no epsilon is proved" + ("" if most is None else f" (the most that is: {printed(most)})")


def not_here(kind: str, places: Sequence[str]) -> str:
    """Why a page has no list of what was refused, and which one has."""
    if kind != "run":
        return "not recorded: the version of privadmm that made the ledger kept no list of it"
    where = "each party's own ledger, at the party"
    if places:
        where = f"the report of {'its ledger' if len(places) == 1 else 'its ledgers'}, {parties(places)}"
    return f"the page of a run cannot tell: what was refused is kept in ledgers. It stands in {where}"


def closed(line: str) -> str:
    """A line as a whole sentence."""
    return f"{line[:1].upper()}{line[1:]}" + ("" if line.endswith((".", "!", "?")) else ".")


def cost(epsilon: float | None) -> str:
    return "not private" if epsilon is None else f"epsilon = {printed(epsilon)}"


def parties(names: Sequence[str], most: int = 6) -> str:
    """The names of some parties; of many, the first and how many more there are. Numbers in a row are a range."""
    numbers = [name.removeprefix("party ") for name in names]
    if len(names) > 2 and numbers[0].isdecimal() and len(numbers[0]) < 9:
        first = int(numbers[0])
        if list(names) == [f"party {number}" for number in range(first, first + len(names))]:
            return f"parties {numbers[0]} to {numbers[-1]}"
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(apart(visible(name, SHORT)) for name in names[:most]) + more
