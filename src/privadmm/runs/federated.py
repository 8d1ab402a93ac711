"""One proposed job, one run directory at the coordinator. It measures nothing: it has no records."""

import json
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from privadmm.config import build, data_source
from privadmm.config.build_columns import scaling
from privadmm.config.file import Config, check_seed
from privadmm.data import arrays
from privadmm.data.files import write_json
from privadmm.data.frame import Frame
from privadmm.deploy.federation.facts import Facts, versions
from privadmm.deploy.federation.hub.coordinator import Federation, Patience, Post, end_job, note_ended
from privadmm.deploy.federation.hub.greeting import greet
from privadmm.deploy.federation.hub.label_holder import labels
from privadmm.deploy.federation.keys import Credentials
from privadmm.deploy.federation.layout import Coordinator
from privadmm.deploy.federation.proposal import Kept, Proposal, neutral, parties_of, read_text, written
from privadmm.engine.job import Job, train
from privadmm.engine.phases import check_departure
from privadmm.engine.sums import check_without
from privadmm.errors import ClusterError
from privadmm.runs.charges import charges, last_rounds, rounds_paid
from privadmm.runs.earlier import earlier
from privadmm.runs.ending import finish, resumable
from privadmm.runs.reporting import Report, Silent
from privadmm.runs.rundir import RunDir, noted

POLL = 0.5  # seconds between looks at who is there


@dataclass(frozen=True)
class Asked:
    """How a run was asked for."""

    out: Path
    place: Coordinator  # which has the parties' public keys, party-N.pub, and certificates of its own
    resume: bool = False
    patience: Patience = field(default_factory=Patience)


def federate(config: Config, post: Post, asked: Asked, report: Report | None = None) -> dict[str, Any]:
    """Run the job with all its parties; returns what result.json then holds.

    A run begins with all of them. One that is resumed goes on without those that do not come, if `absent` is
    "continue": they leave for good, like a party that leaves in the middle.
    """
    began, report = time.perf_counter(), report or Silent()
    check_seed(config)
    directory = RunDir(asked.out)
    directory.check(asked.resume)
    parties, plain = parties_of(config), neutral(config)
    proposed = written(plain)
    before, gone = known_before(directory) if asked.resume else ({}, {})
    awaited = {party: asked.place.keys / f"party-{party}.pub" for party in range(parties) if party not in gone}
    nodes = gathered(post, len(awaited), asked.patience.timeout, report)
    report.tell("the parties are asked whether they take part")
    may_leave = bool(before) and asked.patience.absent == "continue"
    credentials = Credentials(asked.place.certificates)
    present, missing = greet(post, proposed, awaited, asked.patience, nodes, credentials, may_leave, report.refused)
    away = {party: before[party] for party in [*gone, *missing]}
    known = sorted([*present.values(), *away.values()], key=lambda facts: facts.party)
    sizes, dim = [facts.records for facts in known], known[0].dim
    columns = tuple(facts.width for facts in known) if known[0].people is not None else ()
    shape = arrays.pack({"sizes": np.array(sizes)}, dim=dim, columns=columns)
    same = {"config": arrays.digest(proposed.encode()), "shape": arrays.digest(shape), "ledger": "the parties'"}
    same |= noted(config)
    job = build.job(plain, np.array(sizes), dim, columns=columns or None)
    homes = {facts.party: node for node, facts in present.items()}
    own = labels(config, job, known[0])
    cluster = Federation(post, homes, awaited, asked.patience, own, asked.place.ended, may_leave, left=dict(missing))
    cluster.tell_undecided, cluster.tell_refused = report.undecided, report.refused
    cluster.names = {facts.party: facts.called for facts in known}
    report.met(homes, known)

    with directory.opened(same, proposed, job.id, asked.resume) as id:
        proposal = Proposal(id, proposed, tuple(sizes), dim, columns)
        job = Kept(proposal, read_text(directory.config)).job
        with resumable(directory, asked.resume, lambda: nullcontext(cluster), lambda cluster: cluster.keeps_its_id):
            reached = directory.progress(job)
            done = 0 if reached is None else reached.round
            heads = directory.heads()
            heard = last_rounds(heads)
            asked_for = max((rounds_paid(party, heard) for party in heard), default=0)
            if missing:
                check_absent(job, done, list(gone), list(missing), asked_for)
            report.tell("the cost is set aside at every party")
            cluster.begin(job, proposal, heads, directory.roster, earlier(asked.place, report.tell))
            write_json(directory.parties, [asdict(facts) for facts in known])
            report.begun(job, done, gone, heard)
            callbacks = [*directory.callbacks(job, cluster, config.run.checkpoint_every), report.round]
            progress = train(job, cluster, callbacks, reached, asked_for)
        # What each party released in this run; of one that left, with the answer that did not arrive here.
        order, gone_from = ("party", "records", "events", "epsilon"), dict(progress.mail.absent.tolist())
        counted = charges(job, gone_from, last_rounds(directory.heads()))
        paid = [{key: row[key] for key in order} for row in counted]
        finished = finish(
            directory,
            job,
            progress,
            declared_frame(config, plain, known),
            config.run.mode,
            began=began,
            ledger="at the parties",
            spent={"job": job.id, "delta": job.delta, "parties": paid},
            reasons=cluster.left,
            # A party takes part in secure sums only with the keys that it pinned itself.
            peers=None if job.sums is None else "pinned",
            versions=versions(known),
        )
        cluster.end()
        return finished.result


def check_absent(job: Job, done: int, gone: Sequence[int], missing: Sequence[int], asked: int) -> None:
    """Refuse to go on without the missing where the others cannot, before anybody is asked for a release.

    `asked`: how many rounds the run may have asked for before it was interrupted.
    """
    before = np.setdiff1d(job.public.ids, gone)
    here = np.setdiff1d(before, missing)
    check_departure(job.algorithm, job.public, here)
    if job.sums is not None and done < job.public.rounds:
        check_without(job.algorithm, job.public, done, before, here, asked)


def end(post: Post, place: Coordinator, directory: RunDir) -> int:
    """Tell all parties that the job is over for good; how many heard it. The others are told when a run begins."""
    note_ended(place.ended, directory.job_id)
    heard = end_job(post, post.nodes(), directory.job_id)
    write_json(directory.ended, {"job": directory.job_id, "told": heard})
    return heard


def known_before(directory: RunDir) -> tuple[dict[int, Facts], dict[int, int]]:
    """Facts of all parties of a run that has begun, and since which round some of them are gone for good.

    A damaged checkpoint tells nothing here; the error comes when it is loaded.
    """
    if not directory.parties.exists():
        return {}, {}
    absent: dict[int, int] = {}
    if directory.checkpoint.exists():
        try:
            kept, _ = arrays.unpack(directory.checkpoint.read_bytes()[64:])
            absent = dict(kept["absent"].tolist())
        except (ValueError, KeyError, IndexError):
            return {}, {}
    known = [Facts(**{**facts, "names": tuple(facts["names"])}) for facts in json.loads(directory.parties.read_text())]
    return {facts.party: facts for facts in known}, absent


def gathered(post: Post, parties: int, seconds: float, report: Report) -> Sequence[int]:
    """Wait until this many nodes are there, or until the time is up: those who are there tell who is missing."""
    deadline, seen = time.monotonic() + seconds, -1
    while len(nodes := post.nodes()) < parties:
        report.here(nodes)
        if len(nodes) != seen:
            seen = len(nodes)
            report.tell(f"{seen} of {parties} nodes are there")
        if time.monotonic() > deadline:
            if nodes:
                break
            raise ClusterError(
                f"no node came within {seconds:g} s: start them with `privadmm federation node`, and see that their "
                "keys are registered"
            )
        time.sleep(POLL)
    report.here(nodes)
    return nodes


def declared_frame(config: Config, plain: Config, facts: Sequence[Facts]) -> Frame:
    """How a row becomes a record, from what was declared; `plain` is the config as it was proposed."""
    bound, vertical = data_source.row_bound(plain), facts[0].people is not None
    names = tuple(name for party in facts for name in party.names) if vertical else facts[0].names
    frame = data_source.framed(plain, names, bound, plain.data.classes)
    if not vertical:
        return frame
    ends = np.cumsum([0, *(len(party.names) for party in facts)]).tolist()
    groups = [range(start, stop) for start, stop in pairwise(ends)]
    return frame.split(groups, config.parties.row_bounds or (bound,) * len(facts), scaling(config) is None)
