"""What leaves a party of a secure sum, and what anybody keeps: no number of its message without noise and masks."""

import logging
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privadmm.errors import ClusterError
from privadmm.privacy.sums import Summing
from small_runs import PRIVATE, with_changes

pytest.importorskip("cryptography")
pytest.importorskip("opendp")
from federations import DEPLOYED, SUMMED, Desks, Federated, ending, federated

pytestmark = pytest.mark.usefixtures("skipped_plots")

ROUNDS, PARTIES, DIM = 3, 3, 3
STAR = with_changes(
    PRIVATE, {**SUMMED, "run": DEPLOYED, "algorithm": {**(SUMMED["algorithm"] or {}), "rounds": ROUNDS}}
)
CENTRED = with_changes(STAR, {"features": {"moments": True}})


class Secrets:
    """Every number of every message before it was masked: as computed, in steps of the grid, and with its noise."""

    def __init__(self) -> None:
        self.forms: dict[bytes, str] = {}
        self.rows = 0

    def note(self, name: str, values: Any) -> None:
        """Remember how each of these numbers looks in memory and as text, unless it is a round one."""
        for value in np.ravel(values):
            if abs(float(value)) > 1e-3 and float(value) != round(float(value), 3):
                self.forms[value.tobytes()] = name
                self.forms[value.astype(value.dtype.newbyteorder()).tobytes()] = name
                self.forms[repr(value.item()).encode()] = name
            elif value.dtype.kind in "iu" and abs(int(value)) > 2**20:
                self.forms[value.tobytes()] = name
                self.forms[str(int(value)).encode()] = name

    def record(self, sums: Summing, x: Any, noise: Any) -> None:
        steps = np.rint(x / sums.sums.step).astype(np.int64)
        self.rows += 1
        self.note("as computed", x)
        self.note("rounded", steps * sums.sums.step)
        self.note("in steps", steps)
        self.note("noise", noise)
        self.note("noise as numbers", noise * sums.sums.step)
        self.note("with noise, not masked", steps + noise)
        self.note("with noise, not masked, as numbers", (steps + noise) * sums.sums.step)

    def found(self, blobs: dict[str, bytes]) -> set[tuple[str, str]]:
        return {(where, name) for where, blob in blobs.items() for form, name in self.forms.items() if form in blob}


def files(*folders: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for folder in folders for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def secrets(monkeypatch: pytest.MonkeyPatch) -> Secrets:
    found, plain = Secrets(), Summing.sealed

    def sealed(self: Summing, x: Any, ids: Any, noise: Any, call: int) -> Any:
        found.record(self, x, noise)
        return plain(self, x, ids, noise, call)

    monkeypatch.setattr(Summing, "sealed", sealed)
    return found


def everything(made: Federated, post: Desks, log: pytest.LogCaptureFixture) -> dict[str, bytes]:
    letters = {
        f"letter {n}": pickle.dumps([dict(asked), dict(said)]) for n, (_, asked, said) in enumerate(post.captured)
    }
    return {**letters, "log": log.text.encode(), **files(made.made.coordinator.folder, *made.folders)}


@pytest.mark.parametrize("tables", [STAR, CENTRED], ids=["plain", "moments"])
def test_nobody_gets_or_keeps_a_row_that_is_not_masked(
    tables: Any, tmp_path: Path, secrets: Secrets, caplog: pytest.LogCaptureFixture
) -> None:
    """Letters, logs, checkpoints, receipts and ledgers, in the middle of a run and after it; also the party's own."""
    caplog.set_level(logging.DEBUG)
    made = federated(tmp_path, tables)

    post = ending(Desks(made.folders), 1, party=2)
    with pytest.raises(ClusterError, match="gone"):
        made.run(post)
    assert (made.made.coordinator.folder / "runs/first/checkpoint").exists()
    assert secrets.found(everything(made, post, caplog)) == set()
    again = Desks(made.folders)
    made.run(again, resume=True)
    post.captured += again.captured
    kept = everything(made, post, caplog)
    assert any(name.endswith("receipts.csv") for name in kept)
    assert secrets.rows == ROUNDS * PARTIES
    assert len(secrets.forms) > 7 * secrets.rows
    assert secrets.found(kept) == set()


@pytest.mark.parametrize("what", ["as computed", "with noise, not masked", "noise"])
def test_the_probe_finds_what_is_planted(what: str, tmp_path: Path, secrets: Secrets) -> None:
    """Control for the test above: one number in a letter, in a log or in a file is found."""
    made = federated(tmp_path, STAR)
    post = Desks(made.folders)
    made.run(post)
    for form in [form for form, name in secrets.forms.items() if name == what][:4]:
        planted = {"letter": pickle.dumps({"mail": b"12345" + form}), "log": b"at " + form + b" now", "file": form}
        assert {where for where, name in secrets.found(planted) if name == what} == set(planted)


def test_a_summand_that_is_not_masked_is_found(
    tmp_path: Path, secrets: Secrets, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Control: masks that are zero. Everything else works as ever, and the sums are the same."""
    from privadmm.privacy import masks

    monkeypatch.setattr(masks, "key_stream", lambda key, count: np.zeros(count, dtype=np.uint64))
    made = federated(tmp_path, STAR)
    post = Desks(made.folders)
    made.run(post)
    found = secrets.found(everything(made, post, caplog))
    assert {name for _, name in found} == {"with noise, not masked"}
    assert any(where.startswith("letter") for where, _ in found)
    assert any(where.endswith("ledger.sqlite") for where, _ in found)
