"""The directory of a run: what was asked, how it went, what came out, what it cost.

result.json is written last: a directory that has it is complete. Ledgers, receipts and the checkpoint may be read by
their owner alone: ledgers keep what parties drew, and a coordinator's rounds may be derived from labels.
"""

import contextlib
import csv
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from privadmm.config.file import Config
from privadmm.data.files import PARTIAL, for_owner, write_text
from privadmm.engine.job import Job
from privadmm.engine.loop import Callback, Checkpoint, Parties, Progress, View
from privadmm.errors import CheckpointError, ConfigError, LedgerError
from privadmm.privacy.ledger_file import Receipt, identity_of, utc_now

# Facts that job.json keeps besides the job's id. All have to be the same when the run is resumed.
SAME = {"config": "config or seed", "shape": "number of parties, records or columns", "ledger": "ledger"}
PAUSE = 1.0  # seconds between checkpoints at least, of a process that holds the ledgers, too
HEADER = ("job", "round", "phase", "hash", "party", "signature")  # of receipts.csv; in a federation parties sign
HEADERS = (",".join(HEADER), ",".join(HEADER[:-1]))
ROW = re.compile(r"([ !#-+\--~]+),([0-9]{1,18}),([0-9]{1,18}),([0-9a-f]{64}),([0-9]{1,18})(?:,([0-9a-f:]*))?")


@dataclass(frozen=True)
class Inside:
    """A path inside of the directory."""

    name: str

    def __get__(self, directory: "RunDir", kind: type["RunDir"]) -> Path:
        return directory.path / self.name


@dataclass(frozen=True)
class RunDir:
    path: Path
    resume: str = "--resume"  # how the reader of a message asks for that
    out: str = "--out"

    config = Inside("config.toml")  # as it was read
    job = Inside("job.json")  # the job's id, and the facts of SAME
    parties = Inside("parties.json")  # what the parties of a federation told of themselves
    roster = Inside("roster.json")  # the keys of its secure sums, each signed by its party
    ledger = Inside("ledger.sqlite")  # the parties' ledger, unless the config names one elsewhere
    ledgers = Inside("ledgers")  # in place of it, where each block of parties has its own
    checkpoint = Inside("checkpoint")  # where the rounds stand
    receipts = Inside("receipts.csv")  # the hash of the ledger's row, as it came with each release
    metrics = Inside("metrics.csv")  # a row per round, in a simulation
    model = Inside("model.json")  # the weights
    ledger_export = Inside("ledger.json")  # events and epsilon of every party
    convergence = Inside("convergence.svg")
    spending = Inside("epsilon.svg")
    result = Inside("result.json")  # the summary
    ended = Inside("ended.json")  # of a federation's run that was ended for good

    def check(self, resume: bool) -> None:
        """Refuse a place that this run may not use; cheap, so that it can come before the data are read."""
        if self.path.exists() and not self.path.is_dir():
            raise ConfigError(f"{self.path}: is a file, and a run needs a directory; name another {self.out}")
        if self.result.exists():
            raise ConfigError(f"{self.path}: holds a finished run; name another {self.out}")
        if self.ended.exists():
            raise ConfigError(f"{self.path}: holds a run that was ended for good; name another {self.out}")
        if self.job.exists():
            if not resume:
                raise ConfigError(f"{self.path}: holds an unfinished run; add {self.resume} to go on with it")
        elif resume:
            raise CheckpointError(f"{self.path}: holds no run to resume; leave out {self.resume} to start one")
        elif self.path.exists() and any(item.suffix != PARTIAL for item in self.path.iterdir()):
            raise ConfigError(f"{self.path}: is not empty and holds no run; name another {self.out}")

    @contextlib.contextmanager
    def opened(self, facts: dict[str, str], text: str, fresh: str, resume: bool) -> Iterator[str]:
        """Lock the directory for this process and yield the id of the job to run in it.

        That is `fresh` in a new place. When resuming it is the id of the interrupted job, if the facts of SAME are
        what they were. The lock ends with the process, however that ends.
        """
        self.check(resume)
        if not resume:
            self._begin(fresh, facts, text)
        job = self._known(facts) if resume else fresh
        with self.job.open() as file:
            try:
                from fcntl import LOCK_EX, LOCK_NB, flock

                flock(file, LOCK_EX | LOCK_NB)
            except BlockingIOError:
                raise CheckpointError(f"{self.path}: another process is at work on this run") from None
            except (ImportError, OSError):  # there are no locks here: the ledger still refuses what is out of order
                pass
            yield job

    def _begin(self, job: str, facts: dict[str, str], text: str) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        try:
            file = self.job.open("x", encoding="utf-8")
        except FileExistsError:
            raise ConfigError(f"{self.path}: another run has just been started here") from None
        try:
            with file:
                file.write(json.dumps({"job": job, **facts}, indent=1) + "\n")
            write_text(self.config, text)
        except BaseException:
            self.discard()
            raise

    @property
    def job_id(self) -> str:
        """The id of the job of a run that began here."""
        try:
            return str(json.loads(self.job.read_text(encoding="utf-8"))["job"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise CheckpointError(f"{self.job}: is damaged or not there; start anew in another {self.out}") from error

    def _known(self, facts: dict[str, str]) -> str:
        try:
            known = json.loads(self.job.read_text(encoding="utf-8"))
            job, before = str(known["job"]), {name: str(known[name]) for name in SAME}
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise CheckpointError(f"{self.job}: is damaged; start anew in another {self.out}") from error
        if changed := [words for name, words in SAME.items() if facts[name] != before[name]]:
            raise CheckpointError(
                f"{self.path}: the run there was started with another {changed[0]}; resume it with the same "
                f"(its config is kept as {self.config})"
            )
        return job

    def origin(self, config: Config) -> dict[str, str]:
        """The folder of a simulation's config, relative to here, for job.json: the files that it names are there."""
        if config.run.mode != "simulation":
            return {}
        with contextlib.suppress(ValueError):  # on another drive
            place = os.path.relpath(config.path.resolve().parent, self.path.resolve())
            return {"folder": Path(place).as_posix()}
        return {}

    def progress(self, job: Job) -> Progress | None:
        """Load the checkpoint. Without one the ledgers replay the rounds that were paid for, at no charge."""
        if not self.checkpoint.exists():
            return None
        return Progress.load(self.checkpoint, job.id, job.algorithm.start(job.public)[0])

    def heads(self) -> list[tuple[Receipt, int]]:
        """Receipts of the rounds before the run was interrupted."""
        return read_receipts(self.path) if self.receipts.exists() else []

    def callbacks(self, job: Job, parties: Parties, every: int, pause: float = 0.0) -> list[Callback]:
        """Keep the receipts of every round, and then a checkpoint every so many rounds."""
        if self.receipts.exists():  # a line that a crash tore would be joined to the next
            os.truncate(self.receipts, len(whole_lines(self.receipts.read_bytes())))
        return [Receipts(self.receipts, parties), Departures(Checkpoint(self.checkpoint, job.id, every, pause))]

    def discard(self) -> None:
        """Remove what a run without any release left, so that the place can be used again."""
        made = (self.config, self.job, self.parties, self.roster, self.checkpoint, self.metrics, self.receipts)
        for path in made:
            path.unlink(missing_ok=True)
        for ledger in (self.ledger, *self.ledgers.glob("*.sqlite")):
            for suffix in ("", "-wal", "-shm", "-journal", "-keys", "-anchor"):
                ledger.with_name(ledger.name + suffix).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.ledgers.rmdir()
        with contextlib.suppress(OSError):  # somebody's other files may stand here
            for item in self.path.glob(f"*{PARTIAL}"):
                item.unlink()
            self.path.rmdir()


def noted(config: Config) -> dict[str, str]:
    """What a run is for, who asked and when, for its job.json. Files of a simulation do not depend on the clock."""
    when = {"began": utc_now()} if config.run.mode == "deployment" else {}
    said = {"purpose": config.run.purpose, "requester": config.run.requester}
    return {name: text for name, text in said.items() if text is not None} | when


@dataclass(frozen=True)
class Receipts:
    """A callback that appends to receipts.csv what the ledgers answered in the round.

    A ledger from which rows were cut off, or which was replaced by an older copy, does not fit these hashes.
    """

    path: Path
    cluster: Parties

    def __call__(self, view: View) -> None:
        rows = self.cluster.receipts(view.progress.round - 1)
        with open(self.path, "a", encoding="utf-8", newline="", opener=for_owner) as file:
            table = csv.writer(file)
            if not file.tell():
                table.writerow(HEADER[: len(rows[0]) if rows else -1])
            table.writerows(rows)


@dataclass
class Departures:
    """A callback that keeps a checkpoint also after a round in which a party left.

    The next letters say that it is gone. A run that is resumed from before that would ask it again, and the others
    would refuse the round.
    """

    checkpoint: Checkpoint
    gone: int = 0

    def __call__(self, view: View) -> None:
        gone = len(view.progress.mail.absent)
        if gone > self.gone:
            view.progress.save(self.checkpoint.path, self.checkpoint.job)
        else:
            self.checkpoint(view)
        self.gone = gone


def whole_lines(data: bytes) -> bytes:
    """Leave out a last line that has no end."""
    return data[: data.rfind(b"\n") + 1]


def read_receipts(directory: Path) -> list[tuple[Receipt, int]]:
    """Read receipts, each with the first party of its block. A last line that a crash tore is left out.

    Any other damaged line is an error: its receipt would be missed when a ledger is compared.
    """
    return [(receipt, party) for receipt, party, _ in signed_receipts(directory)]


def signed_receipts(directory: Path) -> list[tuple[Receipt, int, str]]:
    """Read receipts with their parties, as `read_receipts` does, and the signatures; "" where nobody signed."""
    path = RunDir(directory).receipts
    if not path.is_file():
        raise LedgerError(f"{directory}: has no {path.name}; name the directory of a run")
    receipts = []
    for number, line in enumerate(whole_lines(path.read_bytes()).decode(errors="replace").splitlines(), start=1):
        row = ROW.fullmatch(line)
        if number > 1 and row is not None:
            job, round, phase, hash, party, signature = row.groups()
            receipts.append(((job, int(round), int(phase), hash), int(party), signature or ""))
        elif number > 1 or line not in HEADERS:
            raise LedgerError(f"{path}: line {number} is damaged; put the file back as the run left it")
    return receipts


def receipts_of(directory: Path, ledger: Path) -> list[Receipt]:
    """Receipts of the block whose ledger this file is; all of them if it is nobody's, so that a stranger shows."""
    receipts, owner = read_receipts(directory), identity_of(ledger)
    if not receipts:
        path = RunDir(directory).receipts
        raise LedgerError(f"{path}: holds no receipt, so there is nothing to compare the ledger with")
    own = [receipt for receipt, first in receipts if owner is not None and first == owner.parties[0]]
    return own or [receipt for receipt, _ in receipts]
