"""A party takes over a job as it was admitted, and only that."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privadmm.deploy.federation.desk.party_server as home
from federations import Desks, Federated, federated
from privadmm.deploy.federation.desk import admitted
from privadmm.deploy.federation.desk.party_server import answer
from privadmm.errors import ClusterError, ConfigError, RefusedError
from small_runs import PRIVATE, no_plots, with_changes

SHORT = with_changes(PRIVATE, {"algorithm": {"rounds": 2}})


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Federated:
    no_plots(monkeypatch)
    return federated(tmp_path, SHORT)


def tightened(made: Federated) -> None:
    made.change(0, "minimum_parties = 2", "minimum_parties = 9")


def steps(made: Federated, before: Any = lambda party, letter: None) -> list[str]:
    """The statuses of party 0's steps."""
    post = Desks(made.folders, before)
    with suppress(ClusterError, RefusedError):
        made.run(post)
    return [str(said["status"]) for party, letter, said in post.captured if party == 0 and letter["kind"] == "step"]


def job_of(folder: Path) -> str:
    (path,) = (folder / "jobs").glob("*.admitted")
    return path.stem


def test_a_job_is_taken_over_while_nothing_changes(made: Federated, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    plain = admitted.recall
    monkeypatch.setattr(home, "recall", lambda *given: seen.append(plain(*given)) or seen[-1])
    assert steps(made) == ["ok", "ok"]
    assert all(one is not None for one in seen)
    assert len(seen) == 6


def test_a_policy_that_was_changed_between_letters_counts(made: Federated) -> None:
    def change(party: int, letter: Any) -> None:
        if party == 0 and letter["kind"] == "step" and letter["round"] == 1:
            tightened(made)

    assert steps(made, change) == ["ok", "refused"]


def test_a_policy_that_was_changed_while_a_job_began_counts(made: Federated, monkeypatch: pytest.MonkeyPatch) -> None:
    """Party.toml was read before records are, and what is remembered is of that moment."""
    plain = home.read_records

    def slow(party: Any, *rest: Any) -> Any:
        records = plain(party, *rest)
        if party.number == 0 and slow.begins:
            slow.begins = False
            tightened(made)
        return records

    slow.begins = False  # type: ignore[attr-defined]

    def before(party: int, letter: Any) -> None:
        slow.begins = party == 0 and letter["kind"] == "begin"  # type: ignore[attr-defined]

    monkeypatch.setattr(home, "read_records", slow)
    assert steps(made, before) == ["refused"]


@pytest.mark.parametrize(
    "what", ["another version", "another job's", "readable by others", "damaged", "another folder"]
)
def test_whatever_does_not_fit_is_not_taken_over(what: str, made: Federated, monkeypatch: pytest.MonkeyPatch) -> None:
    assert steps(made) == ["ok", "ok"]
    folder = made.folders[0]
    id, path = job_of(folder), folder / "jobs" / f"{job_of(folder)}.admitted"
    assert admitted.recall(folder, id) is not None
    if what == "another version":
        monkeypatch.setattr(admitted, "code", lambda: "another")
    elif what == "another job's":
        path.rename(path.with_stem("0" * 32))
        id = "0" * 32
    elif what == "readable by others":
        path.chmod(0o644)
    elif what == "damaged":
        path.write_bytes(path.read_bytes()[:-9])
    else:
        assert what == "another folder"
        folder = Path(os.path.relpath(folder))
    assert admitted.recall(folder, id) is None


def test_a_refusal_by_the_ledger_comes_before_records_are_read(
    made: Federated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a proposal that was refused leaves nothing behind."""
    assert steps(made) == ["ok", "ok"]
    folder, reads, before = made.folders[0], [], set((made.folders[0] / "jobs").iterdir())
    monkeypatch.setattr(home, "read_records", lambda *given: reads.append(given))
    from privadmm.deploy.federation.proposal import Proposal

    kept = Proposal.unpack((folder / "jobs" / f"{job_of(folder)}.json").read_bytes())
    letter = {"kind": "begin", "proposal": Proposal("1" * 32, *list(vars(kept).values())[1:]).pack(), "heads": "[]"}
    said = answer(folder, letter)
    assert (said["status"], "epsilon" in str(said["message"])) == ("refused", True)
    assert reads == []
    assert set((folder / "jobs").iterdir()) == before


def test_a_parameter_is_a_plain_number() -> None:
    from privadmm import PVP

    assert PVP(rho=np.float64(0.3)) == PVP(rho=0.3)
    with pytest.raises(ConfigError, match="rho"):
        PVP(rho=np.array(0.3))  # type: ignore[arg-type]
