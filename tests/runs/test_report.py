"""`privadmm report`: the page of a run or a ledger says what it should, to everybody, and tells nothing of records."""

import itertools
import json
import math
import re
import shlex
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contract_tools import Player, Recorder
from federations import federated
from ledgers import NOISE, ONE, POLICY, TWO, begin, opened, pay, released
from privadmm.cli.views import report as view
from privadmm.cli.views import steward
from privadmm.cli.views.runs_of_federation import few
from privadmm.errors import ConfigError, DataError, DivergedError, InterruptedRunError, LockedError, RefusedError
from privadmm.privacy import meaning
from privadmm.privacy.accounting import epsilon, printed
from privadmm.privacy.anchor import AnchorFile
from privadmm.privacy.backups import Decision, backup, restore
from privadmm.privacy.events import Gaussian
from privadmm.privacy.history import listed
from privadmm.privacy.ledger import Asked, Tick
from privadmm.privacy.policy import Budget, Policy
from privadmm.privacy.refusals import recording
from privadmm.privacy.release import Door
from privadmm.privacy.sqlite_ledger import SqliteLedger
from privadmm.runs.register import content_of, ledger_of, table_of
from privadmm.runs.report import charts, words
from privadmm.runs.report.card import Card, embedded
from privadmm.runs.report.evaluation import Evaluation
from privadmm.runs.report.gather import gather
from privadmm.runs.report.noise_alone import noise_alone
from privadmm.runs.report.page import MOST, PARTS, render, style
from privadmm.runs.report.runs import Run
from small_runs import CLEAR, DVP, PARTIES, PRIVATE, SECURE, SHARING, Place, rows, with_changes, write_csv, write_npz

pytestmark = pytest.mark.usefixtures("skipped_plots")
VOID = {"meta", "link", "br", "hr", "img", "input"}
HOSTILE = (
    "<script>alert(1)</script>",
    "\"'><img src=x onerror=alert(1)>",
    "</script><svg onload=alert(1)>",
    "\u202egnp.exe\u2066",
    "a" * 100_000,
    "&lt;b&gt; & {braces} %s",
    "line\none\x00two",
)


class Page(HTMLParser):
    """What a browser would make of a page: its elements, and the text of the first screen and of all."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.ids: list[str] = []
        self.said: list[str] = []
        self.first: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        assert len(known) == len(attrs)
        self.elements.append((tag, known))
        if "id" in known:
            self.ids.append(str(known["id"]))
        if tag not in VOID and not (self.open and self.open[-1] == "svg-void"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "script" in self.open or "style" in self.open:
            return
        self.said.append(data)
        if "section" not in self.open:
            self.first.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.said).split())

    @property
    def first_screen(self) -> str:
        return " ".join(" ".join(self.first).split())


def card_of(path: Path, config: Path | None = None) -> Card:
    return gather(path, steward.overview, config)


def page_of(path: Path, config: Path | None = None) -> Page:
    return Page(render(card_of(path, config)))


def charts_of(card: Card) -> set[str]:
    return {chart.key for chart in card.charts}


# What the page says


@pytest.fixture
def simulated(place: Place) -> Path:
    place.run()
    return place.out


def test_a_simulation_says_so_first(simulated: Path) -> None:
    page = page_of(simulated)
    assert "This is a simulation" in page.first_screen
    for words_of_it in ("48 records", "epsilon 1, delta 1e-05", "13.6 of 100", "Purpose not recorded"):
        assert words_of_it in page.first_screen, words_of_it
    for heading in ("Who learns what", "Budgets", "What was refused", "What is not protected", "Versions"):
        assert heading in page.text


def test_a_simulation_has_all_charts_where_its_records_are(place: Place, simulated: Path) -> None:
    moved = place.path / "elsewhere" / "run"
    moved.parent.mkdir()
    shutil.copytree(simulated, moved)
    without = card_of(moved)
    assert charts_of(without) == {"objective", "accuracy", "epsilon", "noise", "weights"}
    assert [name for name, _ in without.not_drawn] == ["ROC and calibration"]
    whole = card_of(moved, place.path / "config.toml")
    assert charts_of(whole) == charts_of(without) | {"roc", "calibration"}
    assert whole.not_drawn == ()
    assert charts_of(card_of(simulated)) == charts_of(whole)  # beside the records it needs no --config
    (spread,) = [chart for chart in whole.charts if chart.key == "weights"]
    assert isinstance(spread, charts.Spread)
    assert all(deviation is not None and deviation > 0 for _, _, deviation in spread.rows)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (DVP, "All others who read every message: record"),
        (SECURE, "The coordinator with up to 2 of the 5 parties"),
        (SHARING, "Of a person, over the messages of all parties together"),
        ({"privacy": {"adjacency": "label"}}, "One record is the label of one row"),
        ({"privacy": {"label_epsilon": 2.0}}, "The party's own server: label epsilon = 2 at delta = 0 at most"),
        ({"algorithm": {"calibration": "published", "round_epsilon": 0.5}, "privacy": {"epsilon": None}}, "published"),
        ({"parties": {"leave": ["1@3"]}}, "Party 1 gave no answer from round 3 on"),
    ],
    ids=["graph", "secure sums", "vertical", "label", "randomised labels", "published", "leaving"],
)
def test_every_kind_of_job_has_its_page(place: Place, changes: Any, expected: str) -> None:
    if changes is SECURE:
        write_npz(place.path / "data.npz", *rows(100))
    place.run(with_changes(PRIVATE, changes))
    page = page_of(place.out, place.path / "config.toml")
    assert expected in page.text
    assert "This is a simulation" in page.first_screen
    assert "No guarantee" not in page.first_screen


def test_a_secure_sum_tells_what_colluders_learn(place: Place) -> None:
    write_npz(place.path / "data.npz", *rows(100))
    place.run(with_changes(PRIVATE, SECURE))
    learnt = dict(card_of(place.out).learners)
    alone = learnt["The coordinator with everybody else"]
    assert float(alone.removeprefix("epsilon = ")) > 1.0
    assert "cryptography" in learnt["The coordinator with up to 2 of the 5 parties, who tell all they know"]


def test_keys_that_are_pinned_are_no_caveat(place: Place) -> None:
    """A party of a federation takes part in secure sums only with keys that it pinned."""
    write_npz(place.path / "data.npz", *rows(100))
    secure = with_changes(PRIVATE, SECURE)
    place.run(secure)
    assert "have not pinned each other's keys" in page_of(place.out).text
    made = federated(place.path, secure)
    made.run()
    out = made.made.coordinator.folder / "runs/first"
    for _ in range(2):
        page = page_of(out).text
        assert "the guarantee is computational" in page.lower()
        assert "have not pinned" not in page
        for file in ("result.json", "model.json"):  # the second time as if it were not finished
            (out / file).unlink(missing_ok=True)


def test_published_noise_stands_beside_what_is_certified(place: Place) -> None:
    place.run(
        with_changes(
            PRIVATE,
            {"algorithm": {"calibration": "published", "round_epsilon": 0.5}, "privacy": {"epsilon": None}},
        )
    )
    card = card_of(place.out)
    assert card.published is not None
    assert card.published.calibration == "published"
    assert card.published.epsilon != card.epsilon
    assert "Whose rule set the noise published" in page_of(place.out).text


def test_what_is_not_private_is_called_so(place: Place) -> None:
    place.run(CLEAR)
    card = card_of(place.out, place.path / "config.toml")
    page = Page(render(card))
    assert card.epsilon is None
    assert "Not private: no epsilon covers this." in page.first_screen
    assert "No guarantee" in page.first_screen
    assert words.NOTHING in page.text


@contextmanager
def interrupted_at_round_3() -> Iterator[Any]:
    """Stand in for a progress bar, in front of which somebody presses Ctrl-C."""

    def callback(view: Any) -> None:
        if view.progress.round == 3:
            raise KeyboardInterrupt

    yield callback


def interrupt(place: Place, changes: dict[str, Any]) -> None:
    with pytest.raises(InterruptedRunError):
        place.run(with_changes(PRIVATE, changes), bar=lambda job, done: interrupted_at_round_3())


def test_an_unfinished_run_says_what_it_will_cost_and_has_cost(place: Place) -> None:
    interrupt(place, {"parties": {"sizes": [16, 16, 16]}, "data": {"dim": 3}})
    card = card_of(place.out)
    assert card.status.startswith("not finished")
    assert card.epsilon == pytest.approx(1.0, rel=1e-6)
    assert all(row.spent is not None and 0 < row.spent < 0.9 for row in card.budgets)
    assert all(row.committed == pytest.approx(1.0, rel=1e-6) for row in card.budgets)
    assert "The run is not finished" in Page(render(card)).first_screen


def test_a_declared_number_of_records_is_no_reason_for_an_epsilon(place: Place) -> None:
    """Nothing compares it with the records of a run that did not end; what a fixed noise costs would follow from it."""
    interrupt(place, {"parties": {"records": 48_000_000}, "data": {"dim": 3}})
    run = Run.at(place.out, None)
    assert run.config is not None
    assert run.config.parties.records == 48_000_000
    assert run.shape is not None
    assert not isinstance(run.shape.sizes, tuple)


def test_a_run_that_ran_away_and_one_that_was_ended(place: Place) -> None:
    wild = {"algorithm": {"name": "dp_fedsgd", "step": 1e49, "rounds": 40, "D_w": None, "rho": None}}
    with pytest.raises(DivergedError):
        place.run(with_changes(PRIVATE, {**wild, "regularizer": {"weight": 10.0}}))
    card = card_of(place.out)
    assert card.status.startswith("not finished")
    assert "It can be resumed" in Page(render(card)).first_screen
    assert card.results[0][0] == "objective after the last measured round"
    assert all(row.spent is not None and row.spent > 0 for row in card.budgets)
    (place.out / "ended.json").write_text("{}")
    assert card_of(place.out).status.startswith("ended for good")


def test_a_finished_model_that_ran_away_says_so(simulated: Path) -> None:
    result = json.loads((simulated / "result.json").read_text())
    (simulated / "result.json").write_text(json.dumps({**result, "objective": None}))
    assert "The model ran away" in page_of(simulated).first_screen


def test_a_federation_names_its_parties_and_ledgers_tell_the_rest(place: Place) -> None:
    made = federated(place.path, PRIVATE)
    made.run()
    out = made.made.coordinator.folder / "runs/first"
    card = card_of(out)
    assert [holder.records for holder in card.holders] == [16, 16, 16]
    assert {row.spent for row in card.budgets} == {card.epsilon}
    assert len(card.versions) > 1
    one = card_of(made.ledgers[0])
    assert (one.kind, len(one.budgets), len(one.jobs)) == ("ledger", 1, 1)
    folder = card_of(made.folders[0].parent)
    assert (folder.kind, len(folder.budgets), len(folder.jobs)) == ("ledgers", PARTIES, PARTIES)
    assert folder.epsilon == pytest.approx(1.0, rel=1e-6)
    assert len([name for name, _, _ in folder.declared if name == "budget"]) == 1  # alike: told once
    Page(render(folder))
    assert not any("ran away" in line for line in card.notices)  # nothing was measured


def test_what_nobody_declared_is_not_called_declared(place: Place, simulated: Path) -> None:
    made = federated(place.path, PRIVATE)
    made.run()
    of_federation = {name: value for name, value, _ in card_of(made.made.coordinator.folder / "runs/first").declared}
    for name in ("[run] engine", "[parties] split", "[data] test_fraction"):
        assert name not in of_federation
    assert (of_federation["[algorithm] name"], of_federation["[privacy] delta"]) == ("dp_admm", "1e-05")
    alone = {name: value for name, value, _ in card_of(simulated).declared}
    assert "[run] engine" not in alone
    assert alone["[parties] split"] == "even (by default)"
    assert alone["[algorithm] rho"] == "0.1"
    for found in (alone, of_federation):
        assert found["[loss] name"] == "logistic (by default)"
        assert found["[privacy] adjacency"] == "replace-one (by default)"


def test_a_seed_of_the_command_line_is_not_taken_for_the_files(place: Place, simulated: Path) -> None:
    assert ("[run] seed", "1") in [row[:2] for row in card_of(simulated).declared]
    other = place.path / "other"
    assert place.train(place.path / "config.toml", "--seed", 9, out=other).code == 0
    assert "[run] seed" not in [name for name, _, _ in card_of(other).declared]


def test_names_of_parties_come_from_others_and_stay_texts(place: Place) -> None:
    made = federated(place.path, PRIVATE)
    made.run()
    out = made.made.coordinator.folder / "runs/first"
    known = json.loads((out / "parties.json").read_text())
    known[0]["name"], known[1]["name"] = "<script>alert(1)</script>", "\u202eevil"
    (out / "parties.json").write_text(json.dumps(known))
    text = render(card_of(out))
    harmless(Page(text), text)
    assert "&lt;script&gt;" in text
    assert "\\u202eevil" in Page(text).first_screen


def test_people_whose_columns_are_split_are_counted_once(place: Place) -> None:
    place.run(with_changes(CLEAR, {"parties": {"split": "features"}, "algorithm": {"name": "admm_sharing"}}))
    card = card_of(place.out)
    assert [holder.records for holder in card.holders] == [48] * PARTIES
    assert "48 people" in page_of(place.out).first_screen


def test_noise_of_a_coefficient_is_that_of_the_method_on_records_that_say_nothing(place: Place) -> None:
    """One round of gradient descent from 0: the model is the step times noise of a scale that the plan tells."""
    changes = {"algorithm": {"name": "dp_fedsgd", "rounds": 1, "step": 2.0, "D_w": None, "rho": None}}
    place.run(with_changes(PRIVATE, {**changes, "regularizer": {"weight": 0.0}}))
    run = Run.at(place.out, None)
    assert run.config is not None
    assert run.job is not None
    found, why = noise_alone(run.config, run.job)
    ((event,),) = [{event for row in releases for event in row} for releases in run.job.plan.values()]
    each = event.ratio * run.job.public.moves(run.job.public.ids)  # type: ignore[attr-defined]
    exact = 2.0 * float(np.sqrt(np.sum(each**2))) / PARTIES
    assert found == pytest.approx(exact, rel=0.25), why
    assert "no record was read" in why


# Ledgers


def test_a_ledger_tells_budget_spent_and_left(tmp_path: Path) -> None:
    path = tmp_path / "party.sqlite"
    begin(path, rounds=5)
    pay(path, 0, 1)
    card = card_of(path)
    (row,) = card.budgets
    assert row.budget == 2.0
    assert row.spent is not None
    assert row.committed is not None
    assert 0 < row.spent < row.committed < 2.0
    page = Page(render(card))
    assert "This is a deployment" in page.first_screen
    assert "What was refused Nothing." in page.text


def test_an_epsilon_of_one_party_is_never_told_as_that_of_a_person(tmp_path: Path) -> None:
    """A person has a row at each party: what all of them release composes, and the page says which is which."""
    released(tmp_path / "three.sqlite", [0, 1, 2], 4)
    card = card_of(tmp_path / "three.sqlite")
    whole = epsilon(((Gaussian(3.0), 12),), 1e-5)
    assert card.epsilon == pytest.approx(epsilon(((Gaussian(3.0), 4),), 1e-5))
    assert card.person is not None
    assert (card.person.parties, card.person.all_parties) == (3, False)
    assert card.person.epsilon == pytest.approx(whole)
    assert card.epsilon is not None
    assert card.epsilon < 3 < whole
    page, figure = Page(render(card)), f"epsilon = {printed(whole)}"
    assert "one party's part of a person" in page.first_screen
    assert figure in page.first_screen
    assert figure in " ".join(f"{who} {what}" for who, what in card.learners)
    assert card.epsilon_warning is not None
    assert f"epsilon = {printed(whole)}" in card.epsilon_warning
    assert figure in " ".join(view.told(card, {}).split())


def test_ledgers_of_parties_that_hold_columns_add_up(tmp_path: Path) -> None:
    for number in range(3):
        released(tmp_path / f"party-{number}.sqlite", [number], 4, ratio=3.0 + number)
    total = epsilon(tuple((Gaussian(3.0 + number), 4) for number in range(3)), 1e-5)
    person = card_of(tmp_path).person
    assert person is not None
    assert person.parties == 3
    assert person.epsilon == pytest.approx(total)
    alone = card_of(tmp_path / "party-0.sqlite")
    first = page_of(tmp_path / "party-0.sqlite").first_screen
    assert alone.epsilon is not None
    assert alone.epsilon < total
    assert "one party's part of a person" in first
    assert "a person loses more in all" in first
    assert [what for who, what in alone.learners if who.startswith("Of a person")] == [
        "more than at one party; not known here"
    ]


def test_what_a_person_lost_is_not_told_once_a_job_failed(tmp_path: Path) -> None:
    path, noise = tmp_path / "two.sqlite", Gaussian(3.0)
    released(path, [0, 1], 2)
    tick, policy = Tick(TWO, 0, 0), Policy(Budget(50.0, 1e-5), adjacency="person")
    with closing(SqliteLedger(path, [0, 1], policy, "deployment")) as ledger:
        ledger.reserve(TWO, dict.fromkeys([0, 1], ((noise, 1),)))
        with ledger.turn():
            with ledger.transaction():
                ledger.intend(tick, "in", dict.fromkeys([0, 1], (noise,)))
            with suppress(LockedError):
                ledger.fail(tick, "why")
    card = card_of(path)
    assert card.person is not None
    assert card.person.epsilon is None
    assert "not known" in words.of_person(card.person, card.delta)


def test_a_page_never_tells_which_step_failed_nor_why(tmp_path: Path) -> None:
    path = tmp_path / "party.sqlite"
    begin(path, rounds=5)
    pay(path, 0, 1)
    tick = Tick("1" * 32, 2, 0)
    with closing(opened(path)) as ledger, ledger.turn():
        with ledger.transaction():
            ledger.intend(tick, "in 2", {0: (NOISE,)})
        with pytest.raises(LockedError):
            ledger.fail(tick, "the record of Ada Lovelace overflowed")
    assert "Lovelace" in json.dumps(steward.overview(path))
    text = render(card_of(path))
    assert "is locked: a step failed" in text
    assert "Lovelace" not in text
    (job,) = card_of(path).jobs
    assert job["rounds"] is None


def test_a_page_and_a_register_are_the_same_whichever_step_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock that goes on with every row must not tell it, nor rows that came later."""
    pages, registers = set(), set()
    for done in (0, 1, 2, 4):
        seconds = itertools.count(1_790_000_000, 60)
        monkeypatch.setattr("privadmm.privacy.ledger_file.gmtime", lambda seconds=seconds: time.gmtime(next(seconds)))
        path = tmp_path / str(done) / "party.sqlite"
        path.parent.mkdir()
        begin(path, rounds=5)
        pay(path, *range(done))
        tick = Tick("1" * 32, done, 0)
        with closing(opened(path)) as ledger, ledger.turn():
            with ledger.transaction():
                ledger.intend(tick, "in", {0: (NOISE,)})
            with pytest.raises(LockedError):
                ledger.fail(tick, "why")
            raise_locked(ledger)
            ledger.unlock("looked at")
            ledger.amend(replace(POLICY, per_job=1.0), "less for each")
        card = card_of(path)
        registers.add(json.dumps({**ledger_of(steward.overview(path)), "head": ""}))
        assert any("no statement is certified" in line for line in card.notices)
        pages.add(render(replace(card, subject="", hashes=(), commands=())))
    assert len(pages) == 1
    assert len(registers) == 1
    assert "2026-09-21" in pages.pop()  # when it was admitted
    shown = json.dumps(steward.overview(path))
    assert shown.count("2026-09-21") > 5  # its steward is told all of it


def raise_locked(ledger: SqliteLedger) -> None:
    with suppress(LockedError), recording(ledger, Asked("more")):
        raise LockedError("locked")


def test_what_ledgers_record_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, asked = tmp_path / "party.sqlite", Asked("readmission study", "Dr. A", "dp_admm", "c" * 64, "St. Mary's")
    monkeypatch.setattr("privadmm.privacy.ledger_file.gmtime", lambda: time.gmtime(1_790_000_000))
    with closing(opened(path)) as ledger:
        ledger.reserve("1" * 32, {0: ((NOISE, 3),)}, asked)
        for _ in range(2):
            with suppress(RefusedError), recording(ledger, asked):
                ledger.reserve("2" * 32, {0: ((NOISE, 10**6),)})
    page = page_of(path)
    for said in ("readmission study", "Dr. A", "2026-09-21 14:13:20 UTC", "St. Mary's"):
        assert said in page.first_screen
    assert "party 0 may spend epsilon = 2 in all" in page.text
    (row,) = card_of(path).refusals or ()
    assert (row["kind"], row["times"], row["requester"]) == ("budget", 2, "Dr. A")


def test_a_ledger_of_an_earlier_version_says_that_nothing_was_recorded(tmp_path: Path) -> None:
    path = tmp_path / "party.sqlite"
    old = Path(__file__).parents[1] / "privacy" / "format_1"
    with closing(sqlite3.connect(path)) as db:
        db.executescript((old / "ledger.sql").read_text())
    AnchorFile(path).path.write_bytes(bytes.fromhex((old / "anchor.hex").read_text()))
    assert [job["purpose"] for job in steward.overview(path)["jobs"]] == [None] * 4
    text = page_of(path).text
    assert "not recorded" in text
    assert "What was before a version of privadmm that keeps it is not recorded." in text


def test_commands_can_be_pasted_whatever_a_file_is_called(tmp_path: Path) -> None:
    place = tmp_path / "a; rm -rf $HOME"
    place.mkdir()
    begin(place / "b 'c.sqlite")
    (command,) = card_of(place / "b 'c.sqlite").commands
    assert shlex.split(command) == ["privadmm", "ledger", "verify", str(place / "b 'c.sqlite")]


def test_a_backup_beside_its_ledger_is_counted_once(tmp_path: Path) -> None:
    """Also a run whose ledger was lost; a ledger that was used again has another history, and counts."""
    path = tmp_path / "party.sqlite"
    begin(path, rounds=5)
    pay(path, 0)
    backup(path, tmp_path / "monday.sqlite")
    pay(path, 1)
    alone = card_of(path)
    backup(path, tmp_path / "tuesday.sqlite")
    both = card_of(tmp_path)
    assert (both.kind, both.budgets, both.jobs[0]["job"], len(both.jobs)) == ("ledger", alone.budgets, ONE, 1)
    assert (both.epsilon, both.commands, both.hashes) == (alone.epsilon, alone.commands, alone.hashes)
    for name in ("monday.sqlite", "tuesday.sqlite"):
        (line,) = [line for line in both.notices if name in line]
        assert ("copy of party.sqlite" in line, "counted once" in line) == (True, True)
    assert "counted once" in render(both)

    path.unlink()  # the newest backup has all that is known
    assert card_of(tmp_path).budgets == alone.budgets
    assert any("copy of tuesday.sqlite" in line for line in card_of(tmp_path).notices)
    restore(tmp_path / "monday.sqlite", tmp_path / "monday.sqlite", Decision("to use it again", spend_all=True))
    apart = card_of(tmp_path)
    assert (len(apart.budgets), any("counted once" in line for line in apart.notices)) == (2, False)


def test_fresh_ledgers_with_one_policy_are_not_taken_for_copies(tmp_path: Path) -> None:
    for name in ("one", "two"):
        opened(tmp_path / f"{name}.sqlite").close()
    begin(tmp_path / "three.sqlite")
    card = card_of(tmp_path)
    assert (len(card.budgets), card.notices) == (3, ())


def test_ledgers_that_count_differently_are_no_one_page(tmp_path: Path) -> None:
    begin(tmp_path / "one.sqlite")
    begin(tmp_path / "two.sqlite", mode="simulation")
    with pytest.raises(ConfigError, match="differ in mode"):
        card_of(tmp_path)


# What no page tells


def replayed_pages(place: Place, monkeypatch: pytest.MonkeyPatch, tables: Any, prepare: Any) -> tuple[str, str]:
    """The pages of two runs on other records at one place, the second with the releases of the first."""
    tape: list[Any] = []
    pages = []
    monkeypatch.setattr("privadmm.privacy.ledger_file.gmtime", lambda: time.gmtime(1_790_000_000))
    monkeypatch.setattr("uuid.uuid4", lambda: type("Id", (), {"hex": "5" * 32})())
    for kind, seed in ((Recorder, 0), (Player, 9)):
        X, y = rows(seed=seed)
        write_npz(place.path / "data.npz", X, y)
        door = type("Taped", (kind,), {"tape": tape if kind is Recorder else list(tape)})
        monkeypatch.setattr("privadmm.engine.worker.Door", door)
        prepare()
        place.run(tables)
        ledger = place.path / "party.sqlite"
        pages.append(render(card_of(place.out, place.path / "config.toml")))
        if ledger.exists():
            register = content_of({"party": steward.overview(ledger)}, "a day")
            pages[-1] += render(card_of(ledger)) + json.dumps(register) + table_of(register)
        monkeypatch.setattr("privadmm.engine.worker.Door", Door)
        shutil.rmtree(place.out)
        for left in place.path.glob("party.sqlite*"):
            left.unlink()
    assert tape
    return pages[0], pages[1]


@pytest.mark.parametrize("evaluation", [None, {"kind": "private", "held_out": 0.25}], ids=["plain", "evaluated"])
def test_the_page_of_a_deployment_is_a_function_of_what_was_released(
    place: Place, monkeypatch: pytest.MonkeyPatch, evaluation: Any
) -> None:
    pytest.importorskip("opendp")
    asked = {"purpose": "readmissions", "requester": "Dr. A"}
    deployed = {"mode": "deployment", "seed": None, "ledger": "party.sqlite", **asked}
    epsilon = 1.0 if evaluation is None else 500.0  # so few records can tell something
    tables = with_changes(PRIVATE, {"run": deployed, "evaluation": evaluation, "privacy": {"epsilon": epsilon}})

    def prepare() -> None:
        policy = ("--parties", PARTIES, "--epsilon", epsilon, "--delta", 1e-5)
        assert place.call("ledger", "create", place.path / "party.sqlite", *policy).code == 0

    first, second = replayed_pages(place, monkeypatch, tables, prepare)
    assert first == second
    run, ledger = (f"{part}</html>" for part in first.split("</html>")[:2])
    assert "This is a deployment" in Page(run).first_screen
    assert "This is a deployment" in Page(ledger).first_screen
    for page in (run, ledger):
        assert "readmissions Who asked Dr. A When 2026-09-21 14:13:20 UTC" in Page(page).first_screen
    assert 'id="weights-t"' in run
    assert ('id="paid-roc-t"' in run) is (evaluation is not None)
    assert ("area under the ROC, by the private evaluation" in run) is (evaluation is not None)


def test_the_same_pages_of_a_simulation_differ_since_they_measure_records(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = replayed_pages(place, monkeypatch, PRIVATE, lambda: None)
    assert first != second


def test_measured_figures_are_not_shown_in_a_deployment_even_if_a_file_has_them(place: Place, simulated: Path) -> None:
    text = (simulated / "config.toml").read_text().replace("seed = 1", 'mode = "deployment"\nledger = "x.sqlite"')
    (simulated / "config.toml").write_text(text)
    with pytest.raises(DataError, match="mode"):
        card_of(simulated)
    result = json.loads((simulated / "result.json").read_text())
    (simulated / "result.json").write_text(json.dumps({**result, "mode": "deployment"}))
    card = card_of(simulated)
    assert card.results == ()
    assert charts_of(card).isdisjoint({"objective", "accuracy", "roc", "calibration"})
    assert str(result["accuracy_train"]) not in render(card)


# What others write cannot harm the page


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_texts_stay_texts(simulated: Path, text: str) -> None:
    card = card_of(simulated)
    spoilt = replace(
        card,
        subject=text,
        status=text,
        requests=(replace(card.requests[0], purpose=text, requester=text, began=text, ended=text),),
        holders=tuple(replace(holder, name=text) for holder in card.holders),
        budgets=tuple(replace(row, who=text) for row in card.budgets),
        refusals=({text: text},),
        jobs=({"job": text, text: text},),
        notices=(text,),
        learners=((text, text),),
        declared=((text, text, text),),
        not_protected=(text,),
        hashes=((text, text),),
        commands=(text,),
        versions=((text, text),),
        charts=(
            *(replace(chart, title=text, words=text, x=text) for chart in card.charts),
            charts.Spread("own", text, text, text, ((text, 1.0, 0.5),), ((text, 2.0),)),
        ),
    )
    plain, page = Page(render(card)), Page(render(spoilt))
    assert {tag for tag, _ in page.elements} <= {tag for tag, _ in plain.elements} | {"ul", "li"}
    harmless(page, render(spoilt))
    shown, twin = render(spoilt).split('<script type="application/json"')
    assert len(shown) < len(render(card)) + 100_000  # however long a text is, and the twin has all of it
    assert text in json.loads(twin.partition(">")[2].rpartition("</script>")[0])["commands"]
    assert json.loads(embedded(spoilt))["requests"][0]["purpose"] == text
    assert not set(render(spoilt)) & {"\u202e", "\u2066", "\x00"}


def harmless(page: Page, text: str) -> None:
    """No script, no handler, no address elsewhere, and a policy that forbids what is not there."""
    assert [known for tag, known in page.elements if tag == "script"] == [
        {"type": "application/json", "id": "model-card"}
    ]
    for tag, known in page.elements:
        assert tag not in {"img", "iframe", "object", "embed", "link", "base", "form", "image", "use", "foreignobject"}
        for name, value in known.items():
            assert not name.startswith("on"), (tag, name)
            assert name not in {"src", "srcset", "style", "xlink:href", "action"}
            assert name != "href" or (value or "").startswith("#")
    (policy,) = [str(known["content"]) for _, known in page.elements if known.get("http-equiv")]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    assert "url(" not in style()
    assert "@import" not in style()


def test_a_page_is_accessible_to_machines_that_read_it_aloud(simulated: Path) -> None:
    text = render(card_of(simulated))
    page = Page(text)
    harmless(page, text)
    assert len(page.ids) == len(set(page.ids))
    assert ("html", {"lang": "en"}) in page.elements
    for tag, known in page.elements:
        if tag == "svg":
            assert known["role"] == "img"
            assert set(str(known["aria-labelledby"]).split()) <= set(page.ids)
        if tag == "th":
            assert known["scope"] in ("row", "col")
    tags = [tag for tag, _ in page.elements]
    assert '<th scope="col"></th>' not in text
    assert tags.count("h1") == 1
    assert tags.count("table") == tags.count("caption")
    assert tags.count("figure") == tags.count("svg") == tags.count("details") == tags.count("desc")
    levels = [int(tag[1]) for tag in tags if re.fullmatch("h[1-6]", tag)]
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))


# Contrast (WCAG 2, AA): text 4.5 to 1, and marks of charts 3 to 1, in every theme.


def palettes() -> list[dict[str, str]]:
    """The colours of the light, dark and printed themes, as the style declares them."""
    found = [
        dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block)) for block in re.findall(r":root \{([^}]*)\}", style())
    ]
    assert len(found) == 3
    return found


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    bright, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def test_contrast_is_enough_in_every_theme() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#999999", "#ffffff") < 4.5  # the test can fail
    for colours in palettes():
        pairs = [(name, back) for name in ("text", "muted", "one", "two") for back in ("back", "soft")]
        for name, back in [*pairs, ("bad", "bad-back"), ("note", "note-back")]:
            assert contrast(colours[name], colours[back]) >= 4.5, (name, back)


# Numbers


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 3.0, 8.0])
@pytest.mark.parametrize("delta", [0.0, 1e-6, 1e-2])
def test_the_sentence_bounds_every_test_between_neighbours(epsilon: float, delta: float) -> None:
    # Randomised response with a leak of delta is the mechanism that attains (epsilon, delta).
    kept = (1 - delta) * math.exp(epsilon) / (1 + math.exp(epsilon))
    told = (1 - delta) / (1 + math.exp(epsilon))
    law = sorted([(kept, told), (told, kept), (delta, 0.0), (0.0, delta)], key=lambda p: -p[0] / max(p[1], 1e-300))
    left, best = meaning.FALSELY, 0.0
    for true, false in law:  # the most powerful test, by Neyman and Pearson
        share = 1.0 if false <= left else left / false
        best, left = best + share * true, left - share * false
    bound = meaning.power(epsilon, delta)
    assert best <= bound + 1e-12
    assert best == pytest.approx(bound, abs=1e-9)


def test_the_axis_of_rounds_ends_with_the_last_round() -> None:
    series = charts.Series("epsilon", tuple((float(round), round / 41) for round in range(42)))
    drawn = charts.drawn(charts.Lines("k", "t", "w", "round", "epsilon", (series,)))
    last = re.search(r'<polyline class="s1" points="[^"]*?([0-9.]+),[0-9.]+"', drawn)
    assert last is not None
    assert float(last[1]) == charts.WIDTH - charts.RIGHT
    assert re.findall(r">(\d+)</text>", drawn)[-5:] == ["0", "10", "20", "30", "40"]


def test_roc_and_calibration_of_scores_that_are_known() -> None:
    perfect = Evaluation(np.array([-2.0, -1.0, 1.0, 2.0]), np.array([-1.0, -1.0, 1.0, 1.0]))
    assert perfect.auc == 1.0
    assert replace(perfect, scores=-perfect.scores).auc == 0.0
    assert replace(perfect, scores=np.zeros(4)).auc == 0.5
    rng = np.random.default_rng(0)
    score = rng.normal(size=20_000)
    label = np.where(rng.random(20_000) < 1 / (1 + np.exp(-score)), 1.0, -1.0)
    good, off = (Evaluation(c * score, label, 1 / (1 + np.exp(-c * score))).calibration for c in (1, 3))
    assert all(abs(row["predicted"] - row["share"]) < 0.04 for row in good)
    assert max(abs(row["predicted"] - row["share"]) for row in off) > 0.1


def test_charts_draw_any_numbers() -> None:
    for values in ([0.0], [1.0, 1.0], [-1e-9, 1e9], [1e-300, 1e-200], [5.0, 4.0, 3.0]):
        points = tuple((float(place), value) for place, value in enumerate(values))
        for log in (False, True):
            chart = charts.Lines("k", "t", "w", "x", "y", (charts.Series("s", points),), log=log)
            drawn = charts.drawn(chart)
            assert "nan" not in drawn
            assert "inf" not in drawn
            numbers = [float(n) for n in re.findall(r'(?:x1|x2|y1|y2|cx|cy)="([^"]+)"', drawn)]
            assert all(-1 <= n <= charts.WIDTH + 1 for n in numbers)
    assert charts.thinned(list(range(1000)), 10)[0] == 0
    assert charts.thinned(list(range(1000)), 10)[-1] == 999


# The command


def test_the_command_writes_page_and_twin(place: Place, simulated: Path) -> None:
    out = place.path / "page.html"
    said = place.call("report", simulated, "--out", out, "--json")
    assert said.code == 0, said.err
    twin = json.loads((place.path / "page.json").read_text())
    assert {**twin, "page": str(out), "twin": str(place.path / "page.json")} == said.object
    inside = re.search(r'id="model-card">(.*?)</script>', out.read_text(), re.DOTALL)
    assert inside is not None
    assert json.loads(inside[1]) == twin
    people = place.call("report", simulated, "--out", out)
    assert "SIMULATION" in people.out
    assert "13.6 of 100" in " ".join(people.out.split())


def test_a_table_says_which_rounds_it_leaves_out(simulated: Path) -> None:
    few = card_of(simulated)
    assert "evenly spaced" not in render(few)
    line = charts.Series("certified", tuple((float(t), 0.1 * t) for t in range(201)))
    chart = charts.Lines("epsilon", "Epsilon by round", "It grows.", "round", "epsilon", (line,))
    caption, _, rows = charts.table(chart)
    assert f"({len(rows)} of 201 rows" in caption
    assert caption in Page(render(replace(few, charts=(chart,)))).text


def test_a_page_of_another_run_stays(place: Place, simulated: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs called `first` have one name for their pages."""
    monkeypatch.chdir(place.path)
    for folder in ("a", "b"):
        shutil.copytree(simulated, place.path / folder / "first")
    page = place.path / "first-report.html"
    assert place.call("report", "a/first").code == 0
    before = page.read_bytes()
    for again in ("a/first", place.path / "a" / "first"):
        assert place.call("report", again).code == 0
    assert place.call("report", "a/first").code == 0
    refused = place.call("report", "b/first")
    assert refused.code == 2
    for part in ("first-report.html", "a/first", "--out"):
        assert part in refused.err
    assert page.read_bytes() == before
    assert place.call("report", "b/first", "--out", page).code == 0
    for file in (page, page.with_suffix(".json")):
        before = file.read_bytes()
        file.write_text("somebody else's")
        assert place.call("report", "b/first").code == 2
        assert file.read_text() == "somebody else's"
        file.write_bytes(before)
    assert place.call("report", "b/first").code == 0


def test_files_beside_the_original_config_are_found(place: Place) -> None:
    """A schema file changes the config's meaning: without it, or with another, the page says what is missing."""
    source, schema = write_csv(place.path / "beside.csv", *rows()), place.path / "schema.toml"
    schema.write_text("f0 = [-3, 3]\nf1 = [-3, 3]\n")
    place.run(with_changes(PRIVATE, {"data": {"source": source.name, "schema": schema.name, "label": "y"}}))
    assert "roc" in charts_of(card_of(place.out))
    schema.write_text("f0 = [-3, 3]\nf2 = [-3, 3]\n")
    assert "--config" in dict(card_of(place.out).not_drawn)["ROC and calibration"]


def test_wrong_places_are_named(place: Place, simulated: Path) -> None:
    empty = place.path / "empty"
    empty.mkdir()
    (place.path / "lone").mkdir()
    other = place.config(PRIVATE, "other.toml", algorithm={"rounds": 7})
    for words_of_call, code, told in (
        ((place.path / "nothing",), 2, "there is nothing there"),
        ((empty,), 2, "neither a run nor ledgers"),
        ((simulated, "--out", "page.pdf"), 2, "ends in .html"),
        ((simulated, "--out", place.path / "no" / "page.html"), 2, "there is no folder"),
        ((simulated, "--config", other), 2, "is not the config of this run"),
        ((place.path / "lone", "--config", other), 2, "is not the directory of a run"),
    ):
        said = place.call("report", *words_of_call)
        assert said.code == code, said.err
        assert told in said.err
    (simulated / "result.json").write_text('{"mode": "simulation", "rounds": {}}')
    said = place.call("report", simulated, "--json")
    assert said.code == 1
    assert "damaged" in said.object["message"]


def test_a_name_with_a_comma_is_told_from_two_names() -> None:
    assert words.parties(["Smith, Jones", "Clinic"]) == '"Smith, Jones", Clinic'
    assert few(["Smith, Jones", "Clinic"]) == '"Smith, Jones", Clinic'
    assert listed(["Smith, Jones", "Clinic"]) == '2 parties ("Smith, Jones", Clinic)'


def test_many_parties_are_one_row_and_long_tables_are_cut(simulated: Path) -> None:
    card = card_of(simulated)
    many = tuple(replace(card.budgets[0], who=f"party {number}") for number in range(5000))
    text = render(replace(card, budgets=many, declared=tuple(("a", "b", "c") for _ in range(500))))
    assert "parties 0 to 4999" in text
    assert f"the first {MOST} of 500" in text
    assert len(PARTS) == 10
