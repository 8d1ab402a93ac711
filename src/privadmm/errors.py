"""What can go wrong, by name. The command line turns each into a message and its exit code."""

import json
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from typing import Literal

# Why something was refused: its cost; what the party allows; its steward; a lock; another version; else what was asked.
Kind = Literal["budget", "policy", "approval", "locked", "version", "request"]


def visible(text: object, kept: str = "") -> str:
    """A text whose hidden characters are spelt out: none moves a cursor, turns the direction of reading or hides.

    `kept` are those that may stay, such as a line break. Whatever comes from a file or from another party is shown
    like this, on a terminal, in a page and in an error.
    """
    told = str(text)
    if told.isprintable():
        return told
    return "".join(sign if sign.isprintable() or sign in kept else f"\\u{ord(sign):04x}" for sign in told)


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
    """A simulation's local problem was not solved to its tolerance: no limits kept its parameters within the proofs."""


class DivergedError(PrivadmmError):
    """Released iterates ran away: a function of the transcript, found before records are read again."""


class CheckpointError(PrivadmmError):
    """A checkpoint or run directory cannot be resumed."""


class LedgerError(PrivadmmError):
    """A ledger file is not ours, is damaged, or belongs to something else."""


class RefusedError(PrivadmmError):
    """A budget or policy said no, before any noise was drawn. `kind` says what for, in a ledger's register."""

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
    """A party left without which the run cannot go on. Nothing more was released."""


class ClusterError(PrivadmmError):
    """Workers or their scheduler cannot be reached, or do not answer in time."""


class MessageError(ClusterError):
    """A party sent what no party of its algorithm sends: another shape, another's name, no finite number."""


class BudgetWarning(UserWarning):
    """By its public facts a run cannot beat a constant, promises little by its epsilon or nothing by its delta; or it
    is one of several fits."""


class PooledWarning(UserWarning):
    """Rows look scaled by statistics of all parties' private rows, which no epsilon covers."""


class FitWarning(UserWarning):
    """An estimator's fit, a simulation that may look at its records, is of little use as it was declared."""


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
    """A value for a message, as TOML writes it; never long, and never deep, whatever the file holds."""
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
