"""The two sources of noise: the right law, keyed and independent, and wrong scales are rejected."""

import builtins

import numpy as np
import pytest
from scipy.stats import kstest

from privadmm.errors import ConfigError
from privadmm.privacy.mechanisms import Deployment, Noise, Simulation

P, D = 3, 4000
IDS = np.arange(P)


def draw(noise: Noise, scale: float = 1.0, call: tuple[int, int, int] = (0, 0, 0)) -> np.ndarray:
    return noise.gaussian(np.zeros((P, D)), np.full(P, scale / 2), np.full(P, 2.0), IDS, call)


SOURCES = [pytest.param(lambda: Simulation(7), id="simulation"), pytest.param(Deployment, id="deployment")]


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("source", SOURCES)
def test_the_law_is_right_and_a_wrong_scale_is_rejected(source: type[Simulation], scale: float) -> None:
    z = draw(source(), scale).ravel() / scale
    assert fits(z)
    assert not fits(z * 1.1)
    assert not fits(z / 1.1)


@pytest.mark.parametrize("source", SOURCES)
def test_kolmogorov_and_smirnov_agree(source: type[Simulation]) -> None:
    z = draw(source()).ravel()
    assert kstest(z, "norm").pvalue > 1e-6
    assert max(kstest(z * wrong, "norm").pvalue for wrong in (2 / 3, 3 / 2)) < 1e-12


def fits(z: np.ndarray) -> bool:
    """Mean, variance and fourth moment of N(0, 1), each within six standard errors."""
    moments = [(z, 0, 1), (z**2, 1, 2), (z**4, 3, 96)]
    return all(abs(m.mean() - truth) < 6 * np.sqrt(variance / z.size) for m, truth, variance in moments)


@pytest.mark.parametrize("source", SOURCES)
def test_parties_rounds_and_calls_are_independent(source: type[Simulation]) -> None:
    noise = source()
    draws = [
        *draw(noise),
        *draw(noise, call=(1, 0, 0)),
        *draw(noise, call=(0, 1, 0)),
        *draw(noise, call=(0, 0, 1)),
    ]
    worst = np.abs(np.corrcoef(draws) - np.eye(len(draws))).max()
    assert worst < 5 / np.sqrt(D)


def test_replicas_are_independent_and_the_first_is_the_plain_run() -> None:
    many = Simulation(7).gaussian(np.zeros((5, P, D)), np.ones(P), np.ones(P), IDS, (0, 0, 0))
    assert np.array_equal(many[0], draw(Simulation(7)))
    assert np.abs(np.corrcoef(many.reshape(5 * P, D)) - np.eye(5 * P)).max() < 5 / np.sqrt(D)


def test_a_simulation_repeats_itself_and_another_seed_does_not() -> None:
    assert np.array_equal(draw(Simulation(7)), draw(Simulation(7)))
    assert not np.array_equal(draw(Simulation(7)), draw(Simulation(8)))


def test_a_deployment_never_repeats_itself() -> None:
    assert not np.array_equal(draw(Deployment()), draw(Deployment()))


def test_deployed_values_lie_on_the_grid() -> None:
    scale = 3.0
    k = int(np.floor(np.log2(scale))) - 40 - 6  # 2^6 is the first power of two above sqrt(D)
    steps = draw(Deployment(), scale) / 2.0**k
    assert np.array_equal(steps, np.round(steps))


def test_the_rounding_is_paid_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scale covers the query's sensitivity and what rounding to the grid may add to it."""
    seen = []

    def noiseless(domain: object, metric: object, scale: float, k: int) -> object:
        seen.append((scale, k))
        return lambda x: x

    noise = Deployment()
    monkeypatch.setattr("opendp.measurements.make_gaussian", noiseless)
    noise.gaussian(np.zeros((1, 100)), np.array([0.5]), np.array([4.0]), np.array([0]), (0, 0, 0))
    (scale, k), *_ = seen
    assert scale >= 4.0 * (0.5 + 2.0**k * 10)


@pytest.mark.parametrize("seed", [None, -1, 1.5, True, 2**64])
def test_a_simulation_needs_a_seed(seed: object) -> None:
    with pytest.raises(ConfigError, match="seed"):
        Simulation(seed)  # type: ignore[arg-type]


def test_a_missing_opendp_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    genuine = builtins.__import__

    def without(name: str, *rest: object) -> object:
        if name.startswith("opendp"):
            raise ImportError(name)
        return genuine(name, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match=r"privadmm\[deploy\]"):
        Deployment()
