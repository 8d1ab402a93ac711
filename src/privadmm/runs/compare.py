"""Compare several configs at one budget: each method certified, and with its paper's own noise.

A paper's noise is set so that the paper's own claim equals the budget; its certified cost is reported beside it.
Every line is the mean over noise seeds on one split of the same records.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from itertools import count
from typing import Any, Literal, get_args, get_type_hints

import numpy as np

from privadmm.config import build
from privadmm.config.build import Prepared
from privadmm.config.build_columns import scaling
from privadmm.config.file import Config
from privadmm.config.sections import FeaturesTable, PrivacyTable
from privadmm.engine.block import cluster
from privadmm.engine.job import Job, train, weights
from privadmm.engine.phases import Algorithm, features
from privadmm.engine.sums import unsummable
from privadmm.errors import ConfigError, PrivadmmError, RefusedError
from privadmm.params import check_positive, check_probability, check_whole
from privadmm.privacy.mechanisms import Simulation
from privadmm.runs import metrics
from privadmm.runs.recommend import LEAST_PARTIES

KNOBS = ("round_epsilon", "alpha", "V")  # parameters that set a paper's noise
Budget = tuple[float, float]  # epsilon and delta of the whole run


def compare(
    configs: Sequence[Config],
    epsilons: Sequence[float] | None,
    delta: float | None,
    seeds: int,
    published: bool,
    done: Callable[[int, int], None] = lambda runs, of: None,
) -> dict[str, Any]:
    """Make a table for each epsilon: every config with that budget in place of its own, best first.

    An argument of None is taken from the files. If no method is private, there is one table, and its epsilon is None.
    """
    budgets = budgets_of(configs, epsilons, delta)
    for budget in budgets:
        if budget is not None:
            check_positive(epsilon=budget[0])
            check_probability(delta=budget[1])
    check_whole(seeds=seeds)
    data = prepare(configs)
    work = [
        [
            (config, prepared, calibration, job)
            for config, prepared in zip(configs, data, strict=True)
            for calibration, job in variants(config, prepared, budget, published)
        ]
        for budget in budgets
    ]
    total = sum(seeds if isinstance(job, Job) and job.private else 1 for jobs in work for _, _, _, job in jobs)
    ran, test = count(1), data[0].test
    assert test is not None

    def trained(job: Job, prepared: Prepared) -> Iterator[float]:
        for seed in range(seeds if job.private else 1):
            yield accuracy(job, prepared, seed)
            done(next(ran), total)

    def line(config: Config, prepared: Prepared, calibration: str, job: Job | str) -> dict[str, Any]:
        accuracies, problem = np.empty(0), job if isinstance(job, str) else None
        if isinstance(job, Job):
            try:
                accuracies = np.array(list(trained(job, prepared)))
            except PrivadmmError as error:
                problem = str(error)
        runs = len(accuracies)
        return {
            "config": config.path.stem,
            "algorithm": (job.algorithm if isinstance(job, Job) else config.algorithm.parameters).name,
            "calibration": calibration,
            "epsilon_certified": job.epsilon if isinstance(job, Job) else None,
            "epsilon_published": claim_of(job) if isinstance(job, Job) else None,
            # How many parties may collude in secure sums, whose certificate is computational.
            "colluding": job.sums.colluding if isinstance(job, Job) and job.sums else None,
            "accuracy": float(accuracies.mean()) if runs else None,
            "standard_error": float(accuracies.std(ddof=1) / math.sqrt(runs)) if runs > 1 else None,
            "accuracies": accuracies.tolist(),
            "problem": problem,
        }

    tables = []
    for budget, jobs in zip(budgets, work, strict=True):
        lines = [line(*job) for job in jobs]
        lines.sort(key=lambda line: -line["accuracy"] if line["accuracies"] else math.inf)
        tables.append({"epsilon": None if budget is None else budget[0], "lines": lines})
    chance = None if budgets[0] is None else budgets[0][1]
    return {"delta": chance, "seeds": seeds, "majority": metrics.majority(test), "tables": tables}


def budgets_of(
    configs: Sequence[Config], epsilons: Sequence[float] | None, delta: float | None
) -> Sequence[Budget | None]:
    """Budgets to compare at, each with a table of its own; a single None if no method can be private."""
    private = [config for config in configs if config.algorithm.parameters.adjacencies]
    if not private:
        return [None]
    chance = shared(private, "delta") if delta is None else delta
    return [(epsilon, chance) for epsilon in epsilons or [shared(private, "epsilon")]]


def shared(configs: Sequence[Config], key: Literal["epsilon", "delta"]) -> float:
    """Value of this key of [privacy] that all files share. Refuses files without it, or with different values."""
    values = list[float]()
    for config in configs:
        value: float | None = None if config.privacy is None else getattr(config.privacy, key)
        if value is None:
            raise ConfigError(f"{config.path}: has no [privacy] {key}; give --{key}, at which all files are compared")
        values.append(value)
        if value != values[0]:
            raise ConfigError(
                f"{configs[0].path}: [privacy] {key} = {values[0]:g}, and {config.path}: {value:g}; methods are "
                f"compared at one budget: give --{key}, in place of the files'"
            )
    return values[0]


def with_parties(config: Config, count: int | None) -> Config:
    """Give the config this many parties of equal size, each with as many edges as before."""
    if count is None:
        return config
    before, edges = config.parties.known or count, config.graph.edges
    most = count * (count - 1) // 2
    scaled = None if edges is None else min(most, max(count - 1, round(edges * count / before)))
    spread = replace(config.parties, count=count, sizes=None, split="even")
    return replace(config, parties=spread, graph=replace(config.graph, edges=scaled))


def prepare(configs: Sequence[Config]) -> list[Prepared]:
    """Load the records of every config; configs that split them alike share one copy."""
    loaded: list[Prepared] = []
    for number, config in enumerate(configs):
        if split_of(config) != split_of(configs[0]):
            raise ConfigError(
                f"{config.path}: [data] has other records, or holds out others, than {configs[0].path}: compare "
                "methods on the same source, test_fraction and split_seed"
            )
        if config.run.mode != "simulation" or not config.data.test_fraction:
            raise ConfigError(f"{config.path}: a comparison needs a simulation with a [data] test_fraction")
        if config.evaluates:
            raise ConfigError(f"{config.path}: a comparison holds records out itself; remove [evaluation]")
        same = (loaded[other] for other in range(number) if held(configs[other]) == held(config))
        loaded.append(next(same, None) or build.prepare(config))
        if not loaded[-1].classifier:
            raise ConfigError(f"{config.path}: a comparison is one of accuracies, and these data have no classes")
    return loaded


def split_of(config: Config) -> tuple[Any, ...]:
    table = config.data
    # Two spellings of a path are one file.
    source = table.source if table.embedded else config.resolve(table.source).resolve()
    return source, table.test_fraction, table.split_seed


def held(config: Config) -> tuple[Any, ...]:
    """Settings that decide which party holds which records, and how they are scaled."""
    return config.parties, config.data, scaling(config), config.randomises


def variants(
    config: Config, prepared: Prepared, budget: Budget | None, published: bool
) -> Iterator[tuple[str, Job | str]]:
    """Make the certified job of a config at this budget, and one for each of its paper's own calibrations.

    If messages can be summed securely, there is a certified job with and one without secure sums. For a job that cannot
    be made, yields the reason in its place.
    """
    algorithm: Algorithm = config.algorithm.parameters
    if budget is None or not algorithm.adjacencies:
        yield "not private", job_of(replace(config, privacy=None), prepared, algorithm)
        return
    epsilon, delta = budget
    names = [item.name for item in fields(algorithm)]  # type: ignore[arg-type]
    knob = next((name for name in KNOBS if name in names), None)
    certified = algorithm
    if "calibration" in names:
        off = {name: None for name in (*KNOBS, "party_alpha") if name in names}
        certified = replace(algorithm, calibration="certified", **off)  # type: ignore[type-var]
    own = config.privacy or PrivacyTable(delta=delta)
    asked = replace(own, epsilon=epsilon, delta=delta, budget=None, party_epsilon=None)
    alone = replace(asked, sum="local", colluding=None, fewest=None)
    try:
        yield "certified", job_of(replace(config, privacy=alone), prepared, certified)
    except RefusedError as error:  # no noise reaches this budget; other variants may
        yield "certified", str(error)
    could = unsummable(certified) is None and len(prepared.train.sizes) >= LEAST_PARTIES
    if asked.sum == "secure" or could:
        try:
            yield "secure sum", job_of(replace(config, privacy=replace(asked, sum="secure")), prepared, certified)
        except (ConfigError, RefusedError) as error:
            if asked.sum == "secure":
                yield "secure sum", str(error)
    if not published or knob is None:
        return
    paper = replace(config, privacy=replace(alone, epsilon=None), features=FeaturesTable())
    for calibration in get_args(get_type_hints(type(algorithm)).get("calibration")):
        if calibration != "certified":
            try:
                yield calibration, claiming(paper, prepared, certified, calibration, knob, epsilon)
            except PrivadmmError as error:
                yield calibration, str(error)


def job_of(config: Config, prepared: Prepared, algorithm: Algorithm) -> Job:
    chosen = replace(config, algorithm=replace(config.algorithm, parameters=algorithm))
    return build.job(chosen, prepared.train.sizes, prepared.train.dim, columns=prepared.columns)


def claim_of(job: Job) -> float | None:
    """Epsilon that the paper claims for the whole run; claims for one round are added up over rounds."""
    claim = job.published
    if claim is None or claim.epsilon is None:
        return None
    return claim.epsilon * (job.public.rounds if claim.of_one_round else 1)


def claiming(
    config: Config, prepared: Prepared, algorithm: Algorithm, calibration: str, knob: str, total: float
) -> Job:
    """Find by bisection the paper's noise for which the paper claims this total."""

    def at(value: float) -> Job:
        chosen = replace(algorithm, calibration=calibration, **{knob: value})  # type: ignore[type-var]
        return job_of(config, prepared, chosen)

    def claimed(value: float) -> float:
        claim = claim_of(at(value))
        if claim is None:
            raise ConfigError(f"the paper of {algorithm.name} claims no figure for this noise")
        return claim

    low, high = 1e-9, 1e-9
    if (least := claimed(low)) > total:
        raise ConfigError(f"the paper's claim is {least:.4g} or more whatever the noise: no alpha makes it {total:g}")
    while claimed(high) < total and high < 1e9:
        low, high = high, 4 * high
    while high > (1 + 1e-9) * low:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if claimed(middle) <= total else (low, middle)
    return at(low)


def accuracy(job: Job, prepared: Prepared, seed: int) -> float:
    """Train with this noise seed. Returns the accuracy of the final model on the held-out records."""
    progress = train(job, cluster(job, prepared.train, Simulation(seed)))
    assert prepared.test is not None
    seen = metrics.through(prepared.test, features(progress.memory))
    return metrics.accuracy(seen, metrics.scores(seen, weights(job, progress)))
