"""The numbers of secure sums: the grid, shares of noise, words that cannot wrap, and what is read."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from privadmm.errors import ConfigError, MessageError, RefusedError
from privadmm.privacy import sums as home
from privadmm.privacy.accounting import epsilon, gdp
from privadmm.privacy.curves import gdp_epsilon
from privadmm.privacy.events import STEPS, DiscreteGaussian, Gaussian, SharedGaussian, dump, load
from privadmm.privacy.mechanisms import Deployment, Simulation
from privadmm.privacy.policy import Policy
from privadmm.privacy.release import Door, Sealed
from privadmm.privacy.sums import SecureSum, Summands, Summing, Sums, opened, usual_fewest

N, D = 10, 6
ASKED = SecureSum(3, 9)


def planned(
    moves: float = 0.01, reach: float = 1.0, ratios: tuple[float, ...] = (5.0, 8.0), asked: SecureSum = ASKED
) -> Sums:
    def row(ratio: float) -> list[SharedGaussian]:
        return [SharedGaussian(ratio, asked.tolerated(N), N)] * N

    own = Summands(np.full(N, moves), np.full(N, reach))
    return Sums.planned(asked, {(t, 0): (row(ratio), own, D) for t, ratio in enumerate(ratios)})


def everybody(shape: Any) -> Any:
    return np.zeros(shape, dtype=np.uint64)


def part(sums: Sums, t: int = 0, present: int = N, whole: bool = True) -> Summing:
    return Summing(sums, (t, 0), present, whole, lambda call, shape: everybody(shape))


def door(sums: Sums, ids: Any, t: int = 0, noise: Any = None, ratio: float = 5.0, **more: Any) -> Door:
    events = (tuple([SharedGaussian(ratio, sums.colluding, N)] * N),)
    return Door(
        np.asarray(ids), events, noise or Simulation(0), t, 0, lambda charges: None, summing=part(sums, t, **more)
    )


# The grid


def grid_is_fine_enough(sums: Sums) -> bool:
    shares = [sums.share((t, 0), present) for t in (0, 1) for present in range(sums.fewest, N + 1)]
    return min(shares) >= STEPS


def test_every_share_has_enough_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    for moves in (1e-12, 0.01, 1e12):
        for colluding in (1, 3, 8):
            sums = planned(moves, moves, asked=SecureSum(colluding, 9))
            assert grid_is_fine_enough(sums)
            assert sums.share((0, 0), N) < 2 * STEPS * 1.01  # and not finer than it must be
    monkeypatch.setattr(home, "STEPS", 2.0**20)
    assert not grid_is_fine_enough(planned())  # planted: a grid too coarse


def test_the_shares_of_those_who_do_not_collude_cover_the_rounded_query() -> None:
    sums = planned()
    for t, ratio in enumerate((5.0, 8.0)):
        for present in (9, 10):
            honest = sums.share((t, 0), present) * sums.step * math.sqrt(present - 3)
            assert honest >= ratio * (0.01 + sums.step * math.sqrt(D))
            assert honest <= ratio * 0.01 * (1 + 1e-5)
            assert sums.noise((t, 0), present) == pytest.approx(honest * math.sqrt(present / (present - 3)))


def test_the_strictest_party_decides() -> None:
    own = Summands(np.array([0.01, 0.02]), np.ones(2))
    row = [SharedGaussian(9.0, 1, 2), SharedGaussian(5.0, 1, 2)]
    sums = Sums.planned(SecureSum(1, 2), {(0, 0): (row, own, D)})
    assert sums.deviation[0, 0] == pytest.approx(0.1, rel=1e-9)


def test_a_scale_is_the_same_on_machines_that_differ_in_the_last_digit() -> None:
    sums = planned()
    other = replace(sums, deviation={at: math.nextafter(value, math.inf) for at, value in sums.deviation.items()})
    assert [other.share((t, 0), N) for t in (0, 1)] == [sums.share((t, 0), N) for t in (0, 1)]
    assert home.rounded_up(2.0**40 + 1) == 2.0**40 + 2.0**20
    assert home.rounded_up(2.0**40) == 2.0**40


@pytest.mark.parametrize(("moves", "reach"), [(1e-9, 1e3), (0.01, 1e5)])
def test_a_sum_that_could_wrap_is_refused(moves: float, reach: float) -> None:
    with pytest.raises(ConfigError, match="too many digits"):
        planned(moves, reach)


def test_words_in_use_stay_within_the_room() -> None:
    sums = planned(0.01, 1e3)
    x = np.full((N, D), 1e3)
    words = Sealed.words_of(door(sums, range(N)).summand(x, 0.01))  # type: ignore[arg-type]
    assert np.abs(words[..., :-1].view(np.int64)).max() < 2**62
    assert opened(words, N, sums.step) == pytest.approx(np.full((1, D), N * 1e3), rel=1e-3)


def test_what_cannot_be_planned_is_refused() -> None:
    for asked, why in (
        (SecureSum(10), "leaves nobody"),
        (SecureSum(3, 3), "fewest = 3 must be above"),
        (SecureSum(3, 11), "at most the number"),
    ):
        with pytest.raises(ConfigError, match=why):
            asked.check(N)
    with pytest.raises(ConfigError, match="two parties at least"):
        SecureSum().check(1)
    for asked in (dict(colluding=0), dict(colluding=-1), dict(fewest=0), dict(colluding=1.5)):
        with pytest.raises(ConfigError, match="whole number"):
            SecureSum(**asked)  # type: ignore[arg-type]  # t = 0 among them: every party knows its own noise
        with pytest.raises(ConfigError, match="whole number"):
            Policy(None, **asked)  # type: ignore[arg-type]  # which would allow any sum
    with pytest.raises(RefusedError, match="planned share"):
        Sums.planned(ASKED, {(0, 0): ([Gaussian(1.0)] * N, Summands(np.ones(N), np.ones(N)), D)})


@pytest.mark.parametrize(("parties", "t", "least"), [(2, 1, 2), (3, 1, 3), (10, 3, 9), (100, 33, 90), (1000, 333, 900)])
def test_what_is_usual(parties: int, t: int, least: int) -> None:
    assert (SecureSum().tolerated(parties), SecureSum().least(parties)) == (t, least)
    SecureSum().check(parties)


@pytest.mark.parametrize("bits", [61.9, 62.1])
def test_the_room_of_a_sum_is_that_of_all_messages_together(bits: float) -> None:
    """One party has nearly all of what may be said; the noise is small beside it."""
    step = planned().step
    own = Summands(np.full(N, 0.01), np.array([2**bits * step, *[1.0] * (N - 1)]))
    releases = {(0, 0): ([SharedGaussian(5.0, 3, N)] * N, own, D)}
    if bits < 62:
        assert Sums.planned(ASKED, releases).step == step
    else:
        with pytest.raises(ConfigError, match="too many records for so little noise"):
            Sums.planned(ASKED, releases)


def test_the_room_counts_the_noise_of_the_fewest() -> None:
    """If 8 of the 9 present may collude, each of them adds the whole noise, and all together three times as much."""
    asked, row = SecureSum(8, 9), [SharedGaussian(1.0, 8, N)] * N
    large = Summands(np.full(N, 1.0), np.full(N, 1e-9))
    small = Summands(np.full(N, 1.0 * 2.0**-15.5), np.full(N, 1e-9))
    Sums.planned(asked, {(0, 0): (row, large, D)})
    with pytest.raises(ConfigError, match="too many"):  # 40 sigma sqrt(9) in steps is 2^62.3, and 40 sigma 2^60.7
        Sums.planned(asked, {(0, 0): (row, large, D), (1, 0): (row, small, D)})


# Sealing and opening


def test_a_sum_is_what_was_added_whatever_the_blocks() -> None:
    sums, x = planned(), np.random.default_rng(0).uniform(-1, 1, (N, D))
    whole = Sealed.words_of(door(sums, range(N)).summand(x, 0.01))  # type: ignore[arg-type]
    blocks = [[0, 3], [1, 2, 4, 5], [6], [7, 8, 9]]
    parts = [Sealed.words_of(door(sums, ids).summand(x[ids], 0.01)) for ids in blocks]  # type: ignore[arg-type]
    assert np.array_equal(np.sum(parts, axis=0, dtype=np.uint64), whole)
    noise = sums.noise((0, 0), N)
    assert np.abs(opened(whole, N, sums.step) - x.sum(axis=0)).max() < 5 * noise


def test_the_noise_of_a_sum_is_as_large_as_it_says() -> None:
    sums, ids = planned(), np.arange(N)
    shares = Simulation(0).shares((4000, N, D), sums.share((0, 0), N), ids, (0, 0, 0))
    total = shares.sum(axis=1) * sums.step
    assert total.std() == pytest.approx(sums.noise((0, 0), N), rel=0.02)
    assert len(np.unique(shares)) == shares.size  # no share is drawn twice


def test_a_deployment_draws_whole_numbers_of_the_same_scale() -> None:
    pytest.importorskip("opendp")
    scale = planned().share((0, 0), N)
    shares = Deployment().shares((3, 2, 400), scale, np.arange(2), (0, 0, 0))
    assert shares.dtype == np.int64
    assert shares.std() == pytest.approx(scale, rel=0.06)
    assert abs(shares.mean()) < 5 * scale / math.sqrt(shares.size)


def test_messages_are_cut_to_their_declared_reach() -> None:
    sums = planned()
    far = Sealed.words_of(door(sums, range(N)).summand(np.full((N, D), 1e9), 0.01))  # type: ignore[arg-type]
    edge = Sealed.words_of(door(sums, range(N)).summand(np.full((N, D), 1.0), 0.01))  # type: ignore[arg-type]
    assert np.array_equal(far, edge)


def test_a_block_that_is_not_complete_tells_nothing() -> None:
    words = Sealed.words_of(door(planned(), [0, 1], whole=False).summand(np.ones((2, D)), 0.01))  # type: ignore[arg-type]
    assert not words.any()


def test_a_count_that_is_off_shows() -> None:
    sums = planned()
    words = Sealed.words_of(door(sums, range(N)).summand(np.ones((N, D)), 0.01))  # type: ignore[arg-type]
    with pytest.raises(MessageError, match="add up to noise"):
        opened(words, N - 1, sums.step)


# The door


def test_a_door_that_sums_releases_nothing_by_itself() -> None:
    with pytest.raises(RefusedError, match="read by itself"):
        door(planned(), range(N)).output(np.ones((N, D)), 0.01)


def test_a_message_that_moves_further_than_the_noise_covers_is_refused() -> None:
    with pytest.raises(RefusedError, match="does not cover"):
        door(planned(), range(N)).summand(np.ones((N, D)), 0.0101)
    with pytest.raises(RefusedError, match="does not cover"):
        door(planned(), range(N), ratio=5.1).summand(np.ones((N, D)), 0.01)


def test_noise_of_another_mode_is_refused() -> None:
    deployed = replace(planned(), kind=DiscreteGaussian)
    with pytest.raises(RefusedError, match="a simulation cannot draw"):
        door(deployed, range(N)).summand(np.ones((N, D)), 0.01)


def test_an_event_that_counts_on_more_who_collude_is_refused() -> None:
    sums = planned(asked=SecureSum(2, 9))
    events = (tuple([SharedGaussian(5.0, 3, N)] * N),)
    odd = Door(np.arange(N), events, Simulation(0), 0, 0, lambda charges: None, summing=part(sums))
    with pytest.raises(RefusedError, match="planned share"):
        odd.summand(np.ones((N, D)), 0.01)


def test_sealed_words_have_no_value_to_keep() -> None:
    sealed = door(planned(), range(N)).summand(np.ones((N, D)), 0.01)
    assert isinstance(sealed, Sealed)
    assert not [name for name in dir(sealed) if not name.startswith("_") and name != "words_of"]
    with pytest.raises(TypeError, match="only a door"):
        Sealed(everybody((1, 2)))


# Accounting


def test_a_share_costs_what_a_gaussian_does_but_for_the_slack() -> None:
    spent = ((SharedGaussian(20.0, 3, 10), 41),)
    mu = math.sqrt(41) / 20
    assert gdp(spent[0][0]) == 1 / 20
    assert gdp_epsilon(mu, 1e-6) < epsilon(spent, 1e-6) < gdp_epsilon(mu, 1e-6) * 1.0002
    assert epsilon(spent, 1e-18) == math.inf  # no proof without the slack


def test_an_event_is_read_as_it_was_written() -> None:
    event = SharedGaussian(20.0, 3, 10)
    assert load(dump(event)) == event
    with pytest.raises(ConfigError, match="does not collude"):
        SharedGaussian(20.0, 10, 10)


def test_more_who_collude_leave_less_noise() -> None:
    """PRIVACY figures: with S_min = 9 of 10 and t = 3, five who collude see 1.25 where epsilon is 1."""
    event = SharedGaussian(20.0, 3, 10)
    assert event.among(3, 9).ratio == event.ratio
    assert event.among(5, 9).ratio == pytest.approx(20 * math.sqrt(4 / 6))
    assert event.among(9, 10).ratio == pytest.approx(20 / math.sqrt(7))
    assert event.among(1, 9).ratio == event.ratio  # fewer than is tolerated leave no more than is counted


# Policy


def test_a_party_accepts_no_sum_below_its_policy() -> None:
    Policy(None).admit_sum(SecureSum(3, 9), N)
    with pytest.raises(RefusedError, match="tolerate 3 colluding parties, and the job tolerates 2"):
        Policy(None).admit_sum(SecureSum(2, 9), N)
    policy = Policy(None, colluding=4, fewest=8)
    policy.admit_sum(SecureSum(4, 8), N)
    policy.admit_sum(None, N)
    with pytest.raises(RefusedError, match="tolerate 4 colluding"):
        policy.admit_sum(SecureSum(3, 9), N)
    with pytest.raises(RefusedError, match="8 parties at least"):
        policy.admit_sum(SecureSum(4, 7), N)
    with pytest.raises(RefusedError, match="9 parties at least"):
        Policy(None).admit_sum(SecureSum(3, 8), N)
    assert usual_fewest(N) == 9
