"""`privadmm init`: the config that it writes trains as it stands, and says what was asked for."""

import json
from pathlib import Path
from typing import Any

import pytest

from privadmm.config import file as configs
from small_runs import Place, no_plots

FACTS = ("--parties", 4, "--epsilon", 2.0, "--delta", 1e-5)


def write(path: Path, label: Any = None) -> Path:
    lines = ["hospital,age,ward,weight,readmitted"]
    for row in range(80):
        weight = "" if row % 9 == 4 else 50 + row % 31
        told = ("yes" if row % 3 else "no") if label is None else label(row)
        lines.append(f"h{row % 4},{20 + 3 * row % 61},{'abc'[row % 3]},{weight},{told}")
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def quick(place: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    no_plots(monkeypatch)
    write(place.path / "patients.csv")
    return place


def started(place: Place, *words: Any) -> tuple[Path, dict[str, Any]]:
    config = place.path / "jobs" / "config.toml"
    source = place.path / "patients.csv"
    said = place.call("init", config, "--source", source, "--label", "readmitted", *FACTS, *words, "--json")
    assert said.code == 0, said.err
    return config, said.object


def test_a_public_file_is_enough(quick: Place) -> None:
    config, facts = started(quick, "--public", "--drop", "hospital")
    chosen = configs.read(config)
    assert chosen.algorithm.name == "first_order_consensus"
    assert (chosen.algorithm.rounds, chosen.loss.name, chosen.features.moments) == (41, "half_logistic", True)
    assert (chosen.data.encoding, chosen.data.rows, chosen.data.on_bad) == ("coarse", "unit", "default")
    assert chosen.privacy is not None
    assert (chosen.privacy.epsilon, chosen.privacy.delta, chosen.parties.count) == (2.0, 1e-5, 4)
    assert set(chosen.data.schema or ()) == {"age", "ward", "weight"}
    advice = facts["recommended"]
    assert (advice["records"], advice["trained_on"], advice["dim"]) == (80, 64, 14)  # with weight's indicator
    text = config.read_text()
    keys = [line for line in text.split("[data.schema]")[0].splitlines() if " = " in line and line[0] != "#"]
    assert keys
    assert all(" # " in line for line in keys)
    assert "public or made up" in text
    said = quick.train(config, "--json")
    assert said.code == 0
    assert said.object["epsilon"] == pytest.approx(2.0, rel=1e-3)


def test_three_parties_or_more_sum_securely(quick: Place) -> None:
    """The recommended default; the sample trains as it stands, and its epsilon comes with what it rests on."""
    config, facts = started(quick, "--public", "--drop", "hospital")
    chosen = configs.read(config).privacy
    assert chosen is not None
    assert (chosen.sum, chosen.colluding, chosen.fewest) == ("secure", 1, None)
    assert facts["recommended"]["sum"] == "secure"
    assert quick.train(config, "--json").object["secure_sum"]["colluding"] == 1
    for parties, said in ((2, "local"), (3, "secure")):
        other = quick.path / f"{parties}.toml"
        source = ("--source", quick.path / "patients.csv", "--label", "readmitted", "--public")
        made = quick.call("init", other, *source, *FACTS[2:], "--parties", parties, "--json")
        assert made.code == 0, made.err
        found = configs.read(other).privacy
        assert found is not None
        assert (found.sum, "colluding" in other.read_text()) == (said, said == "secure")
        assert quick.train(other, out=quick.path / f"run-{parties}").code == 0


def test_a_column_says_who_holds_what(quick: Place) -> None:
    config, _ = started(quick, "--public", "--party-column", "hospital")
    chosen = configs.read(config)
    assert (chosen.parties.split, chosen.parties.count) == ("column:hospital", 4)
    assert "hospital" not in (chosen.data.schema or ())
    assert quick.train(config, "--json").code == 0


def test_a_declared_schema_needs_no_look_at_the_records(quick: Place) -> None:
    (quick.path / "patients.csv").unlink()
    (quick.path / "schema.toml").write_text('age = [0, 110]\nward = ["a", "b", "c"]\n')
    given = ("--schema", quick.path / "schema.toml", "--classes", "no,yes", "--records", 100_000)
    config, facts = started(quick, *given)
    assert configs.read(config).data.encoding == facts["recommended"]["encoding"] == "binned"
    assert facts["recommended"]["warning"] is None
    write(quick.path / "patients.csv")
    assert quick.train(config, "--json").code == 0


def test_the_number_of_records_is_remembered_for_account(quick: Place) -> None:
    """It is the declared one, or that of a public source; `account` and the like need no --records, and no file."""
    config, _ = started(quick, "--public", "--drop", "hospital")
    assert quick.train(config).code == 0
    trained = json.loads((quick.out / "result.json").read_text())
    (quick.path / "patients.csv").unlink()
    said = quick.call("account", config, "--json").object
    assert [party["records"] for party in said["parties"]] == [16] * 4
    assert said["expected"]["noise_to_signal"] == trained["expected"]["noise_to_signal"]
    for words in (("recommend", config), ("frontier", config), ("plan", config)):
        assert quick.call(*words).code == 0
    # Who changes what is held out, or nothing, changes no second number.
    text = config.read_text()
    for old, new, each in ((" = 0.2", " = 0.5", 10), ('"simulation"', '"deployment"', 20), ('"none"', '"private"', 20)):
        changed = text.replace(old, new, 1)
        config.write_text(changed.replace("seed = 0", "") if "deployment" in new else changed)
        assert [party["records"] for party in quick.call("account", config, "--json").object["parties"]] == [each] * 4


def test_declared_records_that_a_column_deals_out_are_enough_for_estimates(quick: Place) -> None:
    """How many each party has only its column tells: what is charged must not depend on it."""
    config, _ = started(quick, "--public", "--party-column", "hospital")
    assert quick.train(config).code == 0
    trained = json.loads((quick.out / "result.json").read_text())
    said = quick.call("account", config, "--json").object
    assert ([party["records"] for party in said["parties"]], said["assumed"]) == ([None] * 4, {"records": 64})
    assert said["expected"]["noise_to_signal"] == pytest.approx(trained["expected"]["noise_to_signal"])
    assert "dealt out evenly" in " ".join(quick.call("account", config).out.split())
    config.write_text(config.read_text().replace("records = 80", "# records = 80"))
    alone = quick.call("account", config, "--json").object
    assert ("[parties] sizes" in alone["not_expected"], "assumed" in alone) == (True, False)
    assert (alone["certified"], alone["parties"]) == (said["certified"], said["parties"])


@pytest.mark.parametrize("classes", [(), ("--classes", "0,1")])
def test_a_number_to_predict_is_refused_with_what_to_write(classes: tuple[str, ...], quick: Place) -> None:
    write(quick.path / "patients.csv", label=lambda row: row % 17 / 2)
    config, source = quick.path / "new.toml", quick.path / "patients.csv"
    said = quick.call("init", config, "--source", source, "--label", "readmitted", "--public", *classes, "--json")
    assert (said.code, config.exists()) == (2, False)
    for words in ("two classes", "constant", "label_bound", "within 8", "data.md#a-number-to-predict"):
        assert words in said.object["message"]


def declared_from(place: Place, *words: Any) -> tuple[Any, ...]:
    schema = place.path / "schema.toml"
    words = (
        "schema",
        place.path / "patients.csv",
        "--label",
        "readmitted",
        "--public",
        "--out",
        schema,
        *words,
    )
    assert place.call(*words).code == 0
    return schema, "--classes", "no,yes", "--records", 80


def test_the_path_of_the_docs_trains_where_a_number_is_missing(quick: Place) -> None:
    """Schema from a sample, config from the schema, training on records with gaps."""
    config, _ = started(quick, "--schema", *declared_from(quick, "--drop", "hospital"))
    chosen = configs.read(config)
    assert chosen.data.on_bad == "default"
    assert "low end" in next(line for line in config.read_text().splitlines() if line.startswith("on_bad"))
    assert quick.train(config, "--json").code == 0
    # Control: without that line and the indicator it is refused.
    config.write_text(config.read_text().replace('on_bad = "default"', 'on_bad = "refuse"'))
    schema = next(quick.path.rglob("schema.toml"))
    schema.write_text(schema.read_text().replace(", missing = true }", " }"))
    assert quick.call("train", config, "--out", quick.path / "again", "--json").code == 1


def test_categories_alone_need_no_word_on_numbers(quick: Place) -> None:
    (quick.path / "schema.toml").write_text('ward = ["a", "b", "c"]\n')
    given = ("--schema", quick.path / "schema.toml", "--classes", "no,yes", "--records", 80)
    assert "on_bad" not in started(quick, *given)[0].read_text()


def test_the_column_of_parties_is_no_feature_of_a_declared_schema_either(quick: Place) -> None:
    schema = declared_from(quick)
    assert "hospital" in schema[0].read_text()
    config, facts = started(quick, "--schema", *schema, "--party-column", "hospital")
    chosen = configs.read(config)
    assert set(chosen.data.schema or ()) == {"age", "ward", "weight"}
    assert (chosen.parties.split, chosen.parties.count) == ("column:hospital", 4)
    assert "whose a row is" in {note["column"]: note["note"] for note in facts["notes"]}["hospital"]
    assert quick.train(config, "--json").code == 0


def test_parties_that_a_column_names_are_called_by_their_names(quick: Place) -> None:
    """In a simulation, by the summary and by the report; a deployment shows nothing that was read off records."""
    config, _ = started(quick, "--public", "--party-column", "hospital")
    said = quick.train(config)
    assert all(f" {name} │" in said.out for name in ("h0", "h1", "h2", "h3"))
    page = quick.path / "page.html"
    assert quick.call("report", quick.out, "--out", page).code == 0
    card = json.loads(page.with_suffix(".json").read_text())
    assert [holder["name"] for holder in card["holders"]] == ["h0", "h1", "h2", "h3"]
    assert [row["who"] for row in card["budgets"]] == ["h0", "h1", "h2", "h3"]
    text = config.read_text().replace('mode = "simulation"', 'mode = "deployment"').replace("seed = 0", "")
    ledger = quick.path / "l.sqlite"
    made = ("--parties", 4, "--epsilon", 5, "--delta", 1e-5)
    assert quick.call("ledger", "create", ledger, *made).code == 0
    text = text.replace('sum = "secure"', 'sum = "local"').replace("colluding =", "# colluding =")
    config.write_text(text.replace("[run]", f'[run]\nledger = "{ledger}"'))
    done = quick.call("train", config, "--out", quick.path / "deployed")
    assert done.code == 0, done.err
    assert "party_names" not in json.loads((quick.path / "deployed" / "result.json").read_text())


def test_columns_of_a_declared_schema_can_be_dropped(quick: Place) -> None:
    config, _ = started(quick, "--schema", *declared_from(quick), "--drop", "hospital", "--drop", "age")
    assert set(configs.read(config).data.schema or ()) == {"ward", "weight"}


def test_a_schema_that_lists_the_parties_says_how_many_there_are(quick: Place) -> None:
    schema, *given = declared_from(quick)
    config = quick.path / "config.toml"
    words = ("--source", quick.path / "patients.csv", "--label", "readmitted", "--party-column", "hospital")
    assert quick.call("init", config, *words, "--schema", schema, *given).code == 0
    assert configs.read(config).parties.count == 4


def test_a_class_with_a_comma_stands_in_quotes(quick: Place) -> None:
    config = quick.path / "jobs" / "config.toml"
    (quick.path / "schema.toml").write_text('age = [0, 110]\nward = ["a", "b", "c"]\n')
    words = ("--schema", quick.path / "schema.toml", "--records", 80, "--label", "readmitted", *FACTS)
    given = ("init", config, "--source", quick.path / "patients.csv", *words, "--classes")
    refused = quick.call(*given, "no, never,yes")
    assert refused.code == 2
    assert "double quotes" in refused.err
    done = quick.call(*given, '"no, never", yes')
    assert done.code == 0, done.err
    assert configs.read(config).data.classes == ("no, never", "yes")


KNOWN = ("--classes", "no,yes", "--records", 80)


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ((), "--public"),
        (("--schema", "schema.toml"), "--classes is missing"),
        (("--schema", "schema.toml", "--classes", "no,yes"), "--records is missing"),
        (("--public", "--classes", "no"), "two values"),
        (("--public", "--classes", "no,maybe"), "readmitted"),
        (("--public", "--epsilon", 0), "epsilon"),
        (("--public", "--party-column", "clinic"), "clinic"),
        (("--public", "--party-column", "hospitl"), "did you mean 'hospital'?"),
        (("--public", "--party-column", "hospital", "--parties", 3), "4 values"),
        (
            ("--schema", "schema.toml", *KNOWN, "--party-column", "age"),
            "--parties is missing",
        ),
        (
            ("--schema", "schema.toml", *KNOWN, "--party-column", "wrad"),
            "did you mean 'ward'? It has age, ward",
        ),
        (
            ("--schema", "schema.toml", *KNOWN, "--party-column", "clinic"),
            "declares no such column. It has age, ward. If",
        ),
        (
            ("--schema", "schema.toml", *KNOWN, "--party-column", "ward", "--parties", 4),
            "lists 3 categories of 'ward'",
        ),
        (
            ("--schema", "schema.toml", *KNOWN, "--drop", "wrad"),
            "--drop wrad",
        ),
    ],
)
def test_what_is_missing_is_named(words: Any, names: str, quick: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(quick.path)
    Path("schema.toml").write_text('age = [0, 110]\nward = ["a", "b", "c"]\n')
    said = quick.call("init", "new.toml", "--source", "patients.csv", "--label", "readmitted", *words, "--json")
    assert said.code in (1, 2)
    assert names in said.object["message"]
    assert not Path("new.toml").exists()


def test_nothing_is_overwritten_and_the_warning_is_shown(quick: Place) -> None:
    config, facts = started(quick, "--public")
    assert "too small" in facts["recommended"]["warning"]
    before = config.read_text()
    said = quick.call("init", config, "--source", "x.csv", "--label", "y", "--public", "--json")
    assert (said.code, config.read_text()) == (2, before)
    shown = quick.call(
        *("init", quick.path / "b.toml", "--source", quick.path / "patients.csv"),
        *("--label", "readmitted", "--public"),
    )
    assert "the budget is too small" in " ".join(shown.out.split())
