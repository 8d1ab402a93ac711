"""Every key of the config wrong in turn, and keys that contradict one another."""

from pathlib import Path

import pytest

from config_cases import (
    CONDITIONAL,
    FIELDS,
    FULL,
    MINIMAL,
    Job,
    ToyStar,
    changed,
    out_of_range,
    says,
    with_key,
    wrong_types,
)
from privadmm.config import file as config
from privadmm.engine.sums import unsummable
from privadmm.errors import ConfigError
from privadmm.params import fields_of

every_key = pytest.mark.parametrize(("section", "key"), FIELDS, ids=[".".join(at) for at in FIELDS])
REQUIRED = [at for at, field in FIELDS.items() if field.required]


def test_the_examples_cover_every_key():
    assert {(section, key) for section in FULL for key in FULL[section]} | set(CONDITIONAL) == set(FIELDS)


@every_key
def test_the_good_value_is_read(tmp_path, section, key):
    tables = with_key(section, key)
    read = Job(tmp_path, tables).read()
    table = getattr(read, section)
    value = getattr(table if key in fields_of(type(table)) else table.parameters, key)
    expected = tables[section][key]
    if key == "schema":
        assert value == {"age": (17.0, 90.0), "sex": ("Female", "Male")}
    else:
        assert value == (tuple(expected) if isinstance(expected, list) else expected)


@every_key
def test_a_wrong_type_is_refused_where_it_stands(tmp_path, section, key):
    for value in wrong_types(FIELDS[section, key]):
        job = Job(tmp_path, changed(section, key, value))
        for complaint in job.complaints():
            assert complaint.startswith(f"{job.path}:{job.lines[section, key]}: [{section}] {key}: "), value
            assert f"; allowed: {FIELDS[section, key].kind.allowed()}" in complaint


@every_key
def test_a_value_out_of_range_is_refused_where_it_stands(tmp_path, section, key):
    values = out_of_range(FIELDS[section, key])
    for value in values:
        job = Job(tmp_path, changed(section, key, value))
        for complaint in job.complaints():
            if key == "schema" and value:
                assert f"{job.path}:{job.lines[section, key] + 1}: [data.schema] {next(iter(value))}: " in complaint
                assert "; allowed: [low, high] with low < high" in complaint
            else:
                assert complaint.startswith(f"{job.path}:{job.lines[section, key]}: [{section}] {key}: "), value
                assert "; allowed: " in complaint


def test_every_key_has_a_value_that_is_out_of_range():
    booleans = [at for at, field in FIELDS.items() if field.kind.json().get("type") == "boolean"]
    assert [at for at, field in FIELDS.items() if not out_of_range(field)] == booleans


@every_key
def test_a_misspelt_key_is_told_the_nearest(tmp_path, section, key):
    tables = with_key(section, key)
    misspelt = key[:-1] + key[-1] * 2
    tables[section] = {misspelt if name == key else name: value for name, value in tables[section].items()}
    job = Job(tmp_path, tables)
    # One mistake may break a condition elsewhere as well; the key itself is reported once.
    complaint = job.complaints()
    (own,) = [line for line in complaint if f"[{section}] {misspelt}: " in line]
    assert own.startswith(f"{job.path}:{job.lines[section, misspelt]}: [{section}] {misspelt}: unknown key; allowed: ")
    assert own.endswith(f"; did you mean {key}?")
    assert not any(f"[{section}] {key}: missing; " in line for line in complaint)


@pytest.mark.parametrize(("section", "key"), REQUIRED)
def test_a_missing_key_is_reported_at_its_section(tmp_path, section, key):
    tables = with_key(section, key)
    del tables[section][key]
    job = Job(tmp_path, tables)
    place = f"{job.path}:{job.lines[section,]}: [{section}] {key}: "
    says(job.complaint(), place, "missing", FIELDS[section, key].kind.allowed(), f"add {key} = ")


def test_the_keys_of_a_missing_section_are_reported_at_the_end(tmp_path):
    job = Job(tmp_path, {"parties": {"count": 3}})
    assert [line.split(": ")[0:3] for line in job.complaints()] == [
        [f"{job.path}:3", "[algorithm] name", "missing; allowed"],
        [f"{job.path}:3", "[algorithm] rounds", "missing; allowed"],
        [f"{job.path}:3", "[data] source", "missing; allowed"],
    ]


def test_required_keys():
    required = [("data", "source"), ("algorithm", "name"), ("algorithm", "rounds"), ("algorithm", "D_w")]
    assert [*required, ("privacy", "delta")] == REQUIRED


def test_the_least_config_has_the_documented_defaults(tmp_path):
    read = Job(tmp_path, MINIMAL).read()
    assert read.privacy is None
    assert (read.parties.split, read.graph.kind, read.algorithm.weighting) == ("even", "star", "records")
    assert (read.data.test_fraction, read.data.intercept, read.data.on_bad) == (0.2, 0.0, "refuse")
    assert (read.loss.name, read.loss.C, read.loss.width) == ("logistic", 1.0, 0.5)
    assert (read.regularizer.name, read.regularizer.weight) == ("l2", 1e-3)
    assert (read.run.mode, read.run.seed, read.run.engine) == ("simulation", None, "inprocess")
    assert (read.run.checkpoint_every, read.run.metrics_every) == (1, 1)
    assert read.algorithm.parameters == ToyStar(D_w=2.0)
    assert type(read.algorithm.parameters.D_w) is float


CSV = {"source": "x.csv", "label": "y", "classes": [0, 1], "row_bound": 1}
STAR = MINIMAL["algorithm"]


def without(table, key):
    return {name: value for name, value in table.items() if name != key}


CROSS = [
    ("data.label", without(CSV, "label"), ["missing", '[data] source = "x.csv" (line 3)']),
    ("data.row_bound", without(CSV, "row_bound"), ["missing", '[data] source = "x.csv" (line 3)']),
    ("data.classes", without(CSV, "classes"), ["missing", '[loss] name = "logistic" (the default)']),
    ("data.format", CSV | {"source": "x.dat"}, ["missing", '[data] source = "x.dat" (line 3)']),
    ("data.dim", CSV | {"source": "x.svm"}, ["missing", '[data] source = "x.svm" (line 3)']),
    (
        "data.schema",
        CSV | {"source": "x.npz", "schema": {"a": [0, 1]}},
        ["does not go with", '[data] source = "x.npz" (line 3)', "csv and parquet"],
    ),
    ("data.on_bad", CSV | {"on_bad": "default"}, ['"default"', "[data] schema", "missing"]),
    (
        "data.format",
        {"source": "embedded:adult", "format": "csv"},
        ["does not go with", '[data] source = "embedded:adult" (line 3)'],
    ),
    ("data.dim", {"source": "embedded:a9a", "dim": 3}, ["does not go with", "[data] source"]),
    ("parties.count", {"seed": 1}, ["missing", '[parties] split = "even" (the default)']),
    ("parties.sizes", {"count": 3, "sizes": [1, 2]}, ["2 items", "[parties] count = 3 (line 6)"]),
    ("graph.kind", {"kind": "ring"}, ['"ring"', '[algorithm] name = "toy_star" (line 9)', 'allowed: "star"']),
    ("graph.edges", {"edges": 3}, ["does not go with", '[graph] kind = "star" (the default)']),
    ("graph.edges", {"kind": "random"}, ["missing", '[graph] kind = "random" (line 14)']),
    ("algorithm.rho", STAR | {"rho": 3}, ["below D_w", "3.0", "[algorithm] D_w = 2.0 (line 11)"]),
    (
        "algorithm.round_epsilon",
        STAR | {"round_epsilon": 1},
        ["does not go with", '[algorithm] calibration = "certified" (the default)'],
    ),
    (
        "algorithm.eta",
        STAR | {"eta": 3},
        [
            "unknown key",
            "name, rounds, weighting, D_w, rho, calibration, round_epsilon",
            '[algorithm] name = "toy_graph"',
        ],
    ),
    (
        "algorithm.name",
        {"name": "toy_sta", "rounds": 1, "eta": 3, "D_w": "x"},
        ['"toy_sta"', '"toy_star" or "toy_graph"', 'did you mean "toy_star"?'],
    ),
    ("loss.label_bound", {"name": "squared"}, ["missing", '[loss] name = "squared" (line 14)']),
    ("loss.radius", {"radius": 1}, ["does not go with", '[loss] name = "logistic" (the default)']),
    (
        "loss.radius",
        {"name": "squared", "label_bound": 150, "radius": 60},
        ["is 60", "[loss] label_bound = 150.0 (line 15)", "at least label_bound", "raise radius"],
    ),
    ("loss.epsilon", {"epsilon": 1}, ["unknown key", "name, C, width, label_bound, radius", "[privacy]"]),
    ("privacy.epsilon", {"delta": 0.1}, ["missing", '[algorithm] name = "toy_star" (line 9)']),
    ("run.tls_key", {"tls_ca": "a", "tls_cert": "b"}, ["missing", '[run] tls_ca = "a" (line 14)']),
    (
        "run.tls_ca",
        {"scheduler": "tcp://127.0.0.1:1", "tls_ca": "a", "tls_cert": "b", "tls_key": "c"},
        ["does not go with", '[run] scheduler = "tcp://127.0.0.1:1" (line 14)', "tls://"],
    ),
    ("run.workers", {"engine": "dask", "workers": 4}, ["is 4", "[parties] count = 3 (line 6)", "1 to 3"]),
]


def test_labels_of_a_regression_are_not_randomised(tmp_path):
    tables = {"loss": {"name": "squared", "label_bound": 1}}
    tables["privacy"] = {"epsilon": 1.0, "delta": 1e-5, "label_epsilon": 1.0}
    job = Job(tmp_path, MINIMAL | tables)
    place = f"{job.path}:{job.lines['privacy', 'label_epsilon']}: [privacy] label_epsilon: "
    says(job.complaint(), place, '[loss] name = "squared" (line 14)')


SECURE = {"epsilon": 1.0, "delta": 1e-5, "sum": "secure"}


@pytest.mark.parametrize(
    ("key", "changes", "facts"),
    [
        ("sum", {"algorithm": {"name": "toy_graph", "rounds": 1}, "graph": {"kind": "ring"}}, ["neighbours need"]),
        ("sum", {"parties": {"count": 1}}, ["two parties at least", "remove", "[parties] count = 1 (line 6)"]),
        ("colluding", {"privacy": SECURE | {"colluding": 3}}, ["3 of 3 parties", "[parties] count = 3 (line 6)"]),
        ("fewest", {"privacy": SECURE | {"colluding": 2, "fewest": 2}}, ["above colluding = 2", "[parties] count = 3"]),
        ("fewest", {"privacy": SECURE | {"fewest": 4}}, ["at most the number of parties, 3"]),
        ("colluding", {"privacy": {"epsilon": 1.0, "delta": 1e-5, "colluding": 1}}, ["does not go with", '"local"']),
        ("fewest", {"privacy": SECURE | {"sum": "local", "fewest": 3}}, ["does not go with", '"local"']),
    ],
)
def test_what_a_secure_sum_asks_of_method_and_parties(tmp_path, key, changes, facts):
    job = Job(tmp_path, MINIMAL | {"privacy": SECURE} | changes)
    says(job.complaint(), f"{job.path}:{job.lines['privacy', key]}: [privacy] {key}: ", *facts)


@pytest.mark.parametrize("name", ["dp_admm", "dvp", "sharing"])
def test_a_method_that_cannot_sum_is_refused_with_the_sentence_that_says_why(tmp_path, name):
    example, path = Path(__file__).parents[2] / "examples" / f"{name}.toml", tmp_path / "job.toml"
    path.write_text(example.read_text().replace("\n[privacy]", '\n[privacy]\nsum = "secure"'))
    line = path.read_text().splitlines().index('sum = "secure"') + 1
    with pytest.raises(ConfigError) as caught:
        config.read(path)
    why = unsummable(config.read(example).algorithm.parameters)
    says(str(caught.value), f"{path}:{line}: [privacy] sum: ", f'name = "{name}" (line', why, "first_order_consensus")


def test_one_process_deploys_no_secure_sum(tmp_path):
    job = Job(tmp_path, MINIMAL | {"privacy": SECURE, "run": {"mode": "deployment", "ledger": "party"}})
    chosen = job.read()  # a federation may be meant
    with pytest.raises(ConfigError) as caught:
        config.check_alone(chosen)
    place = f"{job.path}:{job.lines['privacy', 'sum']}: [privacy] sum: "
    says(str(caught.value), place, '[run] mode = "deployment" (line', "a curator", 'engine = "dask"', "a federation")
    with pytest.raises(ConfigError, match=r"\[data\] source: .* would read everybody's records"):
        config.check_alone(config.override(chosen, engine="dask"))
    parts = {
        "data": CSV | {"source": "party-{party}.csv"},
        "privacy": SECURE,
        "run": {"mode": "deployment", "ledger": "party"},
    }
    config.check_alone(config.override(Job(tmp_path, MINIMAL | parts).read(), engine="dask"))


@pytest.mark.parametrize(("key", "table", "facts"), CROSS)
def test_keys_that_contradict_one_another(tmp_path, key, table, facts):
    section, key = key.split(".")
    job = Job(tmp_path, MINIMAL | {section: table})
    line = job.lines.get((section, key), job.lines[section,])
    says(job.complaint(), f"{job.path}:{line}: [{section}] {key}: ", *facts)


def test_an_algorithm_and_its_graph(tmp_path):
    job = Job(tmp_path, MINIMAL | {"algorithm": {"name": "toy_graph", "rounds": 1}, "graph": {"seed": 0}})
    facts = ('"star"', '[algorithm] name = "toy_graph" (line 9)', '"ring", "complete" or "random"')
    says(job.complaint(), f"{job.path}:12: [graph] kind: ", *facts)


@pytest.mark.parametrize("parties", [{"count": 4}, {"sizes": [5, 5, 5, 5]}])
@pytest.mark.parametrize("edges", [2, 7])
def test_too_few_or_too_many_edges_for_the_parties(tmp_path, parties, edges):
    tables = {"parties": parties, "algorithm": {"name": "toy_graph", "rounds": 1}}
    job = Job(tmp_path, MINIMAL | tables | {"graph": {"kind": "random", "edges": edges}})
    says(job.complaint(), f"{job.path}:14: [graph] edges: ", f"is {edges}", "[parties]", "(line 6)", "3 to 6")


def test_the_label_is_not_a_column(tmp_path):
    job = Job(tmp_path, MINIMAL | {"data": CSV | {"schema": {"a": [0, 1], "y": [0, 1]}}})
    says(job.complaint(), f"{job.path}:9: [data.schema] y: ", '[data] label = "y" (line 4)')


GOOD = [
    {"data": CSV},
    {
        "data": {"source": "x.csv", "label": "y", "row_bound": 1},
        "loss": {"name": "squared", "label_bound": 1},
    },
    {"data": {"source": "x.npz", "classes": [-1, 1], "row_bound": 1}},
    {"data": {"source": "x", "format": "libsvm", "classes": [-1, 1], "row_bound": 1, "dim": 3}},
    {"parties": {"split": "column:site"}},
    {"parties": {"sizes": [3, 4]}},
    {"graph": {"kind": "random", "edges": 2}, "algorithm": {"name": "toy_graph", "rounds": 1}},
    {"loss": {"name": "huber_hinge", "width": 0.1}},
    {"regularizer": {"name": "elastic_net"}},
    {
        "algorithm": STAR | {"calibration": "published", "round_epsilon": 1},
        "privacy": {"delta": 0.1},
    },
]


@pytest.mark.parametrize("tables", GOOD)
def test_keys_that_go_together(tmp_path, tables):
    Job(tmp_path, MINIMAL | tables).read()
