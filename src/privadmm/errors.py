"""What can go wrong, by name. The command line turns each into a message and its exit code."""

import json
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from typing import Literal

# What a refusal is about: cost; what the party allows; its steward's word; a lock; another version; else the request.
Kind = Literal["budget", "policy", "approval", "locked", "version", "request"]


def visible(text: object, kept: str = "") -> str:
    """A text whose hidden characters are spelt out: none moves a cursor, turns the direction of reading or hides.

    `kept` are those that may stay, such as a line break. Whatever comes from a file or from another party is shown
    like this, on a terminal, in a page and in an error.
    """
    told = str(text)
    if told.isprintable():
        return told
    return "".join(sign if sign.isprintable() or sign in kept else spelt_out(sign) for sign in told)


def spelt_out(sign: str) -> str:
    """A character as TOML writes it by its number, also one of more than four digits."""
    return f"\\u{ord(sign):04x}" if ord(sign) < 1 << 16 else f"\\U{ord(sign):08x}"


class PrivadmmError(Exception):
    """A named failure; nothing was released that is not in the ledger."""

    exit_code = 1

    def __str__(self) -> str:
        return visible(super().__str__(), "\n")


class ConfigError(PrivadmmError, ValueError):
    """A parameter or configuration is not usable; the message names it, what is allowed, and the fix."""

    exit_code = 2


class DataError(PrivadmmError, ValueError):
    """The data were refused while loading, before anything left a party."""


class ToleranceError(PrivadmmError):
    """A local problem was not solved to its tolerance. That can only happen in a simulation without limits."""


class DivergedError(PrivadmmError):
    """Released iterates ran away. This is seen in the transcript alone, before records are read again."""


class CheckpointError(PrivadmmError):
    """A checkpoint or run directory cannot be resumed."""


class LedgerError(PrivadmmError):
    """A ledger file is not ours, is damaged, or belongs to something else."""


class RefusedError(PrivadmmError):
    """A budget or policy said no, before any noise was drawn. `kind` names the reason, for a ledger's register."""

    exit_code = 3
    recorded = False  # whether a ledger has it on record

    def __init__(self, message: str = "", kind: Kind = "request") -> None:
        super().__init__(message)
        self.kind: Kind = kind


class LockedError(PrivadmmError):
    """A ledger is locked until its steward decides: a tick failed after records were read, or a copy was put back."""

    exit_code = 3
    kind: Kind = "locked"
    recorded = False  # whether a ledger has it on record


class WaitingError(PrivadmmError):
    """A party's steward has not decided about a job yet. Nothing was released for it, and nothing set aside."""


class AbsentError(PrivadmmError):
    """The run cannot go on without a party that left. Nothing more was released."""


class ClusterError(PrivadmmError):
    """Workers or their scheduler cannot be reached, or do not answer in time."""


class MessageError(ClusterError):
    """A party's message has the wrong shape, another party's name, or a number that is not finite."""


class BudgetWarning(UserWarning):
    """Public facts say that a run cannot beat a constant, that its epsilon promises little or its delta nothing, or
    that it is one of several fits."""


class PooledWarning(UserWarning):
    """Rows look scaled by statistics of all parties' private rows, which no epsilon covers."""


class FitWarning(UserWarning):
    """An estimator's fit is of little use as declared. The fit is a simulation, so it may look at its records."""


class InterruptedRunError(PrivadmmError):
    """Somebody pressed Ctrl-C. `kept`: something was released, and the directory can be resumed."""

    def __init__(self, message: str, kept: bool) -> None:
        super().__init__(message)
        self.kept = kept


class StorageError(PrivadmmError):
    """The run directory, or a file for records beyond memory, cannot be written."""


class OutputError(PrivadmmError):
    """Standard output takes nothing more."""


def show(value: object) -> str:
    """A value for a message, as TOML writes it. Long texts are cut; lists and tables are named, not written out."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        text = json.dumps(value, ensure_ascii=not value.isprintable())
        return text if len(text) <= 60 else f'{text[:50]}..."'
    if isinstance(value, int) and value.bit_length() > 64:
        return "an integer beyond 64 bits"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}"
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    return "a table" if isinstance(value, dict) else str(value)


def apart(name: str) -> str:
    """A name for a list with commas between: in quotation marks if there is a comma in it."""
    return f'"{name}"' if "," in name else name


def listed(words: Sequence[str], last: str = "or") -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}"


def nearest(word: object, words: Iterable[str]) -> str | None:
    """The known word that was probably meant; case does not count."""
    if not isinstance(word, str):
        return None
    folded = {known.lower(): known for known in words}
    close = get_close_matches(word[:80].lower(), folded, 1)
    return folded[close[0]] if close else None


def did_you_mean(word: object, words: Iterable[str], form: Callable[[str], str] = str) -> str:
    near = nearest(word, words)
    return f"did you mean {form(near)}?" if near else ""
