"""A party's answers to letters. Each is made from its directory alone, so a process may end at any moment.

    hello    a job is coming: is it allowed? The answer has public facts, signed for who asked: records, columns
    begin    the job with all parties' facts: kept in jobs/, its whole cost set aside in the ledger, or refused. If
             the steward decides about jobs, it waits for the decision. For a job with secure sums the answer has the
             party's signed key of this job
    roster   all parties' keys of a job with secure sums: the first roster is kept, if their owners signed the keys
    step     one phase of one round: an inbox, and the released answer with its receipt, signed
    give_up  the job ended without a release: what was set aside is free again, and its key is erased
    end      the job is over for good: what was not spent is free again, and its key is erased

An answer holds released values, public facts, or an error. If a step fails after records were read, the coordinator
learns "locked" and nothing more; the reason is in the party's own ledger and log.
"""

import json
import sqlite3
import time
import traceback
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

from privadmm import __version__
from privadmm.config import build
from privadmm.config.file import Config
from privadmm.data.files import write_text
from privadmm.deploy.federation import letters, party
from privadmm.deploy.federation.desk.admitted import Admitted, recall
from privadmm.deploy.federation.desk.agreement import disagreement
from privadmm.deploy.federation.desk.approvals import Proposals
from privadmm.deploy.federation.desk.history import begins, missing, signed_receipt
from privadmm.deploy.federation.desk.party_log import Line, asked, full, note
from privadmm.deploy.federation.desk.peers import accept, own_entry
from privadmm.deploy.federation.desk.records import Held, bound_of, check_told, told
from privadmm.deploy.federation.desk.records import held as read_records
from privadmm.deploy.federation.party import Party
from privadmm.deploy.federation.proposal import JOB, Kept, Proposal, parties_of
from privadmm.deploy.federation.proposal import asked as read_proposed
from privadmm.deploy.federation.protocol import Letter
from privadmm.deploy.remote_block import Order, check_budget, check_in_full
from privadmm.engine.block import beside, open_block, reopen_block
from privadmm.engine.job import Job
from privadmm.engine.party import Local, Vertical
from privadmm.engine.public import Public
from privadmm.errors import (
    ConfigError,
    DataError,
    LedgerError,
    LockedError,
    PrivadmmError,
    RefusedError,
    WaitingError,
)
from privadmm.privacy.ledger import Tick
from privadmm.privacy.ledger_file import Identity, Receipt, default_limits, identity_of
from privadmm.privacy.limits import Limits
from privadmm.privacy.sqlite_ledger import SqliteLedger

Answer = dict[str, str | int | bytes]
TOLD = (RefusedError, ConfigError, LedgerError)  # errors about policies, files and jobs, never about a record
ELSEWHERE = "its steward finds the reason in its requests.log"
LONGEST = 2000  # characters of an error that the coordinator is told: it may quote what it sent
LOCKED_HERE = "its ledger is locked until its steward has looked at it and decided"
FULL = (
    "its disk is full, or cannot be used; nothing was released that is not in its ledger. Ask again when its steward "
    "has made room"
)
FULL_HERE = (
    "the disk of this directory is full, its quota is used up, or it cannot be read or written: see `df`, make room, "
    "and the coordinator can ask again"
)


def answer(folder: Path, letter: Letter) -> Answer:
    """The party's answer to any letter; never an exception, whose text would leave."""
    try:
        return logged(folder.absolute(), letter)
    except OSError:  # not even the log could be written
        return {"status": "failed", "error": "StorageError", "message": "its log could not be written"}


def logged(folder: Path, letter: Letter) -> Answer:
    """The answer to a letter, with a line in the party's own log."""
    began, line, who = time.perf_counter(), Line(), Answer()

    def end(outcome: str, why: str = "") -> None:
        spent = round(time.perf_counter() - began, 4)
        note(folder, **asked(letter), name=line.name, outcome=outcome, seconds=spent, **line.epsilon, why=why)

    try:
        # A job that was admitted is not admitted again for a round, as long as its files are the same.
        known = recall(folder, letter.get("job")) if letter.get("kind") == "step" else None
        desk = Desk(party.read(folder) if known is None else known.party, line)
        who = {"party": desk.party.number}
        line.of(desk.party)
        said = desk.answer(letters.read(letter), known)
        end("answered")
        return {"status": "ok", **who, **said}
    except LockedError as error:
        line.refuse(letter, error)
        end("locked", str(error))
        return {"status": "locked", **who, "error": "LockedError", "message": LOCKED_HERE}
    except WaitingError as error:
        end("waiting", str(error))
        return {"status": "waiting", **who, "error": "WaitingError", "message": str(error)}
    except Exception as error:
        # No record was read yet: later failures are told as "locked", and failures of reading as DataError.
        if full(error) and not isinstance(error, DataError):
            end("failed", f"{FULL_HERE}: {error}")
            return {"status": "failed", **who, "error": "StorageError", "message": FULL}
        if isinstance(error, RefusedError):
            line.refuse(letter, error)
        if isinstance(error, TOLD):
            status = "refused" if isinstance(error, RefusedError) else "failed"
            end(status, str(error))
            message = str(error).replace(f"{folder}/", "").replace(str(folder), "its directory")[:LONGEST]
            return {"status": status, **who, "error": type(error).__name__, "message": message}
        end("failed", traceback.format_exc())
        name = type(error).__name__ if isinstance(error, PrivadmmError) else "Failure"
        name = "StorageError" if isinstance(error, OSError | sqlite3.Error | MemoryError) else name
        return {"status": "failed", **who, "error": name, "message": ELSEWHERE}


@dataclass(frozen=True)
class Desk:
    party: Party
    line: Line = field(default_factory=Line)

    def answer(self, letter: letters.Asked, known: Admitted | None = None) -> Answer:
        match letter:
            case letters.Hello():
                return self.hello(letter)
            case letters.Begin():
                return self.begin(letter)
            case letters.Keys():
                return self.roster(letter)
            case letters.Step():
                return self.step(letter, known)
            case letters.GiveUp():
                return self.give_up(letter)
            case letters.End():
                return self.end(letter)

    def hello(self, letter: letters.Hello) -> Answer:
        """Tell the public facts about this party's part in the job."""
        self.party.jobs.mkdir(exist_ok=True)
        path = self.party.jobs / "proposed.toml"
        write_text(path, letter.text)
        config = read_proposed(path)
        self.line.about(build.asked(config))
        parties = parties_of(config)
        self.admitted(parties, config)
        from privadmm.deploy.federation.keys import greeted
        from privadmm.deploy.federation.signing import seal

        node = self.party.node
        greeting = greeted(letter, self.party.folder / node.ca, node.superlink.rpartition(":")[0])
        whoever = {"party": self.party.number, "version": __version__, "name": self.party.name}
        said = json.dumps(told(self.party, config, parties) | whoever)
        return {"facts": said, "signature": seal(self.party.folder / node.key, greeting.answer(said))}

    def begin(self, letter: letters.Begin) -> Answer:
        """Set the whole cost aside, or refuse, or wait for the steward. Repeating the letter changes nothing."""
        with self.proposals.alone():
            return self.begun(letter, letter.proposal)

    @property
    def proposals(self) -> Proposals:
        return Proposals(self.party)

    def begun(self, letter: letters.Begin, proposal: Proposal) -> Answer:
        """The answer to a `begin`, while no other `begin` is answered."""
        self.admitted(len(proposal.sizes), None)
        if (widest := max(proposal.dim, *proposal.columns, 0)) > (most := self.party.limits.dim):
            why = f"the party accepts messages of up to {most} numbers, and the job has {widest}"
            raise RefusedError(why, "policy")
        new = Kept.at(self.party.jobs, proposal.id) is None
        kept = proposal.keep(self.party.jobs)
        self.line.about(build.asked(kept.config), proposal.id)
        try:
            self.admit(kept)
            self.agreed()
            with closing(self.opened()) as ledger:
                if proof := missing(self.party, ledger, letter.receipts):
                    ledger.lock_behind(*proof)
                self.check(kept.config, kept.job, letter.heads)
                self.close(ledger, [job for job in letter.ended if job != proposal.id])
                begins(self.party, ledger, proposal.id)
                kept.job.afford(ledger)
                self.proposals.need(proposal, ledger.epoch)  # the last check by public facts
                records = held(self.party, kept.config, proposal, anew=True)
                check_told(self.party, kept.config, records, len(proposal.sizes))
                new = False  # from here on the cost may be set aside, and `give_up` must find the job
                # Labels that are randomised are drawn now, if they never were.
                open_block(kept.job, records.block, build.noise(kept.config), ledger, asked=self.line.asked)
                said: Answer = {} if kept.job.sums is None else {"entry": own_entry(self.party, kept.job, ledger)}
                self.line.count(self.party, ledger, proposal.id)
        except BaseException:
            if new:  # else refused proposals would fill the disk
                kept.forget(self.party.jobs)
            raise
        Admitted.of(self.party, kept).keep()
        return said

    def roster(self, letter: letters.Keys) -> Answer:
        """Take all parties' keys of a job with secure sums. A second roster is refused unless it is the same."""
        known = self.admitted_anew(letter.job)
        if known.job.sums is None:
            raise RefusedError(f"job {letter.job} has no secure sums, and needs no roster. Nothing was released")
        with closing(self.opened()) as ledger:
            self.need_reserve(ledger, letter.job)
            accept(self.party, known.job, ledger, letter.roster)
        return {}

    def need_reserve(self, ledger: SqliteLedger, job: str) -> None:
        """Refuse a job for which nothing was set aside."""
        if ledger.reserved(self.party.number, job) is None:
            raise RefusedError(f"nothing was set aside for job {job}: its begin was refused. Nothing was released")

    def step(self, letter: letters.Step, known: Admitted | None = None) -> Answer:
        """The released answer, from the ledger if it was given before. Records are read only if it was not."""
        now, inbox = Tick(letter.job, letter.round, letter.phase), letter.inbox
        known = known or self.admitted_anew(now.job)
        job, config, number = known.job, known.config, self.party.number
        self.line.about(job.asked, now.job)
        self.party.stay(job.public.parties - len(inbox.absent))
        with closing(self.opened()) as ledger:
            self.need_reserve(ledger, now.job)
            if self.party.asks:  # the kept proposal must be the one that was approved
                kept = Proposal.unpack((self.party.jobs / f"{now.job}.json").read_bytes())
                self.proposals.need(kept, ledger.epoch)

            def load() -> Local | Vertical:
                return beside(job.public, held(self.party, config, job.public).block)

            before = ledger.head
            worker = reopen_block(job, [number], load, build.noise(config), ledger, attended=False)
            _, sent = worker.answer(now.round, now.phase, inbox)
            head, epoch = ledger.receipt(now) or "", ledger.epoch
            self.line.count(self.party, ledger, now.job, before)
        signature = head and signed_receipt(self.party, (now.job, now.round, now.phase, head), epoch)
        return {"mail": bytes(sent), "receipt": head, "signature": signature}

    def admitted_anew(self, id: str) -> Admitted:
        """Admit again a job that was begun here: a file that it was made from has changed."""
        kept = Kept.at(self.party.jobs, id)
        if kept is None:
            raise RefusedError(f"job {id} was never begun here. Nothing was released")
        self.line.about(build.asked(kept.config), id)
        self.admit(kept)
        self.check(kept.config, kept.job)
        return Admitted.of(self.party, kept)

    def admit(self, kept: Kept) -> None:
        """Refuse, by public facts, a job that party.toml or the ledger's policy does not allow."""
        self.admitted(len(kept.proposal.sizes), kept.config)
        policy = self.identity.policy
        policy = replace(policy, limits=policy.limits or default_limits(self.party.policy.mode))
        kept.job.admit(policy, [bound_of(self.party, kept.config)])

    def give_up(self, letter: letters.GiveUp) -> Answer:
        """Close a job, unless it released something or failed: then the steward decides."""
        kept = Kept.at(self.party.jobs, letter.job)
        if kept is not None and self.party.has_ledger:
            with closing(self.opened()) as ledger, ledger.turn():
                if ledger.latest(kept.proposal.id) is None:
                    ledger.close_job(kept.proposal.id)
                self.line.count(self.party, ledger, kept.proposal.id)
        return {}

    def end(self, letter: letters.End) -> Answer:
        """Close a job that is over for good. A job that was never begun here, or is closed, stays as it is."""
        if self.party.has_ledger:
            with closing(self.opened()) as ledger:
                self.close(ledger, [letter.job])
                self.line.count(self.party, ledger, letter.job)
        return {}

    def close(self, ledger: SqliteLedger, jobs: Sequence[str]) -> None:
        """Free what these jobs set aside and did not spend, if they were begun here. What was spent stays spent."""
        number = self.party.number
        for job in jobs:
            began = JOB.fullmatch(job) and (self.party.jobs / f"{job}.json").is_file()
            if not began or ledger.over(job):
                continue
            if ledger.reserved(number, job) != ledger.spent(number, job) or ledger.holds_key(job):
                ledger.close_job(job)

    def admitted(self, parties: int, config: Config | None) -> None:
        number = self.party.number
        if number >= parties:
            raise RefusedError(f"this is party {number}, and the job has {parties}, counted from 0")
        self.party.limits.admit_size(1, parties)
        if config is not None:
            self.party.limits.admit_size(config.algorithm.rounds, parties, edges_of(config, parties))
            self.party.admit(config, parties)
            bound_of(self.party, config)

    def check(self, config: Config, job: Job, heads: Sequence[Receipt] | None = None) -> None:
        """Refuse a job with another budget than the party's; where heads are given, verify the ledger in full."""
        order = Order(config, job, (self.party.number,), self.party.ledger, tuple(heads or ()))
        if heads is not None:
            check_in_full(order)
        check_budget(order, self.party.fixed)

    def opened(self) -> SqliteLedger:
        """Open the party's ledger, verified from the last verified row on."""
        if not self.party.has_ledger:
            self.agreed()
        mine = self.identity
        try:
            return SqliteLedger(self.party.ledger, mine.parties, mine.policy, mine.mode, make=False)
        except LedgerError:
            self.agreed()
            raise

    @property
    def identity(self) -> Identity:
        """The identity that the party's ledger must have. Where party.toml has no limits, its mode has defaults."""
        mode, fixed = self.party.policy.mode, self.party.fixed
        policy = replace(fixed, limits=default_limits(mode)) if fixed.limits == Limits() else fixed
        return Identity(mode, (self.party.number,), policy)

    def agreed(self) -> None:
        """Refuse unless party.toml and the ledger agree. How they differ is not told."""
        path = self.party.ledger
        if not self.party.has_ledger:
            raise LedgerError(f"{path}: there is no ledger there, or it is empty; see `privadmm federation check`")
        if self.differs():
            if (known := identity_of(path)) is not None:  # opening an old copy locks it, whatever its policy
                SqliteLedger(path, known.parties, known.policy, known.mode).close()
            raise LedgerError(
                f"{path}: has another policy, mode or party than party.toml; its steward sees how they differ with "
                "`privadmm federation check`"
            )

    def differs(self) -> str | None:
        """Say how the ledger and party.toml differ, for the party's steward; None if they agree."""
        problem = disagreement(self.party)
        return None if problem is None else f"{problem.said}: {problem.fix}"


def edges_of(config: Config, parties: int) -> int:
    """How many edges the job's graph has, before it is made."""
    match config.graph.kind:
        case "complete":
            return parties * (parties - 1) // 2
        case "random":
            return config.graph.edges or 0
        case _:
            return parties


def held(party: Party, config: Config, made_for: Proposal | Public, anew: bool = False) -> Held:
    """The party's records; refused unless they have the size that the job was made for."""
    sizes, number = made_for.sizes, party.number
    records = read_records(party, config, len(sizes), anew)
    mine = (int(sizes[number]), made_for.dim)
    if mine != (records.records, records.dim) or (made_for.columns and made_for.columns[number] != records.width):
        raise RefusedError(
            f"the job was made for {mine[0]} records of party {number} in {mine[1]} dimensions, and it holds "
            f"{records.records} in {records.dim}. Nothing was released"
        )
    return records
