"""What a party remembers of a job that it admitted, so that a letter of one round need not decide that again.

Beside the proposal in jobs/ lies what was made of it and of party.toml: the party, the config, and the job with its
plan. All of it is public or the party's own policy. It is used only while every file that it was made of is the same,
byte for byte, and by the version that wrote it; else the proposal is read and admitted anew. The file is pickled, so
it is read only if it is its owner's alone: whoever can write there can change the ledger, too.
"""

import contextlib
import os
import pickle
from dataclasses import dataclass
from pathlib import Path

from privadmm import __version__
from privadmm.config.file import Config
from privadmm.data.arrays import digest
from privadmm.data.files import write_bytes
from privadmm.deploy.federation.party import FILE, Party
from privadmm.deploy.federation.proposal import JOB
from privadmm.engine.job import Job


@dataclass(frozen=True)
class Admitted:
    """A job that this party admitted."""

    party: Party
    config: Config
    job: Job

    def keep(self) -> None:
        """Write it down beside the proposal."""
        _ = self.job.plan
        write_bytes(place(self.party.folder, self.job.id), pickle.dumps((made_of(self), self)), private=True)


def recall(folder: Path, job: str) -> Admitted | None:
    """The job as it was admitted; None if it was not, or if anything that it was made of has changed since."""
    if not JOB.fullmatch(job):
        return None
    path = place(folder, job)
    with contextlib.suppress(Exception):  # whatever is wrong with it, the proposal can be read anew
        state = path.stat()
        if state.st_uid == os.geteuid() and not state.st_mode & 0o077:
            before, admitted = pickle.loads(path.read_bytes())
            if isinstance(admitted, Admitted) and before == made_of(admitted) and admitted.party.folder == folder:
                return admitted
    return None


def place(folder: Path, job: str) -> Path:
    return folder / "jobs" / f"{job}.admitted"


def made_of(admitted: Admitted) -> tuple[str, ...]:
    """Digests of the files behind an admission, and the version."""
    party, jobs = admitted.party, admitted.party.jobs
    names = [party.folder / FILE, *(jobs / f"{admitted.job.id}.{suffix}" for suffix in ("json", "toml"))]
    if party.schema is not None:
        names.append(party.schema)
    return (__version__, *(digest(path.read_bytes()) for path in names))
