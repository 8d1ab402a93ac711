"""One proposed job, one run directory at the coordinator. It measures nothing: it has no records."""

import json
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from privadmm.config import build
from privadmm.config.build_columns import scaling
from privadmm.config.file import Config, check_seed
from privadmm.data import arrays
from privadmm.data.files import write_json
from privadmm.data.frame import Frame
from privadmm.deploy.federation.coordinator import Federation, Patience, Post, greet
from privadmm.deploy.federation.facts import Facts, versions
from privadmm.deploy.federation.keys import Credentials
from privadmm.deploy.federation.label_holder import labels
from privadmm.deploy.federation.layout import Coordinator
from privadmm.deploy.federation.proposal import Kept, Proposal, neutral, parties_of, read_text, written
from privadmm.engine.job import train
from privadmm.engine.loop import View
from privadmm.errors import ClusterError
from privadmm.runs.charges import charges
from privadmm.runs.earlier import earlier
from privadmm.runs.ending import finish, resumable
from privadmm.runs.rundir import RunDir

POLL = 0.5  # seconds between looks at who is there


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
    """Run the job with all its parties; returns what result.json then holds."""
    began = time.perf_counter()
    check_seed(config)
    directory = RunDir(asked.out, "resume = true", "out")
    directory.check(asked.resume)
    parties, plain = parties_of(config), neutral(config)
    proposed = written(plain)
    gone = gone_before(directory) if asked.resume else []
    missing = {facts.party for facts in gone}
    awaited = {party: asked.place.keys / f"party-{party}.pub" for party in range(parties) if party not in missing}
    nodes = gathered(post, len(awaited), asked.patience.timeout, tell)
    tell("the parties are asked whether they take part")
    present = greet(post, proposed, awaited, asked.patience, nodes, Credentials(asked.place.certificates))
    known = sorted([*present.values(), *gone], key=lambda facts: facts.party)
    sizes, dim = [facts.records for facts in known], known[0].dim
    columns = tuple(facts.width for facts in known) if known[0].people is not None else ()
    shape = arrays.pack({"sizes": np.array(sizes)}, dim=dim, columns=columns)
    same = {"config": arrays.digest(proposed.encode()), "shape": arrays.digest(shape), "ledger": "the parties'"}
    job = build.job(plain, np.array(sizes), dim, columns=columns or None)
    homes = {facts.party: node for node, facts in present.items()}
    own = labels(config, job, known[0])
    cluster = Federation(post, homes, awaited, asked.patience, own, asked.place.ended)

    def told(view: View) -> None:
        tell(f"round {view.progress.round} of {view.public.rounds}")

    with directory.opened(same, proposed, job.id, asked.resume) as id:
        proposal = Proposal(id, proposed, tuple(sizes), dim, columns)
        job = Kept(proposal, read_text(directory.config)).job
        with resumable(directory, asked.resume, lambda: nullcontext(cluster), lambda cluster: cluster.asked):
            tell("the cost is set aside at every party")
            cluster.begin(job, proposal, directory.heads(), directory.roster, earlier(asked.place, tell))
            write_json(directory.parties, [asdict(facts) for facts in known])
            callbacks = [*directory.callbacks(job, cluster, config.run.checkpoint_every), told]
            progress = train(job, cluster, callbacks, directory.progress(job))
        # What each party released in this run, as far as its answers arrived here.
        order, gone_from = ("party", "records", "events", "epsilon"), dict(progress.mail.absent.tolist())
        paid = [{key: row[key] for key in order} for row in charges(job, gone_from)]
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


def gone_before(directory: RunDir) -> list[Facts]:
    """Facts of the parties that left a resumed run for good.

    A damaged checkpoint names nobody here; the error comes when it is loaded.
    """
    if not directory.parties.exists() or not directory.checkpoint.exists():
        return []
    try:
        kept, _ = arrays.unpack(directory.checkpoint.read_bytes()[64:])
        absent = kept["absent"][:, 0].tolist()
    except (ValueError, KeyError, IndexError):
        return []
    known = [Facts(**{**facts, "names": tuple(facts["names"])}) for facts in json.loads(directory.parties.read_text())]
    return [facts for facts in known if facts.party in absent]


def gathered(post: Post, parties: int, seconds: float, tell: Callable[[str], None]) -> Sequence[int]:
    """Wait until so many nodes are there, or until the time is up: those who are there tell who is missing."""
    deadline, seen = time.monotonic() + seconds, -1
    while len(nodes := post.nodes()) < parties:
        if len(nodes) != seen:
            seen = len(nodes)
            tell(f"{seen} of {parties} nodes are there")
        if time.monotonic() > deadline:
            if nodes:
                break
            raise ClusterError(
                f"no node came within {seconds:g} s: start them with `privadmm federation node`, and see that their "
                "keys are registered"
            )
        time.sleep(POLL)
    return nodes


def declared_frame(config: Config, plain: Config, facts: Sequence[Facts]) -> Frame:
    """How a row becomes a record, from what was declared; `plain` is the config as it was proposed."""
    bound, vertical = build.row_bound(plain), facts[0].people is not None
    names = tuple(name for party in facts for name in party.names) if vertical else facts[0].names
    frame = build.framed(plain, names, bound, plain.data.classes)
    if not vertical:
        return frame
    ends = np.cumsum([0, *(len(party.names) for party in facts)]).tolist()
    groups = [range(start, stop) for start, stop in pairwise(ends)]
    return frame.split(groups, config.parties.row_bounds or (bound,) * len(facts), scaling(config) is None)
