"""The two sources of noise: the right law, keyed and independent, and wrong scales are rejected."""

import builtins
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.special import ndtri
from scipy.stats import kstest

from privadmm.errors import ConfigError
from privadmm.privacy.mechanisms import ONCE, Deployment, Noise, Simulation, fractions

P, D = 3, 4000
IDS = np.arange(P)
CALL = (0, 0, 0)


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


@given(st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=6, unique=True), st.integers(1, 9), st.integers(0, 3))
@example([2**63 - 1, 2**63 - 2, 0, 1, 2], 5, 0)
def test_a_party_draws_the_same_alone_and_in_any_block(ids: list[int], width: int, replicas: int) -> None:
    noise, shape = Simulation(7), (*(replicas,)[: replicas > 0], len(ids), width)
    one = np.ones(len(ids))
    for law in (lambda x, i: noise.gaussian(x, one[: len(i)], one[: len(i)], i, CALL), partial(gamma, noise)):
        together = law(np.zeros(shape), np.array(ids))
        for at, party in enumerate(ids):
            alone = law(np.zeros((*shape[:-2], 1, width)), np.array([party]))
            assert np.array_equal(together[..., at, :], alone[..., 0, :])


def gamma(noise: Simulation, x: np.ndarray, ids: np.ndarray) -> np.ndarray:
    return noise.gamma(x, np.ones(len(ids)), ids, CALL)


ADDRESS = st.tuples(
    st.sampled_from([0, 1, 2, 3, 2**31, 2**63 - 1]),  # party
    st.tuples(st.sampled_from([0, 1, 2**63, ONCE]), st.integers(0, 2), st.integers(0, 2)),
    st.integers(0, 2),  # replica
    st.sampled_from([1, 2, 4, 5, 8, 9, 100]),  # width
)


@given(ADDRESS, ADDRESS)
@example((3, (0, 0, 0), 0, 4), (1, (0, 0, 0), 0, 12))
def test_no_word_is_drawn_at_two_addresses(one: Any, other: Any) -> None:
    """Also not by parties that draw different numbers of words, whose blocks would overlap if widths had no place."""
    addresses = dict.fromkeys((one, other))
    drawn = [set(Simulation(7).words(np.array([party]), *rest).ravel().tolist()) for party, *rest in addresses]
    assert len(drawn[0] | drawn[-1]) == sum(map(len, drawn))


def test_the_length_of_gamma_noise_and_its_direction() -> None:
    """|u| ~ Gamma(d, width), whatever the direction, and the direction is even."""
    d, ids = 5, np.arange(4000)
    u = gamma(Simulation(7), np.zeros((len(ids), d)), ids)
    length = np.linalg.norm(u, axis=1)
    assert kstest(length, "gamma", (d,)).pvalue > 1e-6
    assert kstest(length * 1.1, "gamma", (d,)).pvalue < 1e-6
    direction = u / length[:, None]
    assert np.abs(direction.T @ direction / len(ids) - np.eye(d) / d).max() < 0.02
    assert np.abs(np.corrcoef(np.c_[direction, length].T) - np.eye(d + 1)).max() < 0.1


def test_the_smallest_and_largest_words_give_finite_numbers() -> None:
    ends = fractions(np.array([0, 2**64 - 1], dtype=np.uint64))
    assert np.array_equal(ndtri(ends), -ndtri(ends)[::-1])
    assert 8 < ndtri(ends)[1] < 9


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
