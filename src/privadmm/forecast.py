"""What can be said of a config before any record is read: its cost, its noise, and how it stands an attack."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from privadmm import assembly, check
from privadmm.config import Config, PrivacyTable, check_seed
from privadmm.errors import ConfigError, RefusedError
from privadmm.privacy.accounting import epsilon as cost
from privadmm.privacy.accounting import totals
from privadmm.privacy.events import dump


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
    }


def planned(config: Config, epsilon: float, delta: float) -> dict[str, Any]:
    """What this budget buys: the noise of each release and what the worst party has spent after each round."""
    check.positive(epsilon=epsilon)
    check.probability(delta=delta)
    if not config.algorithm.parameters.private:
        raise ConfigError(f"{config.algorithm.name} is not private; there is nothing to plan for")
    asked = config.privacy or PrivacyTable(delta=delta)
    privacy = replace(asked, epsilon=epsilon, delta=delta, party_epsilon=None)
    job = assembly.job(replace(config, privacy=privacy))
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
    }


def audited(config: Config, trials: int, done: Callable[[int, int], None]) -> dict[str, Any]:
    """The attack on the config's algorithm, and on planted bugs; `done(games, of)` is told how far it is."""
    from privadmm.privacy.audit import audit

    job = assembly.job(config)
    return audit(job.algorithm, job.public, trials, done=done)
