"""Several configs side by side at one budget: what each method makes of it, certified and with its paper's own noise.

A paper's noise is set so that the paper's own claim is the budget; what it is certified to cost stands beside it.
Every line is the mean over noise seeds on one split of the same records.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, get_args, get_origin

import numpy as np

from privadmm.config import build
from privadmm.config.build import Prepared
from privadmm.config.build_columns import scaling
from privadmm.config.file import Config
from privadmm.config.sections import FeaturesTable, PrivacyTable
from privadmm.engine.block import cluster
from privadmm.engine.job import Job, features, train, weights
from privadmm.engine.phases import Algorithm
from privadmm.errors import ConfigError, PrivadmmError, RefusedError
from privadmm.params import check_positive, check_probability, check_whole
from privadmm.privacy.mechanisms import Simulation
from privadmm.runs import metrics

KNOBS = ("round_epsilon", "alpha", "V")  # by which a paper's noise is set


@dataclass(frozen=True)
class Line:
    """One method in one calibration. `problem` says why it could not be run."""

    config: str
    name: str
    calibration: str
    epsilon: float | None = None
    claimed: float | None = None
    accuracies: tuple[float, ...] = ()
    problem: str | None = None

    @property
    def record(self) -> dict[str, Any]:
        found = np.array(self.accuracies)
        return {
            "config": self.config,
            "algorithm": self.name,
            "calibration": self.calibration,
            "epsilon_certified": self.epsilon,
            "epsilon_published": self.claimed,
            "accuracy": float(found.mean()) if len(found) else None,
            "standard_error": float(found.std(ddof=1) / math.sqrt(len(found))) if len(found) > 1 else None,
            "accuracies": list(self.accuracies),
            "problem": self.problem,
        }


Work = list[tuple[str, str, Job | Line, Prepared]]  # config, calibration, job or why there is none, records


def compare(
    configs: Sequence[Config],
    epsilons: Sequence[float],
    delta: float,
    seeds: int,
    published: bool,
    done: Callable[[int, int], None] = lambda runs, of: None,
) -> dict[str, Any]:
    """A table for each epsilon: every config with that budget in place of its own, best first."""
    for epsilon in epsilons:
        check_positive(epsilon=epsilon)
    check_probability(delta=delta)
    check_whole(seeds=seeds)
    data = {id(config): prepared for config, prepared in prepare(configs)}
    work: list[Work] = [
        [
            (config.path.stem, calibration, job, data[id(config)])
            for config in configs
            for calibration, job in variants(config, data[id(config)], epsilon, delta, published)
        ]
        for epsilon in epsilons
    ]
    total = sum(seeds if isinstance(job, Job) and job.private else 1 for jobs in work for _, _, job, _ in jobs)
    ran = 0

    def one_more() -> None:
        nonlocal ran
        done(ran := ran + 1, total)

    test = next(iter(data.values())).test
    assert test is not None
    return {
        "delta": delta,
        "seeds": seeds,
        "majority": metrics.majority(test),
        "tables": [
            {"epsilon": epsilon, "lines": [line.record for line in table(jobs, seeds, one_more)]}
            for epsilon, jobs in zip(epsilons, work, strict=True)
        ],
    }


def table(jobs: Work, seeds: int, one_more: Callable[[], None]) -> list[Line]:
    lines = []
    for name, calibration, job, prepared in jobs:
        if isinstance(job, Line):
            lines.append(job)
            continue
        line = Line(name, job.algorithm.name, calibration, job.epsilon, claim_of(job))
        found = []
        try:
            for seed in range(seeds if job.private else 1):
                found.append(accuracy(job, prepared, seed))
                one_more()
        except PrivadmmError as error:
            lines.append(replace(line, problem=str(error)))
        else:
            lines.append(replace(line, accuracies=tuple(found)))
    return sorted(lines, key=lambda line: -line.record["accuracy"] if line.accuracies else math.inf)


def with_parties(config: Config, count: int | None) -> Config:
    """The config with so many parties, evenly, and as many edges for each as before."""
    if count is None:
        return config
    before, edges = config.parties.known or count, config.graph.edges
    most = count * (count - 1) // 2
    scaled = None if edges is None else min(most, max(count - 1, round(edges * count / before)))
    spread = replace(config.parties, count=count, sizes=None, split="even")
    return replace(config, parties=spread, graph=replace(config.graph, edges=scaled))


def prepare(configs: Sequence[Config]) -> Iterator[tuple[Config, Prepared]]:
    """The records of every config; those that split alike share one copy."""
    known: list[tuple[Config, Prepared]] = []
    for config in configs:
        if split_of(config) != split_of(configs[0]):
            raise ConfigError(
                f"{config.path}: [data] has other records, or holds out others, than {configs[0].path}: compare "
                "methods on the same source, test_fraction and split_seed"
            )
        if config.run.mode != "simulation" or not config.data.test_fraction:
            raise ConfigError(f"{config.path}: a comparison needs a simulation with a [data] test_fraction")
        same = [p for other, p in known if held(other) == held(config)]
        known.append((config, same[0] if same else build.prepare(config)))
        if not known[-1][1].classifier:
            raise ConfigError(f"{config.path}: a comparison is one of accuracies, and these data have no classes")
    yield from known


def split_of(config: Config) -> tuple[Any, ...]:
    data = config.data
    return data.source, data.test_fraction, data.split_seed


def held(config: Config) -> tuple[Any, ...]:
    """What decides who holds what."""
    return config.parties, config.data, scaling(config), config.randomises


def variants(
    config: Config, prepared: Prepared, epsilon: float, delta: float, published: bool
) -> Iterator[tuple[str, Job | Line]]:
    """The certified job of a config at this budget, and one for each of its paper's own calibrations."""
    algorithm: Algorithm = config.algorithm.parameters
    if not algorithm.adjacencies:
        yield "not private", job_of(replace(config, privacy=None), prepared, algorithm)
        return
    names = [item.name for item in fields(algorithm)]  # type: ignore[arg-type]
    own = config.privacy or PrivacyTable(delta=delta)
    knob = next((name for name in KNOBS if name in names), None)
    certified = algorithm
    if "calibration" in names:
        off = {name: None for name in (*KNOBS, "party_alpha") if name in names}
        certified = replace(algorithm, calibration="certified", **off)  # type: ignore[type-var]
    asked = replace(own, epsilon=epsilon, delta=delta, budget=None, party_epsilon=None)
    try:
        yield "certified", job_of(replace(config, privacy=asked), prepared, certified)
    except RefusedError as error:  # no noise reaches this budget: a line that says so, beside those that it does
        yield "certified", Line(config.path.stem, algorithm.name, "certified", problem=str(error))
    if not published or knob is None:
        return
    paper = replace(config, privacy=replace(asked, epsilon=None), features=FeaturesTable())
    for calibration in calibrations(algorithm):
        try:
            yield calibration, claiming(paper, prepared, certified, calibration, knob, epsilon)
        except PrivadmmError as error:
            yield calibration, Line(config.path.stem, algorithm.name, calibration, problem=str(error))


def job_of(config: Config, prepared: Prepared, algorithm: Algorithm) -> Job:
    chosen = replace(config, algorithm=replace(config.algorithm, parameters=algorithm))
    return build.job(chosen, prepared.train.sizes, prepared.train.dim, columns=prepared.columns)


def calibrations(algorithm: Algorithm) -> list[str]:
    """Its paper's own, as its field declares them."""
    import typing

    hints = typing.get_type_hints(type(algorithm), include_extras=True)
    kinds = get_args(hints["calibration"])[0] if "calibration" in hints else None
    words = get_args(kinds) if kinds is not None and get_origin(kinds) is not None else ()
    return [word for word in words if word != "certified"]


def claim_of(job: Job) -> float | None:
    """What the paper says of the whole run; rounds that it takes for independent are added up."""
    claim = job.published
    if claim is None or claim.epsilon is None:
        return None
    return claim.epsilon * (job.public.rounds if claim.of_one_round else 1)


def claiming(
    config: Config, prepared: Prepared, algorithm: Algorithm, calibration: str, knob: str, total: float
) -> Job:
    """The job with the paper's noise for which the paper claims this total, found by bisection."""

    def at(value: float) -> Job:
        chosen = replace(algorithm, calibration=calibration, **{knob: value})  # type: ignore[type-var]
        return job_of(config, prepared, chosen)

    def says(value: float) -> float:
        found = claim_of(at(value))
        if found is None:
            raise ConfigError(f"the paper of {algorithm.name} claims no figure for this noise")
        return found

    low, high = 1e-9, 1e-9
    if (least := says(low)) > total:
        raise ConfigError(f"the paper's claim is {least:.4g} or more whatever the noise: no alpha makes it {total:g}")
    while says(high) < total and high < 1e9:
        low, high = high, 4 * high
    while high > (1 + 1e-9) * low:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if says(middle) <= total else (low, middle)
    return at(low)


def accuracy(job: Job, prepared: Prepared, seed: int) -> float:
    """Of the final model on the held-out records."""
    progress = train(job, cluster(job, prepared.train, Simulation(seed)))
    assert prepared.test is not None
    seen = metrics.through(prepared.test, features(job, progress))
    return metrics.accuracy(seen, metrics.scores(seen, weights(job, progress)))
