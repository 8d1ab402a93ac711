"""The TOML reader by itself: line numbers, value kinds, and files that are no config at all."""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from annotated_types import Gt, Le
from hypothesis import example, given
from hypothesis import strategies as st

from config_cases import says
from privadmm.config.reader import Lines, Report, load, read_table
from privadmm.errors import ConfigError, nearest, show
from privadmm.params import Doc, When, fields_of, kind_of

TRICKY = '''\
# [data] source = "in a comment"
top = "[run]"
[data]   # label = 3
source = "a = b # [x]"
label = """
[run]
seed = 3
"""
classes = [  # dim = 1
  "[parties]", 'count = 3',
  { inner = "x = 1" },
]
"row\\u005fbound" = 1
'on bad' = \'\'\'
intercept = 1\'\'\'\'
nested.deep."a.b" = 2
last = {a = 1, b = [1,
  2], c = {d.e = '}', f = {}}} # g = 1
after = 1
[ data . schema ]
age = [0, 1]
"sex [x]" = ["a"]
[[runs]]
seed = 1
[[runs]]
seed = 2
[algorithm.extra]
rho = 1
[algorithm]
name = "x"'''


@pytest.mark.parametrize(
    ("at", "line"),
    [
        (("top",), 2),
        (("data",), 3),
        (("data", "source"), 4),
        (("data", "label"), 5),
        (("data", "classes"), 9),
        (("data", "row_bound"), 13),
        (("data", "on bad"), 14),
        (("data", "nested"), 16),
        (("data", "nested", "deep", "a.b"), 16),
        (("data", "last"), 17),
        (("data", "last", "a"), 17),
        (("data", "last", "b"), 17),
        (("data", "last", "c", "d", "e"), 18),
        (("data", "after"), 19),
        (("data", "schema"), 20),
        (("data", "schema", "age"), 21),
        (("data", "schema", "sex [x]"), 22),
        (("runs",), 23),
        (("runs", "seed"), 24),
        (("algorithm", "extra", "rho"), 28),
        (("algorithm",), 29),
        (("algorithm", "name"), 30),
        (("data", "missing"), 3),  # a missing key: its section
        (("run", "seed"), 30),  # a missing section: the last line
    ],
)
def test_the_line_of_a_key(at, line):
    tomllib.loads(TRICKY)
    assert Lines(TRICKY)[at] == line
    assert Lines(TRICKY.replace("\n", "\r\n"))[at] == line


def test_strings_and_lists_do_not_look_like_keys():
    assert not any(Lines(TRICKY).has(at) for at in [("run",), ("run", "seed"), ("parties",), ("data", "dim")])


NASTY = [
    "1", '"[run]"', "'a = 1'", '"""\n[x]\ny = 1\n"""', "'''\n# no\nz = \"\"\"'''",
    "[1,\n 2, # ]\n 3]", '"\\"] #"',
    '{ a = "}", b = [ "]" ] }', '[["a = 1"], # [b]\n ["c"]]', "1979-05-27T07:32:00Z",
    '""', "''", '"""a"""""', '["""a"""", "["]', "['''a'''', '[']", "[[],\n[]]",
]  # fmt: skip
KEYS = ["a", "b-c", '"d.e"', "'f g'", "h . i", '"\\u006a"', '"["', "'='", "1"]


@given(
    st.lists(
        st.tuples(
            st.lists(st.sampled_from(["", "# x = 1", "   # [y]"]), max_size=2),
            st.lists(st.tuples(st.sampled_from(KEYS), st.sampled_from(NASTY)), unique_by=lambda pair: pair[0]),
        ),
        max_size=4,
    ),
    st.booleans(),
)
def test_every_line_is_found_whatever_the_values(tables, end):
    text, expected = "", {}
    for number, (blank, pairs) in enumerate(tables):
        text += "".join(f"{line}\n" for line in blank)
        expected[f"t{number}",] = text.count("\n") + 1
        text += f"[t{number}]\n"
        for key, value in pairs:
            parts = tuple(_path(tomllib.loads(f"{key} = 0")))
            expected[(f"t{number}", *parts)] = text.count("\n") + 1
            text += f"{key} = {value}\n"
    text = text if end else text.rstrip("\n")
    tomllib.loads(text)
    assert {at: Lines(text)[at] for at in expected} == expected


def _path(table: Any) -> list[str]:
    """The keys down to the one leaf."""
    return [] if table == 0 else [*table, *_path(*table.values())]


@dataclass(frozen=True)
class Toy:
    number: Annotated[float, Gt(0), Le(2), Doc("a number")]
    choice: Annotated[Literal["left", "right"], Doc("a side")] = "left"
    extra: Annotated[int | None, When("choice", "right", required=True), Doc("for the right")] = None
    pair: Annotated[tuple[int, int] | None, Doc("two")] = None
    items: Annotated[tuple[Annotated[int, Gt(0)], ...], Doc("any")] = ()
    table: Annotated[Mapping[str, Annotated[bool | str, Doc("")]] | None, Doc("free keys")] = None
    derived: int = 0  # no Doc: not a key of the file


def problems(text: str) -> list[str]:
    report = Report("f", Lines(text))
    values = read_table(fields_of(Toy), tomllib.loads(text)["t"], ("t",), report)
    assert (values is None) == bool(report.problems)
    return [problem for _, _, problem in report.problems]


LIMITS = "> 0 and <= 2"
NAMES = "number, choice, extra, pair, items, table"
SIDES = '"left" or "right"'


# Lines of a table; then None, or the place of the mistake and facts that the message must state.
WRONG = [
    ("number = 1", None),
    ("number = 2", None),
    ("number = 0", ["f:2: [t] number: ", "is 0", LIMITS]),
    ("number = true", ["f:2: [t] number: ", "is true", LIMITS]),
    ('number = "1.5"', ["f:2: [t] number: ", 'is "1.5"', LIMITS, "without quotes"]),
    ("number = nan", ["f:2: [t] number: ", "is nan", "not finite", LIMITS]),
    ("number = 1979-05-27", ["f:2: [t] number: ", "is 1979-05-27", LIMITS]),
    ("number = 0x" + "f" * 5000, ["f:2: [t] number: ", "beyond 64 bits", LIMITS]),
    ("", ["f:1: [t] number: ", "missing", LIMITS, "add number = "]),
    ("numbr = 1", ["f:2: [t] numbr: ", "unknown key", NAMES, "did you mean number?"]),
    ("number = 1\nderived = 1", ["f:3: [t] derived: ", "unknown key", NAMES]),
    ('number = 1\nchoice = "Rihgt"', ["f:3: [t] choice: ", 'is "Rihgt"', SIDES, 'did you mean "right"?']),
    ("number = 1\nchoice = 3", ["f:3: [t] choice: ", "is 3", SIDES]),
    (
        "number = 1\nextra = 3",
        ["f:3: [t] extra: ", '[t] choice = "left" (the default)', 'required for choice = "right"', "remove it"],
    ),
    (
        'number = 1\nchoice = "right"',
        ["f:1: [t] extra: ", "missing", '[t] choice = "right" (line 3)', "an integer", "add extra = "],
    ),
    ('number = 1\nchoice = "right"\nextra = 3', None),
    ("number = 1\npair = [1]", ["f:3: [t] pair: ", "a list of 1", "exactly 2", "an integer"]),
    ("number = 1\npair = [1, 1.0]", ["f:3: [t] pair: ", "item 2 is 1.0", "exactly 2", "an integer"]),
    ("number = 1\nitems = [1, 2]", None),
    ("number = 1\nitems = []", None),
    ("number = 1\nitems = [1, 0]", ["f:3: [t] items: ", "item 2 is 0", "an integer > 0"]),
    ("number = 1\nitems = 1", ["f:3: [t] items: ", "is 1", "a list", "an integer > 0"]),
    ("number = 1\n[t.table]\na = true\nb = 'x'", None),
    ('number = 1\n[t.table]\n"a\\n" = 1', ['f:4: [t.table] "a\\n": ', "is 1", "true or false or a string"]),
]


@pytest.mark.parametrize(("lines", "facts"), WRONG)
def test_what_is_wrong_is_said_in_one_line(lines, facts):
    found = problems(f"[t]\n{lines}")
    assert len(found) == (facts is not None)
    if facts is not None:
        says(found[0], *facts)


def test_values_come_out_as_python_wants_them():
    report = Report("f", Lines(""))
    values = read_table(fields_of(Toy), {"number": 1, "items": [3], "pair": [1, 2]}, ("t",), report)
    assert Toy(**values) == Toy(number=1.0, items=(3,), pair=(1, 2))
    assert type(values["number"]) is float


def test_a_section_that_is_no_table():
    report = Report("f", Lines(""))
    assert read_table(fields_of(Toy), [{}], ("t",), report) is None
    with pytest.raises(ConfigError, match=r"^f:1: \[t\]: is a list of 1; .*a section .*number"):
        report.check()


def test_a_type_without_a_form_in_toml_is_a_mistake_of_ours():
    with pytest.raises(TypeError, match="has no form in TOML"):
        kind_of(complex)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"a = 1\nb = \xff", ":2: byte 0xff is not UTF-8; save it as UTF-8"),
        (b"a = 1\nb = ", r":2: not valid TOML: .* \(at end of document\)"),
        (b"a = 1\nb = 1 2\nc = 3\n", r":2: not valid TOML: .* \(at line 2, column 7\)"),
        (b"[a]\n[a]\n", r":2: not valid TOML: .* \(at line 2, column 3\)"),
        (b"a = 1\nb = " + b"9" * 5000, r":2: not valid TOML: .*4300"),
        (b"a = " + b"[" * 100_000, r"nested too deep"),
    ],
)
def test_a_file_that_is_not_toml(tmp_path, data, message):
    file = tmp_path / "job.toml"
    file.write_bytes(data)
    with pytest.raises(ConfigError, match=rf"job\.toml.*{message}") as caught:
        load(file)
    assert caught.value.exit_code == 2


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.toml: no such file; check the path$"):
        load(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="is a directory; name a TOML file"):
        load(tmp_path)
    with pytest.raises(ConfigError, match="cannot be read: embedded null"):
        load(tmp_path / "\0")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_without_permission(tmp_path):
    (tmp_path / "job.toml").touch(mode=0o000)
    with pytest.raises(ConfigError, match="cannot be read: Permission denied"):
        load(tmp_path / "job.toml")


def test_a_byte_order_mark_is_not_part_of_the_text(tmp_path):
    (tmp_path / "job.toml").write_bytes(b"\xef\xbb\xbfa = 1")
    assert load(tmp_path / "job.toml") == ("a = 1", {"a": 1})


@given(st.recursive(st.booleans() | st.integers() | st.floats() | st.text(), st.lists))
@example("x" * 1000)
@example(16**5000)
@example("\u2028\n\x85")
def test_a_value_is_shown_on_one_short_line(value):
    assert len(show(value)) < 400
    assert len(show(value).splitlines()) == 1


def test_a_very_deep_table_is_shown_and_read(tmp_path):
    (tmp_path / "job.toml").write_text("t." + ".".join("a" * 5000) + " = 1")
    text, raw = load(tmp_path / "job.toml")
    report = Report("f", Lines(text))
    assert read_table(fields_of(Toy), raw["t"], ("t",), report) is None


def test_nearest_ignores_case_and_long_words():
    assert nearest("d_w", ["D_w", "rho"]) == "D_w"
    assert nearest("x" * 10**6, ["D_w", "rho"]) is None
    assert nearest(3, ["D_w"]) is None
