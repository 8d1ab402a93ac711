"""Points lost on Adult at a noise: what the package holds, how it is read, and that it is what training gives."""

import json
import math
import runpy
import sys
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privadmm.privacy.sums import SecureSum
from privadmm.runs.accuracy_lost import COMMAND, FILE, curve
from privadmm.runs.recommend import SIGNAL, THIN, Expected, Facts, recommend
from small_runs import Place

ROOT = Path(__file__).parents[2]
HELD: dict[str, Any] = json.loads(files("privadmm.runs").joinpath(FILE).read_text(encoding="utf-8"))


def test_a_line_is_the_mean_and_the_ends_of_its_ways() -> None:
    assert (HELD["command"], HELD["signal"]) == (COMMAND, SIGNAL)
    for line in HELD["lines"]:
        ways = line["ways"].values()
        wanted = (sum(ways) / len(ways), min(ways), max(ways))
        assert (line["mean"], line["low"], line["high"]) == pytest.approx(wanted, abs=2e-3)
    assert all(a["noise_to_signal"] < b["noise_to_signal"] for a, b in pairwise(HELD["lines"]))


def test_more_noise_loses_more_until_all_is_lost() -> None:
    for a, b in pairwise(HELD["lines"]):
        assert a["mean"] < b["mean"] or a["mean"] > HELD["majority_loses"] - 0.3


@pytest.mark.parametrize("line", HELD["lines"], ids=lambda line: f"{line['noise_to_signal']:g}")
def test_a_measured_noise_has_its_own_figures(line: dict[str, Any]) -> None:
    found = curve().at(line["noise_to_signal"], SIGNAL)
    assert (found.mean, found.low, found.high) == pytest.approx((line["mean"], line["low"], line["high"]), abs=1e-9)
    assert found.measured


@settings(max_examples=40)
@given(st.floats(0.005, 5), st.floats(0.05, 1))
def test_the_signal_of_other_data_does_not_change_what_adult_lost(ratio: float, signal: float) -> None:
    """The same noise over another signal is another noise-to-signal, and Adult is as it is."""
    other = Expected(ratio * (SIGNAL / signal) ** 2, signal).on_adult
    assert other.mean == pytest.approx(Expected(ratio).on_adult.mean, rel=1e-6)
    assert other.low <= other.mean <= other.high


def test_beyond_what_was_measured_the_nearest_stands_and_says_so() -> None:
    first, last = (HELD["lines"][place] for place in (0, -1))
    for line, factor in ((first, 0.5), (last, 2.0)):
        found = curve().at(line["noise_to_signal"] * factor, SIGNAL)
        assert (found.measured, found.mean) == (False, pytest.approx(line["mean"]))


@pytest.mark.parametrize(("name", "sum"), [("recommended", None), ("secure sum", SecureSum())])
def test_readmes_picture_lost_as_much_at_its_noise(name: str, sum: SecureSum | None) -> None:
    """Measured apart from it: other splits and seeds, at ten parties with ten bins throughout."""
    picture = json.loads((ROOT / "docs/pictures/accuracy.json").read_text(encoding="utf-8"))
    lines = (picture["lines"][f"{which}, binned"] for which in (name, "non-private"))
    for epsilon, ours, clear in zip(picture["epsilon"], *lines, strict=True):
        facts = Facts(40_000, (epsilon,) * 10, picture["delta"], sum=sum)
        lost = 100 * (clear["mean"] - ours["mean"])
        assert recommend(facts).expected.on_adult.mean == pytest.approx(lost, abs=0.5)


def test_training_loses_what_the_file_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """One way, one noise, two splits, by the script that wrote the file."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    script = runpy.run_path(str(ROOT / "benchmarks" / "accuracy_lost.py"))
    way = script["Way"](10, 4_000, None)
    monkeypatch.setitem(script["lost"].__globals__, "RATIOS", (0.1, 1.0))
    by_split = [list(script["lost"](way, split)) for split in (100, 101)]
    stored = {line["noise_to_signal"]: line["ways"][way.name] for line in HELD["lines"] if way.name in line["ways"]}
    for place, ratio in enumerate((0.1, 1.0), 1):
        found = sum(losses[place] for losses in by_split) / 2
        assert found == pytest.approx(stored[ratio], abs=1.0)
    assert by_split[0][1] < by_split[0][2]


def test_other_methods_are_by_their_own_plans_noise() -> None:
    """They lose other amounts at equal noise, mostly more: why the figure is of the recommended method alone."""
    more = [other["lost"] > curve().at(other["noise_to_signal"], SIGNAL).high for other in HELD["other_methods"]]
    assert len({other["method"] for other in HELD["other_methods"]}) >= 7
    assert sum(more) > len(more) / 2


def test_the_page_has_these_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    script = runpy.run_path(str(ROOT / "benchmarks" / "accuracy_lost.py"))
    page = (ROOT / "docs/recommend.md").read_text(encoding="utf-8")
    assert "\n".join(script["rows"](HELD)) in page
    assert f"loses {HELD['majority_loses']:.1f} points" in page
    told = {other["method"]: other["lost"] for other in HELD["other_methods"] if other["epsilon"] == 0.1}
    words = "DP-ADMM lost {dp_admm:.1f} points, PDML {pdml:.1f}, PVP {pvp:.1f} and DP-FedSGD {dp_fedsgd:.1f}"
    assert words.format(**told) in " ".join(page.split())


def test_the_commands_say_whose_figure_it_is(place: Place) -> None:
    given = ("--records", 5_000, "--parties", 10)
    found = place.call("recommend", *given, "--epsilon", 1, "--json").object
    summed = recommend(Facts(4_000, (1.0,) * 10, 1e-6, sum=SecureSum()))
    assert found["expected"]["lost_on_adult"] == summed.expected.on_adult.table
    assert ["lost_on_adult" in line for line in found["methods"]] == [
        line["method"].startswith("recommended") for line in found["methods"]
    ]
    for words in (("recommend", *given, "--epsilon", 1), ("frontier", *given, "--out", place.out)):
        said = " ".join(place.call(*words).out.split())
        assert "they are Adult's, not those of your data" in said
        assert "on Adult" in said
    drawn = (place.out / "frontier.svg").read_text(encoding="utf-8")
    assert "measured on Adult at the same noise" in drawn  # as a comment: letters are drawn as paths


def test_the_zones_end_where_their_noise_is() -> None:
    assert Expected(THIN).on_adult.mean < HELD["majority_loses"]
    assert math.isclose(Expected(2.0).on_adult.mean, HELD["majority_loses"], abs_tol=1.0)


def test_the_script_says_what_the_file_holds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = ROOT / "benchmarks" / "accuracy_lost.py"
    monkeypatch.syspath_prepend(str(script.parent))
    monkeypatch.setattr(sys, "argv", [str(script)])
    runpy.run_path(str(script), run_name="__main__")
    said = capsys.readouterr().out
    assert f"always the majority loses {HELD['majority_loses']:.1f} points" in said
    assert all(f"{line['low']:.2f} to {line['high']:.2f}" in said for line in HELD["lines"])
