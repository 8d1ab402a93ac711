"""Parties that leave: the others reach their own optimum, the budget is untouched, and the report says so."""

import json
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from cases import ALGORITHMS, DIM, OFF, SIZES, Case, optimum, shards
from privadmm.algorithms.admm_graph import ADMMGraph
from privadmm.algorithms.first_order_consensus import FirstOrderConsensus
from privadmm.algorithms.mr_admm import MRADMM
from privadmm.data.arrays import Floats
from privadmm.engine.block import cluster
from privadmm.engine.job import Job, train, weights
from privadmm.engine.mail import Mail
from privadmm.errors import AbsentError, ConfigError
from privadmm.optim import graphs
from privadmm.optim.graphs import Graph
from privadmm.privacy.accounting import totals
from privadmm.privacy.mechanisms import Simulation
from runs.test_resume import interrupted, left_behind
from small_runs import PARTIES, PRIVATE, ROUNDS, Place, charged, result, with_changes
from vertical_cases import ALGORITHMS as VERTICAL

LEAVE = {3: 4, 2: 9}  # after nine rounds 0, 1 and 4 are left, which reach one another on every graph here
HERE = np.array([0, 1, 4])


RELAYED = FirstOrderConsensus(step=1.0)
MORE = [
    Case("relay", RELAYED, graphs.star, OFF),
    Case("gossip", replace(RELAYED, gossip=30), graphs.ring, OFF),
    Case("weighed", replace(RELAYED, gossip=30, weights="noise"), graphs.ring, OFF),
]


def of(name: str) -> Case:
    return next(case for case in (*ALGORITHMS, *MORE) if case.name == name)


def optimum_of(job: Job, here: Any = HERE) -> Floats:
    """Minimise C' mean(loss) + R over the records of those left; C' = C (their mean size)/(everybody's)."""
    data, public = shards().take(here), job.public
    if public.weighting == "records":
        assert public.weight_among(here) == pytest.approx(data.sizes.mean() / np.mean(SIZES))
    return np.asarray(optimum(replace(public, C=public.weight_among(here)), data))


ONE_OF_EACH = [
    *("admm_star", "dp_admm-off", "pvp-off", "dp_fedsgd-off", "relay", "gossip", "weighed"),
    *("admm_graph", "admm_graph-ring-huber", "m_admm-off", "dvp-off", "r_admm-off", "mr_admm-off"),
]
ENOUGH = 300


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_those_left_reach_their_own_optimum(name: str) -> None:
    job = replace(of(name).job(rounds=ENOUGH), leave=LEAVE)
    blocks = cluster(job, shards(), Simulation(0))
    w = weights(job, train(job, blocks))
    best = optimum_of(job)
    assert np.linalg.norm(w - best) <= 1e-6 * np.linalg.norm(best)
    assert blocks.local_models().shape == (len(HERE), DIM)
    assert np.linalg.norm(blocks.local_models() - w, axis=-1).max() <= 1e-6
    # Control: their optimum is far from the one of everybody.
    assert np.linalg.norm(best - optimum_of(job, np.arange(len(SIZES)))) > np.linalg.norm(best)


def test_pdml_goes_on_among_those_left() -> None:
    """PDML's model is the mean over all rounds; its iterates converge."""
    job = replace(of("pdml-off").job(rounds=ENOUGH), leave=LEAVE)
    blocks = cluster(job, shards(), Simulation(0))
    train(job, blocks)
    np.testing.assert_allclose(blocks.local_models(), np.tile(optimum_of(job), (len(HERE), 1)), atol=1e-5)


def test_the_duals_of_a_star_heal_within_a_round() -> None:
    """gamma_i+ = gamma_i - rho (w_i - w) with w = mean(w_i - gamma_i/rho) over those present: their sum is 0, whatever
    it was before. It is not 0 in the round in which somebody left, so there is something to heal.
    """
    case, sums = of("dp_admm"), list[float]()
    job = replace(case.job(rounds=6), leave={3: 2, 2: 4})
    blocks = cluster(job, shards(), Simulation(0))

    def look(view: Any) -> None:
        # Parties hold the dual of the round before; this is line (3d) of their next update, by hand.
        s = blocks.workers[0].state
        gamma = s.gamma - case.algorithm.rho * (s.w - view.progress.mail.broadcast)  # type: ignore[attr-defined]
        sums.append(float(np.abs(gamma.sum(axis=0)).max()))
        kept.append(float(np.abs(s.gamma.sum(axis=0)).max()))

    kept = list[float]()
    train(job, blocks, [look])
    assert max(sums) < 1e-12
    assert kept[2] > 1e-3
    assert kept[4] > 1e-3
    assert max(kept[0], kept[1], kept[3], kept[5]) < 1e-12


@dataclass(frozen=True)
class KeepsItsDual(ADMMGraph):
    def update(self, t: int, local: Any, s: Any, inbox: Mail, release: Any) -> Any:
        return super().update(t, local, s, long_ago(inbox), release)


@dataclass(frozen=True)
class RecycledKeepsItsDual(MRADMM):
    def odd(self, t: int, local: Any, s: Any, inbox: Mail, release: Any) -> Any:
        return super().odd(t, local, s, long_ago(inbox), release)


def long_ago(inbox: Mail) -> Mail:
    """The same inbox, as if whoever left had done so a round earlier."""
    return replace(inbox, absent=inbox.absent - np.array([0, 1]))


class HearsNothing(Graph):
    """The planted fault: a party that left counts as zero instead of an echo."""

    def neighbour_sum(self, values: Any, senders: Any, ids: Any, echo: Any = None) -> Any:
        return super().neighbour_sum(values, senders, ids, None if echo is None else np.zeros_like(echo))


def deaf(n: int) -> Graph:
    graph = graphs.ring(n)
    return HearsNothing(graph.kind, graph.neighbours)


BUGS = {
    "dual kept": replace(of("admm_graph"), algorithm=KeepsItsDual(eta=0.1)),
    "dual kept, recycled": replace(of("mr_admm-off"), algorithm=RecycledKeepsItsDual(eta=0.1, gamma=0.5)),
    "no echo": replace(of("admm_graph"), graph=deaf),
}


@pytest.mark.parametrize("bug", BUGS.values(), ids=BUGS.keys())
def test_planted_faults_miss_the_optimum(bug: Case) -> None:
    job = replace(bug.job(rounds=ENOUGH), leave=LEAVE)
    w = weights(job, train(job, cluster(job, shards(), Simulation(0))))
    assert np.linalg.norm(w - optimum_of(job)) > 0.5 * np.linalg.norm(optimum_of(job))


APART = ["admm_graph", "mr_admm", "dvp", "pdml", "foc-gossip", "dvp-centred"]


@pytest.mark.parametrize("name", APART)
def test_a_graph_that_falls_apart_is_named_and_nothing_more_is_released(name: str) -> None:
    job = replace(replace(of(name), graph=graphs.ring).job(rounds=4), leave={2: 1, 0: 2})
    blocks = cluster(job, shards(), Simulation(0))
    with pytest.raises(AbsentError, match=r"reach .*\{1\} and \{3, 4\}"):
        train(job, blocks)
    for party, rounds in enumerate([2, 3, 1, 3, 3]):
        before = {tick: rows for tick, rows in job.plan.items() if tick[0] < rounds}
        assert blocks.workers[0].ledger.spent(party) == totals(before, 5)[party]


def test_one_alone_has_nobody_to_agree_with() -> None:
    everybody_else = {party: 1 for party in range(4)}
    job = replace(of("admm_graph").job(), leave=everybody_else)
    with pytest.raises(AbsentError, match="party 4 alone is left"):
        train(job, cluster(job, shards(), Simulation(0)))
    job = replace(of("admm_star").job(rounds=ENOUGH), leave=everybody_else)
    w = weights(job, train(job, cluster(job, shards(), Simulation(0))))
    np.testing.assert_allclose(w, optimum_of(job, np.array([4])), atol=1e-5)


class Losing:
    """An engine that loses these parties in the second round."""

    def __init__(self, inner: Any, lost: set[int]) -> None:
        self.inner, self.lost = inner, lost
        self.labels = inner.labels

    def step(self, round: int, phase: int, inbox: Mail) -> Mail:
        mail = self.inner.step(round, phase, inbox)
        kept = [at for at, party in enumerate(mail.senders) if round < 1 or party not in self.lost]
        return Mail(mail.senders[kept], mail.values[..., kept, :])


def test_an_engine_that_loses_everybody_is_an_error() -> None:
    job = of("dp_admm").job()
    with pytest.raises(AbsentError, match="no party gave an answer in round 2"):
        train(job, Losing(cluster(job, shards(), Simulation(0)), set(range(5))))  # type: ignore[arg-type]


@pytest.mark.parametrize("case", [VERTICAL[0], VERTICAL[3], VERTICAL[5]], ids=lambda case: case.name)
def test_columns_are_needed(case: Any) -> None:
    job = case.job()
    with pytest.raises(AbsentError, match="party 1 left, and nobody else has its columns"):
        train(job, Losing(cluster(job, case.data(), Simulation(0)), {1}))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="needs every party's columns"):
        replace(job, leave={1: 1})


@pytest.mark.parametrize(
    ("leave", "words"),
    [
        ({5: 1}, "parties 0 to 4"),
        ({-1: 1}, "parties 0 to 4"),
        ({1: 4}, "cannot leave in round 5: there are rounds 1 to 4"),
        ({1: -1}, "rounds 1 to 4"),
        (dict.fromkeys(range(5), 2), "one at least has to stay"),
    ],
)
def test_a_job_says_who_can_leave(leave: dict[int, int], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        replace(of("dp_admm").job(), leave=leave)


LEAVING = with_changes(PRIVATE, {"parties": {"leave": ["1@4"]}})
SHARED = with_changes(LEAVING, {"run": {"ledger": "party.sqlite"}, "privacy": {"budget": 1.2}})


def test_the_report_says_who_left_and_what_it_had_spent(place: Place, skipped_plots: list[str]) -> None:
    said = place.train(place.config(LEAVING))
    assert said.code == 0, said.err
    (gone,) = result(place.out)["absent"]
    ledger = json.loads((place.out / "ledger.json").read_text())["parties"]
    assert (gone["party"], gone["from_round"]) == (1, 4)
    assert gone["epsilon"] == pytest.approx(ledger[1]["epsilon"], rel=1e-12)
    assert gone["set_aside"] == pytest.approx(ledger[0]["epsilon"], rel=1e-12)
    assert gone["epsilon"] < gone["set_aside"] <= 1.0
    assert charged(place.out / "ledger.sqlite") == ROUNDS * PARTIES - 3
    text = " ".join(said.out.split())
    assert "party 1 gave no answer from round 4 on; it had spent epsilon" in text
    assert f"of the {gone['set_aside']:.4g} set aside for it" in text
    assert "privadmm ledger close" in text
    assert "those left minimise their own losses with C = 1," in text
    stayed = place.train(place.config(), out=place.path / "stayed")
    assert "no answer" not in stayed.out
    assert "absent" not in result(place.path / "stayed")


def test_one_that_is_not_private_has_nothing_to_free(place: Place, skipped_plots: list[str]) -> None:
    clear = {"algorithm": {"name": "admm_star", "D_w": None}, "privacy": None}
    said = place.train(place.config(with_changes(LEAVING, clear)))
    assert "party 1 gave no answer from round 4 on those left" in " ".join(said.out.split())
    assert result(place.out)["absent"][0]["epsilon"] is None


def test_what_a_party_that_left_did_not_spend_is_free_when_the_run_is_over(
    place: Place, skipped_plots: list[str]
) -> None:
    ledger = place.path / "party.sqlite"
    assert place.train(place.config(SHARED)).code == 0
    parties = json.loads((place.out / "ledger.json").read_text())["parties"]
    assert parties[1]["epsilon"] < parties[0]["epsilon"]
    assert parties[1]["left"] > parties[0]["left"]
    shown = place.call("ledger", "show", ledger, "--json").object["parties"]
    for party in (0, 1):
        assert shown[party]["epsilon_with_reservations"] == pytest.approx(parties[party]["epsilon"])
    (gone,) = result(place.out)["absent"]
    closed = place.call("ledger", "close", ledger, gone["job"], "--json")
    assert closed.code == 0
    assert place.call("ledger", "show", ledger, "--json").object["parties"] == shown, "there was nothing left to free"
    assert place.call("ledger", "verify", ledger, "--against", place.out).code == 0


@pytest.mark.parametrize("at", [3, 4, 5])
def test_a_stopped_run_resumes_over_it(at: int, place: Place, skipped_plots: list[str]) -> None:
    place.run(LEAVING, out=place.path / "whole")
    interrupted(place, LEAVING, at)
    place.run(LEAVING, resume=True)
    assert left_behind(place.out) == left_behind(place.path / "whole")
    assert result(place.out)["absent"][0]["job"] in (place.out / "job.json").read_text()
    assert charged(place.out / "ledger.sqlite") == ROUNDS * PARTIES - 3


BAD = {
    "an unknown party": (["3@2"], {}, "names party 3 beside [parties] count = 3"),
    "beyond the last round": (["1@7"], {}, "names round 7 beside [algorithm] rounds = 6"),
    "everybody": (["0@2", "1@3", "2@2"], {}, "names every party"),
    "twice": (["1@2", "1@3"], {}, 'names "party 1" twice'),
    "no round": (["1"], {}, 'has "1"'),
    "round zero": (["1@0"], {}, 'has "1@0"'),
    "nobody": ([], {}, "is an empty list"),
    "a deployment": (
        ["1@2"],
        {"run": {"mode": "deployment", "seed": None, "ledger": "l.sqlite"}},
        "for a simulation only",
    ),
    "columns": (
        ["1@2"],
        {
            "parties": {"split": "features", "leave": ["1@2"]},
            "algorithm": {"name": "admm_sharing", "D_w": None},
            "privacy": None,
        },
        "every party's columns are needed",
    ),
}


@pytest.mark.parametrize(("leave", "changes", "words"), BAD.values(), ids=BAD.keys())
def test_a_config_that_cannot_be_is_named(leave: list[str], changes: dict[str, Any], words: str, place: Place) -> None:
    tables = with_changes(with_changes(PRIVATE, {"parties": {"leave": leave}}), changes)
    said = place.train(place.config(tables))
    assert (said.code, "[parties] leave" in said.err, words in said.err) == (2, True, True), said.err
    assert not place.out.exists()


def test_parties_of_a_column_are_known_once_it_is_read(place: Place) -> None:
    """`account` cannot know which parties there are, and asks; `train` knows."""
    from small_runs import rows, write_npz

    X, y = rows()
    write_npz(place.path / "data.npz", X, y, site=np.where(np.arange(60) < 30, "b", "a"))
    by_site = {"count": None, "split": "column:site"}
    good = place.config(PRIVATE, parties={**by_site, "leave": ["1@4"]})
    bad = place.config(PRIVATE, "bad.toml", parties={**by_site, "leave": ["2@4"]})
    said = place.call("account", bad)
    assert (said.code, "[parties] count" in said.err) == (2, True)
    assert place.train(good).code == 0
    said = place.train(bad, out=place.path / "bad")
    assert (said.code, "there are parties 0 to 1" in said.err) == (2, True)
