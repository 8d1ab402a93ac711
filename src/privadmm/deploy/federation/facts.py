"""The public facts that a party tells about its part in a job, and which parties may be in one run."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from privadmm import __version__
from privadmm.deploy.federation.party import LONGEST_NAME
from privadmm.deploy.federation.proposal import MOST
from privadmm.deploy.federation.protocol import HASH, Letter, text
from privadmm.errors import DataError, RefusedError

LONGEST = 1 << 24  # characters of a party's facts


@dataclass(frozen=True)
class Facts:
    """The public facts about a party's part in a job."""

    party: int
    records: int
    dim: int
    width: int
    names: tuple[str, ...]
    people: str | None
    version: str = ""  # of its privadmm
    name: str = ""  # what people call it

    @property
    def called(self) -> str:
        return self.name or f"party {self.party}"

    @staticmethod
    def of(letter: Letter) -> "Facts":
        """Read the facts in an answer to a hello; a ValueError if a field is missing, of another type or impossible."""
        packed = text(letter, "facts")
        if len(packed) > LONGEST:
            raise ValueError(f"{len(packed)} characters of facts")
        table = json.loads(packed)
        if not isinstance(table, dict):
            raise ValueError("facts are a table")
        numbers: list[Any] = [table.get(key) for key in ("party", "records", "dim", "width")]
        names, people = table.get("names"), table.get("people")
        if not all(type(value) is int and 0 <= value <= MOST for value in numbers):
            raise ValueError("a party, its records, dim and width are whole numbers")
        party, records, dim, width = numbers
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ValueError("the names of columns are a list of texts")
        # Each column has a name, except for the intercept: a party cannot declare more columns than it names.
        if width - len(names) not in (0, 1) or min(records, len(names)) < 1:
            raise ValueError("a party has records, and as many columns as it names")
        if people is not None and not (isinstance(people, str) and HASH.fullmatch(people)):
            raise ValueError("people are told by a digest")
        if dim != (width if people is None else records):
            raise ValueError("a message has a number for each column, or for each person")
        version, name = (line_of(table.get(key)) for key in ("version", "name"))
        return Facts(party, records, dim, width, tuple(names), people, version, name)


def line_of(value: Any) -> str:
    """A name or version that a party told: one short line, or nothing."""
    if value is None:
        return ""
    if not isinstance(value, str) or not value.isprintable() or len(value) > LONGEST_NAME:
        raise ValueError("a name or a version is one short line")
    return value


def same_version(facts: Facts) -> None:
    """Refuse a party with another version of privadmm: two versions may compute or count differently."""
    if facts.version != __version__:
        raise RefusedError(
            f"{facts.called} has privadmm {facts.version or 'of an unknown version'} and the coordinator "
            f"{__version__}: all of a run have the same version, so install the same one everywhere"
        )


def agree(facts: Sequence[Facts]) -> None:
    """Refuse parties that hold other columns, or other people, than the first."""
    first = facts[0]
    for other in facts[1:]:
        if other.dim != first.dim or other.people != first.people:
            what = "columns" if first.people is None else "people"
            raise DataError(
                f"party {other.party} has other {what} than party {first.party}: agree on them first, for columns "
                "with [data] schema"
            )
        if first.people is None and other.names != first.names:
            raise DataError(
                f"the columns of party {other.party} have other names, or another order, than those of party "
                f"{first.party}: declare them with [data] schema"
            )


def versions(facts: Sequence[Facts]) -> dict[str, str]:
    """The version of privadmm of each member; for a party that left before a resumed run, its version at that time."""
    return {"coordinator": __version__, **{f"party {own.party}": own.version or "unknown" for own in facts}}
