"""`privadmm ledger`, `plan` and `audit`: what a data steward calls."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from small_runs import CLEAR, PARTIES, ROUNDS, Place, charged, spawn

pytestmark = pytest.mark.usefixtures("skipped_plots")

POLICY = ("--parties", PARTIES, "--epsilon", 1.4, "--delta", 1e-5, "--mode", "simulation")


@pytest.fixture
def party(place: Place) -> Path:
    """A ledger with a policy of its steward and one finished run."""
    file = place.path / "party.sqlite"
    assert place.call("ledger", "create", file, *POLICY, "--algorithm", "dp_admm", "--json").code == 0
    assert place.train(place.config(run={"ledger": "party.sqlite"})).code == 0
    return file


def test_show_tells_policy_jobs_and_spending(place: Place, party: Path) -> None:
    found = place.call("ledger", "show", party, "--json").object
    assert found["policy"]["budget"] == {"epsilon": 1.4, "delta": 1e-5}
    assert found["policy"]["algorithms"] == ["dp_admm"]
    (job,) = found["jobs"]
    assert job["rounds"] == ROUNDS
    assert job["epsilon_spent"] == pytest.approx(1.0, rel=1e-6)
    assert [p["releases"] for p in found["parties"]] == [ROUNDS] * PARTIES
    said = place.call("ledger", "show", party).out
    assert "epsilon = 1.4 at delta = 1e-05" in said
    assert "parties 0 to 2" in said


def test_export_has_every_row_and_no_released_value(place: Place, party: Path) -> None:
    found = place.call("ledger", "export", party, "--json").object
    assert [row["kind"] for row in found["rows"]] == ["reserve", *["tick"] * ROUNDS]
    assert all("outbox" not in row and "state" not in row for row in found["rows"])
    assert json.loads(place.call("ledger", "export", party).out) == found


def test_verify_accepts_what_is_whole_and_names_what_is_not(place: Place, party: Path) -> None:
    whole = place.call("ledger", "verify", party, "--against", place.out, "--json")
    assert whole.code == 0
    assert whole.object["ok"] is True
    assert whole.object["epsilon"]["0"] == pytest.approx(1.0, rel=1e-6)
    with closing(sqlite3.connect(party)) as db, db:
        db.execute("DELETE FROM ticks WHERE seq > 4")
        db.execute("DELETE FROM states")
    cut = place.call("ledger", "verify", party, "--against", place.out, "--json")
    assert cut.code == 1
    assert sum("is not in the ledger" in problem for problem in cut.object["problems"]) == ROUNDS - 3
    assert "TAMPERED" in place.call("ledger", "verify", party).out


def test_the_steward_decides(place: Place, party: Path) -> None:
    shared = {"ledger": "party.sqlite"}
    before = charged(party)
    other = place.train(place.config(CLEAR, run=shared), out=place.path / "clear")
    assert other.code == 3
    assert "allows dp_admm and not admm_star" in other.err
    raised = place.train(place.config(privacy={"budget": 9.0}, run=shared), out=place.path / "raised")
    assert raised.code == 1
    assert "fixed budget = 1.4" in raised.err
    again = place.train(place.config(run=shared), out=place.path / "again")
    assert again.code == 3
    assert "1 is spent or set aside" in again.err
    assert charged(party) == before


def test_a_given_up_job_frees_what_it_did_not_spend(place: Place, party: Path) -> None:
    from privadmm.cli.views.steward import opened
    from privadmm.privacy.calibration import calibrate
    from privadmm.privacy.events import Gaussian

    part = ((Gaussian(calibrate(0.9, 1e-5, lambda ratio: ((Gaussian(ratio), ROUNDS),))), ROUNDS),)
    with closing(opened(party)) as ledger:
        ledger.reserve("abandoned", dict.fromkeys(range(PARTIES), part))
    asking = place.config(privacy={"epsilon": 0.6}, run={"ledger": "party.sqlite"})
    assert place.train(asking, out=place.path / "before").code == 3
    assert place.call("ledger", "close", party, "abandoned").code == 0
    assert place.call("ledger", "close", party, "unheard-of").code == 1
    assert place.train(asking, out=place.path / "after").code == 0
    assert place.call("ledger", "verify", party).code == 0


def test_of_two_runs_that_race_for_a_budget_one_is_refused_at_its_start(place: Place) -> None:
    file = place.path / "party.sqlite"
    place.call("ledger", "create", file, *POLICY)
    config = place.config(run={"ledger": "party.sqlite"}, algorithm={"rounds": 40})
    racers = [spawn("train", config, "--out", place.path / name, "--json") for name in "ab"]
    said = [json.loads(racer.communicate(timeout=120)[0]) for racer in racers]
    assert sorted(racer.returncode for racer in racers) == [0, 3]
    assert sorted("error" in one for one in said) == [False, True]
    assert charged(file) == 40 * PARTIES


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("ledger", "show", "nowhere.sqlite"), 1, "no ledger"),
        (("ledger", "verify", "data.npz"), 1, "cannot be used as a ledger"),
        (("ledger", "create", "data.npz", *POLICY), 1, "exists already"),
        (("ledger", "create", "new", *POLICY, "--algorithm", "dp_adm"), 2, "dp_adm"),
        (("ledger", "create", "new", "--parties", 1, "--epsilon", 0, "--delta", 0.1), 2, "epsilon"),
        (("ledger", "verify", "PARTY", "--against", "nowhere"), 1, "receipts.csv"),
        (("plan", "CONFIG", "--epsilon", -1, "--delta", 1e-5), 2, "epsilon"),
        (("plan", "CONFIG", "--epsilon", 1, "--delta", 2), 2, "delta"),
        (("audit", "CONFIG", "--trials", 3), 2, "1000"),
    ],
    ids=lambda words: " ".join(map(str, words[:3])) if isinstance(words, tuple) else None,
)
def test_wrong_use_is_named(words: tuple, code: int, says: str, place: Place, party: Path) -> None:  # type: ignore[type-arg]
    names = {
        "PARTY": party,
        "CONFIG": place.config(),
        "data.npz": place.path / "data.npz",
        "new": place.path / "new",
    }
    said = place.call(*(names.get(str(word), word) for word in words))
    assert said.code == code
    assert says in said.err


def test_plan_says_the_noise_and_what_is_spent(place: Place) -> None:
    found = place.call("plan", place.config(), "--epsilon", 0.5, "--delta", 1e-6, "--json").object
    assert len(found["parties"]) == PARTIES
    assert 0.5 * (1 - 1e-6) < found["parties"][0]["epsilon"] <= 0.5
    assert found["parties"][0]["events"][0]["count"] == ROUNDS
    assert found["epsilon_by_round"] == sorted(found["epsilon_by_round"])
    assert "after round 1" in place.call("plan", place.config(), "--epsilon", 0.5, "--delta", 1e-6).out
    own = place.call("plan", place.config(), "--json").object
    assert (own["epsilon"], own["delta"]) == (1.0, 1e-5)  # the config's
    by_party = place.config(privacy={"epsilon": None, "party_epsilon": [1.0] * PARTIES})
    assert "say --epsilon" in place.call("plan", by_party).err


def test_plan_refuses_what_fixed_noise_cannot_reach(place: Place) -> None:
    fixed = {"calibration": "published", "round_epsilon": 0.5}
    said = place.call("plan", place.config(algorithm=fixed), "--epsilon", 0.01, "--delta", 1e-5)
    assert said.code == 3
    assert "smallest feasible epsilon" in said.err
    assert place.call("plan", place.config(CLEAR), "--epsilon", 1, "--delta", 1e-5).code == 2


def test_audit_prints_what_it_promises(place: Place) -> None:
    config = place.config(privacy={"delta": 0.02, "epsilon": 2.0})
    found = place.call("audit", config, "--trials", 40_000, "--json").object
    assert 0.6 < found["tightness"] <= 1.0
    assert found["epsilon_lower"] <= found["epsilon_certified"]
    assert all(control["caught"] for control in found["negative_controls"])
    assert {"delta", "trials", "confidence", "epsilon_fitted"} <= found.keys()
    assert "planted bug" in place.call("audit", config, "--trials", 5000).out
    assert place.call("audit", place.config(CLEAR)).code == 2


def test_an_audit_that_misses_a_planted_bug_says_what_hides_it(place: Place) -> None:
    for delta, fix in ((1e-6, "delta = 1e-06 hides it: audit a copy of the config that has delta = 0.001"), (0.02, "")):
        config = place.config(privacy={"delta": delta, "epsilon": 0.1})
        said = " ".join(place.call("audit", config, "--trials", 1000).out.split())
        assert "NOT CAUGHT" in said
        assert (fix or "raise --trials: with few games") in said
        assert ("hides it" in said) is (fix != "")


DEPLOYED = {"mode": "deployment", "seed": None, "ledger": "party.sqlite"}


def test_a_deployment_does_not_make_its_own_ledger(place: Place) -> None:
    said = place.train(place.config(run=DEPLOYED))
    assert said.code == 1
    assert "ledger create" in said.err
    assert not (place.path / "party.sqlite").exists()
    assert not place.out.exists()


def test_a_private_run_needs_a_ledger_with_a_budget(place: Place) -> None:
    shared = {"ledger": "clear.sqlite"}
    assert place.train(place.config(CLEAR, run=shared), out=place.path / "clear").code == 0
    said = place.train(place.config(run=shared))
    assert said.code == 3
    assert "has no budget" in said.err


def test_a_deployment_does_not_split_by_labels(place: Place) -> None:
    said = place.train(place.config(run=DEPLOYED, parties={"split": "dirichlet:0.5"}))
    assert said.code == 2
    assert "[parties] split" in said.err


def test_a_ledger_counts_between_its_own_neighbours(place: Place) -> None:
    file, shared = place.path / "party.sqlite", {"ledger": "party.sqlite"}
    assert place.call("ledger", "create", file, *POLICY, "--adjacency", "label").code == 0
    said = place.train(place.config(run=shared))
    assert said.code == 3
    assert "adjacency = 'label' and the job of 'replace-one'" in said.err
    assert "Nothing was released" in said.err
    shown = place.call("ledger", "show", file, "--json").object
    assert not shown["jobs"]
    assert [one["kind"] for one in shown["refusals"]] == ["policy"]
    assert not place.out.exists()
    assert place.train(place.config(privacy={"adjacency": "label"}, run=shared)).code == 0
    assert charged(file) == ROUNDS * PARTIES
    assert place.call("ledger", "show", file, "--json").object["adjacency"] == "label"
    assert place.call("ledger", "export", file, "--json").object["identity"]["adjacency"] == "label"
    assert place.call("ledger", "verify", file, "--json").object["adjacency"] == "label"
    assert json.loads((place.out / "ledger.json").read_text())["adjacency"] == "label"
    for command in ("show", "verify"):
        assert "label" in place.call("ledger", command, file).out
    wrong = place.call("ledger", "create", place.path / "new", *POLICY, "--adjacency", "rows")
    assert (wrong.code, "--adjacency must be one of replace-one" in wrong.err) == (2, True)


def test_a_run_that_makes_its_ledger_fixes_its_neighbours(place: Place) -> None:
    shared = {"ledger": "party.sqlite"}
    half = {"adjacency": "label", "epsilon": 0.5, "budget": 2.0}
    assert place.train(place.config(privacy=half, run=shared), out=place.path / "a").code == 0
    other = {**half, "adjacency": "replace-one"}
    said = place.train(place.config(privacy=other, run=shared), out=place.path / "b")
    assert said.code == 3
    assert "set adjacency = 'label'" in said.err


def test_a_tampered_ledger_stops_the_next_run(place: Place, party: Path) -> None:
    with closing(sqlite3.connect(party)) as db, db:
        db.execute("UPDATE ticks SET charges = '[]' WHERE seq = 3")
    said = place.train(place.config(privacy={"epsilon": 0.1}, run={"ledger": "party.sqlite"}), out=place.path / "b")
    assert said.code == 1
    assert "altered or removed" in said.err


def test_a_run_is_resumed_with_its_own_ledger_only(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy of its config has other paths, and a restored older ledger does not match: both are refused."""
    from privadmm.engine import loop
    from privadmm.engine.loop import Checkpoint

    file = place.path / "party.sqlite"
    place.call("ledger", "create", file, *POLICY)
    data = {"source": str(place.path / "data.npz")}
    config = place.config(data=data, run={"ledger": "party.sqlite", "checkpoint_every": 100})
    empty = file.read_bytes()

    def stop(self: Checkpoint, view: loop.View) -> None:
        if view.progress.round == 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "__call__", stop)
        assert place.train(config).code == 1
    kept = charged(file)
    elsewhere = place.train(place.out / "config.toml", "--resume")
    assert elsewhere.code == 1
    assert "another ledger" in elsewhere.err
    assert not (place.out / "party.sqlite").exists()
    after = file.read_bytes()
    file.write_bytes(empty)
    restored = place.train(config, "--resume")
    assert restored.code == 1
    assert "not in this ledger" in restored.err
    file.write_bytes(after)
    assert place.train(config, "--resume").code == 0
    assert charged(file) == ROUNDS * PARTIES > kept
