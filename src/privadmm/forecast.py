"""What can be said of a config before any record is read: its cost, its noise, and how it stands an attack."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, get_args

from privadmm import assembly, check
from privadmm.config import Config, PrivacyTable, check_seed
from privadmm.data import adult
from privadmm.data.schema import Encoding
from privadmm.errors import ConfigError, RefusedError
from privadmm.job import Job
from privadmm.privacy.accounting import epsilon as cost
from privadmm.privacy.accounting import totals
from privadmm.privacy.events import dump
from privadmm.recommend import Facts, expected, recommend, warning

EMBEDDED = {"embedded:adult": 45_222, "embedded:a9a": 48_842}  # records


def account(config: Config) -> dict[str, Any]:
    """What the config will cost each party, certified and as published. No record is read."""
    if config.run.mode == "deployment":
        check_seed(config)
    job = assembly.job(config)
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
        **outlook(config, job),
    }


def outlook(config: Config, job: Job, count: int | None = None) -> dict[str, Any]:
    """What to expect of a private job, or why that is not estimated."""
    if not job.private:
        return {}
    if job.public.columns:
        return {"not_expected": "no estimate is made for parties that hold columns"}
    if not job.public.loss.classification:
        return {"not_expected": "the estimate is for two classes and does not cover regression"}
    if (known := records(config, count)) is None:
        return {
            "not_expected": "the number of records is unknown: declare [parties] sizes, or give `plan` --records"
        }
    sizes = config.parties.sizes if count is None else None
    if sizes is None:  # as even as can be: with weights by records only their sum counts
        each, more = divmod(known, job.public.parties)
        sizes = tuple(each + (party < more) for party in range(job.public.parties))
    sized = assembly.job(config, sizes, width(config) or job.public.dim)
    found = expected(sized)
    if found is None:
        return {"not_expected": "some release of this method has no Gaussian worth to judge it by"}
    return {"expected": {**found.table, "warning": warning(sized)}}


def records(config: Config, count: int | None = None) -> int | None:
    """How many there are to train on, if the config alone tells; `count` is what its user says."""
    if count is not None or config.parties.sizes is not None:
        return count if count is not None else sum(config.parties.sizes or ())
    whole = EMBEDDED.get(config.data.source)
    if whole is None or config.parties.known is None:
        return None
    held_out = config.data.test_fraction if config.run.mode == "simulation" else 0.0
    return whole - round(whole * held_out)


def widths(config: Config) -> Mapping[Encoding, int]:
    """The number of encoded features, by encoding, if the config alone tells."""
    table = config.data
    declared = adult.SCHEMA if table.source == "embedded:adult" else assembly.schema(config)
    if declared is not None:
        return {encoding: declared.encoded(encoding).dim for encoding in get_args(Encoding)}
    dim = len(adult.A9A_NAMES) if table.embedded else table.dim
    return {} if dim is None else dict.fromkeys(get_args(Encoding), dim)


def width(config: Config) -> int | None:
    return widths(config).get(config.data.encoding)


def facts(
    config: Config, count: int | None = None, epsilon: float | None = None, delta: float | None = None
) -> Facts:
    """The public facts of a config, or those given in place of them."""
    known, parties, privacy = records(config, count), config.parties.known, config.privacy
    if config.parties.split == "features":
        raise ConfigError(f"{config.path}: recommendations are for parties that hold records")
    if config.loss.name == "squared":
        raise ConfigError(
            f"{config.path}: recommendations and their estimate are for two classes and do not cover regression "
            '([loss] name = "squared"); compare the run with a constant on public data instead'
        )
    if parties is None:
        raise ConfigError(
            f"{config.path}: how many parties there are only the data tell; add [parties] count"
        )
    if known is None:
        raise ConfigError(
            f"{config.path}: how many records there are only the data tell; give --records, or add [parties] sizes"
        )
    asked = epsilon if epsilon is not None or privacy is None else privacy.epsilon
    shares = privacy.party_epsilon if epsilon is None and privacy is not None else None
    limit = delta if delta is not None or privacy is None else privacy.delta
    if (asked is None and shares is None) or limit is None:
        raise ConfigError(
            f"{config.path}: there is no [privacy] epsilon and delta; give --epsilon and --delta"
        )
    return Facts(known, shares or (asked or 0.0,) * parties, limit, widths(config))


def planned(config: Config, epsilon: float, delta: float, count: int | None = None) -> dict[str, Any]:
    """What this budget buys: the noise of each release and what the worst party has spent after each round."""
    check.positive(epsilon=epsilon)
    check.probability(delta=delta)
    if not config.algorithm.parameters.private:
        raise ConfigError(f"{config.algorithm.name} is not private; there is nothing to plan for")
    asked = config.privacy or PrivacyTable(delta=delta)
    privacy = replace(asked, epsilon=epsilon, delta=delta, party_epsilon=None)
    asking = replace(config, privacy=privacy)
    job = assembly.job(asking)
    if job.epsilon is None or job.epsilon > epsilon:
        raise RefusedError(
            f"{config.path}: its noise is fixed, so the smallest feasible epsilon at delta = {delta:g} is {job.epsilon}"
        )
    parties = totals(job.plan, job.public.parties)
    return {
        "algorithm": job.algorithm.name,
        "rounds": job.public.rounds,
        "epsilon": epsilon,
        "delta": delta,
        "parties": [
            {
                "party": party,
                "epsilon": cost(spent, delta),
                "events": [{**json.loads(dump(event)), "count": count} for event, count in spent],
            }
            for party, spent in enumerate(parties)
        ],
        "epsilon_by_round": job.epsilon_by_round,
        **advised(asking, job, count),
    }


def advised(config: Config, job: Job, count: int | None) -> dict[str, Any]:
    """What to expect, and what is recommended instead, where the number of records is known."""
    found = outlook(config, job, count)
    return found | ({"recommended": recommend(facts(config, count)).table} if "expected" in found else {})


def audited(config: Config, trials: int, done: Callable[[int, int], None]) -> dict[str, Any]:
    """The attack on the config's algorithm, and on planted bugs; `done(games, of)` is told how far it is."""
    from privadmm.privacy.audit import audit

    job = assembly.job(config)
    return audit(job.algorithm, job.public, trials, done=done)
