"""One proposed job, one run directory at the coordinator. It measures nothing: it has no records."""

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from privadmm.config import build
from privadmm.config.file import Config, check_seed
from privadmm.data import arrays
from privadmm.data.files import write_json
from privadmm.data.frame import Frame
from privadmm.deploy.federation.coordinator import Facts, Federation, Patience, Post, greet
from privadmm.deploy.federation.keys import Credentials
from privadmm.deploy.federation.label_holder import labels
from privadmm.deploy.federation.layout import Coordinator
from privadmm.deploy.federation.proposal import Kept, Proposal, neutral, parties_of, read_text, written
from privadmm.engine.job import Job, features, train, weights
from privadmm.engine.loop import Callback, Checkpoint, Progress, View
from privadmm.errors import ClusterError
from privadmm.privacy.accounting import epsilon, totals
from privadmm.privacy.events import dump
from privadmm.runs import absence, receipts
from privadmm.runs.model import Model, about
from privadmm.runs.receipts import Receipts
from privadmm.runs.rundir import RunDir

POLL = 0.5  # seconds between looks at who is there
PARTIES = "parties.json"  # what the parties said of themselves


@dataclass(frozen=True)
class Asked:
    """How a run was asked for."""

    out: Path
    place: Coordinator  # which has the parties' public keys, party-N.pub, and certificates of its own
    resume: bool = False
    patience: Patience = field(default_factory=Patience)


def federate(
    config: Config, post: Post, asked: Asked, tell: Callable[[str], None] = lambda line: None
) -> dict[str, Any]:
    """Run the job with all its parties; what result.json then holds."""
    began = time.perf_counter()
    check_seed(config)
    directory = RunDir(asked.out, "resume = true", "out")
    directory.check(asked.resume)
    parties, plain = parties_of(config), neutral(config)
    proposed = written(plain)
    before = Before.of(directory) if asked.resume else Before()
    awaited = {party: asked.place.keys / f"party-{party}.pub" for party in range(parties) if party not in before.gone}
    nodes = gathered(post, len(awaited), asked.patience.timeout, tell)
    tell("the parties are asked whether they take part")
    own = Credentials(asked.place.certificates)
    found = greet(post, proposed, awaited, asked.patience, nodes, own)
    homes = {one.party: node for node, one in found.items()}
    known = sorted([*found.values(), *before.facts(before.gone)], key=lambda one: one.party)
    sizes, dim = [one.records for one in known], known[0].dim
    columns = tuple(one.width for one in known) if known[0].people is not None else ()
    shape = arrays.pack({"sizes": np.array(sizes)}, dim=dim, columns=columns)
    same = {
        "config": arrays.digest(proposed.encode()),
        "shape": arrays.digest(shape),
        "ledger": "the parties'",
    }
    job = build.job(plain, np.array(sizes), dim, columns=columns or None)
    y = labels(config, job, known[0])
    with directory.opened(same, proposed, job.id, asked.resume) as id:
        proposal = Proposal(id, proposed, tuple(sizes), dim, columns)
        job = Kept(proposal, read_text(directory.config)).job
        cluster = Federation(post, homes, asked.patience, y)
        run = Run(config, job, cluster, directory, known)
        return run.finished(run.carry_out(proposal, asked.resume, tell), began)


@dataclass(frozen=True)
class Before:
    """What a run that is gone on with knows already: its parties, and who of them left for good."""

    known: tuple[Facts, ...] = ()
    gone: tuple[int, ...] = ()

    @staticmethod
    def of(directory: RunDir) -> "Before":
        path = directory.path / PARTIES
        if not path.exists():
            return Before()
        gone = left_by(directory.checkpoint) if directory.checkpoint.exists() else ()
        found = [Facts(**{**one, "names": tuple(one["names"])}) for one in json.loads(path.read_text())]
        return Before(tuple(found), gone)

    def facts(self, parties: Sequence[int]) -> list[Facts]:
        return [one for one in self.known if one.party in parties]


def left_by(checkpoint: Path) -> tuple[int, ...]:
    """Who is absent by a checkpoint; none if it is damaged, which is said when it is used."""
    try:
        kept, _ = arrays.unpack(checkpoint.read_bytes()[64:])
        return tuple(kept["absent"][:, 0].tolist())
    except (ValueError, KeyError, IndexError):
        return ()


def gathered(post: Post, parties: int, seconds: float, tell: Callable[[str], None]) -> Sequence[int]:
    """The nodes, once there are enough of them, or when the time is up: those who are there tell who is missing."""
    deadline, seen = time.monotonic() + seconds, -1
    while len(nodes := post.nodes()) < parties:
        if len(nodes) != seen:
            seen = len(nodes)
            tell(f"{seen} of {parties} nodes are there")
        if time.monotonic() > deadline and not nodes:
            raise ClusterError(
                f"no node came within {seconds:g} s: start them with `privadmm federation node`, and see that their "
                "keys are registered"
            )
        if time.monotonic() > deadline:
            break
        time.sleep(POLL)
    return nodes


@dataclass(frozen=True)
class Run:
    config: Config
    job: Job
    cluster: Federation
    directory: RunDir
    facts: Sequence[Facts]

    def carry_out(self, proposal: Proposal, resume: bool, tell: Callable[[str], None]) -> Progress:
        """Every round that is left. If no release was asked for, what was set aside and made is taken back."""
        path = self.directory.path
        seen = receipts.read(path) if (path / receipts.NAME).exists() else []
        try:
            tell("the cost is set aside at every party")
            self.cluster.begin(self.job, proposal, seen)
            write_json(path / PARTIES, [asdict(one) for one in self.facts])
            return train(self.job, self.cluster, self.callbacks(tell), self.progress())
        except ClusterError as error:
            fate = "go on with resume = true" if self.taken_back(resume) else "nothing was released"
            raise ClusterError(f"{error}; {fate}") from error
        except BaseException:
            self.taken_back(resume)
            raise

    def taken_back(self, resume: bool) -> bool:
        """Whether there is something to go on with; if not, nothing is left of the run."""
        kept = resume or self.cluster.asked
        if not kept:
            self.cluster.give_up()
            self.directory.discard()
        return kept

    def progress(self) -> Progress | None:
        path = self.directory.checkpoint
        if not path.exists():
            return None
        return Progress.load(path, self.job.id, self.job.algorithm.start(self.job.public)[0])

    def callbacks(self, tell: Callable[[str], None]) -> list[Callback]:
        def told(view: View) -> None:
            tell(f"round {view.progress.round} of {view.public.rounds}")

        return [
            Receipts(self.directory.path / receipts.NAME, self.cluster),
            Checkpoint(self.directory.checkpoint, self.job.id, self.config.run.checkpoint_every),
            told,
        ]

    def finished(self, progress: Progress, began: float) -> dict[str, Any]:
        job, mode, frame = self.job, self.config.run.mode, framed(self.config, self.facts)
        model = Model(
            frame.arranged(weights(job, progress)),
            frame,
            job.algorithm.name,
            mode,
            job.epsilon,
            job.delta,
            features(job, progress),
            tuple(job.caveats),
        )
        told = absence.told(job, progress, job.id)
        for one in told.get("absent", ()):
            one["why"] = self.cluster.left.get(one["party"], "it had left before this process took over")
        result = {
            **about(job, mode),
            "accuracy_train": None,
            "accuracy_test": None,
            "objective": None,
            "transcript": progress.transcript,
            "adversaries": job.adversaries,
            **job.of_people,
            **told,
            "ledger": "at the parties",
            "seconds": round(time.perf_counter() - began, 3),
            "out": str(self.directory.path),
        }
        model.save(self.directory.model)
        write_json(self.directory.ledger_export, self.account(progress))
        write_json(self.directory.result, result)
        return result

    def account(self, progress: Progress) -> dict[str, Any]:
        """By party, what it released in this run, as far as its answers arrived here."""
        gone = dict(progress.mail.absent.tolist())
        parties = []
        for party in range(self.job.public.parties):
            last = gone.get(party, self.job.public.rounds)
            plan = {(t, phase): rows for (t, phase), rows in self.job.plan.items() if t < last}
            spent = totals(plan, self.job.public.parties)[party]
            cost = math.inf if self.job.delta is None else epsilon(spent, self.job.delta)
            parties.append(
                {
                    "party": party,
                    "records": self.facts[party].records,
                    "events": [{**json.loads(dump(event)), "count": count} for event, count in spent],
                    "epsilon": cost if math.isfinite(cost) else None,
                }
            )
        return {"job": self.job.id, "delta": self.job.delta, "parties": parties}


def framed(config: Config, facts: Sequence[Facts]) -> Frame:
    """How a row becomes a record, from what was declared."""
    plain = neutral(config).data
    bound = build.row_bound(neutral(config))
    names = tuple(name for one in facts for name in one.names) if facts[0].people is not None else facts[0].names
    raw = {"schema": build.schema(neutral(config)), "on_bad": plain.on_bad, "label": plain.label}
    frame = Frame(bound, plain.intercept, names, plain.classes, **raw)  # type: ignore[arg-type]
    if facts[0].people is None:
        return frame
    ends = np.cumsum([0, *(len(one.names) for one in facts)]).tolist()
    groups = [range(start, stop) for start, stop in pairwise(ends)]
    bounds = config.parties.row_bounds or (bound,) * len(facts)
    scaled = config.privacy is not None and config.privacy.adjacency == "column"
    return frame.split(groups, bounds, not scaled)
