"""A federation in this process: party servers, reached by a post that may lose, repeat and reorder letters."""

import os
import shutil
import subprocess
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privadmm.config.file import read
from privadmm.deploy.federation.desk.party_server import answer
from privadmm.deploy.federation.desk.records import announce
from privadmm.deploy.federation.hub.coordinator import Patience
from privadmm.deploy.federation.party import read as read_party
from privadmm.deploy.federation.proposal import neutral
from privadmm.deploy.federation.protocol import Letter
from privadmm.deploy.federation.setup.init import Made, init
from privadmm.deploy.federation.setup.joining import REPLY, admit, join, look_at
from privadmm.engine.mail import Mail
from privadmm.errors import ClusterError
from privadmm.privacy.key_file import KeyFile
from privadmm.privacy.ledger_file import connect, identity_of
from privadmm.privacy.sqlite_ledger import SqliteLedger
from privadmm.runs.federated import Asked, federate
from small_runs import Tables, write_config, write_npz

# A job for parties that bring files of their own.
OWN_FILES = """
[data]
source = "anything.csv"
label = "y"
classes = ["no", "yes"]
row_bound = 2.0
{more}
schema = {{ age = [0, 100], job = ["clerk", "smith"] }}

[parties]
count = {count}

[algorithm]
name = "dp_admm"
rounds = 3
D_w = 5.0

[privacy]
epsilon = 1.0
delta = 1e-5

[run]
seed = 1
"""
# Changes that make a job of `small_runs.PRIVATE` sum its messages securely.
SUMMED: dict[str, dict[str, Any] | None] = {
    "algorithm": {"name": "first_order_consensus", "D_w": None, "rho": None},
    "privacy": {"sum": "secure"},
}
DEPLOYED = {"mode": "deployment", "seed": None, "ledger": "none"}  # [run] of a job with secure noise
Hook = Callable[[int, Letter], None]


@dataclass
class Desks:
    """A post that carries letters to the parties of a federation at once."""

    folders: list[Path]
    before: Hook = lambda party, letter: None
    captured: list[tuple[int, Letter, Letter]] = field(default_factory=list)  # party, letter, answer
    silent: set[int] = field(default_factory=set)

    def nodes(self) -> list[int]:
        return [100 + party for party in range(len(self.folders))]

    def exchange(self, letters: Mapping[int, Letter], seconds: float) -> dict[int, Letter]:
        return {node: self.ask(node - 100, one) for node, one in letters.items() if node - 100 not in self.silent}

    def ask(self, party: int, letter: Letter) -> Letter:
        self.before(party, letter)
        said = answer(self.folders[party], letter)
        self.captured.append((party, letter, said))
        return said


class Unreliable(Desks):
    """Letters arrive twice and in another order, answers are lost."""

    def exchange(self, letters: Mapping[int, Letter], seconds: float) -> dict[int, Letter]:
        rng = np.random.default_rng(len(self.captured))
        copies = [(node, letter) for node, letter in letters.items() for _ in range(3)]
        answers = [(copies[i][0], self.ask(copies[i][0] - 100, copies[i][1])) for i in rng.permutation(len(copies))]
        # All answers have the same mail; their signatures differ.
        assert all(dict(answers)[node].get("mail") == said.get("mail") for node, said in answers)
        return dict(answers[:1] if copies[0][1]["kind"] == "step" else answers)


@dataclass(frozen=True)
class Federated:
    """The files of a federation, its records split as a run in process splits them."""

    made: Made
    folders: list[Path]

    def run(self, post: Any = None, out: str = "runs/first", resume: bool = False, **patience: Any) -> dict[str, Any]:
        place = self.made.coordinator
        asked = Asked(place.folder / out, place, resume, Patience(**{"timeout": 1.0, **patience}))
        return federate(read(place.job), post or Desks(self.folders), asked)

    @property
    def ledgers(self) -> list[Path]:
        return [folder / "ledger.sqlite" for folder in self.folders]

    def change(self, party: int, before: str, after: str) -> None:
        """Replace a line of party.toml."""
        path = self.folders[party] / "party.toml"
        assert before in path.read_text()
        path.write_text(path.read_text().replace(before, after))

    def announce(self, party: int) -> None:
        """Put on file what everybody may know of the party's records as they are now, as `federation check` does."""
        announce(read_party(self.folders[party]), neutral(read(self.made.coordinator.job)))


def federated(folder: Path, tables: Tables, port: int = 9100) -> Federated:
    if not (folder / "data.npz").exists():
        write_npz(folder / "data.npz")
    config = read(write_config(folder / "federated.toml", tables))
    # Nobody waits here until the disk has a hundred small files: no test cuts the power while a federation is made.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda file: None)
        made = init(config, folder / "federation", "127.0.0.1", port, rehearse=True)
    return Federated(made, [party.folder for party in made.parties])


def silent_from(made: Federated, round: int, *parties: int) -> Desks:
    """A post that brings nothing to these parties from a round on, counted from 0."""
    post = Desks(made.folders)

    def leave(party: int, letter: Letter) -> None:
        if letter.get("round") == round:
            post.silent.update(parties)

    post.before = leave
    return post


def ending(post: Desks, round: int, party: int | None = None) -> Desks:
    """Have the coordinator of a post die before it asks this party, or the first one, for a round."""
    before = post.before

    def die(one: int, letter: Letter) -> None:
        before(one, letter)
        if party in (None, one) and letter.get("round") == round:
            raise ClusterError("gone")

    post.before = die
    return post


@dataclass(frozen=True)
class Backup:
    """A copy of a party's ledger as it is now, to be put back later: of the ledger alone, or with all beside it."""

    ledger: Path
    files: dict[str, bytes]

    @staticmethod
    def of(ledger: Path, with_anchor: bool = True) -> "Backup":
        db = connect(ledger)
        try:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            db.close()
        suffixes = ("", "-anchor") if with_anchor else ("",)
        found = {suffix: Path(f"{ledger}{suffix}") for suffix in suffixes}
        return Backup(ledger, {suffix: path.read_bytes() for suffix, path in found.items() if path.exists()})

    def put_back(self) -> None:
        for suffix in ("-wal", "-shm"):
            Path(f"{self.ledger}{suffix}").unlink(missing_ok=True)
        for suffix, content in self.files.items():
            Path(f"{self.ledger}{suffix}").write_bytes(content)


def accounts(ledger: Path) -> dict[str, tuple[int, int, bool]]:
    """By job of a party's ledger: events spent, events spent or set aside, and whether it is over."""
    known = identity_of(ledger)
    assert known is not None
    party, opened = known.parties[0], SqliteLedger(ledger, known.parties, known.policy, known.mode, anchored=False)
    try:
        return {
            job: (
                sum(count for _, count in opened.spent(party, job)),
                sum(count for _, count in opened.reserved(party, job) or ()),
                opened.over(job),
            )
            for job in opened.jobs()
        }
    finally:
        opened.close()


@contextmanager
def small_disk(folder: Path, kilobytes: int) -> Iterator[Path]:
    """A disk of this size, where the system lets us have one."""
    folder.mkdir()
    mounted = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mounted, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def own_csv(path: Path, rows: int, seed: int = 0) -> Path:
    """Records as `OWN_FILES` declares them."""
    rng = np.random.default_rng(seed)
    cells = zip(rng.integers(20, 60, rows), rng.choice(["clerk", "smith"], rows), strict=True)
    lines = ["y,age,job,name", *(f"{'yes' if age > 40 else 'no'},{age},{job},x" for age, job in cells)]
    path.write_text("\n".join(lines) + "\n")
    return path


def joined(made: Made) -> list[Path]:
    """Directories of all parties that were invited, beside the coordinator's; they have no records yet."""
    folders = [made.coordinator.folder.parent / path.stem for path in made.invitations]
    for path, folder in zip(made.invitations, folders, strict=True):
        join(path, folder)
    admit(look_at(made.coordinator, [folder / REPLY for folder in folders]))
    for folder in folders:  # its records are not counted yet, and it is read to be pinned
        (folder / "peers").mkdir(exist_ok=True)
        for key in made.coordinator.keys.glob("party-*.pub"):
            if key.stem != folder.name:
                (folder / "peers" / key.name).write_bytes(key.read_bytes())
    return folders


def node_key(path: Path) -> Any:
    """The private key of a node."""
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key

    return load_ssh_private_key(path.read_bytes(), None)


def public_half(path: Path) -> bytes:
    """The public half of a node's private key, as one line."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    line: bytes = node_key(path).public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return line + b"\n"


def key_of(ledger: Path, job: str) -> bytes | None:
    """The private key of a party's job, while there is one."""
    return KeyFile(ledger).key(job)


def found_in(folder: Path, secret: bytes) -> list[str]:
    """The files in which a secret is, as it is, in hexadecimal digits or in base 64."""
    forms = [secret, secret.hex().encode(), b64encode(secret).rstrip(b"=")]
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return [str(path.relative_to(folder)) for path in files if any(form in path.read_bytes() for form in forms)]


def released(ledger: Path) -> list[bytes]:
    """The releases in a ledger, in order."""
    db = connect(ledger, read_only=True)
    try:
        found = db.execute("SELECT outbox FROM ticks WHERE kind = 'tick' ORDER BY seq").fetchall()
    finally:
        db.close()
    return [bytes(outbox) for (outbox,) in found]


def only_releases(ledger: Path, answers: list[Letter]) -> None:
    """Check that every array in a party's answers is in its ledger as released, and that the rest is text."""
    allowed = {"status", "party", "signature", "facts", "entry", "mail", "receipt", "error", "message"}
    known = released(ledger)
    for said in answers:
        assert set(said) <= allowed, set(said)
        for key, value in said.items():
            assert isinstance(value, str) or key in ("mail", "party"), key
            assert not (key == "mail" and value not in known and len(Mail.unpack(value).senders)), "not released"  # type: ignore[arg-type]
