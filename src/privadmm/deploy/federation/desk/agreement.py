"""Whether party.toml and the party's ledger have the same policy, and how its steward makes them agree.

Both are needed: a party whose files differ answers nothing. How they differ is told to its steward alone.
"""

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from privadmm.deploy.federation.party import FILE, Party, read
from privadmm.errors import PrivadmmError
from privadmm.privacy.ledger_file import Identity, identity_of
from privadmm.privacy.limits import Limits
from privadmm.privacy.policy import SILENT_DAYS

FOR_GOOD = ("mode", "parties", "adjacency", "label_epsilon")  # facts of a ledger that cannot be amended
DEFAULTS = {"limits": asdict(Limits()), "silent_days": SILENT_DAYS}  # of facts that a ledger may leave out


@dataclass(frozen=True)
class Disagreement:
    """How a ledger and party.toml differ, and how to make them agree."""

    said: str
    fix: str


def disagreement(party: Party) -> Disagreement | None:
    """Compare the ledger with party.toml; None if they agree."""
    known = identity_of(party.ledger)
    fixed = {} if known is None else known.facts()
    mine = Identity(party.policy.mode, (party.number,), party.fixed).facts()
    unlike = [fact for fact in {**mine, **fixed} if mine.get(fact) != fixed.get(fact)]
    if not unlike:
        return None
    said = f"has {unlike[0]} = {fixed.get(unlike[0])}, and {FILE} has {mine.get(unlike[0])}"
    amend = f'`privadmm federation ledger {party.folder} --amend --because "..."`'
    if fixed.get("algorithms") == "null":  # party.toml has to name some
        return Disagreement(said, f"amend the ledger to {FILE}'s policy, which has to name algorithms: {amend}")
    settings = ", ".join(line for fact in unlike for line in lines(fact, value_of(fact, fixed), value_of(fact, mine)))
    follow = f"set {party.folder / FILE} to the ledger's policy ({settings})"
    if stays := [fact for fact in unlike if fact in FOR_GOOD]:
        return Disagreement(said, f"{follow}; the ledger's {' and '.join(stays)} cannot be amended")
    return Disagreement(said, f"{follow}, or amend the ledger to {FILE}'s, which keeps what was spent: {amend}")


def value_of(fact: str, facts: dict[str, str]) -> Any:
    return json.loads(facts[fact]) if fact in facts else DEFAULTS.get(fact)


def lines(fact: str, want: Any, have: Any) -> list[str]:
    """The lines of party.toml that would give a fact the ledger's value."""
    if fact in ("budget", "limits"):
        section = "policy" if fact == "budget" else fact
        names, old = want or dict.fromkeys(have), have or {}
        return [line(section, name, names[name]) for name in names if name not in old or names[name] != old[name]]
    if fact == "parties":
        return [line("party", "number", want and want[0])]
    return [line("policy", fact, want)]


def line(section: str, key: str, value: Any) -> str:
    return f"[{section}] without {key}" if value is None else f"[{section}] {key} = {json.dumps(value)}"


def owner_of(ledger: Path) -> Party | None:
    """The party whose party.toml, beside the ledger or one folder up, names it; None if there is none."""
    here = ledger.absolute().parent
    for folder in (here, here.parent):
        with suppress(PrivadmmError, OSError):
            party = read(folder)
            if party.ledger.resolve() == ledger.resolve():
                return party
    return None


def to_follow(ledger: Path) -> str | None:
    """Tell a steward who amended only the ledger what to change in party.toml; None if they agree."""
    party = owner_of(ledger)
    problem = None if party is None else disagreement(party)
    if problem is None:
        return None
    return f"{ledger}: {problem.said}. Until they agree the party answers nothing: {problem.fix}"
