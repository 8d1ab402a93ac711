"""`account` predicts what `train` charges, to the last digit, and asks for what it cannot know."""

import itertools
import json
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from config_draws import KNOBS, coherent, config_of, tables
from privadmm.algorithms import ALGORITHMS
from privadmm.cli.views import jobs
from privadmm.config import file as configs
from privadmm.config.build import job as job_of
from privadmm.config.build import prepare
from privadmm.errors import PrivadmmError
from privadmm.params import Checked, Choice, fields_of
from privadmm.privacy.sqlite_ledger import SqliteLedger
from privadmm.runs.preview import account, to_train_on, with_records
from privadmm.runs.run import run
from small_runs import (
    PARTIES,
    PRIVATE,
    RECORDS,
    TRAINED,
    Place,
    Tables,
    rows,
    toml,
    with_changes,
    write_config,
    write_csv,
)

pytestmark = pytest.mark.usefixtures("skipped_plots")

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.toml"))
SHOWN = ("adversaries", "per_party", "per_person", "label_holder", "expected")


def same_figures(said: dict[str, Any], out: Path) -> None:
    """Every figure of an account, against a run's result and the export of its ledger."""
    result, ledger = (json.loads((out / name).read_text()) for name in ("result.json", "ledger.json"))
    assert said["certified"]["epsilon"] == result["epsilon"]
    for key in ("algorithm", "private", "rounds", "delta"):
        assert said[key] == result[key], key
    for key in SHOWN:
        assert said.get(key) == result.get(key), key
    for party in said["parties"]:
        charged = ledger["parties"][party["party"]]
        assert (party["events"], party["epsilon"]) == (charged["events"], charged["epsilon"])
    assert len(said["parties"]) == len(ledger["parties"])


def accounted_and_trained(place: Place, config: Path, *words: Any) -> dict[str, Any]:
    said = place.call("account", config, *words, "--json")
    assert said.code == 0, said.err + said.out
    done = place.train(config)
    assert done.code == 0, done.err
    same_figures(said.object, place.out)
    shutil.rmtree(place.out)
    return said.object


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_costs_what_was_said(path: Path, place: Place) -> None:
    few = with_changes(toml(path), {"algorithm": {"rounds": 3}})
    accounted_and_trained(place, write_config(place.path / path.name, few))


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_costs_what_was_said_in_all_its_rounds(path: Path, place: Place) -> None:
    accounted_and_trained(place, path)


def variants() -> Iterator[Any]:
    """Every algorithm with every value of every choice that it declares, between all neighbours it has a proof for."""
    for name, kind in ALGORITHMS.items():
        fields = fields_of(kind)
        needed = {key: 5.0 for key, field in fields.items() if field.required}
        own = [needed, *(needed | {key: value} for key in fields for value in options(fields[key].kind))]
        for number, chosen in enumerate(own):
            published = chosen.get("calibration", "certified") != "certified"
            noise = dict.fromkeys(KNOBS.get(name, ("alpha",)), 0.3) if published else {}
            neighbours = kind.adjacencies if kind.adjacencies else (None,)
            for adjacency in ("column",) if published and name == "sharing" else neighbours:
                changed = [f"{key}={value}" for key, value in chosen.items() if key not in needed]
                id = "-".join([name, *changed, *([adjacency] if adjacency else []), *["plain"] * (not number)])
                yield pytest.param(name, chosen | noise, adjacency, id=id)


def options(kind: Any) -> tuple[str, ...]:
    inner = kind.kind if isinstance(kind, Checked) else kind
    return inner.values if isinstance(inner, Choice) else ()


@pytest.mark.parametrize(("name", "own", "adjacency"), list(variants()))
def test_a_variant_costs_what_was_said(name: str, own: dict[str, Any], adjacency: str | None, place: Place) -> None:
    content = config_of(name, own, adjacency)
    said = accounted_and_trained(place, write_config(place.path / "config.toml", content))
    assert [party["records"] for party in said["parties"]] == content["parties"]["sizes"]


PROOF = {
    "name": "dvp",
    "rounds": 3,
    "eta": 1.0,
    "calibration": "proof",
    "alpha": 0.3,
    "D_w": None,
    "rho": None,
}
UNDERSTATED: dict[str, Any] = {
    "data": {"source": "embedded:adult", "test_fraction": 0.2, "classes": None, "row_bound": None},
    "parties": {"count": 10},
    "graph": {"kind": "random", "edges": 13},
    "algorithm": PROOF,
    "loss": {"C": 1750.0},
    "regularizer": {"weight": 1e-4},
    "privacy": {"epsilon": None, "delta": 1e-6},
}


def test_what_was_understated(place: Place) -> None:
    """One record a party would make it 0.6753, and 0.2252 for a label."""
    said = accounted_and_trained(place, place.config(**UNDERSTATED))
    assert said["certified"]["epsilon"] == pytest.approx(0.8642, abs=5e-5)
    assert said["adversaries"]["others"]["label"]["epsilon"] == pytest.approx(0.4142, abs=5e-5)
    assert [party["records"] for party in said["parties"]] == [3618] * 8 + [3617] * 2


SPLITS: list[dict[str, Any]] = [
    {"parties": {"count": 7}},
    {"parties": {"count": 4, "split": "dirichlet:0.5", "seed": 3}},
    {"parties": {"count": None, "split": "column:race"}},
    {"data": {"test_fraction": 0.37, "split_seed": 5, "intercept": 0.2}, "parties": {"count": 3}},
    {"data": {"source": "embedded:a9a"}, "parties": {"count": None, "split": "column:sex"}},
]


@pytest.mark.parametrize("changes", SPLITS, ids=["even", "dirichlet", "column", "held out", "a9a"])
def test_embedded_records_are_counted_as_training_deals_them(changes: Any, place: Place) -> None:
    """dvp by its proof: what it costs depends on the size of every party."""
    base = with_changes(with_changes(PRIVATE, UNDERSTATED), {"graph": {"kind": "complete", "edges": None}})
    accounted_and_trained(place, place.config(base, **changes))


@pytest.mark.parametrize(
    "parties",
    [{"count": 5}, {"count": None, "columns": [60, 45]}, {"count": 4, "use": "first"}],
    ids=["even", "columns", "first"],
)
def test_embedded_columns_too(parties: dict[str, Any], place: Place) -> None:
    sharing = config_of("sharing", {}, "person")
    embedded = {"source": "embedded:adult", "classes": None, "dim": None, "row_bound": None, "intercept": 0.1}
    tables = with_changes(sharing, {"data": embedded, "parties": {"sizes": None, **parties}})
    tables["algorithm"]["rounds"] = 2
    accounted_and_trained(place, write_config(place.path / "config.toml", tables))
    config = configs.read(place.path / "config.toml")
    from privadmm.runs.preview import shape

    known, held = shape(config), prepare(config)
    assert (known.sizes, known.dim, known.columns) == (tuple(held.held.sizes), held.held.dim, held.columns)


def test_those_who_leave_are_charged_until_then(place: Place) -> None:
    config = place.config(parties={"leave": ["1@3", "2@1"]}, data={"dim": 3})
    said = accounted_and_trained(place, config, "--records", RECORDS)
    assert [sum(event["count"] for event in party["events"]) for party in said["parties"]] == [6, 2, 0]


DVP = {"algorithm": {"name": "dvp", "D_w": None, "rho": None, "eta": 0.1}, "graph": {"kind": "ring"}}
FIXED = {**DVP, "algorithm": PROOF, "privacy": {"epsilon": None}}
BUDGET = ("--epsilon", 1, "--delta", 1e-5)


@pytest.mark.parametrize(
    ("words", "changes"),
    [
        (("account",), DVP),
        (("account",), FIXED),
        (("plan", *BUDGET), DVP),
        (("plan", *BUDGET), FIXED),
        (("audit",), FIXED),
        (("recommend",), {}),
        (("frontier",), {}),
    ],
    ids=lambda given: given[0] if isinstance(given, tuple) else "-".join(given) or "dp_admm",
)
@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
def test_a_command_that_needs_sizes_asks_for_them(words: Any, changes: Any, as_json: bool, place: Place) -> None:
    command, *options = words
    said = place.call(command, place.config(**changes), *options, *(["--json"] if as_json else []))
    assert said.code == 2
    told = said.object["message"] if as_json else said.err
    assert (said.out == "") == (not as_json)
    for name in ("config.toml", "[parties] sizes", "--records"):
        assert name in told
    given = ("--trials", 1000) if command == "audit" else ()
    known = place.call(command, place.config(**changes), *options, *given, "--records", RECORDS)
    assert known.code == 0, known.err


def test_noise_that_no_size_changes_needs_none(place: Place) -> None:
    """Gaussian noise by epsilon alone: a plan, and an account between labels, whatever the parties hold."""
    config = place.config(privacy={"adjacency": "label"})
    said = place.call("account", config, "--json").object
    assert [party["records"] for party in said["parties"]] == [None] * PARTIES
    assert "[parties] sizes" in said["not_expected"]
    assert "whatever records they have" in place.call("account", config).out
    for count in (RECORDS, 5, 10**9):
        sized = place.call("account", config, "--records", count, "--json").object
        for key in ("certified", "published", "adversaries"):
            assert sized[key] == said[key]
        assert [party["events"] for party in sized["parties"]] == [party["events"] for party in said["parties"]]
    assert place.call("plan", place.config(), *BUDGET).code == 0


@pytest.mark.parametrize(
    ("changes", "count", "words"),
    [
        ({"parties": {"sizes": [16] * PARTIES}}, 49, "has 48 to train on"),
        ({"parties": {"count": None, "split": "column:site"}}, RECORDS, "[parties] count"),
        (UNDERSTATED, RECORDS, "has 36178 to train on"),
    ],
    ids=["declared", "unknown parties", "embedded"],
)
def test_a_number_of_records_that_cannot_be_meant(changes: Any, count: int, words: str, place: Place) -> None:
    for command in (("account",), ("plan", *BUDGET), ("audit",)):
        said = place.call(*command, place.config(**changes), "--records", count)
        assert (said.code, said.out, words in said.err) == (2, "", True), said.err


UNEVEN: dict[str, Any] = {
    "dirichlet": {"parties": {"split": "dirichlet:0.5"}},
    "column": {"parties": {"split": "column:site"}},
    "files": {"data": {"source": "data-{party}.npz"}},
}


@pytest.mark.parametrize("changes", UNEVEN.values(), ids=UNEVEN)
def test_the_number_of_all_records_does_not_tell_how_many_each_party_has(changes: Any, place: Place) -> None:
    """It is enough for estimates; a figure that is charged and depends on sizes asks for them."""
    told = place.call("account", place.config(**changes), "--records", RECORDS, "--json").object
    assert told["assumed"] == {"records": TRAINED}
    assert [party["records"] for party in told["parties"]] == [None] * PARTIES
    said = place.call("account", place.config(**with_changes(FIXED, changes)), "--records", RECORDS)
    assert (said.code, said.out, "[parties] sizes" in said.err) == (2, "", True), said.err


EVERYWHERE = {"account": (), "plan": BUDGET, "recommend": (), "frontier": ()}


@pytest.mark.parametrize("command", EVERYWHERE)
def test_records_are_all_that_the_parties_hold_in_every_command(command: str, place: Place) -> None:
    """--records is [parties] records, in place of it: held-out ones count, and are told apart from those trained on."""
    words = (*EVERYWHERE[command], "--json")
    given = place.call(command, place.config(), *words, "--records", RECORDS).object
    assert given == place.call(command, place.config(parties={"records": RECORDS}), *words).object
    assert given == place.call(command, place.config(parties={"records": 90}), *words, "--records", RECORDS).object
    if "trained_on" in given:
        assert (given["records"], given["trained_on"]) == (RECORDS, TRAINED)
    else:
        assert sum(party["records"] for party in given["parties"]) == TRAINED


def test_declared_sizes_that_embedded_data_do_not_have(place: Place) -> None:
    said = place.call("account", place.config(**UNDERSTATED | {"parties": {"sizes": [5, 6], "count": None}}))
    assert (said.code, said.out, "sizes" in said.err) == (2, "", True)


def test_an_estimate_that_needs_the_dimension_says_so(place: Place) -> None:
    """Gamma noise grows with the number of features; so does what is expected of it."""
    gamma = with_changes(PRIVATE, DVP | {"loss": {"C": 0.1}, "parties": {"sizes": [16] * PARTIES}})
    gamma["algorithm"]["law"] = "gamma"
    said = place.call("account", place.config(gamma), "--json").object
    assert "[data] dim" in said["not_expected"]
    accounted_and_trained(place, place.config(gamma, data={"dim": 3}))
    accounted_and_trained(place, place.config(gamma, data={"dim": 3, "intercept": 0.3}))


def test_a_schema_tells_the_dimension(place: Place) -> None:
    write_csv(place.path / "data.csv", *rows())
    schema = {f"f{j}": [-3.0, 3.0] for j in range(3)}
    data = {"source": "data.csv", "label": "y", "schema": schema, "encoding": "binned"}
    path = write_config(place.path / "config.toml", with_changes(PRIVATE, {"data": data}))
    accounted_and_trained(place, path, "--records", RECORDS)


def test_a_federation_asks_too(place: Place) -> None:
    fed = place.path / "fed"
    said = place.call("federation", "init", place.config(**DVP), "--out", fed)
    assert (said.code, said.out, "[parties] sizes" in said.err) == (2, "", True), said.err
    assert not fed.exists()
    known = place.config(**DVP | {"parties": {"sizes": [16] * PARTIES}})
    assert place.call("federation", "init", known, "--out", fed).code == 0
    # Removed again: then no cost is stated.
    job = fed / "coordinator" / "job.toml"
    job.write_text("\n".join(line for line in job.read_text().splitlines() if not line.startswith("sizes")))
    looked = place.call("federation", "check", fed / "coordinator", "--json").object["checked"]
    (found,) = [one for findings in looked.values() for one in findings if one["what"] == "job"]
    assert (found["state"], "[parties] sizes" in found["said"]) == ("bad", True)
    assert "epsilon =" not in found["said"]


# Any config at all.


@st.composite
def priced(draw: Any) -> Tables:
    """Draw a config with a cost; each calibration and law of noise of its algorithm is equally likely."""
    content = draw(tables())
    name = content["algorithm"]["name"]
    assume(ALGORITHMS[name].adjacencies)
    own, fields = content["algorithm"], fields_of(ALGORITHMS[name])
    for key in {"calibration", "law"} & fields.keys():
        own[key] = draw(st.sampled_from(options(fields[key].kind)))
    if "law" in fields:  # noise in an objective, where a flat one has no feasible noise
        content["loss"]["C"], own["eta"] = (
            draw(st.sampled_from([0.01, 0.1, 1.0])),
            draw(st.sampled_from([0.5, 2.0])),
        )
        content["regularizer"] = {"weight": draw(st.sampled_from([0.0, 1e-3, 0.1]))}
    if own.get("calibration") == "box":
        own["negative_phi"] = True
    return coherent(content)


def declared(content: Tables, config: configs.Config) -> Tables:
    """The config with its sizes and dimension, as training finds them."""
    held = prepare(config).held
    content = with_changes(content, {"parties": {"sizes": held.sizes.tolist()}})
    if config.parties.split != "features":
        content["data"]["dim"] = held.dim - (config.data.intercept > 0)
    return content


def without_sizes(said: dict[str, Any]) -> dict[str, Any]:
    """The figures, without those that an account without sizes does not give."""
    sized, estimates = ("records", "held_out"), ("expected", "regression", "not_expected", "with_secure_sum")
    parties = [{key: value for key, value in party.items() if key not in sized} for party in said["parties"]]
    rest = {key: value for key, value in said.items() if key not in estimates}
    return {**rest, "parties": parties}


def ends_alike(folder: Path, content: Tables) -> bool:
    """Whether the config trained. If so, check its account, and those from fewer facts."""
    path, out = write_config(folder / "config.toml", content), folder / "out"
    try:
        given = configs.read(path)
        known = configs.read(write_config(path, declared(content, given)))
        if known.run.mode == "deployment":
            prepared = prepare(known)
            held, columns = prepared.held, prepared.columns
            policy = job_of(known, held.sizes, held.dim, columns=columns).policy
            SqliteLedger(folder / "party.sqlite", held.ids.tolist(), policy, "deployment").close()
        run(known, out)
    except PrivadmmError:
        return False
    else:
        said = account(known)
        assert jobs.account(said, None)
        same_figures(said, out)
        for other in less_known(given, known):
            assert without_sizes(other) == without_sizes(said)
        return True
    finally:
        shutil.rmtree(out, ignore_errors=True)
        for item in folder.glob("*.sqlite*"):
            item.unlink()


def less_known(given: configs.Config, known: configs.Config) -> Iterator[dict[str, Any]]:
    """Accounts without sizes, where possible; and from the number of records alone, if they are split evenly."""
    with suppress(PrivadmmError):
        yield account(given)
    if given.parties.split in ("even", "features") and not given.parties.files:
        sizes = known.parties.sizes or ()
        trained = sizes[0] if given.parties.split == "features" else sum(sizes)
        held = next(total for total in itertools.count(trained) if to_train_on(given, total) == trained)
        yield account(with_records(given, held))


def compared(folder: Path, count: int) -> int:
    """How many of the drawn configs trained, and cost what was said."""
    trained = 0

    @settings(
        max_examples=count,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate,),
    )
    @given(priced())
    def every(content: Tables) -> None:
        nonlocal trained
        assume(ends_alike(folder, content))
        trained += 1

    every()
    return trained


def test_any_config_costs_what_was_said(drawn_folder: Path) -> None:
    assert compared(drawn_folder, 25) >= 25


@pytest.mark.slow
def test_many_configs_cost_what_was_said(drawn_folder: Path) -> None:
    assert compared(drawn_folder, 500) >= 500


def test_an_account_of_other_sizes_is_noticed(drawn_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: every party is taken to have one record."""
    import privadmm.runs.preview as home

    monkeypatch.setattr(home, "counted", lambda config, count=None: (1,) * (config.parties.known or 1))
    with pytest.raises(AssertionError):
        compared(drawn_folder, 25)


@pytest.mark.parametrize("calibration", ["box", "proof"])
def test_one_party_without_any_curvature(calibration: str, place: Place) -> None:
    """Without neighbours and regulariser all curvature is Phi; nothing is divided by zero."""
    own, alone = {**PROOF, "calibration": calibration}, {"count": 1}
    changes = {"algorithm": own, "parties": alone, "regularizer": {"weight": 0.0}, "data": {"dim": 3}}
    accounted_and_trained(place, place.config(**FIXED | changes), "--records", RECORDS)
