"""Declared parameters: dataclass fields with limits and a meaning, as a schema for TOML, in words and as JSON Schema.

    @dataclass(frozen=True)
    class Loss:
        C: Annotated[float, Gt(0), Doc("weight of the data term")] = 1.0

A field with a `Doc` is a key of the file; one without a default is required. Types: bool, int, float, str,
Literal, tuple[T, ...], tuple[T, T], Mapping[str, T], unions, and `| None` for a key that may be left out.
"""

import dataclasses
import functools
import math
import numbers
import operator
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    Protocol,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from annotated_types import Ge, Gt, Le, Lt

from privadmm.errors import ConfigError, did_you_mean, listed, show

At = tuple[str, ...]  # a place in the file: ("data", "schema", "age")
BAD = object()  # stands for a value that was reported as a problem
TINY, HUGE = 1e-50, 1e50  # the sizes that a number in a config may have
MOST_FEATURES = 5_000_000  # however sparse records are: each has a name, a weight, and a number in every message


@dataclass(frozen=True)
class Doc:
    text: str


@dataclass(frozen=True)
class When:
    """The key belongs only where its neighbour `key` is `value`; there it may be required."""

    key: str
    value: str
    required: bool = False

    @property
    def words(self) -> str:
        return f"{'required for' if self.required else 'only for'} {self.key} = {show(self.value)}"


class Limit(NamedTuple):
    """A bound on a number, with its words, its keyword in JSON Schema, and its comparison."""

    value: Any
    words: str
    keyword: str
    holds: Callable[[Any, Any], bool]


LIMITS: Mapping[type, tuple[str, str, Callable[[Any, Any], bool]]] = {
    Gt: (">", "exclusiveMinimum", operator.gt),
    Ge: (">=", "minimum", operator.ge),
    Lt: ("<", "exclusiveMaximum", operator.lt),
    Le: ("<=", "maximum", operator.le),
}


def limit_of(note: object) -> Limit | None:
    """The bound that a note of annotated-types (Gt, Ge, Lt, Le) declares; None for any other note."""
    if type(note) not in LIMITS:
        return None
    (sign, keyword, holds), value = LIMITS[type(note)], getattr(note, type(note).__name__.lower())
    return Limit(value, f"{sign} {value:g}", keyword, holds)


@dataclass(frozen=True)
class Rule:
    """Any other condition: `problem(value)` says what is wrong, or None; `allowed` describes the value."""

    problem: Callable[[Any], str | None]
    allowed: str
    json: Mapping[str, Any] = field(default_factory=dict)
    near: tuple[str, ...] = ()  # valid words, of which an error suggests the nearest


SOME = Rule(lambda value: None if value else "is an empty list", "a list of numbers, each > 0", {"minItems": 1})


class Wrong(Protocol):
    """Reports a problem at a place of the file and returns BAD. `allowed` is given by a kind inside another kind."""

    def __call__(self, at: At, what: str, fix: str = "", allowed: str = "") -> object: ...


class Kind(Protocol):
    """What a value may be. `read` returns the value for Python, or reports a problem and returns BAD."""

    def takes(self, value: object) -> bool: ...
    def read(self, value: Any, at: At, wrong: Wrong) -> Any: ...
    def allowed(self) -> str: ...
    def json(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Scalar:
    python: type
    names: ClassVar[Mapping[type, tuple[str, str]]] = {
        bool: ("true or false", "boolean"),
        int: ("an integer", "integer"),
        float: ("a number", "number"),
        str: ("a string", "string"),
    }

    def takes(self, value: object) -> bool:
        # type(), not isinstance: to Python a bool is an int. An int may stand where a number is asked for.
        return type(value) is self.python or (self.python is float and type(value) is int)

    def read(self, value: Any, at: At, wrong: Wrong) -> Any:
        if not self.takes(value):
            quoted = self.python in (int, float) and isinstance(value, str) and _spells_number(value)
            return wrong(at, f"is {show(value)}", "write it without quotes" if quoted else "")
        # TOML promises 64 bits and no more; a longer integer would overflow later, somewhere less clear.
        if type(value) is int and not -(2**63) <= value < 2**63:
            return wrong(at, f"is {show(value)}")
        if type(value) is float and not math.isfinite(value):
            return wrong(at, f"is {show(value)}, which is not finite")
        # Products of a few numbers of these sizes fit into a double; those of others would overflow or vanish later.
        if type(value) is float and value and not TINY <= abs(value) <= HUGE:
            return wrong(at, f"is {show(value)}", f"use a number of a size between {TINY:g} and {HUGE:g}")
        return self.python(value)

    def allowed(self) -> str:
        return self.names[self.python][0]

    def json(self) -> dict[str, Any]:
        return {"type": self.names[self.python][1]}


@dataclass(frozen=True)
class Choice:
    values: tuple[str, ...]

    def takes(self, value: object) -> bool:
        return isinstance(value, str)

    def read(self, value: Any, at: At, wrong: Wrong) -> Any:
        if isinstance(value, str) and value in self.values:
            return value
        return wrong(at, f"is {show(value)}", did_you_mean(value, self.values, show))

    def allowed(self) -> str:
        return listed([show(value) for value in self.values])

    def json(self) -> dict[str, Any]:
        return {"enum": list(self.values)}


@dataclass(frozen=True)
class ListOf:
    item: Kind
    length: int | None = None

    def takes(self, value: object) -> bool:
        return isinstance(value, list)

    def read(self, value: Any, at: At, wrong: Wrong) -> Any:
        if not isinstance(value, list) or self.length not in (None, len(value)):
            return wrong(at, f"is {show(value)}")

        def in_item(number: int) -> Wrong:
            return lambda at, what, fix="", allowed="": wrong(at, f"item {number} {what}", fix)

        items = [self.item.read(item, at, in_item(number)) for number, item in enumerate(value, start=1)]
        return BAD if BAD in items else tuple(items)

    def allowed(self) -> str:
        return f"a list{f' of exactly {self.length}' if self.length else ''}, each {self.item.allowed()}"

    def json(self) -> dict[str, Any]:
        size = {"minItems": self.length, "maxItems": self.length} if self.length else {}
        return {"type": "array", "items": self.item.json()} | size


@dataclass(frozen=True)
class TableOf:
    """A table whose keys are the user's own, such as column names."""

    item: Kind

    def takes(self, value: object) -> bool:
        return isinstance(value, dict)

    def read(self, value: Any, at: At, wrong: Wrong) -> Any:
        if not isinstance(value, dict):
            return wrong(at, f"is {show(value)}")

        def in_item(at: At, what: str, fix: str = "", allowed: str = "") -> object:
            return wrong(at, what, fix, allowed or self.item.allowed())

        items = {key: self.item.read(item, (*at, key), in_item) for key, item in value.items()}
        return BAD if BAD in items.values() else items

    def allowed(self) -> str:
        return f"a table, each key = {self.item.allowed()}"

    def json(self) -> dict[str, Any]:
        return {"type": "object", "additionalProperties": self.item.json()}


@dataclass(frozen=True)
class OneOf:
    kinds: tuple[Kind, ...]

    def takes(self, value: object) -> bool:
        return any(kind.takes(value) for kind in self.kinds)

    def read(self, value: Any, at: At, wrong: Wrong) -> Any:
        for kind in self.kinds:
            if kind.takes(value):
                return kind.read(value, at, wrong)
        return wrong(at, f"is {show(value)}", "write a date in quotes" if isinstance(value, date) else "")

    def allowed(self) -> str:
        return listed([kind.allowed() for kind in self.kinds])

    def json(self) -> dict[str, Any]:
        return {"anyOf": [kind.json() for kind in self.kinds]}


@dataclass(frozen=True)
class Checked:
    kind: Kind
    limits: tuple[Limit, ...]
    rules: tuple[Rule, ...]

    def takes(self, value: object) -> bool:
        return self.kind.takes(value)

    def read(self, value: Any, at: At, wrong: Wrong) -> Any:
        got = self.kind.read(value, at, wrong)
        if got is BAD:
            return BAD
        if not all(limit.holds(got, limit.value) for limit in self.limits):
            return wrong(at, f"is {show(value)}")
        for rule in self.rules:
            if what := rule.problem(got):
                return wrong(at, what, did_you_mean(value, rule.near, show))
        return got

    def allowed(self) -> str:
        if self.rules:
            return listed([rule.allowed for rule in self.rules], "and")
        limits = [limit.words for limit in self.limits]
        return f"{self.kind.allowed()} {listed(limits, 'and')}"

    def json(self) -> dict[str, Any]:
        schema = self.kind.json() | {limit.keyword: limit.value for limit in self.limits}
        for rule in self.rules:
            schema |= rule.json
        return schema


@dataclass(frozen=True)
class Field:
    """One key of a table, as declared."""

    name: str
    kind: Kind
    doc: str
    default: Any  # dataclasses.MISSING: the key is required
    when: When | None

    @property
    def required(self) -> bool:
        return self.default is dataclasses.MISSING


def _fields_of(table: type) -> Mapping[str, Field]:
    """The keys that a dataclass declares: its fields with a Doc."""
    hints, keys = get_type_hints(table, include_extras=True), dict[str, Field]()
    for declared in dataclasses.fields(table):
        name, hint, made = declared.name, hints[declared.name], declared.default_factory
        notes = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
        doc = next((note.text for note in notes if isinstance(note, Doc)), None)
        when = next((note for note in notes if isinstance(note, When)), None)
        default = declared.default if made is dataclasses.MISSING else made()
        if doc is not None:
            keys[name] = Field(name, kind_of(hint), doc, default, when)
    return types.MappingProxyType(keys)


fields_of: Callable[[type], Mapping[str, Field]] = functools.cache(_fields_of)  # type hints are slow to resolve


class Declared:
    """A dataclass that refuses, when it is made, what its own declarations do not allow."""

    def __post_init__(self) -> None:
        for name, declared in fields_of(type(self)).items():
            value = getattr(self, name)
            if isinstance(value, list):
                raise ConfigError(f"{name} must be a tuple, not a list: {value!r}")
            if value is not None or declared.default is not None:
                refuse = functools.partial(_refuse, name, value, declared.kind)
                declared.kind.read(_as_toml(value), (name,), refuse)
            if (when := declared.when) is not None and declared.default is None:
                fits = getattr(self, when.key) == when.value
                if (value is not None and not fits) or (value is None and fits and when.required):
                    raise ConfigError(f"{name} and {when.key} = {show(when.value)} go together: set both or neither")


def _as_toml(value: Any) -> Any:
    """A Python value as TOML would hold it, cut to the sizes that a file allows: these do not bind Python callers."""
    if isinstance(value, tuple):
        return [_as_toml(item) for item in value]
    value = value.item() if isinstance(value, numbers.Number) and hasattr(value, "item") else value
    if isinstance(value, float) and value and math.isfinite(value):
        return math.copysign(min(max(abs(value), TINY), HUGE), value)
    return value


def _refuse(name: str, value: object, kind: Kind, at: At, what: str, fix: str = "", allowed: str = "") -> None:
    raise ConfigError(f"{name} must be {kind.allowed()}, not {value!r}{fix and f'; {fix}'}")


def kind_of(hint: Any) -> Kind:
    """The kind that a type hint describes. None stands for a key left out, so it is no kind of its own."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        kind = kind_of(args[0])
        limits = tuple(limit for note in args[1:] if (limit := limit_of(note)) is not None)
        rules = tuple(note for note in args[1:] if isinstance(note, Rule))
        return Checked(kind, limits, rules) if limits or rules else kind
    if origin in (Union, types.UnionType):
        kinds = tuple(kind_of(arg) for arg in args if arg is not types.NoneType)
        return kinds[0] if len(kinds) == 1 else OneOf(kinds)
    if origin is Literal:
        return Choice(args)
    if origin is tuple:
        return ListOf(kind_of(args[0]), None if args[1] is Ellipsis else len(args))
    if origin is Mapping:
        return TableOf(kind_of(args[1]))
    if hint in Scalar.names:
        return Scalar(hint)
    raise TypeError(f"{hint!r} has no form in TOML")


def _spells_number(word: str) -> bool:
    try:
        return math.isfinite(float(word))
    except ValueError:
        return False


def _check(values: Mapping[str, Any], good: Callable[[Any], bool], allowed: str) -> None:
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            raise ConfigError(f"{name} must be a number, not {value!r}")
        if not good(value):
            raise ConfigError(f"{name} must {allowed}, not {value!r}")


def check_whole(**values: object) -> None:
    """Refuse what is not 1, 2, 3, ..."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
            raise ConfigError(f"{name} must be a whole number, 1 or above, not {value!r}")


def check_positive(**values: float) -> None:
    _check(values, lambda value: math.isfinite(value) and value > 0, "be a finite number above 0")


def check_nonnegative(**values: float) -> None:
    _check(values, lambda value: math.isfinite(value) and value >= 0, "be a finite number, 0 or above")


def check_probability(**values: float) -> None:
    """Refuse what is not between 0 and 1, or so small that floating point has no digits left for it."""
    _check(values, lambda value: 1e-300 <= value < 1, "lie between 1e-300 and 1")


def check_ratio(**values: float) -> None:
    """Refuse what is not above 0, or cannot be squared."""
    _check(values, lambda value: 1e-100 <= value <= 1e100, "lie between 1e-100 and 1e100")
