"""Beside the epsilon of secure sums: how many may collude, that it is computational, and what is lost beyond that."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from privadmm.cli.views import jobs, steward
from privadmm.config import build
from privadmm.config import file as configs
from privadmm.engine.job import Job
from privadmm.privacy.accounting import epsilon, printed, totals
from privadmm.privacy.events import Spent, alone, merge
from privadmm.runs.ending import summed
from privadmm.runs.report.gather import gather
from small_runs import PRIVATE, RECORDS, ROUNDS, SECURE, Place, result, with_changes, write_config

pytestmark = pytest.mark.usefixtures("skipped_plots")

TABLES = with_changes(PRIVATE, SECURE)
FACTS = {"parties": 5, "colluding": 2, "fewest": 4, "holds": "computational"}
KNOWN = ("--records", RECORDS)


def job_of(path: Path) -> Job:
    return build.job(configs.read(path), [10, 10, 10, 9, 9], 3)


def read(text: str) -> str:
    """What is printed, without its line breaks."""
    return " ".join(text.split())


def told(text: str, sums: dict[str, Any]) -> None:
    """Check that people are told all of it."""
    said = read(text)
    for words in (
        "computational",
        "X25519",
        "HKDF",
        "ChaCha20",
        "up to 2 of the 5 parties",
        "fewest parties in a sum: 4",
    ):
        assert words in said
    for figure in [*(row["epsilon"] for row in sums["if_colluding"]), sums["at_two_parties"]]:
        assert f"epsilon = {printed(figure)}" in said


@pytest.mark.parametrize("command", ["account", "plan"])
def test_what_a_job_would_cost_comes_with_what_that_rests_on(command: str, place: Place) -> None:
    config = place.config(TABLES)
    words = ("--epsilon", 1.0, "--delta", 1e-5) if command == "plan" else ()
    found = place.call(command, config, *words, *KNOWN, "--json").object["secure_sum"]
    assert found.items() >= FACTS.items()
    assert [row["colluding"] for row in found["if_colluding"]] == [3, 4]
    assert found == json.loads(json.dumps(job_of(config).in_sums["secure_sum"]))
    told(place.call(command, config, *words, *KNOWN).out, found)


def test_epsilon_needs_no_sizes(place: Place) -> None:
    """How many records there are decides whether words could wrap, and not what is lost."""
    config = place.config(TABLES)
    known, unknown = (place.call("account", config, *words, "--json").object for words in (KNOWN, ()))
    assert unknown["secure_sum"] == known["secure_sum"]
    assert "[parties] sizes" in unknown["not_expected"]


def test_a_run_says_it_in_every_report(place: Place) -> None:
    config = place.config(TABLES)
    said = place.train(config)
    kept = result(place.out)["secure_sum"]
    assert kept["roster"] == "simulated"
    assert kept.items() >= FACTS.items()
    told(said.out, kept)
    assert "simulated in one process" in read(said.out)
    model = json.loads((place.out / "model.json").read_text())
    for notices in (result(place.out)["notices"], model["notices"], model["caveats"]):
        assert any("computational" in words and "2 of the 5 parties" in words for words in notices)
    machine = place.train(config, "--json", out=place.path / "again").object
    assert machine["secure_sum"] == kept


@pytest.mark.parametrize("peers", ["pinned", "not pinned", None])
def test_people_are_told_whose_keys_they_were(peers: str | None, place: Place) -> None:
    shown = dict(jobs.in_sums(summed(job_of(place.config(TABLES)), peers)))
    assert (peers or "simulated") in str(shown["roster"])
    assert ("follows the protocol" in str(shown["roster"])) is (peers == "not pinned")


def test_those_who_collude_are_counted_among_all_parties_everywhere(place: Place) -> None:
    """Two of five, and not two of the four others in one place and two of five in another."""
    config = place.config(TABLES)
    account = " ".join(place.call("account", config, *KNOWN).out.split())
    assert "together with up to 2 of the 5 parties" in account
    assert "with 3 of the 5 parties" in account
    assert "with everybody else" in account
    assert "others" not in account.partition("if more collude")[2].partition("at two parties")[0]
    assert place.train(config).code == 0
    assert any("up to 2 of the 5 parties" in words for words in result(place.out)["notices"])


def test_without_secure_sums_nothing_changes(place: Place) -> None:
    config = place.config()
    assert "secure_sum" not in place.call("account", config, *KNOWN, "--json").object
    assert "computational" not in place.call("account", config, *KNOWN).out
    assert "computational" not in place.train(config).out
    assert "secure_sum" not in result(place.out)


def test_a_lost_round_is_reported(place: Place) -> None:
    said = place.train(place.config(TABLES, parties={"leave": ["3@2"]}))
    assert said.code == 0, said.err
    assert result(place.out)["lost_rounds"] == [2]
    assert "round 2: a message was missing" in read(said.out)
    local = place.train(place.config(TABLES, parties={"leave": ["3@2"]}, privacy=LOCAL), out=place.path / "local")
    assert "lost_rounds" not in result(place.path / "local")
    assert "a message was missing" not in local.out


LOCAL = {"sum": "local", "colluding": None, "fewest": None}
POLICY = ("--parties", 5, "--epsilon", 2.0, "--delta", 1e-5, "--mode", "simulation", "--fewest", 4)


@pytest.fixture
def ledger(place: Place) -> Path:
    file = place.path / "party.sqlite"
    assert place.call("ledger", "create", file, *POLICY).code == 0
    return file


def test_a_ledger_shows_the_total_if_everybody_else_colluded(place: Place, ledger: Path) -> None:
    """A secure job and a plain one: the first costs more then, and the second the same."""
    shared = {"ledger": ledger.name}
    config = place.config(TABLES, run=shared)
    assert place.train(config).code == 0
    one = totals(job_of(config).plan, 5)[0]
    plain = place.config(TABLES, "plain.toml", run=shared, privacy={**LOCAL, "epsilon": 0.5})
    assert place.train(plain, out=place.path / "plain").code == 0
    both: Spent = merge(one, totals(job_of(plain).plan, 5)[0])
    found = place.call("ledger", "show", ledger, "--json").object
    secure, own = found["jobs"]
    assert secure["secure_sum"] == {"parties": 5, "colluding": 2}
    assert secure["epsilon_if_all_others_collude"] == epsilon(alone(one) or (), 1e-5)
    assert "epsilon_if_all_others_collude" not in own
    total = epsilon(alone(both) or (), 1e-5)
    assert [party["epsilon_if_all_others_collude"] for party in found["parties"]] == [total] * 5
    assert total > found["parties"][0]["epsilon_spent"] == epsilon(both, 1e-5)
    said = read(place.call("ledger", "show", ledger).out)
    for words in ("computational", "up to 2 of 5 parties", f"{printed(total, '.6g')} if everybody else did"):
        assert words in said
    checked = place.call("ledger", "verify", ledger, "--json").object
    assert checked["ok"]
    assert checked["epsilon_if_all_others_collude"] == {str(party): total for party in range(5)}
    assert f"{printed(total, '.6g')} if everybody else did" in read(place.call("ledger", "verify", ledger).out)


def test_the_report_of_a_ledger_says_what_its_secure_sums_rest_on(place: Place, ledger: Path) -> None:
    assert place.train(place.config(TABLES, run={"ledger": ledger.name})).code == 0

    card = gather(ledger, steward.overview)
    learnt = dict(card.learners)
    assert "cryptography" in learnt["The coordinator with up to 2 of the 5 parties, who tell all they know"]
    assert float(learnt["The coordinator with everybody else"].removeprefix("epsilon = ")) > (card.epsilon or math.inf)
    assert "more" in learnt["Of a person with records at two parties of a secure sum"]
    (line,) = [line for line in card.not_protected if "computational" in line]
    assert "up to 2 of the 5 parties" in line

    def failed(path: Path) -> dict[str, Any]:
        found = steward.overview(path)
        return {**found, "jobs": [{**job, "state": "failed"} for job in found["jobs"]]}

    told = dict(gather(ledger, failed).learners)["The coordinator with everybody else"]
    assert "not told" in told, "how much it is would tell which step failed"


def test_a_ledger_without_secure_sums_says_nothing_of_them(place: Place, ledger: Path) -> None:
    assert place.train(place.config(TABLES, run={"ledger": ledger.name}, privacy=LOCAL)).code == 0
    card = gather(ledger, steward.overview)
    assert "computational" not in " ".join(card.not_protected)
    assert "own noise" in dict(card.learners)["The coordinator with everybody else"]
    for words in (("show",), ("verify",)):
        assert "if everybody else" not in read(place.call("ledger", *words, ledger).out)
        assert 'collude"' not in place.call("ledger", *words, ledger, "--json").out


def test_what_is_left_is_what_one_more_job_may_ask_for(place: Place, ledger: Path) -> None:
    config = place.config(TABLES, run={"ledger": ledger.name})
    assert place.train(config).code == 0
    left = json.loads((place.out / "ledger.json").read_text())["parties"][0]["left"]
    assert 1.0 < left < 2.0
    more = place.config(TABLES, "more.toml", run={"ledger": ledger.name}, privacy={"epsilon": left * (1 + 1e-5)})
    assert place.train(more, out=place.path / "more").code == 3
    again = place.config(TABLES, "again.toml", run={"ledger": ledger.name}, privacy={"epsilon": left * (1 - 1e-9)})
    assert place.train(again, out=place.path / "again").code == 0


@pytest.mark.parametrize(
    ("words", "changes", "said"),
    [
        (("--colluding", 3), {}, "colluding = 3"),
        (("--fewest", 5), {}, "5 parties at least"),
        ((), {}, "5 parties at least"),  # nine tenths of five
    ],
)
def test_the_steward_says_how_many_must_be_tolerated(
    words: tuple[Any, ...], changes: dict[str, Any], said: str, place: Place
) -> None:
    policy = (*POLICY[:-2], *words)
    assert place.call("ledger", "create", place.path / "party.sqlite", *policy).code == 0
    found = place.train(place.config(TABLES, run={"ledger": "party.sqlite"}, **changes), "--json")
    assert (found.code, place.out.exists()) == (3, False)
    assert said in found.object["message"]


def test_one_process_deploys_no_secure_sum_and_reads_no_record(place: Place) -> None:
    (place.path / "data.npz").unlink()
    deployed = with_changes(TABLES, {"run": {"mode": "deployment", "seed": None, "ledger": "party.sqlite"}})
    said = place.train(write_config(place.path / "config.toml", deployed), "--json")
    assert (said.code, place.out.exists()) == (2, False)
    for words in ("config.toml:", "[privacy] sum", "curator", 'engine = "dask"'):
        assert words in said.object["message"]


def test_the_head_of_an_audit_says_it_too(place: Place) -> None:
    found = place.call("audit", place.config(), *KNOWN, "--trials", 1000, "--json").object
    assert "secure_sum" not in found
    sums = job_of(place.config(TABLES)).in_sums
    told(jobs.audit({**found, **sums}), sums["secure_sum"])


def test_rounds_are_charged_as_planned(place: Place) -> None:
    found = place.call("account", place.config(TABLES), *KNOWN, "--json").object
    (event,) = found["parties"][0]["events"]
    assert (event["kind"], event["count"], event["colluding"], event["parties"]) == ("shared_gaussian", ROUNDS, 2, 5)


@pytest.mark.parametrize("command", ["account", "plan", "train"])
def test_an_epsilon_that_is_less_than_asked_is_said(command: str, place: Place) -> None:
    config = place.config(with_changes(TABLES, {"privacy": {"epsilon": 40.0}}))
    words = {"plan": ("--epsilon", 40.0, "--delta", 1e-5, *KNOWN), "train": (), "account": KNOWN}[command]
    said = read(place.call(command, config, *words).out)
    most = job_of(config).in_sums["secure_sum"]["most_proved"]
    assert f"epsilon = 40 was asked for, and there is noise for {printed(most)}" in said
    assert f"no proved epsilon (the most that is proved: {printed(most)})" in said
