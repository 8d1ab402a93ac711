"""What an epsilon means in plain figures, and the one warning of an epsilon that promises little."""

import json
import math
from pathlib import Path

import pytest

from privadmm.privacy.accounting import printed
from privadmm.privacy.meaning import LARGE, large_epsilon, of_hundred, power, sure
from small_runs import PRIVATE, RECORDS, SHARING, Place, Tables, with_changes


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0, 8.0])
def test_odds_grow_by_the_factor_that_epsilon_says(epsilon: float) -> None:
    """Randomised response attains it: this share of "guilty" answers is right if half of the people are guilty."""
    told = math.exp(epsilon) / (1 + math.exp(epsilon))
    assert sure(epsilon) == pytest.approx(0.5 * told / (0.5 * told + 0.5 * (1 - told)))


def test_the_warning_begins_where_somebody_may_be_95_per_cent_sure() -> None:
    assert sure(LARGE) > 0.95 > sure(0.98 * LARGE)
    assert large_epsilon(LARGE) is not None
    for small in (None, 0.1, 1.0, 2.0, 0.99 * LARGE):
        assert large_epsilon(small) is None


@pytest.mark.parametrize("epsilon", [8.0, 50.0, 2000.0])
def test_nothing_is_rounded_to_certainty(epsilon: float) -> None:
    for share in (sure(epsilon), power(epsilon, 1e-6)):
        assert of_hundred(share, "at most ") == "more than 99.9"
    warned = large_epsilon(epsilon)
    assert warned is not None
    assert "more than 99.9 %" in warned
    assert "100" not in warned
    assert of_hundred(0.999, "at most ") == "at most 99.9"


def test_the_warning_names_what_is_protected() -> None:
    assert "one label " in (large_epsilon(4.0, "label") or "")


def test_one_sentence_tells_of_a_record_and_of_its_label() -> None:
    both = large_epsilon(4.0, label_epsilon=5.0) or ""
    assert both.startswith("epsilon = 4 and label_epsilon = 5 are weak promises")
    assert f"{of_hundred(sure(4.0))} % sure of it" in both
    assert f"{of_hundred(sure(5.0))} % sure of one about one label" in both
    assert (large_epsilon(1.0, label_epsilon=5.0) or "").startswith("label_epsilon = 5 is a weak promise")
    assert large_epsilon(2.0, label_epsilon=2.0) is None


# At each of three parties a person loses 2, and over 3 at all of them together.
PERSON = with_changes(PRIVATE, {**SHARING, "privacy": {"adjacency": "person", "epsilon": 2.0, "label_epsilon": 1.0}})
LABELS = with_changes(PRIVATE, {"privacy": {"label_epsilon": 5.0}})


@pytest.mark.parametrize(
    ("tables", "words"),
    [(PERSON, "about one person's rows at all parties together"), (LABELS, "label_epsilon = 5 is a weak promise")],
    ids=["person", "label"],
)
def test_commands_warn_of_what_a_person_or_a_label_loses(tables: Tables, words: str, place: Place) -> None:
    config = place.config(tables)
    for command in ("account", "plan"):
        assert words in place.call(command, config, "--records", RECORDS, "--json").object["epsilon_warning"]
        assert " ".join(place.call(command, config, "--records", RECORDS).out.split()).count("weak promise") == 1
    said = place.call("train", config, "--out", place.out, "--json")
    assert words in said.object["epsilon_warning"]
    assert said.err.count("weak promise") == 1
    page = place.path / "report.html"
    assert " ".join(place.call("report", place.out, "--out", page).out.split()).count("weak promise") == 1
    card = json.loads(page.with_suffix(".json").read_text())
    assert words in card["epsilon_warning"]
    assert card["epsilon_warning"] == said.object["epsilon_warning"]
    assert sum("weak promise" in line for line in card["notices"]) == 1
    if tables is PERSON:
        total = said.object["per_person"]
        assert said.object["epsilon"] < LARGE <= total
        assert f"epsilon = {printed(total)} is" in card["epsilon_warning"]


def test_where_columns_are_split_init_names_what_a_person_loses_in_all(place: Place) -> None:
    config = place.config(with_changes(PERSON, {"privacy": {"epsilon": 3.0}}))
    told = place.call("account", config, "--records", RECORDS, "--json").object["epsilon_warning"]
    said = place.call("federation", "init", config, "--out", place.path / "federation", "--rehearse")
    assert "rows at all parties together" in told
    assert said.err == f"warning: {told}\n"


def test_a_ledger_and_its_page_warn_of_a_large_budget(place: Place) -> None:
    for name, words, weak in (
        ("small", ("--epsilon", 1), None),
        ("large", ("--epsilon", 8), large_epsilon(8.0)),
        ("labels", ("--epsilon", 1, "--label-epsilon", 6), large_epsilon(1.0, label_epsilon=6.0)),
    ):
        ledger = place.path / f"{name}.sqlite"
        said = place.call("ledger", "create", ledger, "--parties", 1, "--delta", 1e-6, *words)
        assert said.err == ("" if weak is None else f"warning: {weak}\n")
    said = place.call("ledger", "amend", place.path / "small.sqlite", "--because", "more", "--epsilon", 4)
    assert said.err == f"warning: {large_epsilon(4.0)}\n"
    page = place.path / "report.html"
    place.call("report", place.path / "labels.sqlite", "--out", page)
    assert json.loads(page.with_suffix(".json").read_text())["epsilon_warning"] == large_epsilon(0.0, label_epsilon=6.0)


def test_runs_on_one_ledger_warn_of_their_total(place: Place) -> None:
    ledger = {"privacy": {"epsilon": 1.9, "budget": 10.0}, "run": {"ledger": str(place.path / "shared.sqlite")}}
    config = place.config(with_changes(PRIVATE, ledger))
    first, second, third = (place.call("train", config, "--out", place.path / f"run-{n}") for n in range(3))
    assert [said.code for said in (first, second, third)] == [0, 0, 0]
    assert ["weak promise" in said.err for said in (first, second, third)] == [False, False, True]
    assert "together with other jobs of" in third.err


def test_a_budget_that_is_no_number_for_people_is_refused(place: Place) -> None:
    ledger = place.path / "huge.sqlite"
    said = place.call("ledger", "create", ledger, "--parties", 1, "--epsilon", 1e305, "--delta", 1e-6)
    assert said.code == 2
    assert "at most 1e+50" in said.err
    assert not ledger.exists()


WORDS = {"account": (), "plan": (), "recommend": (), "train": ("--out",)}


@pytest.mark.parametrize("command", WORDS)
def test_every_command_says_the_same_of_a_large_epsilon(command: str, place: Place) -> None:
    for epsilon in (8.0, 1.0):
        config = place.config(with_changes(PRIVATE, {"privacy": {"epsilon": epsilon}}))
        words = ("--out", place.path / f"run-{epsilon}") if command == "train" else ("--records", RECORDS)
        said = place.call(command, config, *words, "--json")
        assert said.object.get("epsilon_warning") == large_epsilon(epsilon)
        if command == "train":
            assert (f"warning: {large_epsilon(epsilon)}\n" in said.err) is (epsilon == 8)
        else:
            shown = " ".join(place.call(command, config, *words).out.split())
            assert ("is a weak promise" in shown) is (epsilon == 8)


def test_a_report_warns_of_a_run_and_of_its_ledger(place: Place) -> None:
    config = place.config(with_changes(PRIVATE, {"privacy": {"epsilon": 8.0}}))
    assert place.train(config).code == 0
    for subject in (place.out, place.out / "ledger.sqlite"):
        page = place.path / "report.html"
        said = place.call("report", subject, "--out", page)
        assert "is a weak promise" in " ".join(said.out.split())
        notices = json.loads(page.with_suffix(".json").read_text())["notices"]
        assert sum("is a weak promise" in line for line in notices) == 1
        text = page.read_text()
        assert "is a weak promise" in text
        assert "more than 99.9 of 100 cases" in text
        assert "100.0 of 100" not in text


def test_a_frontier_and_init_say_where_promises_become_weak(place: Place) -> None:
    given = ("frontier", "--records", 3000, "--parties", 3)
    assert "weak promise" in place.call(*given).out
    assert "weak promise" not in place.call(*given, "--epsilons", "0.5,1").out
    source, schema = place.path / "p.csv", place.path / "schema.toml"
    schema.write_text("age = [0, 110]\n")
    words = ("--source", source, "--label", "ill", "--classes", "no,yes", "--schema", schema, "--records", 900)
    shown = place.call("init", place.path / "new.toml", *words, "--epsilon", 8).out
    assert "epsilon = 8 is a weak promise" in " ".join(shown.split())
    assert not Path(source).exists()
