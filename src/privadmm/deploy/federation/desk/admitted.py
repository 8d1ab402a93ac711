"""A job that a party admitted, cached so that the letter of each round need not admit it again.

jobs/ID.admitted, beside the proposal, holds what was made from that and from party.toml: the party, the config, and
the job with its plan. All of it is public or the party's own policy. Only the code that wrote the file uses it, and
only while its sources are unchanged; else the proposal is read and admitted again. The file is a pickle, so it is read
only if its owner alone has access to it: whoever can write there can change the ledger, too.
"""

import contextlib
import os
import pickle
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import privadmm
from privadmm.config.file import Config
from privadmm.config.reader import load
from privadmm.data.arrays import digest
from privadmm.data.files import write_bytes
from privadmm.deploy.federation.party import Party
from privadmm.deploy.federation.proposal import JOB, Kept
from privadmm.engine.job import Job

Stamp = tuple[str, ...]


@dataclass(frozen=True)
class Admitted:
    """A job that this party admitted, and digests of all that it was made from."""

    party: Party
    config: Config
    job: Job
    stamp: Stamp

    @staticmethod
    def of(party: Party, kept: Kept) -> "Admitted":
        """Stamp the texts as they were read: a file that changes later has another stamp."""
        texts = [seen for _, seen in party.texts]
        stamp = (code(), *texts, digest(kept.proposal.pack()), digest(kept.proposal.text.encode()))
        return Admitted(party, kept.config, kept.job, stamp)

    def keep(self) -> None:
        """Write it down beside the proposal."""
        _ = self.job.plan
        write_bytes(self.party.jobs / f"{self.job.id}.admitted", pickle.dumps(self), private=True)


def recall(folder: Path, job: object) -> Admitted | None:
    """The job as it was admitted; None if it was not, or if anything that it was made from has changed since."""
    if not isinstance(job, str) or not JOB.fullmatch(job):
        return None
    path = folder / "jobs" / f"{job}.admitted"
    with contextlib.suppress(Exception):  # whatever is wrong with it, the proposal can be read again
        state = path.stat()
        if state.st_uid == os.geteuid() and not state.st_mode & 0o077:
            admitted: Admitted = pickle.loads(path.read_bytes())
            mine = isinstance(admitted, Admitted) and (admitted.party.folder, admitted.job.id) == (folder, job)
            if mine and admitted.stamp == now(admitted):
                return admitted
    return None


def now(admitted: Admitted) -> Stamp:
    """The stamp of the same files at this moment."""
    jobs, id = admitted.party.jobs, admitted.job.id
    texts = [digest(load(path)[0].encode()) for path, _ in admitted.party.texts]
    kept = [digest((jobs / f"{id}.{suffix}").read_bytes()) for suffix in ("json", "toml")]
    return code(), *texts, *kept


@lru_cache(maxsize=1)
def code() -> str:
    """A digest of the package's files by name, size and time: another version, or an edit, has another one."""
    files = sorted(Path(privadmm.__file__).parent.rglob("*.py"))
    facts = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    return digest(repr((privadmm.__version__, facts)).encode())


code()  # at import: a fork that answers later runs the code loaded now, whatever is installed by then
