"""Read a TOML file into checked values. Problems are collected, so that one reading reports them all.

Each is one line, `FILE:LINE: [section] key: what is wrong; what is allowed; the fix`. tomllib does not say where a key
stands, so `Lines` finds out.
"""

import re
import tomllib
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from privadmm.errors import ConfigError, did_you_mean, nearest, show
from privadmm.params import BAD, At, Field, Kind, Wrong

_STRING = r'"""(?:[^\\]|\\.)*?"{3,5}|' + r"'''.*?'{3,5}|" + r'"(?:[^"\\\n]|\\.)*"|' + r"'[^'\n]*'"
_PART = r'(?:[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|' + r"'[^'\n]*')"
_KEY = rf"{_PART}(?:[ \t]*\.[ \t]*{_PART})*"
_HEADER = re.compile(rf"\[\[?[ \t]*({_KEY})[ \t]*\]\]?")
_PAIR = re.compile(rf"({_KEY})[ \t]*=")
_IN_VALUE = re.compile(rf"(?P<string>{_STRING})|(?P<comment>#[^\n]*)|(?P<other>.)", re.DOTALL)
_BETWEEN = re.compile(r"(?:[\s,]|#[^\n]*)*")


@dataclass(frozen=True)
class Lines:
    """The line of each table and key of a valid TOML text; computed only when a problem is reported."""

    text: str
    root: At = ()  # the table to which the text belongs

    @cached_property
    def _line(self) -> dict[At, int]:
        own: dict[At, int] = {}
        implied: dict[At, int] = {}
        line, seen = 1, 0
        for at, offset in _statements(self.text, self.root):
            line, seen = line + self.text.count("\n", seen, offset), offset
            own.setdefault(at, line)
            implied.setdefault(at[:1], line)
            implied.setdefault(at[:2], line)
        # [data.schema] implies [data], but the line of a header of its own is preferred.
        return implied | own

    def has(self, at: At) -> bool:
        return at in self._line

    def __getitem__(self, at: At) -> int:
        """The line of a key, or of its table if the key is missing, or the last line if both are."""
        places = (at[:depth] for depth in range(len(at), 0, -1))
        line = next((self._line[place] for place in places if place in self._line), None)
        return _last_line(self.text) if line is None else line


def _statements(text: str, root: At) -> Iterator[tuple[At, int]]:
    """Each header and key with its offset in the text."""
    table, here = root, 0
    while (here := _end(text, here)) < len(text):
        if header := _HEADER.match(text, here):
            table = (*root, *_parts(header[1]))
            yield table, here
            here = header.end()
        elif pair := _PAIR.match(text, here):
            at = (*table, *_parts(pair[1]))
            yield at, here
            here = yield from _value(text, pair.end(), at)
        else:  # not reached in valid TOML
            here += 1


def _end(text: str, here: int) -> int:
    """Skip blanks, comments, and the commas of an inline table."""
    between = _BETWEEN.match(text, here)
    return between.end() if between else here


def _parts(key: str) -> At:
    # tomllib decodes each part, so that "a\u0062" and ab are one key.
    parts = re.findall(_PART, key)
    return tuple(part if part[0] not in "\"'" else tomllib.loads(f"x = {part}")["x"] for part in parts)


def _value(text: str, here: int, at: At) -> Generator[tuple[At, int], None, int]:
    """Yield the keys of an inline table, if the value is one; return where the value ends."""
    here = _end(text, here)
    if text.startswith("{", here):
        here = _end(text, here + 1)
        while pair := _PAIR.match(text, here):
            inner = (*at, *_parts(pair[1]))
            yield inner, here
            here = _end(text, (yield from _value(text, pair.end(), inner)))
        return here + 1
    depth = 0
    for token in _IN_VALUE.finditer(text, here):
        mark = token["other"]  # None in a string or a comment
        if depth == 0 and mark in ("\n", ",", "}"):
            return token.start()
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(mark, 0)
    return len(text)


@dataclass
class Report:
    """Collects problems of one file; `check` raises them all."""

    file: str
    lines: Lines
    problems: list[tuple[str, int, str]] = field(default_factory=list)

    def add(self, at: At, what: str, allowed: str = "", fix: str = "") -> None:
        where = f"{self.file}:{self.lines[at]}: {_place(at)}: "
        parts = [what, f"allowed: {allowed}" if allowed else "", fix]
        self.problems.append((self.file, self.lines[at], where + "; ".join(part for part in parts if part)))

    def wrong(self, kind: Kind) -> Wrong:
        """The function `add` for a key of this kind."""

        def add(at: At, what: str, fix: str = "", allowed: str = "") -> object:
            self.add(at, what, allowed or kind.allowed(), fix)
            return BAD

        return add

    def named(self, at: At, value: object) -> str:
        """The place, value and line of the second key, for a message about two keys."""
        where = f"line {self.lines[at]}" if self.lines.has(at) else "the default"
        return f"{_place(at)} = {show(value)} ({where})"

    def check(self) -> None:
        if self.problems:
            own_first = sorted(self.problems, key=lambda problem: (problem[0] != self.file, problem))
            raise ConfigError("\n".join(text for _, _, text in own_first))


def _place(at: At) -> str:
    *tables, key = (name if re.fullmatch(r"[A-Za-z0-9_-]{1,60}", name) else show(name) for name in at)
    return f"[{'.'.join(tables)}] {key}" if tables else f"[{key}]"


def load(path: Path) -> tuple[str, dict[str, Any]]:
    """The text of a TOML file, and its tables."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; check the path") from None
    except IsADirectoryError:
        raise ConfigError(f"{path}: is a directory; name a TOML file") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"{path}: cannot be read: {reason}") from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        odd = f"byte 0x{error.object[error.start]:02x}"
        raise ConfigError(f"{path}:{line}: {odd} is not UTF-8; save it as UTF-8") from None
    try:
        return text, tomllib.loads(text)
    except RecursionError:
        raise ConfigError(f"{path}: not a config: lists or tables are nested too deep") from None
    except ValueError as error:  # a TOMLDecodeError, or an integer too long for Python
        place = re.search(r" \(at line (\d+), column \d+\)", str(error))
        line = int(place[1]) if place else _last_line(text)
        raise ConfigError(f"{path}:{line}: not valid TOML: {error}") from None


def _last_line(text: str) -> int:
    return max(1, text.count("\n") + (not text.endswith("\n")))


def read_table(
    fields: Mapping[str, Field], raw: object, at: At, report: Report, home: Callable[[str], str] = lambda key: ""
) -> dict[str, Any] | None:
    """The values of one table, with defaults filled in; None after a complaint.

    home(key) names the section of a key that is none of these fields, or is "".
    """
    if not isinstance(raw, dict):
        report.add(at, f"is {show(raw)}", f"a section with the keys {', '.join(fields)}")
        return None
    before = len(report.problems)
    unknown = {key: home(key) for key in raw if key not in fields}
    for key, where in unknown.items():
        fix = f"it belongs to {where}" if where else did_you_mean(key, fields)
        report.add((*at, key), "unknown key", ", ".join(fields), fix)
    # A misspelt key was reported as such; that it is missing as well would be one complaint too many.
    misspelt = {nearest(key, fields) for key, where in unknown.items() if not where}
    values = {}
    for name, declared in fields.items():
        if name in raw:
            values[name] = declared.kind.read(raw[name], (*at, name), report.wrong(declared.kind))
        elif not declared.required:
            values[name] = declared.default
        elif name not in misspelt:
            report.add((*at, name), "missing", declared.kind.allowed(), f"add {name} = ...")
    for name, declared in fields.items():
        when = declared.when
        if when is None or values.get(when.key, BAD) is BAD:
            continue
        fits, other = values[when.key] == when.value, ((*at, when.key), values[when.key])
        if name in raw and not fits:
            what = f"does not go with {report.named(*other)}"
            report.add((*at, name), what, when.words, f"remove it or change {when.key}")
        if name not in raw and fits and when.required and name not in misspelt:
            what = f"missing beside {report.named(*other)}"
            report.add((*at, name), what, declared.kind.allowed(), f"add {name} = ...")
    return values if len(report.problems) == before else None
