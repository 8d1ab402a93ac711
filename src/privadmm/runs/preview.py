"""What can be said of a config before it trains: its cost, its noise, and how it stands an attack.

Every figure is one of the job that `train` would run, on the same public facts. No record is read, but for embedded
data, which is public. What only unread records tell has to be declared, or no figure that depends on it is given.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, get_args

from privadmm.config import build, build_columns
from privadmm.config.file import Config, check_seed
from privadmm.config.sections import PrivacyTable
from privadmm.config.undeclared import (
    Undeclared,
    UndeclaredError,
    UndeclaredSizes,
    undeclared_columns,
    undeclared_dim,
    undeclared_sizes,
)
from privadmm.data import adult, splits
from privadmm.data.readers import feature_names
from privadmm.data.schema import Encoding
from privadmm.engine.job import Job
from privadmm.errors import ConfigError, RefusedError
from privadmm.params import check_positive, check_probability
from privadmm.privacy.accounting import epsilon as cost
from privadmm.privacy.accounting import totals
from privadmm.privacy.events import dump
from privadmm.runs.recommend import Facts, expected, recommend, warning


@dataclass(frozen=True)
class Shape:
    """The public numbers that a job is made of. Any of them may be `Undeclared`."""

    sizes: Any  # records of each party
    dim: Any  # features of a record; of vertical parties, the people
    columns: Any = ()  # of each vertical party

    @property
    def parties(self) -> int:
        return self.sizes.parties if isinstance(self.sizes, UndeclaredSizes) else len(self.sizes)


def shape(config: Config, count: int | None = None) -> Shape:
    """As training will have it, as far as the config tells; `count` is the number of records that its user says."""
    sizes, features = counted(config, count), build.names(config)
    known: Any = sizes
    if sizes is None:
        assert config.parties.known is not None  # or `counted` has asked for it
        known = undeclared_sizes(config, config.parties.known, records_option(config))
    if config.parties.split == "features":
        return Shape(known, known if isinstance(known, Undeclared) else known[0], columns(config))
    constant = config.data.intercept > 0
    return Shape(known, undeclared_dim(config) if features is None else len(features) + constant)


def records_option(config: Config) -> str:
    """What to say of --records where sizes are missing."""
    if config.parties.split == "features":
        return "; or give --records, how many people there are"
    return (
        "; or give --records, how many all parties train on together, dealt out evenly" if dealt_evenly(config) else ""
    )


def dealt_evenly(config: Config) -> bool:
    return config.parties.split == "even" and not config.data.by_party


def counted(config: Config, count: int | None = None) -> tuple[int, ...] | None:
    """Number of records that each party trains on, from the config or from --records; unknown otherwise."""
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
    if count is None:
        return sizes
    if sizes is None:
        return spread(config, count)
    if count != (known := sizes[0] if vertical else sum(sizes)):
        raise ConfigError(f"--records is {count}, and {config.path} has {known} to train on; leave --records out")
    return sizes


def embedded_sizes(config: Config) -> tuple[int, ...]:
    """Sizes and width of embedded data, by the split that training makes."""
    found = build.people_of(config)
    rows, _ = build.measured(config, len(found))
    if config.parties.split != "features":
        return tuple(len(part) for part in build.dealt(config, found, rows))
    sizes = [len(rows)] * (config.parties.known or 1)
    build.check_sizes(config, sizes)
    return tuple(sizes)


def spread(config: Config, count: int) -> tuple[int, ...]:
    """So many records at every party of those that hold columns, or in all, dealt out evenly."""
    table, data = config.parties, config.data
    assert table.known is not None  # or `counted` has asked for it
    if table.split == "features":
        return (count,) * table.known
    if not dealt_evenly(config):
        told = f"source = {data.source!r}" if data.by_party else f"split = {table.split!r}"
        raise ConfigError(
            f"--records deals records out evenly, and {config.path} does not ({told}): declare [parties] sizes instead"
        )
    return tuple(splits.even_sizes(count, table.known).tolist())


def columns(config: Config) -> Any:
    """How many columns each vertical party trains on."""
    table, features = config.parties, build.names(config)
    numbers = [item for item in table.columns or () if isinstance(item, int)]
    if numbers and features is None:
        features = feature_names(sum(numbers))
    # Without a schema the names of a file's columns are not known, be their number declared.
    named = table.columns is not None and not numbers
    unknown = named and config.data.schema is None and not config.data.embedded
    if features is None or table.files is not None or unknown:
        return undeclared_columns(config)
    return build_columns.widths(config, features)


def foreseen(config: Config, count: int | None = None) -> Job:
    """The job that `train` will run, as far as the config tells."""
    known = shape(config, count)
    return build.job(config, known.sizes, known.dim, columns=known.columns)


def account(config: Config, count: int | None = None) -> dict[str, Any]:
    """What the config will cost each party, certified and as published."""
    if config.run.mode == "deployment":
        check_seed(config)
    job = foreseen(config, count)
    claim = job.published
    return {
        "algorithm": job.algorithm.name,
        "private": job.private,
        "rounds": job.public.rounds,
        "delta": job.delta,
        "certified": {"epsilon": job.epsilon},
        "published": {
            "epsilon": None if claim is None else claim.epsilon,
            "caveat": "no paper claims anything for this noise" if claim is None else claim.caveat,
        },
        "advice": job.algorithm.advice(job.public),
        "adversaries": job.adversaries,
        **job.of_people,
        **outlook(job),
        "parties": charges(job),
    }


def charges(job: Job) -> list[dict[str, Any]]:
    """What each party's ledger will be charged by the end; a party that leaves pays for the rounds before that."""
    found, sizes = [], job.public.sizes
    for party, whole in enumerate(totals(job.plan, job.public.parties)):
        last = job.leave.get(party, job.public.rounds)
        spent = whole
        if last < job.public.rounds:
            before = {tick: events for tick, events in job.plan.items() if tick[0] < last}
            spent = totals(before, job.public.parties)[party]
        total = math.inf if job.budget is None else cost(spent, job.budget.delta)
        events = [{**json.loads(dump(event)), "count": count} for event, count in spent]
        found.append(
            {
                "party": party,
                "records": None if isinstance(sizes, Undeclared) else int(sizes[party]),
                "epsilon": total if math.isfinite(total) else None,
                "events": events,
            }
        )
    return found


def outlook(job: Job) -> dict[str, Any]:
    """What to expect of a private job, or why that is not estimated."""
    if not job.private:
        return {}
    if job.public.columns:
        return {"not_expected": "no estimate is made for parties that hold columns"}
    if not job.public.loss.classification:
        return {"not_expected": "the estimate is for two classes and does not cover regression"}
    try:
        found = expected(job)
        if found is None:
            return {"not_expected": "some release of this method has no Gaussian worth to judge it by"}
        return {"expected": {**found.table, "warning": warning(job)}}
    except UndeclaredError as error:
        return {"not_expected": str(error)}


def widths(config: Config) -> Mapping[Encoding, int]:
    """The number of encoded features, by encoding, if the config alone tells; without the intercept."""
    table = config.data
    declared = adult.SCHEMA if table.source == "embedded:adult" else build.schema(config)
    if declared is not None:
        return {encoding: declared.encoded(encoding).dim for encoding in get_args(Encoding)}
    dim = len(adult.A9A_NAMES) if table.embedded else table.dim
    return {} if dim is None else dict.fromkeys(get_args(Encoding), dim)


def facts(config: Config, count: int | None = None, epsilon: float | None = None, delta: float | None = None) -> Facts:
    """The public facts of a config, or those given in place of them."""
    privacy = config.privacy
    if config.parties.split == "features":
        raise ConfigError(f"{config.path}: recommendations are for parties that hold records")
    if config.loss.name == "squared":
        raise ConfigError(
            f"{config.path}: recommendations and their estimate are for two classes and do not cover regression "
            '([loss] name = "squared"); compare the run with a constant on public data instead'
        )
    sizes = counted(config)
    parties = config.parties.known if sizes is None else len(sizes)
    known = count if count is not None or sizes is None else sum(sizes)
    if known is None:
        raise ConfigError(
            f"{config.path}: how many records there are only the data tell; give --records, or add [parties] sizes"
        )
    assert parties is not None
    asked = epsilon if epsilon is not None or privacy is None else privacy.epsilon
    shares = privacy.party_epsilon if epsilon is None and privacy is not None else None
    limit = delta if delta is not None or privacy is None else privacy.delta
    if (asked is None and shares is None) or limit is None:
        raise ConfigError(f"{config.path}: there is no [privacy] epsilon and delta; give --epsilon and --delta")
    return Facts(known, shares or (asked or 0.0,) * parties, limit, widths(config))


def planned(config: Config, epsilon: float, delta: float, count: int | None = None) -> dict[str, Any]:
    """What this budget buys: the noise of each release and what the worst party has spent after each round."""
    check_positive(epsilon=epsilon)
    check_probability(delta=delta)
    if not config.algorithm.parameters.adjacencies:
        raise ConfigError(f"{config.algorithm.name} is not private; there is nothing to plan for")
    asked = config.privacy or PrivacyTable(delta=delta)
    privacy = replace(asked, epsilon=epsilon, delta=delta, party_epsilon=None)
    asking = replace(config, privacy=privacy)
    job = foreseen(asking, count)
    if job.epsilon is None or job.epsilon > epsilon:
        raise RefusedError(
            f"{config.path}: its noise is fixed, so the smallest feasible epsilon at delta = {delta:g} is {job.epsilon}"
        )
    return {
        "algorithm": job.algorithm.name,
        "rounds": job.public.rounds,
        "epsilon": epsilon,
        "delta": delta,
        "parties": charges(job),
        "epsilon_by_round": job.epsilon_by_round,
        **advised(asking, job, count),
    }


def advised(config: Config, job: Job, count: int | None) -> dict[str, Any]:
    """What to expect, and what is recommended instead, where the number of records is known."""
    found = outlook(job)
    return found | ({"recommended": recommend(facts(config, count)).table} if "expected" in found else {})


def audited(config: Config, trials: int, done: Callable[[int, int], None], count: int | None = None) -> dict[str, Any]:
    """The attack on the config's algorithm, and on planted bugs; `done(games, of)` is told how far it is."""
    from privadmm.engine.audit import audit

    known = shape(config, count)
    if not known.columns and not needs_sizes(config, known):
        # This noise is relative to a record's weight, whatever that is. Bugs show best at the greatest: one record.
        known = replace(known, sizes=(1,) * known.parties)
    job = build.job(config, known.sizes, known.dim, columns=known.columns)
    return audit(job.algorithm, job.public, trials, done=done) | {"epsilon_of_job": job.epsilon}


def needs_sizes(config: Config, known: Shape) -> bool:
    """Whether the plan depends on how many records the parties have."""
    try:
        build.job(config, undeclared_sizes(config, known.parties), known.dim, columns=known.columns)
    except UndeclaredError:
        return True
    return False
