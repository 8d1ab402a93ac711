"""Figures of a config before it trains: its cost, its noise, and how it withstands an attack.

They are computed from the job that `train` would run, on the same public facts. No record is read, except for embedded
data, which is public. A fact that only unread records tell has to be declared, or figures that need it are refused.
"""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np

from privadmm.algorithms import evaluation_noise
from privadmm.config import build, build_columns, data_source, undeclared
from privadmm.config.file import Config, check_seed
from privadmm.config.sections import PrivacyTable
from privadmm.config.undeclared import Undeclared, UndeclaredError, UndeclaredSizes
from privadmm.data import adult, splits
from privadmm.data.holding_out import held_sizes
from privadmm.data.readers import feature_names
from privadmm.data.schema import Encoding
from privadmm.engine.job import Job
from privadmm.errors import ConfigError, RefusedError
from privadmm.params import check_positive, check_probability
from privadmm.privacy.accounting import Claim
from privadmm.privacy.calibration import Target
from privadmm.privacy.sums import SecureSum
from privadmm.runs.charges import charges, held_out_by
from privadmm.runs.recommend import (
    LEAST_PARTIES,
    Expected,
    Facts,
    expected_fields,
    recommend,
)
from privadmm.runs.recommend import expected as judge
from privadmm.runs.regression import of_noise_alone


@dataclass(frozen=True)
class Shape:
    """Public numbers that a job is made of. Any of them may be `Undeclared`."""

    sizes: Any  # records of each party
    dim: Any  # features of a record; for vertical parties, the number of people
    columns: Any = ()  # how many each vertical party holds

    @property
    def parties(self) -> int:
        return self.sizes.parties if isinstance(self.sizes, UndeclaredSizes) else len(self.sizes)


def with_records(config: Config, count: int | None) -> Config:
    """Set [parties] records to --records: all records that the parties hold, including held-out ones."""
    if count is None:
        return config
    table, vertical = config.parties, config.parties.split == "features"
    if not vertical and count < (table.known or 1):
        raise ConfigError(f"--records is {count}, and {config.path} has {table.known} parties; each needs one at least")
    sizes = counted(config) if config.data.embedded or table.sizes is not None else None
    if sizes is not None:
        declared, trained = sizes[0] if vertical else sum(sizes), to_train_on(config, count)
        if trained != declared:
            raise ConfigError(
                f"--records is {count}, of which {trained} are trained on, and {config.path} has {declared} to "
                "train on; leave --records out"
            )
        if config.data.embedded:
            return config
    return replace(config, parties=replace(table, records=count))


def shape(config: Config) -> Shape:
    """Find the shape that training will have, as far as the config tells."""
    sizes: Any = counted(config)
    vertical = config.parties.split == "features"
    if sizes is None:
        assert config.parties.known is not None  # `counted` refuses a config without it
        total = "how many people there are" if vertical else "how many all parties hold together"
        hint = f"; or add records = ..., or give --records, {total}" if vertical or dealt_evenly(config) else ""
        sizes = undeclared.undeclared_sizes(config, config.parties.known, hint)
    if vertical:
        return Shape(sizes, sizes if isinstance(sizes, Undeclared) else sizes[0], columns(config))
    features = data_source.names(config)
    constant = config.data.intercept > 0
    return Shape(sizes, undeclared.undeclared_dim(config) if features is None else len(features) + constant)


def dealt_evenly(config: Config) -> bool:
    return config.parties.split == "even" and not config.data.by_party


def counted(config: Config) -> tuple[int, ...] | None:
    """Number of records that each party trains on; None if unknown.

    The total tells each party's number only if the config deals records out evenly.
    """
    table, vertical = config.parties, config.parties.split == "features"
    sizes = embedded_sizes(config) if config.data.embedded else table.sizes
    if sizes is None and table.known is None:
        raise ConfigError(
            f"{config.path}: [parties] count is missing: only the column {table.column!r} tells how many parties there "
            "are, and no record is read here; add count, or sizes"
        )
    if vertical and sizes is not None:
        sizes = sizes[: table.known]
        if len(set(sizes)) > 1:
            raise ConfigError(
                f"{config.path}: [parties] sizes has different numbers, and parties that hold columns have the same "
                "people; correct it"
            )
    if sizes is not None or table.records is None:
        return sizes
    assert table.known is not None  # refused above
    trained = to_train_on(config, table.records)
    if vertical:
        return (trained,) * table.known
    return tuple(splits.even_sizes(trained, table.known).tolist()) if dealt_evenly(config) else None


def to_train_on(config: Config, records: int) -> int:
    """How many of the declared records are trained on, and not held out for measuring."""
    return records - (splits.held_out(records, config.data.test_fraction) if config.holds_out else 0)


def embedded_sizes(config: Config) -> tuple[int, ...]:
    """Sizes of the parties' shares of embedded data, by the split that training makes."""
    records = data_source.people_of(config)
    rows, _ = build.measured(config, len(records))
    if config.parties.split != "features":
        return tuple(len(part) for part in build.dealt(config, records, rows))
    sizes = [len(rows)] * (config.parties.known or 1)
    build.check_sizes(config, sizes)
    return tuple(sizes)


def columns(config: Config) -> Any:
    """How many columns each vertical party trains on."""
    table, features = config.parties, data_source.names(config)
    numbers = [item for item in table.columns or () if isinstance(item, int)]
    if numbers and features is None:
        features = feature_names(sum(numbers))
    # Columns that are named in [parties] need the names in a schema, even if [data] dim tells their number.
    named = table.columns is not None and not numbers
    unknown = named and config.data.schema is None and not config.data.embedded
    if features is None or table.files is not None or unknown:
        return undeclared.undeclared_columns(config)
    return build_columns.widths(config, features)


def foreseen(config: Config) -> Job:
    """Make the job that `train` will run, as far as the config tells."""
    return made(config, shape(config))


def made(config: Config, shape: Shape) -> Job:
    return build.job(config, shape.sizes, shape.dim, columns=shape.columns)


def account(config: Config) -> dict[str, Any]:
    """Compute what the config costs each party, certified and as its paper claims."""
    if config.run.mode == "deployment":
        check_seed(config)
    job = foreseen(config)
    claim = job.published or Claim(None, "no paper claims anything for this noise")
    return {
        "algorithm": job.algorithm.name,
        "private": job.private,
        "rounds": job.public.rounds,
        "delta": job.delta,
        "certified": {"epsilon": job.epsilon},
        "published": {"epsilon": claim.epsilon, "caveat": claim.caveat},
        "advice": job.algorithm.advice(job.public),
        "adversaries": job.adversaries,
        **job.of_people,
        **job.in_sums,
        **estimates(config, job),
        "parties": charges(job, job.leave),
    }


def estimates(config: Config, job: Job) -> dict[str, Any]:
    """Estimate what to expect of a job. No guarantee rests on these figures.

    If only the number of all records is declared, and not of each party, they are assumed to be dealt out evenly.
    """
    table, assumed = config.parties, dict[str, Any]()
    if isinstance(job.public.sizes, UndeclaredSizes) and table.records is not None:
        records = to_train_on(config, table.records)
        sizes = tuple(splits.even_sizes(records, job.public.parties).tolist())
        job = made(config, replace(shape(config), sizes=sizes))
        assumed = {"assumed": {"records": records - sum(held_out_by(job) or ())}}
    return {**outlook(job), **of_budget(job), **of_evaluation(job), **assumed}


def outlook(job: Job) -> dict[str, Any]:
    """Estimate the quality of a private job, or say why there is no estimate."""
    if not job.private:
        return {}
    if job.public.columns:
        return {"not_expected": "no estimate is made for parties that hold columns"}
    try:
        if not job.public.loss.classification:
            noise = of_noise_alone(job)
            return {"not_expected": noise} if isinstance(noise, str) else {"regression": noise.table}
        expected = expected_fields(job)
    except UndeclaredError as error:
        return {"not_expected": str(error)}
    if expected is None:
        return {"not_expected": "some release of this method has no GDP parameter to judge it by"}
    better = with_sums(job)
    return {"expected": expected, **({} if better is None else {"with_secure_sum": better.table})}


def of_budget(job: Job) -> dict[str, str]:
    """Warn of an epsilon that promises little and of a delta that promises nothing, if the declared facts tell."""
    problems = dict[str, str]()
    for name, of in (("epsilon_warning", Job.weak_promise), ("delta_warning", Job.weak_delta)):
        with contextlib.suppress(UndeclaredError):
            if (problem := of(job)) is not None:
                problems[name] = problem
    return problems


def of_evaluation(job: Job) -> dict[str, Any]:
    """Estimate how precisely the private evaluation will know the accuracy; empty without one."""
    try:
        foreseen = evaluation_noise.foreseen(job)
    except UndeclaredError as error:
        foreseen = {"unknown": str(error)}
    return {} if foreseen is None else {"evaluation": foreseen}


def with_sums(job: Job) -> Expected | None:
    """Estimate the job with its messages summed securely; None if they already are, or cannot be."""
    public, target = job.public, job.public.privacy
    if not isinstance(target, Target) or target.sum is not None or public.parties < LEAST_PARTIES:
        return None
    try:
        return judge(Job(job.algorithm, replace(public, privacy=replace(target, sum=SecureSum()))))
    except ConfigError:  # its method cannot sum
        return None


def widths(config: Config) -> Mapping[Encoding, int]:
    """Number of encoded features without the intercept, by encoding; empty if the config does not tell."""
    table = config.data
    declared = adult.SCHEMA if table.source == "embedded:adult" else data_source.schema(config)
    if declared is not None:
        return {encoding: declared.encoded(encoding).dim for encoding in get_args(Encoding)}
    dim = len(adult.A9A_NAMES) if table.embedded else table.dim
    return {} if dim is None else dict.fromkeys(get_args(Encoding), dim)


def facts(config: Config, epsilon: float | None = None, delta: float | None = None) -> Facts:
    """Collect the public facts of a config for a recommendation; arguments replace what it declares."""
    privacy = config.privacy
    if config.parties.split == "features":
        raise ConfigError(f"{config.path}: recommendations are for parties that hold records")
    if config.loss.name == "squared":
        raise ConfigError(
            f"{config.path}: recommendations and their estimate are for two classes and do not cover regression "
            '([loss] name = "squared"); `privadmm account` says whether such a run can beat a constant'
        )
    sizes = counted(config)
    parties = config.parties.known if sizes is None else len(sizes)
    if (
        sizes is None and config.parties.records is not None and parties is not None
    ):  # estimates take it as dealt evenly
        sizes = tuple(splits.even_sizes(to_train_on(config, config.parties.records), parties).tolist())
    if sizes is None:
        raise ConfigError(
            f"{config.path}: how many records there are only the data tell; give --records, or add [parties] sizes, "
            "or records, how many there are in all"
        )
    held = int(held_sizes(np.array(sizes), config.evaluation.held_out).sum()) if config.evaluates else 0
    records = len(data_source.people_of(config)) if config.data.embedded else config.parties.records or sum(sizes)
    asked = epsilon if epsilon is not None or privacy is None else privacy.epsilon
    shares = privacy.party_epsilon if epsilon is None and privacy is not None else None
    limit = delta if delta is not None or privacy is None else privacy.delta
    if (asked is None and shares is None) or limit is None:
        given = {"epsilon": asked if shares is None else shares, "delta": limit}
        missing = [name for name, value in given.items() if value is None]
        keys, options = " and ".join(missing), " and ".join(f"--{name}" for name in missing)
        raise ConfigError(f"{config.path}: there is no [privacy] {keys}; give {options}")
    summed = None if privacy is None else build.summed(privacy)
    held_out = records - sum(sizes) + held
    return Facts(records, shares or (asked or 0.0,) * len(sizes), limit, widths(config), summed, held_out)


def planned(config: Config, epsilon: float | None, delta: float | None) -> dict[str, Any]:
    """Plan for this budget: the noise of each release, and after each round epsilon of the party that spent most.

    An epsilon or delta of None is the config's.
    """
    if not config.algorithm.parameters.adjacencies:
        raise ConfigError(f"{config.algorithm.name} is not private; there is nothing to plan for")
    if config.privacy is not None:
        epsilon = config.privacy.epsilon if epsilon is None else epsilon
        delta = config.privacy.delta if delta is None else delta
    if epsilon is None or delta is None:
        name = "epsilon" if epsilon is None else "delta"
        raise ConfigError(f"{config.path}: has no [privacy] {name} to plan for; say --{name}")
    check_positive(epsilon=epsilon)
    check_probability(delta=delta)
    own = config.privacy or PrivacyTable(delta=delta)
    asked = replace(config, privacy=replace(own, epsilon=epsilon, delta=delta, party_epsilon=None))
    job = foreseen(asked)
    if job.epsilon is None or job.epsilon > epsilon:
        raise RefusedError(
            f"{config.path}: its noise is fixed, so the smallest feasible epsilon at delta = {delta:g} is {job.epsilon}"
        )
    expected = estimates(asked, job)
    return {
        "algorithm": job.algorithm.name,
        "rounds": job.public.rounds,
        "epsilon": epsilon,
        "delta": delta,
        "parties": charges(job, job.leave),
        "epsilon_by_round": job.epsilon_by_round,
        **job.in_sums,
        **expected,
        **({"recommended": recommend(facts(asked)).table} if "expected" in expected else {}),
    }


def audited(config: Config, trials: int, done: Callable[[int, int], None]) -> dict[str, Any]:
    """Attack the config's algorithm, and planted bugs. Calls `done(games, of)` to report progress."""
    from privadmm.engine.audit import audit

    known = shape(config)
    if not known.columns:
        # Where noise is relative to a record's weight, whatever that is, bugs show best at the greatest: one record.
        with contextlib.suppress(UndeclaredError):
            made(config, replace(known, sizes=undeclared.undeclared_sizes(config, known.parties)))
            known = replace(known, sizes=(1,) * known.parties)
    job = made(config, known)
    return audit(job.algorithm, job.public, trials, done=done) | {"epsilon_of_job": job.epsilon} | job.in_sums
