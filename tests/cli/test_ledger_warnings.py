"""Commands on ledgers and policies warn of a promise that is worth little, as all other commands do."""

from pathlib import Path

import numpy as np
import pytest

from ledgers import released
from privadmm.cli.views import jobs, ledger_text, steward
from privadmm.data.frame import Frame
from privadmm.privacy.accounting import epsilon, printed
from privadmm.privacy.events import Gaussian
from privadmm.privacy.meaning import large_delta
from privadmm.privacy.policy import Budget, Policy
from privadmm.privacy.sqlite_ledger import SqliteLedger
from privadmm.runs.model import Model
from privadmm.runs.report import ledgers as ledgers_of_reports
from small_runs import Place


def flat(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("command", ["show", "verify"])
def test_a_total_of_three_or_more_is_warned_of(command: str, place: Place) -> None:
    path = place.path / "party.sqlite"
    released(path, [0, 1], 12, adjacency="replace-one")
    total = printed(epsilon(((Gaussian(3.0), 12),), 1e-5))
    found = place.call("ledger", command, path, "--json").object
    assert f"epsilon = {total} is a weak promise" in found["epsilon_warning"]
    assert found["epsilon_warning"] in flat(place.call("ledger", command, path).out)


@pytest.mark.parametrize("command", ["show", "verify"])
def test_a_small_total_is_not(command: str, place: Place) -> None:
    path = place.path / "party.sqlite"
    released(path, [0, 1], 4, adjacency="replace-one")
    assert place.call("ledger", command, path, "--json").object["epsilon_warning"] is None
    assert "weak promise" not in place.call("ledger", command, path).out


@pytest.mark.parametrize("command", ["show", "verify"])
def test_parties_that_hold_columns_count_together(command: str, place: Place) -> None:
    """What each of three releases is below 3, and what a person loses at all of them is not."""
    path = place.path / "party.sqlite"
    released(path, [0, 1, 2], 4)
    assert epsilon(((Gaussian(3.0), 4),), 1e-5) < 3
    total = printed(epsilon(((Gaussian(3.0), 12),), 1e-5))
    warning = place.call("ledger", command, path, "--json").object["epsilon_warning"]
    assert f"epsilon = {total} is a weak promise" in warning
    assert "at all parties together" in warning
    assert warning in flat(place.call("ledger", command, path).out)


def test_show_says_whose_epsilon_it_is(place: Place) -> None:
    for parties, said in (([0], "what other parties release adds to it"), ([0, 1], "These 2 parties together")):
        path = place.path / f"{len(parties)}.sqlite"
        released(path, parties, 2)
        shown = flat(place.call("ledger", "show", path).out)
        assert "one party's part" in shown
        assert said in shown


def test_the_epsilon_of_labels_is_shown_rounded_up(tmp_path: Path) -> None:
    path, budget = tmp_path / "ledger", Budget(1.0, 1e-5)
    SqliteLedger(path, [0], Policy(budget, label_epsilon=1.2345644), "simulation").close()
    view = steward.overview(path)
    assert "epsilon = 1.23457" in ledger_text.as_text(view)
    assert "randomised, epsilon 1.23457" in [value for _, value, _ in ledgers_of_reports.policy(view)]
    told = {"private": True, "label_holder": {"epsilon": 1.2345644}}
    assert ("labels", "randomised once, epsilon = 1.23457") in jobs.of_people(told)


def test_a_delta_beside_an_epsilon_is_shown_rounded_up() -> None:
    """At a smaller one the epsilon would be too small."""
    cost = {"private": True, "epsilon": 1.0, "delta": 1.2345644e-6}
    assert "delta = 1.23457e-06" in jobs.guarantee(cost)
    frame = Frame(1.0, 0.0, ("age",), ("no", "yes"))
    assert "delta = 1.23457e-06" in repr(Model(np.ones(1), frame, "dp_admm", "simulation", 1.0, 1.2345644e-6))


def test_show_of_a_folder_names_the_ledgers_it_warns_of(place: Place, tmp_path: Path) -> None:
    folder = tmp_path / "ledgers"
    folder.mkdir()
    released(folder / "little.sqlite", [0], 2, adjacency="replace-one")
    for name in ("much", "as-much"):
        released(folder / f"{name}.sqlite", [0], 12, adjacency="replace-one")
    shown = flat(place.call("ledger", "show", folder).out)
    assert shown.count("weak promise") == 1
    assert "as-much.sqlite, much.sqlite: epsilon" in shown


@pytest.mark.parametrize(("delta", "large"), [(0.01, True), (1e-3, True), (1e-4, False), (0, False)])
def test_a_delta_that_promises_nothing_is_warned_of_where_a_ledger_is_made(
    delta: float, large: bool, place: Place
) -> None:
    """How many records there are is not known to a ledger: 1000 are assumed."""
    path = place.path / "party.sqlite"
    budget = ("--epsilon", 1.0, "--delta", delta)
    made = place.call("ledger", "create", path, "--parties", 2, *budget)
    assert made.err == (f"warning: {large_delta(delta, None)}\n" if large else "")
    assert (f"{round(1 / delta):,} records" in made.err) if large else not made.err
    other = place.path / "other.sqlite"
    place.call("ledger", "create", other, "--parties", 2, "--epsilon", 1.0, "--delta", 1e-6)
    amended = place.call("ledger", "amend", other, "--delta", delta, "--because", "so")
    assert amended.err == made.err
    # Who amends something else is not told of it again.
    assert place.call("ledger", "amend", other, "--per-job", 0.5, "--because", "so").err == ""
