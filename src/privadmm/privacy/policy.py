"""A party's policy: its budget, and its own decisions about jobs, which hold for all of them."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import get_args

from privadmm.errors import ConfigError, RefusedError
from privadmm.params import HUGE, check_nonnegative, check_positive, check_probability, check_whole
from privadmm.privacy.calibration import Adjacency
from privadmm.privacy.limits import Limits
from privadmm.privacy.meaning import large_delta, large_epsilon
from privadmm.privacy.sums import SecureSum, usual_colluding, usual_fewest

SILENT_DAYS = 7.0


@dataclass(frozen=True)
class Budget:
    """The most that each party of the ledger may spend in total, over all jobs."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        check_nonnegative(epsilon=self.epsilon)  # 0 if delta alone covers what is released
        if self.epsilon > HUGE:
            raise ConfigError(f"epsilon must be at most {HUGE:g}, not {self.epsilon:g}; 1 or less protects people")
        if self.delta != 0:
            check_probability(delta=self.delta)


@dataclass(frozen=True)
class Policy:
    """The party's own decisions, which hold for all jobs. A job is a proposal; this is the authority."""

    budget: Budget | None  # in total (None: nothing is private here, and nothing is refused for its cost)
    per_job: float | None = None  # the most that one job may cost
    algorithms: tuple[str, ...] | None = None  # the only ones allowed
    row_bound: float | None = None  # the only bound to which records may be clipped
    adjacency: Adjacency = "replace-one"  # the neighbours between which everything here is counted
    label_epsilon: float | None = None  # labels are randomised with it, once for all jobs (None: read as they are)
    limits: Limits | None = None  # on a job's parameters (None: any, which only a simulation may do)
    # For secure sums: the fewest colluding parties that a job must tolerate, and the fewest that may be present (None:
    # a third of the job's parties, and nine tenths).
    colluding: int | None = None
    fewest: int | None = None
    silent_days: float = SILENT_DAYS  # jobs without a row for longer are listed, with what they have set aside

    def __post_init__(self) -> None:
        check_positive(silent_days=self.silent_days)
        check_whole(**{name: value for name in ("colluding", "fewest") if (value := getattr(self, name)) is not None})
        for name in ("per_job", "row_bound", "label_epsilon"):
            if (value := getattr(self, name)) is not None:
                check_positive(**{name: value})
        if self.adjacency not in get_args(Adjacency):
            raise ConfigError(f"adjacency must be one of {', '.join(get_args(Adjacency))}, not {self.adjacency!r}")

    @property
    def weak_promise(self) -> str | None:
        """The warning of a budget that promises little once it is spent; None if there is none."""
        return large_epsilon(None if self.budget is None else self.budget.epsilon, self.adjacency, self.label_epsilon)

    def weak_delta(self, records: int | None = None) -> str | None:
        """The warning of a budget whose delta promises nothing about so many records; None if there is none.

        records  how many the party has, if that is known; how many people, if it holds columns
        """
        if self.budget is None:
            return None
        if self.adjacency == "column":
            return large_delta(self.budget.delta, None, "columns")
        return large_delta(self.budget.delta, records, "people" if self.adjacency == "person" else "records")

    def warnings(self, records: int | None = None) -> list[str]:
        """All warnings for somebody who decides for this policy."""
        problems = (self.weak_promise, self.weak_delta(records))
        return [problem for problem in problems if problem is not None]

    def weak_total(self, totals: Iterable[float | None], person: float | None = None) -> str | None:
        """The warning that releases so far, whose epsilons by party are `totals`, leave little of a promise; or None.

        person  the epsilon of a person at all these parties together, where each holds columns of everybody
        """
        known = [total for total in totals if total is not None]
        if not known or max(known) <= 0:
            return None  # nothing was released, or nothing is private: other words say so
        if self.adjacency == "person" and person is not None and len(known) > 1:
            return large_epsilon(person, "people", self.label_epsilon)
        return large_epsilon(max(known), self.adjacency, self.label_epsilon)

    def admit(self, algorithm: str, row_bound: float | None = None) -> None:
        """Refuse a job that the party does not run at all, whatever it costs."""
        if self.algorithms is not None and algorithm not in self.algorithms:
            raise RefusedError(
                f"the party's policy allows {', '.join(self.algorithms)} and not {algorithm}. Nothing was released",
                "policy",
            )
        if self.row_bound is not None and row_bound is not None and row_bound != self.row_bound:
            raise RefusedError(
                f"the party's policy clips records to row_bound = {self.row_bound:g} and the job to {row_bound:g}. "
                "Nothing was released",
                "policy",
            )

    def admit_sum(self, asked: SecureSum | None, parties: int) -> None:
        """Refuse a secure sum that tolerates fewer who collude, or goes on among fewer, than the party accepts."""
        if asked is None:
            return
        most = usual_colluding(parties) if self.colluding is None else self.colluding
        if (t := asked.tolerated(parties)) < most:
            raise RefusedError(
                f"the party's policy asks for sums that tolerate {most} colluding parties, and the job tolerates {t}. "
                f"Nothing was released: set [privacy] colluding = {most}",
                "policy",
            )
        least = usual_fewest(parties) if self.fewest is None else self.fewest
        if asked.least(parties) < least:
            raise RefusedError(
                f"the party's policy sums over {least} parties at least, and the job over {asked.least(parties)}. "
                f"Nothing was released: set [privacy] fewest = {least}",
                "policy",
            )

    def agree(self, adjacency: str | None, label_epsilon: float | None) -> None:
        """Refuse a job that counts between other neighbours, or reads other labels, than all jobs before it."""
        if adjacency not in (None, self.adjacency):
            raise RefusedError(
                f"this ledger counts between neighbours of adjacency = {self.adjacency!r} and the job of "
                f"{adjacency!r}, and the two do not add up. Nothing was released: set adjacency = {self.adjacency!r}",
                "policy",
            )
        if label_epsilon == self.label_epsilon:
            return
        if self.label_epsilon is None:
            raise RefusedError(
                f"this ledger was made for jobs that read labels as they are, and the job has label_epsilon = "
                f"{label_epsilon}: what it promises of labels might be broken already. Nothing was released: remove "
                f"label_epsilon, or, for records that no job has read, make a ledger with --label-epsilon "
                f"{label_epsilon}",
                "policy",
            )
        read = "as they are" if label_epsilon is None else f"with label_epsilon = {label_epsilon}"
        raise RefusedError(
            f"the labels of this ledger are randomised once and for all jobs with label_epsilon = "
            f"{self.label_epsilon}, and the job reads them {read}. Nothing was released: set label_epsilon = "
            f"{self.label_epsilon}",
            "policy",
        )
