"""A ledger's anchor: an older copy is noticed whatever was done between, and no crash of an honest party locks it."""

import os
import shutil
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from federations import DEPLOYED, Federated, federated
from ledgers import NOISE, ONE, POLICY, TWO, begin, copied, every_kill, locked, opened, pay, put_back
from privadmm.deploy.federation.desk import party_server
from privadmm.errors import LedgerError, LockedError, PrivadmmError, RefusedError
from privadmm.privacy import chain
from privadmm.privacy.anchor import RECORD, AnchorFile
from privadmm.privacy.chain import Chain
from privadmm.privacy.key_file import KeyFile
from privadmm.privacy.ledger import Tick
from privadmm.privacy.ledger_file import ADDED, identity_of
from privadmm.privacy.policy import Policy
from privadmm.privacy.sqlite_ledger import SqliteLedger
from privadmm.privacy.verification import verify
from small_runs import PRIVATE, Place, with_changes

MODES = ("deployment", "simulation")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Job one: two of its five rounds are done."""
    return begun(tmp_path / "ledger")


def sql(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(statement)


@pytest.mark.parametrize("mode", MODES)
def test_an_older_copy_is_locked_and_the_right_file_opens_again(mode: str, tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    begin(path, mode=mode)
    old = copied(path, "old")
    pay(path, 0, 1, mode=mode)
    new = copied(path, "new")
    put_back(old, path)
    for _ in range(2):  # the lock stays
        said = locked(path, mode=mode)
        assert said is not None
        assert "its anchor knows of row 3, and it has 1 rows" in said
        assert "ledger restore" in said
    assert verify(path).problems == ()
    assert "row 3" in str(verify(path).behind)
    put_back(new, path)
    assert locked(path, mode=mode) is None
    assert verify(path).behind is None
    pay(path, 2, mode=mode)


# What makes a ledger longer; a copy from before any of them is noticed.
CHANGES: dict[str, Callable[[Path], Any]] = {
    "a round": lambda path: pay(path, 2),
    "another job": lambda path: begin(path, TWO),
    "a job closed": lambda path: use(path, lambda ledger: ledger.close_job(ONE)),
    "labels drawn": lambda path: use(path, lambda ledger: ledger.keep("", "labels", lambda: b"labels", None)),
    "a roster kept": lambda path: use(path, lambda ledger: ledger.keep(ONE, "roster", lambda: b"roster", None)),
    "a policy amended": lambda path: use(path, lambda ledger: ledger.amend(amended(path, per_job=1.9), "because")),
    "a step that failed": lambda path: failed(path),
    "a step under way": lambda path: interrupted(path),
}


def use(path: Path, act: Callable[[SqliteLedger], Any]) -> None:
    with closing(opened(path)) as ledger:
        act(ledger)


def amended(path: Path, **changes: Any) -> Policy:
    known = identity_of(path)
    assert known is not None
    return replace(known.policy, **changes)


def interrupted(path: Path) -> None:
    """Records were being read when the process died."""

    def dies() -> None:
        raise SystemExit

    with suppress(SystemExit):
        pay(path, 2, read=dies)


def failed(path: Path) -> None:
    interrupted(path)
    assert "a step failed" in str(locked(path))
    use(path, lambda ledger: ledger.unlock("tried"))


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_every_change_is_missed_where_it_is_lost(change: Callable[[Path], Any], path: Path) -> None:
    old = copied(path, "old")
    change(path)
    put_back(old, path)
    assert "anchor knows of" in str(locked(path))


def test_the_anchor_is_for_its_owner_and_of_one_size(path: Path) -> None:
    anchor = AnchorFile(path)
    assert stat.S_IMODE(os.stat(anchor.path).st_mode) == 0o600
    before = anchor.path.read_bytes()
    pay(path, 2, 3)
    after = anchor.path.read_bytes()
    assert before[RECORD:] == after[RECORD:]  # what is set aside stays the same
    assert len(before) == len(after)
    assert before[:RECORD] != after[:RECORD]
    found = anchor.known()
    assert found is not None
    assert found.aside == {0: ((NOISE, 5),)}


@pytest.mark.parametrize("harm", ["removed", "damaged", "cut", "empty", "another ledger's"])
def test_an_anchor_that_is_gone_or_damaged_is_missed(harm: str, path: Path) -> None:
    file, old = AnchorFile(path).path, AnchorFile(path).path.read_bytes()
    match harm:
        case "removed":
            file.unlink()
        case "damaged":
            file.write_bytes(old[:40] + b"x" + old[41:])
        case "cut":
            file.write_bytes(old[:100])
        case "empty":
            file.write_bytes(b"")
        case _:
            begin(path.with_name("other"), policy=POLICY, mode="simulation")
            shutil.copy(AnchorFile(path.with_name("other")).path, file)
    said = locked(path)
    assert said is not None
    assert "anchor" in said
    file.write_bytes(old)
    assert locked(path) is None


def test_what_follows_a_torn_record_is_not_trusted(path: Path) -> None:
    anchor = AnchorFile(path)
    content = anchor.path.read_bytes()
    anchor.path.write_bytes(content[: RECORD + 5])
    assert anchor.known() is None
    assert locked(path) is None  # the record itself is whole
    use(path, lambda ledger: ledger.close_job(ONE))
    assert anchor.known() is not None


def test_a_ledger_of_an_earlier_version_gets_one(path: Path) -> None:
    AnchorFile(path).path.unlink()
    for made in ADDED:
        _, kind, _, _, _, name, *_ = made.split()
        if name not in ("intents", "summaries", "locks"):
            sql(path, f"DROP {kind} {name}")
    assert verify(path).problems == ()
    assert verify(path).behind is None
    old = copied(path, "old")
    assert locked(path) is None
    pay(path, 2)
    put_back(old, path)
    assert "anchor knows of row 4" in str(locked(path))


def test_an_earlier_version_may_have_written_meanwhile(path: Path) -> None:
    """It adds rows and leaves the anchor as it is."""
    file, before = AnchorFile(path).path, AnchorFile(path).path.read_bytes()
    pay(path, 2)
    file.write_bytes(before)
    assert locked(path) is None
    assert AnchorFile(path).read() == AnchorFile(path).read()
    assert file.read_bytes() != before


def test_a_ledger_is_not_made_where_there_was_one(path: Path) -> None:
    path.unlink()
    said = locked(path)
    assert said is not None
    assert "with 3 rows" in said
    assert not path.exists()
    assert "with 3 rows" in str(locked(path))


def test_an_unused_ledger_may_be_made_again(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    opened(path).close()
    path.unlink()
    begin(path, mode="simulation")  # another identity
    assert locked(path, mode="simulation") is None


def test_it_is_found_by_whatever_name_the_ledger_is_called(path: Path) -> None:
    link = path.with_name("link")
    link.symlink_to(path)
    pay(link, 2)
    old = copied(path, "old")
    pay(path, 3)
    put_back(old, path)
    assert "anchor knows of row 5" in str(locked(link))


def test_a_process_that_has_it_open_notices_too(path: Path) -> None:
    """Another one commits; a copy from before is put in the place of both the file and its log."""
    with closing(opened(path, mode="deployment")) as ledger:
        AnchorFile(path).path.write_bytes(later_anchor(path))
        with pytest.raises(LockedError, match="anchor knows of"), ledger.transaction():
            pass


def later_anchor(path: Path) -> bytes:
    other = path.with_name("elsewhere")
    for suffix in ("", "-anchor"):
        shutil.copy(f"{path}{suffix}", f"{other}{suffix}")
    pay(other, 2)
    return AnchorFile(other).path.read_bytes()


# Laws of crashes -------------------------------------------------------------------------------------------------


def release(path: Path, place: Path) -> None:
    """One round; marks tell when records were read and when the answer left."""
    pay(path, 2, read=lambda: (place / "read").touch())
    (place / "left").touch()


def broken_laws(folder: Path) -> Iterator[str]:
    """Kill a round at every moment, then put back a copy from before it: what went wrong."""
    made = begun(folder / "made")
    for place, kill in every_kill(folder):
        path = copied_with_log(made, place / "at")
        kill(lambda path=path, place=place: release(path, place))  # type: ignore[misc]
        after = copied_with_log(path, place / "after")
        said = locked(after)
        if said is not None and "a step failed" not in said:
            yield f"{place.name}: an honest crash seems to be a copy: {said}"
        put_back(made, path)
        if (place / "read").exists() and "anchor knows" not in str(locked(path)):
            yield f"{place.name}: records were read, and a copy from before is taken"


def begun(folder: Path) -> Path:
    """A ledger of which two of five rounds are done."""
    folder.mkdir()
    begin(folder / "ledger")
    pay(folder / "ledger", 0, 1)
    return folder / "ledger"


def copied_with_log(path: Path, to: Path) -> Path:
    """All files of a ledger as a crash left them."""
    to.mkdir()
    for file in path.parent.glob("ledger*"):
        shutil.copy(file, to)
    return to / "ledger"


def test_killed_at_every_moment_of_a_round(tmp_path: Path) -> None:
    assert list(broken_laws(tmp_path)) == []
    assert len(list(tmp_path.glob("*/read"))) > 10
    assert len(list(tmp_path.glob("*/after"))) > 50


def before_the_commit(self: Chain, statement: str, *values: Any) -> Any:
    if statement == "COMMIT" and self._changed:
        self._anchor.move(self._present(), None)
    return self._db.execute(statement, values)


PLANTED: dict[str, tuple[str, Any, str]] = {
    "the anchor is never moved": ("_move_on", lambda self: None, "a copy from before is taken"),
    "the anchor is moved before the commit": ("_execute", before_the_commit, "an honest crash seems to be a copy"),
    "a step under way is not noted": ("_present", None, "a copy from before is taken"),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", PLANTED)
def test_the_laws_notice_a_planted_fault(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, replaced, says = PLANTED[fault]
    if replaced is None:
        monkeypatch.setattr(chain, "step_digest", lambda *_: chain.NONE)
    else:
        monkeypatch.setattr(Chain, name, replaced)
    assert says in next(broken_laws(tmp_path))


@pytest.mark.slow
def test_killed_while_the_first_anchor_is_made(tmp_path: Path) -> None:
    """Whatever the moment, the ledger opens again, and from the first row on a copy is noticed."""
    for place, kill in every_kill(tmp_path):
        path = place / "ledger"
        kill(lambda path=path: opened(path).close())  # type: ignore[misc]
        assert locked(path) is None
        old = copied(path, "old")
        begin(path)
        put_back(old, path)
        assert "anchor knows of row 1" in str(locked(path))


@pytest.mark.slow
def test_killed_while_a_step_is_withdrawn(tmp_path: Path) -> None:
    """The party's own people interrupt it: the step is taken back, or charged; the ledger never seems a copy."""

    def interrupt(path: Path) -> None:
        with closing(opened(path)) as ledger:
            tick = Tick(ONE, 2, 0)
            with ledger.turn(), ledger.transaction():
                ledger.intend(tick, "in", {0: (NOISE,)})
            ledger.withdraw(tick)

    taken_back, made = 0, begun(tmp_path / "made")
    for place, kill in every_kill(tmp_path):
        path = copied_with_log(made, place / "at")
        kill(lambda path=path: interrupt(path))  # type: ignore[misc]
        said = locked(path)
        assert said is None or "a step failed" in said
        taken_back += said is None
    assert taken_back > 1


def test_two_processes_do_not_move_it_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One commits, another commits and moves the anchor on, then the first moves it: to the newest row."""
    path = tmp_path / "ledger"
    begin(path, mode="simulation")
    slow, fast = opened(path, mode="simulation"), opened(path, mode="simulation")
    move = Chain._move_on

    def late(self: Chain) -> None:
        if self is slow:
            with fast.transaction():
                fast.commit(Tick(ONE, 1, 0), "in", {0: (NOISE,)}, b"", b"")
        move(self)

    monkeypatch.setattr(Chain, "_move_on", late)
    with slow.transaction():
        slow.commit(Tick(ONE, 0, 0), "in", {0: (NOISE,)}, b"", b"")
    found = AnchorFile(path).read()
    assert found is not None
    assert (found.seq, found.head) == (3, fast.head)


def test_an_anchor_that_cannot_be_written_keeps_the_release_back(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The round is on record and paid for; asked again when there is room, it is answered from there."""

    tick, charges = Tick(ONE, 2, 0), {0: (NOISE,)}
    with closing(opened(path)) as ledger, ledger.turn():
        with ledger.transaction():
            ledger.intend(tick, "in", charges)
        with monkeypatch.context() as patch:
            patch.setattr(AnchorFile, "move", no_space)
            with pytest.raises(LedgerError, match="no space"), ledger.transaction():
                ledger.commit(tick, "in", charges, b"out", b"state")
            with pytest.raises(LedgerError, match="ask for it again"):
                ledger.fail(tick, "its anchor could not be written")
            with pytest.raises(LedgerError, match="no space"), ledger.transaction():
                ledger.recall(tick, "in")
        with ledger.transaction():
            assert ledger.recall(tick, "in") == b"out"
    found = AnchorFile(path).read()
    assert found is not None
    assert found.seq == 4
    assert locked(path) is None


def test_a_step_whose_intent_cannot_be_anchored_is_taken_back(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No record was read, and nothing is charged or locked for a disk that was full for a moment."""
    before = AnchorFile(path).path.read_bytes()
    with closing(opened(path)) as ledger, ledger.turn(), monkeypatch.context() as patch:
        patch.setattr(AnchorFile, "move", no_space)
        with pytest.raises(LedgerError, match="no space"), ledger.transaction():
            ledger.intend(Tick(ONE, 2, 0), "in", {0: (NOISE,)})
    assert AnchorFile(path).path.read_bytes() == before
    assert locked(path) is None
    pay(path, 2)


def no_space(self: AnchorFile, *_: Any) -> None:
    raise LedgerError(f"{self.path}: no space")


def test_a_step_is_not_withdrawn_from_a_copy(path: Path) -> None:
    """Else an interrupt would move the anchor back to an older copy's rows."""
    old = copied(path, "old")
    pay(path, 2)
    known = AnchorFile(path).path.read_bytes()
    with closing(opened(path)) as ledger, closing(sqlite3.connect(old)) as copy, closing(sqlite3.connect(path)) as file:
        copy.backup(file)  # it is put back while this process has it open
        with pytest.raises(LockedError):
            ledger.withdraw(Tick(ONE, 2, 0))
    assert AnchorFile(path).path.read_bytes() == known


# Proof that others hold ------------------------------------------------------------------------------------------


def test_who_holds_other_proof_locks_it_for_its_steward(path: Path) -> None:
    with closing(opened(path)) as ledger:
        seen = ledger.receipt(Tick(ONE, 1, 0))
        assert seen is not None
        assert ledger.has((ONE, 1, 0, seen))
        assert not ledger.has((ONE, 1, 0, "0" * 64))
        assert not ledger.has((ONE, 2, 0, seen))
        with pytest.raises(LockedError, match="a receipt of round 3"):
            ledger.lock_behind("a receipt of round 3 is signed and not here")
        for act in (
            lambda: ledger.reserve(TWO, {0: ((NOISE, 1),)}),
            lambda: ledger.close_job(ONE),
            lambda: ledger.unlock("no way around"),
            lambda: ledger.amend(amended(path, per_job=1.0), "nor this"),
            lambda: ledger.lock_behind("again"),
        ):
            with pytest.raises(LockedError, match="proof of rows that it lacks"):
                act()
    assert "proof of rows" in str(locked(path))
    assert "proof of rows" in str(verify(path).behind)
    assert verify(path).problems == ()


@pytest.mark.slow
def test_killed_while_it_is_locked_so(tmp_path: Path) -> None:
    """With its row it is locked, also if the anchor does not say so yet."""

    def lock(path: Path) -> None:
        with closing(opened(path)) as ledger, suppress(LockedError):
            ledger.lock_behind("proof")

    outcomes, made = set(), begun(tmp_path / "made")
    for place, kill in every_kill(tmp_path):
        path = copied_with_log(made, place / "at")
        kill(lambda path=path: lock(path))  # type: ignore[misc]
        rows = verify(path).rows
        outcomes.add(rows)
        assert (locked(path) is None) == (rows == 3)
    assert outcomes == {3, 4}


# A federation, and runs in process -------------------------------------------------------------------------------


def budget_for(epsilon: float) -> dict[str, Any]:
    return {"algorithm": {"rounds": 3}, "privacy": {"epsilon": epsilon, "budget": 1.0}, "run": DEPLOYED}


@pytest.mark.parametrize("party", [0, 1])
def test_copy_run_copy_back_run_is_refused_by_the_party(party: int, tmp_path: Path) -> None:
    made: Federated = federated(tmp_path, with_changes(PRIVATE, budget_for(0.3)))
    ledger = made.ledgers[party]
    old = copied(ledger, "old")
    made.run()
    put_back(old, ledger)
    before = ledger.read_bytes()
    with pytest.raises(PrivadmmError, match="locked"):
        made.run(out="runs/second")
    assert ledger.read_bytes() == before
    log = (made.folders[party] / "requests.log").read_text()
    assert "its anchor knows of row" in log


def test_without_the_anchor_the_budget_would_be_spent_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: nobody looks at the anchor, nor at jobs/ and receipts. The second run is then answered."""
    made = federated(tmp_path, with_changes(PRIVATE, budget_for(0.9)))
    old = [copied(ledger, "old") for ledger in made.ledgers]
    made.run()
    for ledger, copy in zip(made.ledgers, old, strict=True):
        put_back(copy, ledger)
    monkeypatch.setattr(chain, "lacks", lambda *_: None)
    monkeypatch.setattr(party_server, "missing", lambda *_: None)
    made.run(out="runs/second")


def test_a_run_in_process_is_refused_too(place: Place, skipped_plots: list[str]) -> None:
    file = place.path / "party.sqlite"
    place.call("ledger", "create", file, "--parties", 3, "--epsilon", 1.4, "--delta", 1e-5, "--mode", "simulation")
    old = copied(file, "old")
    config = place.config(run={"ledger": "party.sqlite"})
    assert place.train(config).code == 0
    put_back(old, file)
    again = place.train(config, out=place.path / "again")
    assert again.code == 3
    assert "put back from a copy" in again.err
    assert "Nothing was released" in again.err


def test_the_anchor_holds_no_key(tmp_path: Path) -> None:
    path, key = tmp_path / "ledger", os.urandom(32)
    with closing(opened(path)) as ledger:
        ledger.reserve(ONE, {0: ((NOISE, 5),)})
        assert ledger.secret(ONE, lambda: key) == key
    assert key not in AnchorFile(path).path.read_bytes()
    assert KeyFile(path).key(ONE) == key


def test_refusals_do_not_move_it(path: Path) -> None:
    before = AnchorFile(path).path.read_bytes()
    with closing(opened(path)) as ledger, pytest.raises(RefusedError):
        ledger.reserve(TWO, {0: ((NOISE, 10**6),)})
    with closing(SqliteLedger(path, [0], POLICY, "deployment")) as ledger:
        ledger.spent(0)
    assert AnchorFile(path).path.read_bytes() == before
