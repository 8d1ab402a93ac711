"""The config file as a whole: sections, many mistakes at once, schema files, digest, overrides, documentation."""

import copy
import dataclasses
import json
import math
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config_cases import (
    CONDITIONAL,
    FIELDS,
    FULL,
    MINIMAL,
    TOYS,
    Job,
    changed,
    out_of_range,
    says,
    with_key,
    wrong_types,
)
from privadmm.config import docs
from privadmm.config import file as config
from privadmm.errors import ConfigError

PAGE = Path(__file__).parents[2] / "docs" / "config.md"


def test_an_unknown_section_is_told_the_nearest(tmp_path):
    job = Job(tmp_path, MINIMAL | {"privcy": {"epsilon": 1}})
    sections = ", ".join(f"[{name}]" for name in config.SECTIONS)
    says(job.complaint(), f"{job.path}:13: [privcy]: ", "unknown section", sections, "did you mean [privacy]?")


def test_a_key_outside_any_section_is_told_where_it_belongs(tmp_path):
    job = Job(tmp_path, MINIMAL)
    job.path.write_text('delta = 1\neta = 2\nwhat = 3\ngraph = "star"\n' + job.path.read_text())
    ends = [line.split("; ")[-1] for line in job.complaints()]
    assert ends[:2] == ["it belongs to [privacy]", 'it belongs to [algorithm] name = "toy_graph"']
    says(job.complaints()[2], f"{job.path}:3: [what]: ", "outside any section", "[data], ")
    says(job.complaints()[3], f"{job.path}:4: [graph]: ", '"star"', "a section", "kind, edges, seed")


def test_all_mistakes_are_reported_at_once_in_the_order_of_the_file(tmp_path):
    tables = copy.deepcopy(FULL)
    tables["data"]["row_bound"] = -1
    tables["parties"]["sizes"] = [1, 0, True]
    tables["parties"]["coutn"] = tables["parties"].pop("count")
    tables["algorithm"]["name"] = "toy"
    tables["loss"]["width"] = 1
    tables["privacy"]["budget"] = -0.5
    tables["rum"] = {}
    job = Job(tmp_path, tables)
    keys = [re.search(r":(\d+): (\[\w+\](?: \w+)?): ", line) for line in job.complaints()]
    assert [key[2] for key in keys] == [
        "[data] row_bound",
        "[parties] sizes",
        "[parties] sizes",
        "[parties] coutn",
        "[algorithm] name",
        "[loss] width",
        "[privacy] budget",
        "[rum]",
    ]
    assert [int(key[1]) for key in keys] == sorted(int(key[1]) for key in keys)


def test_inline_tables_and_dotted_keys_say_the_same(tmp_path):
    plain = Job(tmp_path, MINIMAL).read()
    text = 'data.source = "embedded:adult"\nparties = { count = 3 }\n'
    text += '[algorithm]\nname = "toy_star"\nrounds = 1\n"D_w" = 2'
    (tmp_path / "other.toml").write_text(text)
    other = config.read(tmp_path / "other.toml", TOYS)
    assert other.digest == plain.digest
    (tmp_path / "other.toml").write_text(text.replace("count = 3", "count = 3, sizes = [1]"))
    with pytest.raises(ConfigError, match=r"beside \[parties\] count = 3 \(line 2\)"):
        config.read(tmp_path / "other.toml", TOYS)
    (tmp_path / "other.toml").write_text(text.replace("= 3", "= 0").replace("embedded:adult", ""))
    with pytest.raises(ConfigError) as caught:
        config.read(tmp_path / "other.toml", TOYS)
    lines = str(caught.value).split("\n")
    assert [line.split(": ")[:2] for line in lines] == [
        [f"{tmp_path / 'other.toml'}:1", "[data] source"],
        [f"{tmp_path / 'other.toml'}:2", "[parties] count"],
    ]


def schema_job(tmp_path, text):
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "s.toml").write_text(text)
    tables = copy.deepcopy(FULL)
    tables["data"]["schema"] = "schemas/s.toml"
    return Job(tmp_path, tables)


def test_a_schema_may_live_in_a_file_beside_the_config(tmp_path):
    inline = Job(tmp_path, FULL).read()
    read = schema_job(tmp_path, 'age = [17, 90]\nsex = ["Female", "Male"]\n').read()
    assert read.data.schema == inline.data.schema
    assert read.digest == inline.digest


def test_a_mistake_in_a_schema_file_is_reported_there(tmp_path):
    job = schema_job(tmp_path, "# a comment\nage = [90, 17]\n")
    file = tmp_path / "schemas" / "s.toml"
    says(job.complaint(), f"{file}:2: [data.schema] age: ", "[90, 17]", "low < high", "distinct strings")
    file.write_text("age = [90, ")
    place = f"{job.path}:{job.lines['data', 'schema']}: [data] schema: "
    says(job.complaint(), place, '"schemas/s.toml"', f"{file}:1: ", "not valid TOML")
    file.unlink()
    says(job.complaint(), place)
    assert f"{file}: no such file" in job.complaint()


# Paths and addresses: a run can be resumed with other ones.
ELSEWHERE = ("out", "scheduler", "timeout", "tls_ca", "tls_cert", "tls_key", "memory", "threads")


@pytest.mark.parametrize(("section", "key"), FIELDS)
def test_the_digest_sees_what_is_run(tmp_path, section, key):
    tables = with_key(section, key)
    before = Job(tmp_path, tables).read()
    table = getattr(before, section)
    if key in ("name", "adjacency", "engine"):
        value = "other"
    elif key in CONDITIONAL or isinstance(tables[section][key], float):
        value = 0.123
    else:
        value = json.loads(json.dumps(tables[section][key]).replace("3", "4")) if key != "schema" else {"a": (0.0, 1.0)}
        value = f"{value}x" if isinstance(value, str) else value
        value = value + 1 if isinstance(value, int) else value
        value = (*value, "z") if isinstance(value, list) else value
    if key in {field.name for field in dataclasses.fields(table)}:
        after = dataclasses.replace(before, **{section: dataclasses.replace(table, **{key: value})})
    else:
        parameters = copy.copy(table.parameters)
        object.__setattr__(parameters, key, value)
        after = dataclasses.replace(before, algorithm=dataclasses.replace(table, parameters=parameters))
    assert (after.digest == before.digest) == (section == "run" and key in ELSEWHERE)


def test_the_digest_does_not_see_order_comments_or_defaults(tmp_path):
    before = Job(tmp_path, FULL).read()
    backwards = {name: dict(reversed(table.items())) for name, table in reversed(FULL.items())}
    assert Job(tmp_path, backwards).read().digest == before.digest
    spelt_out = MINIMAL | {"loss": {"C": 1}, "graph": {"kind": "star"}}
    assert Job(tmp_path, spelt_out).read().digest == Job(tmp_path, MINIMAL).read().digest
    assert Job(tmp_path, MINIMAL).read().digest != before.digest


def test_the_file_is_kept_as_it_was_and_paths_are_its_own(tmp_path):
    read = Job(tmp_path, FULL).read()
    assert read.text == read.path.read_text()
    assert read.resolve(read.data.source) == tmp_path / "records.csv"
    assert read.resolve("/somewhere/else") == Path("/somewhere/else")
    assert pickle.loads(pickle.dumps(read)) == read


def test_the_command_line_overrides_the_file(tmp_path, monkeypatch):
    read = Job(tmp_path, MINIMAL).read()
    monkeypatch.chdir(tmp_path)
    changed = config.override(read, seed=7, engine="inprocess", out="runs")
    assert (changed.run.seed, changed.run.engine) == (7, "inprocess")
    assert changed.resolve(changed.run.out) == tmp_path / "runs"
    assert config.override(read) == read
    assert config.override(changed, seed=0).run.seed == 0
    assert changed.digest != read.digest  # the seed is part of a run's identity
    assert config.override(read, out="elsewhere").digest == read.digest


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"seed": -1}, "^--seed: is -1; allowed: an integer >= 0$"),
        ({"seed": True}, "^--seed: is true; allowed: an integer >= 0$"),
        ({"engine": "dusk"}, '^--engine: is "dusk"; allowed: "inprocess"'),
    ],
)
def test_a_bad_override_is_named_by_its_option(tmp_path, option, message):
    with pytest.raises(ConfigError, match=message):
        config.override(Job(tmp_path, MINIMAL).read(), **option)


def test_a_simulation_needs_a_seed_and_a_deployment_refuses_one(tmp_path):
    without = Job(tmp_path, MINIMAL | {"run": {"mode": "simulation"}}).read()
    with pytest.raises(ConfigError, match=r':13: \[run\] seed: missing beside .* mode = "simulation" \(line 14\)'):
        config.check_seed(without)
    config.check_seed(config.override(without, seed=1))
    job = Job(tmp_path, MINIMAL | {"run": {"mode": "deployment", "seed": 1, "ledger": "party"}})
    with pytest.raises(ConfigError, match=r':15: \[run\] seed: is 1 beside \[run\] mode = "deployment" \(line 14\)'):
        config.check_seed(job.read())
    deployed = Job(tmp_path, MINIMAL | {"run": {"mode": "deployment", "ledger": "party"}}).read()
    config.check_seed(deployed)
    with pytest.raises(ConfigError, match="is 1 beside"):
        config.check_seed(config.override(deployed, seed=1))


def test_the_page_is_current():
    assert PAGE.read_text(encoding="utf-8") == docs.schema_markdown(), (
        "after a change of declarations, write the page anew: "
        "python -c 'from privadmm.config import docs; print(docs.schema_markdown(), end=\"\")' > docs/config.md"
    )


def test_the_example_on_the_page_is_a_config(tmp_path):
    example = re.search(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[1]
    (tmp_path / "job.toml").write_text(example)
    config.check_seed(config.read(tmp_path / "job.toml"))


def test_the_schema_for_people_names_every_key_with_what_is_allowed():
    text, page = re.sub(r"\s+", " ", docs.schema_text(TOYS)), docs.schema_markdown(TOYS)
    for field in FIELDS.values():
        assert f" {field.name}: {field.doc} allowed: {field.kind.allowed()} " in text
        assert f"| `{field.name}` | {field.doc} | {field.kind.allowed().replace('<', '&lt;')} | " in page


def valid(schema, value):
    """Validate with the part of JSON Schema 2020-12 that we write; any other keyword is a KeyError."""
    if isinstance(schema, bool):
        return schema
    kinds = {"object": dict, "array": list, "string": str, "boolean": bool}
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)

    def typed(name):
        if name in kinds:
            return isinstance(value, kinds[name])
        return number and (name == "number" or isinstance(value, int))

    table = value if isinstance(value, dict) else {}
    items = value if isinstance(value, list) else []
    known = schema.get("properties", {})
    then = schema.get("then", True) if valid(schema.get("if", True), value) else schema.get("else", True)
    checks = {
        "type": lambda names: any(typed(name) for name in ([names] if isinstance(names, str) else names)),
        "enum": lambda choices: value in choices,
        "const": lambda only: value == only,
        "minimum": lambda limit: not number or value >= limit,
        "maximum": lambda limit: not number or value <= limit,
        "exclusiveMinimum": lambda limit: not number or value > limit,
        "exclusiveMaximum": lambda limit: not number or value < limit,
        "pattern": lambda pattern: not isinstance(value, str) or re.search(pattern, value) is not None,
        "items": lambda inner: all(valid(inner, item) for item in items),
        "minItems": lambda least: not isinstance(value, list) or len(items) >= least,
        "maxLength": lambda most: not isinstance(value, str) or len(value) <= most,
        "maxItems": lambda most: len(items) <= most,
        "uniqueItems": lambda _: len({json.dumps(item) for item in items}) == len(items),
        "properties": lambda inner: all(valid(inner[key], table[key]) for key in table.keys() & inner.keys()),
        "required": lambda keys: not isinstance(value, dict) or all(key in table for key in keys),
        "minProperties": lambda least: not isinstance(value, dict) or len(table) >= least,
        "additionalProperties": lambda inner: all(valid(inner, table[key]) for key in table.keys() - known.keys()),
        "anyOf": lambda some: any(valid(inner, value) for inner in some),
        "oneOf": lambda some: sum(valid(inner, value) for inner in some) == 1,
        "allOf": lambda some: all(valid(inner, value) for inner in some),
        "if": lambda _: valid(then, value),
    }
    silent = {"description", "default", "title", "$schema", "then", "else"}
    return all(checks[word](inner) for word, inner in schema.items() if word not in silent)


@pytest.mark.parametrize(("section", "key"), FIELDS)
def test_the_json_schema_agrees_with_the_reader(section, key):
    schema, field = docs.schema_json(TOYS), FIELDS[section, key]
    json.dumps(schema, allow_nan=False)
    assert valid(schema, with_key(section, key))
    beyond_json_schema = [*(f"dirichlet:{alpha}" for alpha in ("0", "-1", "nan", "x")), [0, False]]
    beyond_json_schema += [{"age": [2, 1]}, {"sex": ["a", "a "]}, "two\nlines", "\u202ex", "a\x1bb"]
    for value in [*wrong_types(field), *out_of_range(field)]:
        if value not in beyond_json_schema:
            assert not valid(schema, changed(section, key, value)), value
    tables = with_key(section, key)
    tables[section][f"{key}x"] = tables[section].pop(key)
    assert not valid(schema, tables)
    if field.required:
        del tables[section][f"{key}x"]
        assert not valid(schema, tables)
    if field.when is not None:
        tables = copy.deepcopy(FULL)
        tables[section][key] = CONDITIONAL[section, key]
        assert not valid(schema, tables)


WORDS = st.sampled_from(
    [*config.SECTIONS, *(key for _, key in FIELDS), "[", "]", "[[", "]]", "=", " = ", "\n", "\n[", "]\n", ".", ",",
     "{", "}", "#", '"', "'", '"""', "'''", "\\", "\\u0041", "1", "-1", "0x" + "f" * 40, "1e400", "nan", "inf",
     "true", "1979-05-27", "toy_star", "\r\n", "é", "\0"]
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


def only_config_errors(folder, data):
    (folder / "job.toml").write_bytes(data)
    try:
        said = config.read(folder / "job.toml", TOYS).digest
    except ConfigError as error:
        said = str(error)
    assert len(said) == 64 or all(line.startswith(f"{folder / 'job.toml'}:") for line in said.splitlines())


@settings(deadline=None)  # it writes files
@given(st.binary())
def test_any_bytes_give_a_config_or_a_config_error(folder, data):
    only_config_errors(folder, data)


@settings(deadline=None)  # it writes files
@given(st.lists(WORDS).map("".join))
def test_any_tomlish_text_gives_a_config_or_a_config_error(folder, text):
    only_config_errors(folder, text.encode())


VALUES = st.recursive(
    st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["even", "toy_graph", "x.csv"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=2),
    max_leaves=4,
)


@settings(deadline=None)  # it writes files
@given(st.dictionaries(st.sampled_from(sorted(FIELDS)), VALUES, max_size=4))
def test_any_values_give_a_config_or_a_config_error(folder, values):
    tables = copy.deepcopy(FULL)
    for (section, key), value in values.items():
        tables[section][key] = value
    only_config_errors(folder, Job(folder, tables).path.read_bytes())


@settings(deadline=None)  # it writes files
@given(st.data())
def test_a_damaged_config_gives_a_config_or_a_config_error(folder, data):
    text = Job(folder, FULL).path.read_text()
    start = data.draw(st.integers(0, len(text)))
    stop = data.draw(st.integers(start, min(len(text), start + 20)))
    only_config_errors(folder, (text[:start] + data.draw(WORDS) + text[stop:]).encode())


def test_importing_is_light():
    code = "import sys, privadmm.config.file, privadmm.optim.graphs; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"networkx", "scipy", "sklearn", "privadmm.algorithms", "privadmm.data.readers"} & set(loaded)
