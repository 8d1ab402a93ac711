"""Randomised labels: the right rate, drawn once for a data set, the same for every job, process and block."""

import multiprocessing
import os
import signal
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest

from cases import CASES, PRIVATE, SIZES, Case, shards
from ledgers import without_refusals
from privadmm.config import build
from privadmm.config.file import read
from privadmm.data.shards import Shards
from privadmm.engine.block import cluster
from privadmm.engine.job import Job, train
from privadmm.errors import ConfigError, DataError, LedgerError, RefusedError
from privadmm.optim.losses import Debiased, HalfLogistic, Logistic
from privadmm.privacy.calibration import Target
from privadmm.privacy.events import DiscreteGaussian, Event
from privadmm.privacy.ledger import MemoryLedger
from privadmm.privacy.mechanisms import Deployment, Noise, Simulation, flip_threshold
from privadmm.privacy.policy import Policy
from privadmm.privacy.sqlite_ledger import SqliteLedger
from privadmm.privacy.verification import verify
from privadmm.runs import metrics
from small_runs import PRIVATE as CONFIG
from small_runs import RECORDS, Place, charged, rows, with_changes

pytestmark = pytest.mark.usefixtures("skipped_plots")

CASE = CASES["dp_admm-reported"]
PLAIN = CASES["dp_admm"]
N = sum(SIZES)
TRUE = shards().y


def labels_of(job: Job, ledger: Any, noise: Noise) -> np.ndarray:
    """The labels that the parties compute with."""
    return cluster(job, shards(), noise, ledger).workers[0].local.shards.y


def job_with(id: str, case: Case = CASE, allowance: float = 3.0, **changes: Any) -> Job:
    return Job(case.algorithm, replace(case, **changes).public(), allowance, id=id)


def opened(folder: Path, job: Job, mode: str = "simulation") -> SqliteLedger:
    return SqliteLedger(folder / "ledger", range(5), job.policy, mode)


SOURCES = [pytest.param(lambda: Simulation(7), id="simulation"), pytest.param(Deployment, id="deployment")]


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("source", SOURCES)
def test_labels_flip_at_the_right_rate_and_a_wrong_one_is_rejected(source: Callable[[], Noise], epsilon: float) -> None:
    count = 200_000
    flipped = int(source().flips(epsilon, count, 0).sum())

    def fits(rate: float) -> bool:
        return bool(binomtest(flipped, count, rate).pvalue > 1e-6)

    assert fits(1 / (1 + np.exp(epsilon)))
    assert not fits(1 / (1 + np.exp(1.15 * epsilon)))
    assert not fits(1 / (1 + np.exp(0.85 * epsilon)))
    assert not fits(np.exp(-epsilon) / 2)  # another convention: flip with half that


@pytest.mark.parametrize("epsilon", [1e-9, 0.1, 1.0, 20.0, 40.0, 1e6])
def test_no_rounding_makes_a_flip_rarer(epsilon: float) -> None:
    """(1 - q)/q <= e^epsilon for the probability q that is drawn, and q is the nearest such on the grid of words."""
    drawn = Decimal(int(flip_threshold(epsilon))) / 2**64
    with localcontext(prec=100):
        exact = 1 / (1 + Decimal(min(epsilon, 1000.0)).exp())
        assert exact <= drawn <= exact + Decimal(2) ** -63


def test_parties_draw_for_themselves() -> None:
    noise = Simulation(7)
    drawn = np.array([noise.flips(0.5, 4000, party) for party in range(4)], dtype=float)
    assert np.abs(np.corrcoef(drawn) - np.eye(4)).max() < 5 / np.sqrt(4000)


def test_every_job_and_every_seed_reads_the_same_labels(tmp_path: Path) -> None:
    ledger = opened(tmp_path, job_with("one"))
    first = labels_of(job_with("one"), ledger, Simulation(0))
    assert 0 < np.sum(first != TRUE) < N
    second = labels_of(job_with("two"), ledger, Simulation(1))
    assert np.array_equal(first, second)
    train(job_with("two"), cluster(job_with("two"), shards(), Simulation(1), ledger))
    ledger.close()
    with closing(opened(tmp_path, job_with("three"))) as later:
        assert np.array_equal(first, labels_of(job_with("three"), later, Simulation(2)))
    assert verify(tmp_path / "ledger").problems == ()


class Forgetful(SqliteLedger):
    """The planted fault: what is kept is not found again."""

    def keep(self, job: str, name: str, make: Callable[[], bytes], event: Event | None) -> bytes:
        return make()


def test_a_second_draw_would_be_seen(tmp_path: Path) -> None:
    job = job_with("one")
    ledger = Forgetful(tmp_path / "ledger", range(5), job.policy, "simulation")
    first = labels_of(job, ledger, Simulation(0))
    assert not np.array_equal(first, labels_of(job_with("two"), ledger, Simulation(1)))


def test_labels_do_not_depend_on_the_block_or_the_storage() -> None:
    job = job_with("one")
    whole = dict(enumerate(cluster(job, shards(), Simulation(0)).workers[0].local.shards.labels()))
    for sparse in (False, True):
        mixed = cluster(job, shards(sparse=sparse), Simulation(0), parts=[[3], [0, 4], [1, 2]])
        for worker in mixed.workers:
            for party, found in zip(worker.local.ids.tolist(), worker.local.shards.labels(), strict=True):
                assert np.array_equal(found, whole[party])


DEPLOYED = replace(CASE, privacy=Target(1.0, 1e-5, DiscreteGaussian))


def test_a_killed_run_goes_on_with_the_labels_that_it_drew(tmp_path: Path) -> None:
    """A deployment cannot draw the same labels twice. If it is killed while drawing, nothing is stored."""
    job = job_with("one", DEPLOYED)

    class Dies(Deployment):
        def flips(self, *call: Any) -> np.ndarray:
            os.kill(os.getpid(), signal.SIGKILL)
            raise AssertionError

    def life(noise: type[Deployment]) -> int:
        pid = os.fork()
        if pid == 0:
            labels_of(job, opened(tmp_path, job, "deployment"), noise())
            os.kill(os.getpid(), signal.SIGKILL)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    assert life(Dies) == -signal.SIGKILL
    with closing(opened(tmp_path, job, "deployment")) as ledger:
        assert ledger.keepsakes() == ()
    assert life(Deployment) == -signal.SIGKILL
    with closing(opened(tmp_path, job, "deployment")) as ledger:
        drawn = ledger.kept("", "labels")
        assert drawn is not None
        labels = labels_of(job, ledger, Deployment())
        assert ledger.kept("", "labels") == drawn
        assert len(ledger.keepsakes()) == 1
    with closing(opened(tmp_path, job, "deployment")) as ledger:
        assert np.array_equal(labels, labels_of(job_with("two", DEPLOYED), ledger, Deployment()))
    assert verify(tmp_path / "ledger").problems == ()


def test_processes_that_race_for_the_first_draw_read_the_same_labels(tmp_path: Path) -> None:
    opened(tmp_path, job_with("one", DEPLOYED, allowance=5.0), "deployment").close()
    context = multiprocessing.get_context("fork")
    start, found = context.Barrier(4), context.Queue()
    racers = [context.Process(target=first_look, args=(tmp_path, start, number, found)) for number in range(4)]
    for process in racers:
        process.start()
    seen = {found.get(timeout=60) for _ in racers}
    for process in racers:
        process.join()
    assert len(seen) == 1
    with closing(opened(tmp_path, job_with("x", DEPLOYED, allowance=5.0), "deployment")) as ledger:
        assert len(ledger.keepsakes()) == 1


def first_look(folder: Path, start: Any, number: int, found: Any) -> None:
    job = job_with(f"job {number}", DEPLOYED, allowance=5.0)
    with closing(opened(folder, job, "deployment")) as ledger:
        noise = Deployment()
        start.wait(timeout=60)
        found.put(labels_of(job, ledger, noise).tobytes())


OTHERS = {
    "labels as they are": (CASE, {"loss": Logistic()}, "set label_epsilon = 1.0$"),
    "another epsilon": (
        CASE,
        {"loss": Debiased(Logistic(), 2.0)},
        "with label_epsilon = 2.0.*set label_epsilon = 1.0$",
    ),
    "randomised too late": (
        PLAIN,
        {"loss": Debiased(Logistic(), 2.0)},
        "make a ledger with --label-epsilon 2.0",
    ),
}


@pytest.mark.parametrize(("case", "changes", "says"), OTHERS.values(), ids=OTHERS.keys())
def test_a_ledger_is_for_randomised_labels_or_for_none(
    case: Case, changes: dict[str, Any], says: str, tmp_path: Path
) -> None:
    first, second = job_with("one", case), job_with("two", case, **changes)
    ledger = opened(tmp_path, first)
    train(first, cluster(first, shards(), Simulation(0), ledger))
    before, rows = ledger.spent(0), without_refusals(ledger.path)
    with pytest.raises(RefusedError, match=says) as refused:
        cluster(second, shards(), Simulation(0), ledger)
    assert "Nothing was released" in str(refused.value)
    assert (ledger.spent(0), without_refusals(ledger.path)) == (before, rows)
    with pytest.raises(LedgerError, match="fixed label_epsilon"):
        opened(tmp_path, second)


def test_other_records_do_not_get_these_labels(tmp_path: Path) -> None:
    job = job_with("one")
    ledger = MemoryLedger(range(5), job.policy)
    labels_of(job, ledger, Simulation(0))
    sizes = (*SIZES[:-1], SIZES[-1] + 1)
    more = Job(CASE.algorithm, CASE.public(sizes=sizes), 3.0, id="two")
    with pytest.raises(RefusedError, match="use the records and label_epsilon of the ledger"):
        cluster(more, shards(sizes=sizes), Simulation(0), MemoryLedgerOf(ledger))


class MemoryLedgerOf(MemoryLedger):
    """A ledger with the stored draws of another one, without its reservations."""

    def __init__(self, other: MemoryLedger) -> None:
        super().__init__(other.ids, other.policy)
        for draw in other.keepsakes():
            data = other.kept(draw.job, draw.name)
            self.keep(draw.job, draw.name, lambda data=data: data, draw.event)


def test_other_labels_for_the_same_records() -> None:
    data = shards()
    parties = data.labels()
    assert [len(y) for y in parties] == list(SIZES)
    assert np.array_equal(data.with_labels(parties).y, data.y)
    other = data.with_labels([-y for y in parties])
    assert np.array_equal(other.y, -data.y)
    assert other.slots is data.slots
    for i, y in enumerate(parties):
        assert np.array_equal(data.take([i]).y, y)
    with pytest.raises(DataError, match="one label for each record"):
        data.with_labels(parties[1:])


def test_a_debiased_half_logistic_is_refused_where_an_argmin_is_solved() -> None:
    half = Debiased(HalfLogistic(), 1.0)
    dvp = CASES["dvp"]
    with pytest.raises(ConfigError, match="not convex once its labels are randomised"):
        replace(dvp, loss=half).job()
    replace(dvp, loss=Debiased(Logistic(), 1.0)).job()
    replace(PLAIN, loss=half).job()  # first order: no argmin


@pytest.mark.parametrize("loss", [Debiased(HalfLogistic(), 1.0), Debiased(Logistic(), 1.0)], ids=repr)
def test_one_reported_label_moves_a_non_convex_argmin_too_far(loss: Debiased) -> None:
    """Why that refusal: under some public linear term, one of 1000 labels moves the argmin beyond 2 C L/(m k)."""
    m, k = 1000, 0.02
    w = np.linspace(-40, 40, 8001)
    plus, minus = (loss.value(w, np.full_like(w, y)) for y in (1.0, -1.0))
    public = np.linspace(0, 2 * loss.lipschitz, 4001)[:, None] * w + k / 2 * w**2
    one, other = (np.argmin(public + ((m - n) * plus + n * minus) / m, axis=1) for n in (0, 1))
    moved = np.abs(w[one] - w[other]).max()
    allowed = 2 * loss.lipschitz / (m * k) + (w[1] - w[0])
    assert (moved > 10 * allowed) == (not loss.convex)
    assert (moved <= allowed) == loss.convex


def test_labels_of_many_classes_are_not_randomised_class_by_class() -> None:
    target = replace(CASE.privacy, copies=3)  # type: ignore[type-var]
    with pytest.raises(ConfigError, match="more than two classes"):
        replace(CASE, privacy=target).job()


def test_a_config_randomises_labels_and_measures_on_the_true_ones(place: Place) -> None:
    done = place.run(with_changes(CONFIG, {"privacy": {"label_epsilon": 0.5}}))
    config = read(place.path / "config.toml")
    block, w = build.prepare(config).train, done.model.weights
    public = build.job(config, block.sizes, block.dim).public
    scores, plain = metrics.scores(block, w), replace(public, loss=Logistic())
    assert done.result["objective"] == pytest.approx(metrics.objective(plain, block, w, scores))
    debiased = np.mean(public.loss.value(scores, block.y))
    assert abs(debiased - np.mean(plain.loss.value(scores, block.y))) > 1e-3
    assert done.result["majority_train"] == metrics.majority(block)
    assert done.result["adversaries"]["own_server"]["label"] == {"epsilon": 0.5, "delta": 0.0}
    assert done.ledger["kept"][0]["event"] == {"kind": "randomized_response", "epsilon": 0.5}


def test_two_runs_on_one_ledger_read_one_set_of_labels(place: Place) -> None:
    shared, file = {"ledger": "party.sqlite"}, place.path / "party.sqlite"
    reported = {"label_epsilon": 1.0, "epsilon": 0.5, "budget": 2.0}
    assert place.train(place.config(privacy=reported, run=shared), out=place.path / "a").code == 0
    assert place.train(place.config(privacy=reported, run={**shared, "seed": 2}), out=place.path / "b").code == 0
    shown = place.call("ledger", "show", file, "--json").object
    assert shown["policy"]["label_epsilon"] == 1.0
    assert [one["name"] for one in shown["kept"]] == ["labels"]
    before = charged(file)
    raw = place.train(place.config(privacy={**reported, "label_epsilon": None}, run=shared), out=place.path / "c")
    assert raw.code == 3
    assert "set label_epsilon = 1" in raw.err
    assert charged(file) == before
    assert not (place.path / "c").exists()
    assert place.call("ledger", "verify", file, "--against", place.path / "b").code == 0


def test_the_steward_makes_a_ledger_for_randomised_labels(place: Place) -> None:
    file = place.path / "party.sqlite"
    words = ("--parties", 3, "--epsilon", 2, "--delta", 1e-5, "--label-epsilon", 1)
    assert place.call("ledger", "create", file, *words, "--mode", "simulation").code == 0
    said = place.train(place.config(run={"ledger": "party.sqlite"}))
    assert said.code == 3
    assert "reads them as they are" in said.err
    assert charged(file) == 0
    assert place.train(place.config(privacy={"label_epsilon": 1.0}, run={"ledger": "party.sqlite"})).code == 0
    bad = place.call("ledger", "create", place.path / "new", *words[:-1], -1)
    assert (bad.code, "label_epsilon" in bad.err) == (2, True)


def test_a_deployment_is_told_how_to_make_its_ledger(place: Place) -> None:
    run = {"mode": "deployment", "seed": None, "ledger": "party.sqlite"}
    said = place.train(place.config(privacy={"label_epsilon": 1.5, "adjacency": "label"}, run=run))
    assert said.code == 1
    assert "--adjacency label --label-epsilon 1.5" in said.err


@pytest.mark.parametrize("name", ["dvp", "pvp", "dp_admm"])
def test_a_config_with_the_half_logistic(name: str, place: Place) -> None:
    parameters = {"name": name, "D_w": 5.0 if name == "dp_admm" else None, "rho": None}
    graph = {"kind": "ring"} if name == "dvp" else {"kind": "star"}
    loss, privacy = {"name": "half_logistic"}, {"label_epsilon": 1.0}
    config = place.config(algorithm=parameters, graph=graph, loss=loss, privacy=privacy)
    said = place.call("account", config, "--records", RECORDS)
    assert said.code == (0 if name == "dp_admm" else 2)
    assert ("not convex" in said.err) == (name != "dp_admm")


def test_learning_from_reports_works() -> None:
    """On many records the debiased loss leads to the model of the true labels; the plain loss does not."""
    X, y = rows(20_000, 3, seed=1)
    data = Shards.from_parties([(X[:10_000], 2.0 * y[:10_000] - 1), (X[10_000:], 2.0 * y[10_000:] - 1)], row_bound=3.0)
    star = CASES["admm_star"]

    def model(case: Case, block: Shards) -> np.ndarray:
        public = replace(case.public(sizes=(10_000, 10_000), rounds=60), dim=3)
        job = Job(case.algorithm, public)
        done = train(job, cluster(job, block, Simulation(0)))
        return job.algorithm.model(public, done.memory, done.mail)

    true = model(star, data)
    debiased = model(replace(star, loss=Debiased(Logistic(), 1.0)), data)
    flips = [Simulation(0).flips(1.0, 10_000, party) for party in (0, 1)]
    reports = data.with_labels([np.where(f, -y, y) for f, y in zip(flips, data.labels(), strict=True)])
    naive = model(star, reports)
    assert np.linalg.norm(debiased - true) < 0.15 * np.linalg.norm(true)
    assert np.linalg.norm(naive - true) > 0.4 * np.linalg.norm(true)


def test_policies_refuse_senseless_values() -> None:
    with pytest.raises(ConfigError, match="label_epsilon"):
        Policy(None, label_epsilon=0.0)
    with pytest.raises(ConfigError, match="adjacency must be one of"):
        Policy(None, adjacency="rows")  # type: ignore[arg-type]
    assert PRIVATE[0].job().policy.label_epsilon is None
