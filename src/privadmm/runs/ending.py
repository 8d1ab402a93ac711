"""End a run: write its model and result or, if it ends early, leave it so that it can be resumed."""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from privadmm.data.files import write_json
from privadmm.data.frame import Frame
from privadmm.data.moments_map import Map
from privadmm.engine.job import Job, weights
from privadmm.engine.loop import Progress
from privadmm.engine.phases import features
from privadmm.errors import ClusterError, DivergedError, LedgerError, LockedError, ToleranceError
from privadmm.optim.losses import link_name
from privadmm.privacy.accounting import certified, printed
from privadmm.privacy.events import merge_all, untabled
from privadmm.privacy.ledger_file import utc_now
from privadmm.privacy.meaning import large_epsilon
from privadmm.runs import plots, private_evaluation
from privadmm.runs.charges import absences, last_rounds
from privadmm.runs.metrics import Row
from privadmm.runs.model import Model, notices
from privadmm.runs.regression import chosen
from privadmm.runs.rundir import RunDir

# The keys that `train --json` prints, in this order; result.json has more.
PRINTED = (
    *("algorithm", "private", "rounds", "epsilon", "delta", "per_party", "per_person", "label_holder", "secure_sum"),
    *("mode", "epsilon_warning", "delta_warning"),
    *("accuracy_train", "accuracy_test", "objective", "evaluation", "private_evaluation", "seconds", "out"),
)
UNMEASURED = {"accuracy_train": None, "accuracy_test": None, "objective": None}


class Undoable(Protocol):
    def give_up(self) -> None:
        """Close the job in every ledger, and free the budget that it reserved and did not spend."""
        ...


Parties = TypeVar("Parties", bound=Undoable)


@contextlib.contextmanager
def resumable(
    directory: RunDir,
    resume: bool,
    open: Callable[[], AbstractContextManager[Parties]],
    released: Callable[[Parties], bool],
) -> Iterator[Parties]:
    """Open the parties for the rounds of a run. If it ends early, it can be resumed once anything was released.

    If nothing was released, the budget that ledgers reserved is freed and the directory is discarded.
    """
    kept = resume
    try:
        with open() as parties:
            kept = True  # unless the ledgers say otherwise
            try:
                yield parties
            except BaseException as error:
                with contextlib.suppress(LedgerError, LockedError, ClusterError):
                    kept = resume or released(parties)
                    # Records may have caused this abort, so it tells something about them: the budget stays reserved.
                    if not kept and not isinstance(error, ToleranceError | DivergedError):
                        parties.give_up()
                raise
    except BaseException as error:
        if not kept:
            directory.discard()
        if isinstance(error, ClusterError):
            fate = f"then go on with {directory.resume}" if kept else "nothing was released"
            raise ClusterError(f"{error}; {fate}") from error
        raise


@dataclass(frozen=True)
class Finished:
    """Everything that a finished run wrote. `result` is the content of result.json."""

    result: dict[str, Any]
    rows: list[Row]
    ledger: dict[str, Any]
    directory: RunDir
    model: Model
    chosen: bool  # whether its steps were set for numbers, where it predicts one

    @property
    def printed(self) -> dict[str, Any]:
        return {key: self.result[key] for key in PRINTED if key in self.result}

    @property
    def weak_promise(self) -> str | None:
        """Warn that all runs on this ledger together cost a large epsilon; None if they cost no more than this one."""
        own = self.result["epsilon"]
        each, of = self.ledger["parties"], self.ledger["adjacency"]
        total: float | None = max((party["epsilon"] or 0.0 for party in each), default=0.0)
        if own is None or float(printed(total or 0.0)) <= float(printed(own)):
            return None
        if of == "person":  # what all parties released of one composes
            whole = merge_all(untabled(party["events"]) for party in each)
            total, of = certified(whole, self.ledger["budget"]["delta"]), "people"
        problem = large_epsilon(total, of)
        return problem and f"together with other jobs of {self.result['ledger']}: {problem}"


def model_of(
    job: Job, progress: Progress, frame: Frame, mode: str, map: Map | None = None, pinned: bool = False
) -> Model:
    """Make the model after these rounds. `map` is given if an earlier job released the moments that this one uses."""
    claim = (job.algorithm.name, mode, job.epsilon, job.delta)
    used = map or features(progress.memory)
    w, link = frame.arranged(weights(job, progress)), link_name(job.public.loss)
    return Model(w, frame, *claim, used, tuple(job.caveats_where(pinned)), job.colluding, link)


def about(job: Job, mode: str, pinned: bool = False) -> dict[str, Any]:
    """Header fields of every result."""
    return {
        "notices": [*notices(job.private, mode), *job.caveats_where(pinned)],
        "algorithm": job.algorithm.name,
        "private": job.private,
        "parties": job.public.parties,
        "shape": shape(job),
        "rounds": job.public.rounds,
        "epsilon": job.epsilon,
        "delta": job.delta,
        "mode": mode,
    }


def shape(job: Job) -> dict[str, Any]:
    """Public numbers that the job was made of; a report rebuilds the job from them without reading records."""
    public = job.public
    columns = {"columns": list(public.columns)} if public.columns else {}
    return {"records": public.sizes.tolist(), "dim": int(public.dim), **columns}


def summed(job: Job, peers: str | None) -> dict[str, Any]:
    """Fields of a result about secure sums; empty without them. `peers` is None if one process simulates the keys."""
    return {name: {**facts, "roster": peers or "simulated"} for name, facts in job.in_sums.items()}


def finish(
    directory: RunDir,
    job: Job,
    progress: Progress,
    frame: Frame,
    mode: str,
    *,
    began: float,  # time.perf_counter() at the start
    ledger: str,  # where it is
    spent: dict[str, Any],  # the content of ledger.json
    measured: Mapping[str, Any] = UNMEASURED,  # figures of the model on the pooled records, in a simulation
    expected: Mapping[str, Any] | None = None,  # the estimate of what the budget can buy
    reasons: Mapping[int, str] | None = None,  # why each party left, where a coordinator knows
    peers: str | None = None,  # how parties of secure sums learn one another's keys
    versions: Mapping[str, str] | None = None,  # each party's version of privadmm, in a federation
    rows: Sequence[Row] | None = None,  # metrics by round, for the plots; None: no plots
    reference: Mapping[str, Any] | None = None,  # result of a non-private run on the same problem, for the plots
) -> Finished:
    """Make the model and the result of a run after its last round, and write them, result.json last."""
    pinned = peers == "pinned"
    model, released = model_of(job, progress, frame, mode, pinned=pinned), private_evaluation.found(job, progress)
    result = {
        **about(job, mode, pinned),
        **({} if peers is None else {"peers": peers}),
        **measured,
        **({} if released is None else {"private_evaluation": released}),
        "transcript": progress.transcript,
        "adversaries": job.adversaries,
        **job.of_people,
        **summed(job, peers),
        **({} if expected is None else {"expected": expected}),
        **({} if (problem := job.weak_promise()) is None else {"epsilon_warning": problem}),
        **({} if (problem := job.weak_delta()) is None else {"delta_warning": problem}),
        **absences(job, progress, reasons, last_rounds(directory.heads())),
        **({} if versions is None else {"versions": dict(versions)}),
        "ledger": ledger,
        **({"ended": utc_now()} if mode == "deployment" else {}),
        "seconds": round(time.perf_counter() - began, 3),
        "out": str(directory.path),
    }
    model.save(directory.model)
    write_json(directory.ledger_export, spent)
    if rows:
        plots.convergence(rows, result, directory.convergence, reference)
    if rows is not None:
        plots.spending(job.epsilon_by_round, result, job.published, directory.spending)
    write_json(directory.result, result)
    return Finished(result, list(rows or ()), spent, directory, model, chosen(job.algorithm))
