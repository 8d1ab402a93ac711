"""Several configs side by side at one budget: what each method makes of it, certified and with its paper's own noise.

A paper's noise is set so that the paper's own claim is the budget; what it is certified to cost stands beside it.
Every line is the mean over noise seeds on one split of the same records.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, get_args, get_origin

import numpy as np

from privadmm import assembly, check
from privadmm.assembly import Prepared
from privadmm.config import Config, PrivacyTable
from privadmm.errors import ConfigError, PrivadmmError
from privadmm.job import Job, cluster, train, weights
from privadmm.phases import Algorithm
from privadmm.privacy.mechanisms import Simulation
from privadmm.report import metrics

KNOBS = ("round_epsilon", "alpha")  # by which a paper's noise is set


@dataclass(frozen=True)
class Line:
    """One method in one calibration. `problem` says why it could not be run."""

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
            "algorithm": self.name,
            "calibration": self.calibration,
            "epsilon_certified": self.epsilon,
            "epsilon_published": self.claimed,
            "accuracy": float(found.mean()) if len(found) else None,
            "standard_error": float(found.std(ddof=1) / math.sqrt(len(found))) if len(found) > 1 else None,
            "accuracies": list(self.accuracies),
            "problem": self.problem,
        }


def compare(
    configs: Sequence[Config],
    epsilon: float,
    delta: float,
    seeds: int,
    published: bool,
    done: Callable[[int, int], None] = lambda runs, of: None,
) -> dict[str, Any]:
    """Every config with this budget in place of its own, best first, and the majority class last."""
    check.positive(epsilon=epsilon)
    check.probability(delta=delta)
    check.whole(seeds=seeds)
    data = {id(config): prepared for config, prepared in prepare(configs)}
    jobs = [
        (calibration, job, data[id(config)])
        for config in configs
        for calibration, job in variants(config, data[id(config)], epsilon, delta, published)
    ]
    lines, total = [], sum(seeds if isinstance(job, Job) and job.private else 1 for _, job, _ in jobs)
    ran = 0
    for calibration, job, prepared in jobs:
        if isinstance(job, Line):
            lines.append(job)
            continue
        line = Line(job.algorithm.name, calibration, job.epsilon, claim_of(job))
        found = []
        try:
            for seed in range(seeds if job.private else 1):
                found.append(accuracy(job, prepared, seed))
                done(ran := ran + 1, total)
        except PrivadmmError as error:
            lines.append(replace(line, problem=str(error)))
        else:
            lines.append(replace(line, accuracies=tuple(found)))
    lines.sort(key=lambda line: -line.record["accuracy"] if line.accuracies else math.inf)
    test = next(iter(data.values())).test
    assert test is not None
    return {
        "epsilon": epsilon,
        "delta": delta,
        "seeds": seeds,
        "majority": metrics.majority(test),
        "lines": [line.record for line in lines],
    }


def prepare(configs: Sequence[Config]) -> Iterator[tuple[Config, Prepared]]:
    """The records of every config; those that split alike share one copy."""
    known: list[tuple[Config, Prepared]] = []
    for config in configs:
        if config.data != configs[0].data:
            raise ConfigError(
                f"{config.path}: [data] differs from that of {configs[0].path}; compare methods on the same records"
            )
        if config.run.mode != "simulation" or not config.data.test_fraction:
            raise ConfigError(f"{config.path}: a comparison needs a simulation with a [data] test_fraction")
        same = [prepared for other, prepared in known if other.parties == config.parties]
        known.append((config, same[0] if same else assembly.prepare(config)))
        if not known[-1][1].classifier:
            raise ConfigError(
                f"{config.path}: a comparison is one of accuracies, and these data have no classes"
            )
    yield from known


def variants(
    config: Config, prepared: Prepared, epsilon: float, delta: float, published: bool
) -> Iterator[tuple[str, Job | Line]]:
    """The certified job of a config at this budget, and one for each of its paper's own calibrations."""
    algorithm: Algorithm = config.algorithm.parameters
    if not algorithm.private:
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
    yield "certified", job_of(replace(config, privacy=asked), prepared, certified)
    if not published or knob is None:
        return
    paper = replace(config, privacy=replace(asked, epsilon=None))
    for calibration in calibrations(algorithm):
        try:
            yield calibration, claiming(paper, prepared, certified, calibration, knob, epsilon)
        except PrivadmmError as error:
            yield calibration, Line(algorithm.name, calibration, problem=str(error))


def job_of(config: Config, prepared: Prepared, algorithm: Algorithm) -> Job:
    chosen = replace(config, algorithm=replace(config.algorithm, parameters=algorithm))
    return assembly.job(chosen, prepared.train.sizes, prepared.train.dim)


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
        raise ConfigError(
            f"the paper's claim is {least:.4g} or more whatever the noise: no alpha makes it {total:g}"
        )
    while says(high) < total and high < 1e9:
        low, high = high, 4 * high
    while high > (1 + 1e-9) * low:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if says(middle) <= total else (low, middle)
    return at(low)


def accuracy(job: Job, prepared: Prepared, seed: int) -> float:
    """Of the final model on the held-out records."""
    w = weights(job, train(job, cluster(job, prepared.train, Simulation(seed))))
    assert prepared.test is not None
    return metrics.accuracy(prepared.test, metrics.scores(prepared.test, w))
