"""A run that ended because a party was gone goes on without it when it is resumed so, and nobody's release is lost."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from federations import SUMMED, Desks, ending, federated, silent_from
from privadmm.deploy.federation.protocol import Letter
from privadmm.errors import AbsentError, ClusterError, RefusedError
from privadmm.privacy.verification import verify
from privadmm.runs.rundir import receipts_of
from small_runs import PRIVATE, SHARING, charged, with_changes

ROUNDS = 6
STAR = with_changes(PRIVATE, {"parties": {"count": 4}})
RING = with_changes(STAR, {"algorithm": {"name": "mr_admm", "eta": 0.5, "gamma": 0.5, "D_w": None, "rho": None}})
RING = with_changes(RING, {"graph": {"kind": "ring"}})
SUMS = with_changes(STAR, {**SUMMED, "privacy": {"sum": "secure", "fewest": 3}})
COLUMNS = with_changes(PRIVATE, SHARING)
Hook = Callable[[int, Letter], None]


class Without(Desks):
    """A post to all nodes but those of the gone."""

    gone: tuple[int, ...] = (1,)

    def nodes(self) -> list[int]:
        return [node for node in super().nodes() if node - 100 not in self.gone]


@pytest.mark.parametrize("tables", [STAR, RING, SUMS], ids=["star", "ring", "secure sum"])
def test_abort_becomes_continue(tables: Any, tmp_path: Path) -> None:
    """The transcript is that of a run that went on without the party when it left; ledgers hold just that."""
    for name in ("middle", "later"):
        (tmp_path / name).mkdir()
    middle = federated(tmp_path / "middle", tables)
    expected = middle.run(silent_from(middle, 2, 1), absent="continue")
    made = federated(tmp_path / "later", tables)
    with pytest.raises(ClusterError, match="party 1 gave no answer"):
        made.run(silent_from(made, 2, 1))
    with pytest.raises(ClusterError, match=r'party 1 did not answer .* resumed with absent = "continue"'):
        made.run(Without(made.folders), resume=True, timeout=0.2)
    result = made.run(Without(made.folders), resume=True, timeout=0.2, absent="continue")
    (gone,) = result["absent"]
    assert (gone["party"], gone["from_round"], gone["why"]) == (1, 3, "no answer for 0.2 s")
    assert result["transcript"] == expected["transcript"]
    assert [charged(ledger) for ledger in made.ledgers] == [charged(ledger) for ledger in middle.ledgers]
    for ledger in made.ledgers:
        assert verify(ledger, receipts_of(Path(result["out"]), ledger)).problems == ()


@pytest.mark.parametrize("tables", [STAR, RING, SUMS], ids=["star", "ring", "secure sum"])
def test_an_answer_that_came_too_late_counts_as_paid(tables: Any, tmp_path: Path) -> None:
    """The party released and paid for it, and whoever reads its messages has it: no figure may leave it out."""

    class Late(Desks):
        def exchange(self, letters: Any, seconds: float) -> dict[int, Letter]:
            late = {node for node, letter in letters.items() if node == 101 and letter.get("round") == 2}
            return {node: said for node, said in super().exchange(letters, seconds).items() if node not in late}

    made = federated(tmp_path, tables)
    result = made.run(Late(made.folders), absent="continue")
    (gone,) = result["absent"]
    assert (gone["party"], gone["from_round"]) == (1, 3)
    spent = verify(made.ledgers[1]).epsilon[1]
    exported = json.loads((Path(result["out"]) / "ledger.json").read_text())["parties"][1]["epsilon"]
    assert gone["epsilon"] >= spent
    assert exported >= spent
    assert gone["epsilon"] < gone["set_aside"]


@pytest.mark.parametrize("tables", [STAR, SUMS], ids=["star", "secure sum"])
def test_what_a_party_paid_after_the_last_checkpoint_counts(tables: Any, tmp_path: Path) -> None:
    """It answered a round that the others never heard of, and that the checkpoint does not have."""

    class Torn(Desks):
        def exchange(self, letters: Any, seconds: float) -> dict[int, Letter]:
            if all(letter.get("round") == 1 for letter in letters.values()):
                super().exchange({101: letters[101]}, seconds)
                raise ClusterError("gone")
            return super().exchange(letters, seconds)

    made = federated(tmp_path, tables)
    job = made.made.coordinator.job
    job.write_text(job.read_text().replace("[run]", "[run]\ncheckpoint_every = 4"))
    with pytest.raises(ClusterError, match="gone"):
        made.run(Torn(made.folders))
    result = made.run(Without(made.folders), resume=True, timeout=0.2, absent="continue")
    (gone,) = result["absent"]
    spent = verify(made.ledgers[1]).epsilon[1]
    exported = json.loads((Path(result["out"]) / "ledger.json").read_text())["parties"][1]["epsilon"]
    assert gone["epsilon"] >= spent
    assert exported >= spent


def test_an_error_counts_what_was_paid_after_the_last_checkpoint(tmp_path: Path) -> None:
    """Where secure sums cannot go on without who is missing, it says what each party has spent at most."""
    made = federated(tmp_path, with_changes(SUMS, {"privacy": {"fewest": 4}}))
    job = made.made.coordinator.job
    job.write_text(job.read_text().replace("[run]", "[run]\ncheckpoint_every = 5"))
    with pytest.raises(ClusterError, match="gone"):
        made.run(ending(Desks(made.folders), 3))
    with pytest.raises(AbsentError, match="at least") as refused:
        made.run(Without(made.folders), resume=True, timeout=0.2, absent="continue")
    said = re.search(r"has spent epsilon = (\S+) at most", str(refused.value))
    assert said is not None
    assert float(said[1]) >= verify(made.ledgers[1]).epsilon[1]


def test_a_run_begins_with_all_and_may_then_lose_one_in_its_first_round(tmp_path: Path) -> None:
    made = federated(tmp_path, STAR)
    with pytest.raises(ClusterError, match="a run begins with all of them"):
        made.run(Without(made.folders), timeout=0.2, absent="continue")
    with pytest.raises(ClusterError, match="party 1 gave no answer"):
        made.run(silent_from(made, 0, 1))
    result = made.run(Without(made.folders), resume=True, timeout=0.2, absent="continue")
    assert [(gone["party"], gone["from_round"]) for gone in result["absent"]] == [(1, 1)]
    assert [charged(ledger) for ledger in made.ledgers] == [ROUNDS, 0, ROUNDS, ROUNDS]


@pytest.mark.parametrize(
    ("tables", "gone", "why"),
    [(COLUMNS, (1,), "nobody else has its columns"), (SUMS, (1, 2), "the job sums over 3 at least")],
    ids=["columns", "too few for a sum"],
)
def test_what_cannot_go_on_says_so_before_anybody_is_asked(
    tables: Any, gone: tuple[int, ...], why: str, tmp_path: Path
) -> None:
    made = federated(tmp_path, tables)
    with pytest.raises(ClusterError, match="gave no answer"):
        made.run(silent_from(made, 2, *gone))
    before = [charged(ledger) for ledger in made.ledgers]
    post = Without(made.folders)
    post.gone = gone
    with pytest.raises(AbsentError, match=why):
        made.run(post, resume=True, timeout=0.2, absent="continue")
    assert [charged(ledger) for ledger in made.ledgers] == before
    assert made.run(resume=True)["rounds"] == ROUNDS
    assert [charged(ledger) for ledger in made.ledgers] == [ROUNDS] * len(made.ledgers)


def test_a_party_that_refuses_the_resumed_run(tmp_path: Path) -> None:
    """Its steward closed the job while the run stood still: it leaves, and the reason is told."""
    from contextlib import closing

    from privadmm.cli.views import steward

    made = federated(tmp_path, STAR)
    with pytest.raises(ClusterError, match="gave no answer"):
        made.run(silent_from(made, 2, 1))
    job = steward.overview(made.ledgers[1])["jobs"][0]["job"]
    with closing(steward.opened(made.ledgers[1])) as ledger:
        ledger.close_job(job)
    with pytest.raises(RefusedError, match="party 1"):
        made.run(resume=True)
    result = made.run(resume=True, absent="continue")
    (gone,) = result["absent"]
    assert (gone["party"], gone["from_round"]) == (1, 3)
    assert gone["why"].startswith("refused: ")
    assert [charged(ledger) for ledger in made.ledgers] == [ROUNDS, 2, ROUNDS, ROUNDS]


def test_who_left_stays_away_although_the_checkpoint_is_old(tmp_path: Path) -> None:
    """The others were told that it is gone: a resumed run must not ask it again, or they refuse the round."""
    made = federated(tmp_path, with_changes(STAR, {"run": {"checkpoint_every": 5}}))
    with pytest.raises(ClusterError, match="gone"):
        made.run(ending(silent_from(made, 1, 1), 3), absent="continue")
    result = made.run(resume=True)
    assert [(gone["party"], gone["from_round"]) for gone in result["absent"]] == [(1, 2)]
    assert [charged(ledger) for ledger in made.ledgers] == [ROUNDS, 1, ROUNDS, ROUNDS]
