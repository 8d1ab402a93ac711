"""Rules for single values of the config file that are more than a limit: paths, splits, lists, sizes in bytes.

Each `Rule` has a function that says what is wrong with a value (None: nothing), the words for what is allowed, and as
much of the rule as JSON Schema can express.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from privadmm.errors import ConfigError, show
from privadmm.params import MOST_FEATURES, Rule

EMBEDDED = ("embedded:adult", "embedded:a9a")
LONGEST_LINE = 300  # characters of what people say of a job
LEAVES = "(0|[1-9][0-9]{0,8})@[1-9][0-9]{0,8}"  # party and round
BYTES = r"([0-9]+(?:\.[0-9]+)?) ?([kMGT]?B|[KMGT]iB)"
UNITS = {f"{prefix}B": 1000**power for power, prefix in enumerate(("", "k", "M", "G", "T"))}
UNITS |= {f"{prefix}iB": 1024**power for power, prefix in enumerate("KMGT", start=1)}


def _text_problem(value: str) -> str | None:
    if "\0" in value:
        return "has a NUL character, which no file or column name can have"
    return None if value.strip() else "is blank"


def _line_problem(value: str) -> str | None:
    if len(value) > LONGEST_LINE:
        return f"has {len(value)} characters"
    if not value.isprintable():
        return "has a line break, or a character that cannot be seen"
    return None if value.strip() else "is blank"


def _source_problem(value: str) -> str | None:
    unknown = value.startswith("embedded:") and value not in EMBEDDED
    return f"is {show(value)}" if unknown else _text_problem(value)


def _repeated(words: Iterable[str]) -> str | None:
    twice = [word for word, count in Counter(words).items() if count > 1]
    return f"names {show(twice[0])} twice" if twice else None


def _column_problem(value: tuple[float | str, ...] | Mapping[str, Any]) -> str | None:
    from privadmm.data.schema import column_of, quoted_range  # which loads numpy

    if isinstance(value, Mapping):
        try:
            column_of(value)
        except ConfigError as error:
            return str(error)
        return None
    words = [item.strip() for item in value if isinstance(item, str)]
    numbers = [item for item in value if not isinstance(item, str)]
    if words and numbers:
        return "mixes strings and numbers"
    if words:
        # Readers strip what they read, so a blank category would never be met, and a repeated one twice.
        return "has a blank category" if "" in words else _repeated(words) or quoted_range(words)
    if len(numbers) != 2:
        return f"is {show(value)}"
    return None if numbers[0] < numbers[1] else f"is [{numbers[0]:g}, {numbers[1]:g}]"


def _split_problem(value: str) -> str | None:
    name, _, rest = value.partition(":")
    good = value in ("even", "features") or (name == "column" and bool(rest.strip()))
    if name == "dirichlet":
        try:
            good = 0 < float(rest) < math.inf
        except ValueError:
            good = False
    return None if good else f"is {show(value)}"


def _columns_problem(value: tuple[int | tuple[str, ...], ...]) -> str | None:
    groups = [item for item in value if not isinstance(item, int)]
    if groups and len(groups) < len(value):
        return "mixes numbers and lists of names"
    if not all(item >= 1 if isinstance(item, int) else item for item in value):
        return "has a party without columns"
    return _repeated(name for group in groups for name in group)


def _leave_problem(value: tuple[str, ...]) -> str | None:
    if odd := [item for item in value if not re.fullmatch(LEAVES, item)]:
        return f"has {show(odd[0])}"
    return _repeated(f"party {item.partition('@')[0]}" for item in value)


def _scheduler_problem(value: str) -> str | None:
    try:
        url = urlsplit(value)
        safe = url.scheme == "tls" or (url.scheme == "tcp" and url.hostname in ("127.0.0.1", "localhost", "::1"))
        good = safe and value == f"{url.scheme}://{url.netloc}" and bool(url.hostname and url.port)
    except ValueError:  # no port
        good = False
    return None if good else f"is {show(value)}"


def bytes_of(value: int | str) -> int | None:
    """A number of bytes, as it is or as a text such as "2GB"; None if the text is no such number."""
    if isinstance(value, int):
        return value
    match = re.fullmatch(BYTES, value)
    return None if match is None else int(float(match[1]) * UNITS[match[2]])


def _memory_problem(value: int | str) -> str | None:
    size = bytes_of(value)
    return None if size is not None and 1 <= size < 2**63 else f"is {show(value)}"


def _list_of(what: str, problem: Any = lambda value: None, **json: Any) -> Rule:
    """The rule of a list that is not empty; `problem` says what else may be wrong with it."""
    return Rule(lambda value: problem(value) if value else "is an empty list", what, {"minItems": 1, **json})


_WORD, _FLAG = {"type": "string"}, {"type": "boolean"}
_WORDS = {"type": "array", "items": _WORD, "minItems": 1, "uniqueItems": True}
_NUMBERS = {"type": "array", "items": {"type": "number"}, "minItems": 1, "uniqueItems": True}
_PAIR = {"type": "array", "items": _WORD, "minItems": 2, "maxItems": 2}
_PARTS = {"type": "array", "items": {"enum": ["month", "weekday"]}, "uniqueItems": True}


def _table_of(*required: str, **keys: Any) -> dict[str, Any]:
    """The JSON Schema of a column that is written as a table."""
    measured = {"range": {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}}
    properties = (measured if required == ("range",) else {}) | keys | {"missing": _FLAG}
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


LINE = Rule(
    _line_problem, f"one line of up to {LONGEST_LINE} characters", {"pattern": r"\S", "maxLength": LONGEST_LINE}
)
NAME = Rule(_text_problem, "a string that is not blank", {"pattern": r"\S"})
SOURCE = Rule(
    _source_problem,
    f"{', '.join(map(show, EMBEDDED))} or the path of a file",
    {"pattern": rf"^({'|'.join(EMBEDDED)}|(?!embedded:).*\S.*)$"},
    near=EMBEDDED,
)
CLASSES = Rule(
    lambda value: "names one class twice" if value[0] == value[1] else None,
    "a list of exactly two distinct values, [negative, positive]",
    {"uniqueItems": True},
)
COLUMN = Rule(
    _column_problem,
    "[low, high] with low < high, a list of distinct strings, or a table (docs/data.md)",
    {
        "anyOf": [
            _WORDS,
            {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2},
            _table_of(
                "range", edges={"anyOf": [_NUMBERS, {"const": "counts"}]}, whole=_FLAG, default={"type": "number"}
            ),
            _table_of("categories", categories=_WORDS, other=_FLAG, default={"type": "string"}),
            _table_of("date", "range", date=_WORD, range=_PAIR, parts=_PARTS, default=_WORD),
        ]
    },
)
SCHEMA = Rule(
    lambda value: None if value else "declares no columns",
    f"a table, each column = {COLUMN.allowed}; or the path of a TOML file that holds one",
    {"type": ["object", "string"], "minProperties": 1},
)
DIM = Rule(
    lambda value: f"is {value:,}" if value > MOST_FEATURES else None,
    f"an integer from 1 to {MOST_FEATURES:,} (hash more features to fewer)",
    {"maximum": MOST_FEATURES},
)
SPLIT = Rule(
    _split_problem,
    '"even", "column:NAME", "dirichlet:ALPHA" with a number ALPHA > 0, or "features"',
    {"pattern": r"^(even|features|column:.*\S.*|dirichlet:.+)$"},
    near=("even", "features", "column:NAME", "dirichlet:ALPHA"),
)
SIZES = _list_of("a list of integers, each >= 1")
COLUMNS = _list_of(
    "a list, for each party the number of its columns, >= 1, or for each the names of its columns",
    _columns_problem,
    anyOf=[
        {"items": {"type": "integer", "minimum": 1}},
        {"items": {"type": "array", "minItems": 1}, "uniqueItems": True},
    ],
)
FILES = _list_of("a list of distinct paths", _repeated, uniqueItems=True)
LEAVE = _list_of(
    'a list of "PARTY@ROUND", each party once, parties counted from 0 and rounds from 1',
    _leave_problem,
    uniqueItems=True,
    items={"type": "string", "pattern": f"^{LEAVES}$"},
)
SCHEDULER = Rule(
    _scheduler_problem,
    '"tls://HOST:PORT"; on this machine also "tcp://127.0.0.1:PORT"',
    {"pattern": r"^(tls://.+|tcp://(127\.0\.0\.1|localhost|\[::1\])):[0-9]+$"},
)
MEMORY = Rule(
    _memory_problem,
    'a number of bytes >= 1, or one with a unit such as "2GB" or "500 MiB"',
    {"minimum": 1, "pattern": f"^{BYTES}$"},
)
