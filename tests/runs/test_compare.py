"""Methods side by side at one budget: certified, and with each paper's own noise for the same claim."""

import json
from pathlib import Path

import pytest

from privadmm.config.file import read
from privadmm.privacy.meaning import large_epsilon
from privadmm.runs.compare import with_parties
from small_runs import CLEAR, PRIVATE, SECURE, Place, with_changes

DVP = {**PRIVATE, "algorithm": {"name": "dvp", "rounds": 3, "eta": 0.5}, "graph": {"kind": "ring"}}


@pytest.fixture
def configs(place: Place) -> list[Path]:
    return [
        place.config(PRIVATE, "dp.toml"),
        place.config(DVP, "dvp.toml"),
        place.config(CLEAR, "clear.toml"),
    ]


def test_every_line_is_there_and_certified_ones_cost_the_budget(place: Place, configs: list[Path]) -> None:
    said = place.call("compare", *configs, "--epsilon", 2, "--delta", "1e-5", "--seeds", 2, "--json")
    assert said.code == 0, said.err
    (table,) = said.object["tables"]
    lines = {(line["config"], line["calibration"]): line for line in table["lines"]}
    assert set(lines) == {
        ("dp", "certified"),
        ("dp", "published"),
        ("dvp", "certified"),
        ("dvp", "box"),
        ("dvp", "proof"),
        ("clear", "not private"),
    }
    for (_, calibration), line in lines.items():
        if calibration == "certified":
            assert line["epsilon_certified"] == pytest.approx(2.0, rel=1e-3)
        if line["problem"] is None:
            assert len(line["accuracies"]) == (1 if calibration == "not private" else 2)
            assert 0 <= line["accuracy"] <= 1
        if calibration in ("published", "proof") and line["problem"] is None:
            assert line["epsilon_published"] == pytest.approx(2.0, rel=1e-6)
            assert line["epsilon_certified"] < 2.0
    found = [line["accuracy"] for line in table["lines"] if line["problem"] is None]
    assert found == sorted(found, reverse=True)


def test_people_see_a_table_and_a_figure(place: Place, configs: list[Path]) -> None:
    said = place.call("compare", *configs, "--epsilon", 1, "--epsilon", 4, "--seeds", 1, "--out", place.out)
    assert f"warning: {large_epsilon(4.0)}\n" in said.err
    assert said.code == 0, said.err
    assert "NOT PRIVATE" in said.out
    assert "always the majority" in said.out
    assert {path.name for path in place.out.iterdir()} == {
        "comparison.json",
        "comparison-1.png",
        "comparison-1.svg",
        "comparison-4.png",
        "comparison-4.svg",
    }
    assert len(json.loads((place.out / "comparison.json").read_text())["tables"]) == 2


def test_the_files_budget_holds_unless_another_is_given(place: Place, configs: list[Path]) -> None:
    """Accuracies at another budget would be taken for the files' own."""
    budget = {"epsilon": 0.2, "delta": 1e-4}
    small = [place.config(PRIVATE, "dp.toml", privacy=budget), place.config(CLEAR, "clear.toml")]
    said = place.call("compare", *small, "--seeds", 1, "--certified-only", "--json")
    assert said.code == 0, said.err
    (table,) = said.object["tables"]
    assert (table["epsilon"], said.object["delta"]) == (0.2, 1e-4)
    certified = {line["calibration"]: line["epsilon_certified"] for line in table["lines"]}
    assert certified == {"certified": pytest.approx(0.2, rel=1e-3), "not private": None}
    assert "epsilon = 0.2, delta = 0.0001" in place.call("compare", *small, "--seeds", 1, "--certified-only").out


@pytest.mark.parametrize(("key", "here", "there"), [("epsilon", 1.0, 0.2), ("delta", 1e-5, 1e-4)])
def test_files_with_other_budgets_do_not_compare(place: Place, key: str, here: float, there: float) -> None:
    configs = [place.config(PRIVATE, "a.toml"), place.config(PRIVATE, "b.toml", privacy={key: there})]
    said = place.call("compare", *configs, "--seeds", 1)
    assert said.code == 2
    for part in ("a.toml", "b.toml", f"{here:g}", f"{there:g}", f"--{key}"):
        assert part in said.err
    said = place.call("compare", *configs, f"--{key}", there, "--seeds", 1, "--certified-only", "--json")
    accuracies = [line["accuracies"] for line in said.object["tables"][0]["lines"]]
    assert accuracies[0] == accuracies[1]


def test_a_file_without_a_budget_asks_for_one(place: Place) -> None:
    paper = {"calibration": "published", "round_epsilon": 0.1}
    said = place.call("compare", place.config(PRIVATE, "a.toml", algorithm=paper, privacy={"epsilon": None}))
    assert said.code == 2
    assert "a.toml" in said.err
    assert "--epsilon" in said.err


def test_methods_that_are_not_private_have_no_budget(place: Place) -> None:
    said = place.call("compare", place.config(CLEAR, "clear.toml"), "--out", place.out)
    assert said.code == 0, said.err
    assert "epsilon" not in said.out
    assert json.loads((place.out / "comparison.json").read_text())["tables"][0]["epsilon"] is None


def test_the_papers_noise_is_left_out_on_demand(place: Place, configs: list[Path]) -> None:
    said = place.call("compare", *configs, "--seeds", 1, "--certified-only", "--json")
    assert {line["calibration"] for line in said.object["tables"][0]["lines"]} == {"certified", "not private"}


def test_what_can_be_summed_securely_has_a_line_of_its_own(place: Place) -> None:
    sgd = with_changes(PRIVATE, SECURE)
    plain = {"sum": None, "colluding": None, "fewest": None}
    configs = [
        place.config(sgd, "secure.toml"),
        place.config(sgd, "plain.toml", privacy=plain),
        place.config(sgd, "two.toml", privacy=plain, parties={"count": 2}),
    ]
    said = place.call("compare", *configs, "--epsilon", 2, "--seeds", 2, "--json")
    assert said.code == 0, said.err
    lines = {(line["config"], line["calibration"]): line for line in said.object["tables"][0]["lines"]}
    assert set(lines) == {
        *((name, kind) for name in ("secure", "plain") for kind in ("certified", "secure sum")),
        ("two", "certified"),
    }
    for line in lines.values():
        assert line["problem"] is None
        assert line["epsilon_certified"] == pytest.approx(2.0, rel=1e-3)
    assert lines["secure", "certified"]["accuracies"] == lines["plain", "certified"]["accuracies"]


def test_other_records_do_not_compare(place: Place) -> None:
    first, second = place.config(PRIVATE, "a.toml"), place.config(PRIVATE, "b.toml", data={"split_seed": 7})
    said = place.call("compare", first, second)
    assert said.code == 2
    assert "b.toml" in said.err
    assert "split_seed" in said.err


def test_nothing_held_out_has_no_accuracy(place: Place) -> None:
    said = place.call("compare", place.config(PRIVATE, "a.toml", data={"test_fraction": 0.0}))
    assert said.code == 2
    assert "test_fraction" in said.err


def test_graphs_keep_their_density(place: Place) -> None:
    config = read(place.config(DVP, "a.toml", parties={"count": 10}, graph={"kind": "random", "edges": 13}))
    more = with_parties(config, 100)
    assert (more.parties.count, more.graph.edges) == (100, 130)
    assert with_parties(config, 2).graph.edges == 1
    assert with_parties(config, None) is config
