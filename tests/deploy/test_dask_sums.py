"""Secure sums on the Dask engine: the same sums whatever dies, one key a job, and no row that could be read alone."""

import pickle
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dask_deployment import (
    Deployed,
    at_round,
    by_party,
    dasked,
    deployed,
    kill_in_the_middle,
    ledgers,
    order,
    planted,
    said,
)
from privadmm.config import build
from privadmm.deploy import dask
from privadmm.deploy.engines import orders
from privadmm.engine.block import cluster as in_process
from privadmm.engine.job import Job, train
from privadmm.engine.loop import Callback
from privadmm.errors import ConfigError, InterruptedRunError, RefusedError
from privadmm.privacy.key_file import ERASED, KEY, NAME, RECORD
from privadmm.privacy.masks import Entry, Roster, new_key, public_key
from privadmm.privacy.mechanisms import Simulation
from privadmm.privacy.verification import verify
from privadmm.runs.run import Finished
from small_runs import PRIVATE, Place, Tables, charged, with_changes

pytestmark = pytest.mark.usefixtures("skipped_plots")

PARTIES, ROUNDS = 5, 6
SUM = with_changes(
    PRIVATE,
    {"parties": {"count": PARTIES}, "algorithm": {"D_w": None, "rho": None}, "privacy": {"sum": "secure", "fewest": 3}},
)
MOMENTS = with_changes(SUM, {"algorithm": {"name": "first_order_consensus"}, "features": {"moments": True}})
SGD = with_changes(SUM, {"algorithm": {"name": "dp_fedsgd", "step": 0.5}})
LEAVE = {"parties": {"leave": ["1@3", "4@5"]}}  # one of a block, then another's
KINDS = {
    "moments": MOMENTS,
    "dp_fedsgd": SGD,
    "moments, evaluation": with_changes(MOMENTS, {"evaluation": {"kind": "private", "held_out": 0.3}}),
    "randomised labels": with_changes(SGD, {"privacy": {"label_epsilon": 1.0}}),
    "moments, parties leave": with_changes(MOMENTS, LEAVE),
    "dp_fedsgd, parties leave": with_changes(SGD, LEAVE),
    "a block leaves": with_changes(SGD, {"parties": {"leave": ["3@2", "4@2"]}}),
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    with deployed(tmp_path_factory.mktemp("dask")) as made:
        yield made


def same(done: Finished, whole: Finished, out: Path) -> None:
    """Check that nothing shows of what happened to the workers, and that nothing was paid twice."""
    assert done.result["transcript"] == whole.result["transcript"]
    assert said(done)["ledger"] == said(whole)["ledger"]
    assert sum(map(charged, ledgers(out))) == charged(whole.directory.ledger)
    assert [verify(path).problems for path in ledgers(out)] == [(), ()]
    assert rosters(out) == 1
    assert not any(keys(out))


def keys(out: Path) -> list[bytes]:
    """The keys that have not been erased, of all key files of a run."""
    files = [path.with_name(f"{path.name}-keys").read_bytes() for path in ledgers(out)]
    found = [data[at + NAME : at + NAME + KEY] for data in files for at in range(RECORD, len(data), RECORD)]
    assert len(found) == len(files)  # one was drawn for a job
    return [key for key in found if key != ERASED]


def rosters(out: Path) -> int:
    """How many different rosters the ledgers of a run hold."""
    found = set()
    for path in ledgers(out):
        with closing(sqlite3.connect(path)) as db:
            ((data,),) = db.execute("SELECT outbox FROM ticks WHERE kind = 'keep' AND inbox = 'roster'")
        found.add(data[32:])  # behind its salt
    return len(found)


@pytest.mark.parametrize("kind", KINDS)
def test_one_transcript_in_process_in_blocks_and_on_workers(kind: str, cluster: Deployed, place: Place) -> None:
    tables = KINDS[kind]
    whole = place.run(tables, out=place.path / "whole")
    done = place.run(dasked(tables, cluster))
    assert said(done) == said(whole)
    assert done.result["peers"] == "not pinned"
    assert "peers" not in whole.result
    assert not (place.path / "whole" / "ledger.sqlite-keys").exists()
    asked = order(place, tables)
    for parts in ([[0, 1], [2, 3, 4]], [[3], [0, 4], [1, 2]]):
        blocks = in_process(asked.job, build.prepare(asked.config).train, Simulation(1), parts=parts)
        assert train(asked.job, blocks).transcript == whole.result["transcript"]
    if "leave" in kind:
        return
    assert not any(keys(place.out))
    assert rosters(place.out) == 1


def test_a_worker_killed_in_the_middle_of_a_round(cluster: Deployed, place: Place) -> None:
    whole = place.run(MOMENTS, out=place.path / "whole")
    before = set(cluster.pids())
    done = place.run(dasked(MOMENTS, cluster), bar=at_round(2, lambda: kill_in_the_middle(cluster)))
    assert len(before - set(cluster.pids())) == 1
    same(done, whole, place.out)


DEATHS = {
    "before its key": "privadmm.privacy.key_file:KeyFile.key",
    "before the roster": "privadmm.deploy.remote_block:accept_roster",
    "before the roster is kept": "privadmm.privacy.sqlite_ledger:SqliteLedger.keep",
    "before the commit": "privadmm.privacy.sqlite_ledger:SqliteLedger.commit",
    "after the commit, before the answer": "privadmm.privacy.key_file:KeyFile.sent",
    "before the key is erased": "privadmm.privacy.key_file:KeyFile.erase",
}


@pytest.mark.parametrize("death", DEATHS)
def test_every_worker_dies_once(death: str, cluster: Deployed, place: Place) -> None:
    whole = place.run(SGD, out=place.path / "whole")
    before = set(cluster.pids())
    with planted(cluster, DEATHS[death], "dies"):
        done = place.run(dasked(SGD, cluster))
    assert not before & set(cluster.pids())
    same(done, whole, place.out)


def interrupt() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("checkpoint", [True, False])
@pytest.mark.parametrize("round", [1, 3, ROUNDS])
def test_a_run_that_was_interrupted_goes_on(round: int, checkpoint: bool, cluster: Deployed, place: Place) -> None:
    """Also where the last round was committed, and its key erased, before the run had ended."""
    whole = place.run(MOMENTS, out=place.path / "whole")
    tables = dasked(MOMENTS, cluster)
    with pytest.raises(InterruptedRunError):
        place.run(tables, bar=at_round(round, interrupt))
    assert len(keys(place.out)) == (0 if round == ROUNDS else 2)
    if not checkpoint:
        (place.out / "checkpoint").unlink()
    same(place.run(tables, resume=True), whole, place.out)


def test_a_run_without_a_release_gives_its_keys_up(cluster: Deployed, place: Place) -> None:
    @contextmanager
    def broken(job: Job, done: int) -> Iterator[Callback]:
        raise RefusedError("before the first round")
        yield

    with pytest.raises(RefusedError, match="before the first round"):
        place.run(dasked(SGD, cluster), bar=broken)
    assert not place.out.exists()
    with pytest.raises(RefusedError, match="before the first round"):
        place.run(dasked(SGD, cluster, ledger="ledgers"), bar=broken)
    assert not any(keys(place.path))
    assert not place.out.exists()


def test_another_roster_is_refused_and_the_same_changes_nothing(
    cluster: Deployed, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, of = orders(order(place, dasked(SGD, cluster))), Roster.of

    def other(entries: Iterable[Entry]) -> Roster:
        first, second = entries
        assert [first.parties, second.parties] == [order.parties for order in made]
        return of([first, replace(second, key=public_key(new_key()))])

    engine = dask.DaskCluster(made)
    try:
        engine.begin()
        engine.begin()
        monkeypatch.setattr(Roster, "of", other)
        with pytest.raises(RefusedError, match="the first one holds"):
            engine.begin()
    finally:
        engine.close()
    assert rosters(place.path) == 1


# What can be captured


def record(folder: str, bare: bool) -> None:
    """Run in a worker's process: write every summand to a file before it is masked; if `bare`, masks are zeros."""
    import os
    from dataclasses import replace
    from pathlib import Path

    import numpy as np

    from privadmm.privacy.masks import Masker
    from privadmm.privacy.sums import Summing

    def zeros(shape: Any) -> Any:
        return np.zeros(shape, dtype=np.uint64)

    whole = Summing.sealed
    Summing.unrecorded, Masker.hidden = whole, Masker.hide  # type: ignore[attr-defined]

    def sealed(self: Any, x: Any, ids: Any, noise: Any, call: int) -> Any:
        steps = np.rint(x / self.sums.step).astype(np.int64)
        total = whole(replace(self, hide=lambda call, shape: zeros(shape)), x, ids, noise, call)
        with (Path(folder) / f"{os.getpid()}.words").open("ab") as file:
            for words in (total[..., :-1], steps + noise, steps, x):
                file.write(np.ascontiguousarray(words).tobytes())
        return whole(self, x, ids, noise, call)

    Summing.sealed = sealed  # type: ignore[method-assign]
    if bare:
        Masker.hide = lambda self, told, call, shape: zeros(shape)  # type: ignore[method-assign]


def restore() -> None:
    from privadmm.privacy.masks import Masker
    from privadmm.privacy.sums import Summing

    Summing.sealed, Masker.hide = Summing.unrecorded, Masker.hidden  # type: ignore[attr-defined, method-assign]


record.__module__ = restore.__module__ = "__main__"  # pickled by value: workers cannot import the tests


@contextmanager
def recorded(cluster: Deployed, folder: Path, bare: bool) -> Iterator[Callable[[], set[bytes]]]:
    """Record what workers would send without masks; the words so far."""
    folder.mkdir()

    def found() -> set[bytes]:
        data = b"".join(file.read_bytes() for file in folder.iterdir())
        words = {data[at : at + 8] for at in range(0, len(data), 8)}
        return {word for word in words if word.count(0) < 3}  # a round number may be anywhere by chance

    with cluster.client() as client:
        client.run(record, str(folder), bare)
        try:
            yield found
        finally:
            client.run(restore)


@pytest.mark.parametrize("bare", [False, True], ids=["masked", "without masks"])
@pytest.mark.parametrize("tables", [MOMENTS, SGD], ids=["moments", "dp_fedsgd"])
def test_no_row_can_be_read_from_what_goes_between_or_is_written(
    tables: Tables, bare: bool, cluster: Deployed, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests, answers, ledgers, key files, checkpoint, receipts, results; the planted fault is masks of zeros."""
    answered, captured = dask.answered, list[bytes]()

    async def listening(client: Any, block: Any, method: str, args: Any) -> dict[str, Any]:
        answer = await answered(client, block, method, args)
        captured.append(pickle.dumps((method, args, answer)))
        return answer

    monkeypatch.setattr(dask, "answered", listening)
    with recorded(cluster, place.path / "words", bare) as found:
        place.run(dasked(tables, cluster))
        words = found()
    assert len(words) > PARTIES * ROUNDS * 3
    written = [path.read_bytes() for path in place.out.rglob("*") if path.is_file()]
    assert len(written) > 10
    everything = b"".join([*captured, *written])
    assert any(word in everything for word in words) == bare


def test_a_ledger_of_everybody_holds_sums_and_no_summand(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    from privadmm.privacy.sums import Summing

    whole, rows, totals = Summing.sealed, list[bytes](), list[bytes]()

    def sealed(self: Any, x: Any, ids: Any, noise: Any, call: int) -> Any:
        steps = np.rint(x / self.sums.step).astype(np.int64)
        rows.extend(word.tobytes() for one in (steps + noise, steps, x) for word in one.ravel())
        words = whole(self, x, ids, noise, call)
        totals.append(words.tobytes())
        return words

    monkeypatch.setattr(Summing, "sealed", sealed)
    place.run(SGD)
    written = b"".join(path.read_bytes() for path in place.out.iterdir())
    assert all(total in written for total in totals)
    assert not any(row in written for row in rows)


# Deployments


def stewards(place: Place, *blocks: tuple[int, int]) -> None:
    """Make the ledgers of these blocks, each with its first party and their number."""
    for number, (first, count) in enumerate(blocks):
        file = place.path / "parties" / f"block-{number}.sqlite"
        policy = ("--parties", count, "--first", first, "--epsilon", 2.5, "--delta", 1e-5)
        assert place.call("ledger", "create", file, *policy).code == 0


DEPLOYED: dict[str, Any] = {"mode": "deployment", "seed": None, "ledger": "parties"}


@pytest.mark.parametrize("tables", [MOMENTS, SGD], ids=["moments", "dp_fedsgd"])
def test_a_deployment_on_three_workers(tables: Tables, place: Place) -> None:
    pytest.importorskip("opendp")
    tables = with_changes(tables, {"privacy": {"fewest": None, "colluding": 2}})
    asked = by_party(place, tables, engine="dask", workers=3, **DEPLOYED)
    with pytest.raises(ConfigError, match=r"one worker 2 parties.* tolerates 1 .* set workers = 5"):
        place.run(with_changes(asked, {"privacy": {"colluding": 1}}))
    assert not place.out.exists()
    stewards(place, (0, 2), (2, 2), (4, 1))
    first, second = (place.run(asked, out=place.path / name) for name in ("first", "second"))
    assert first.result["transcript"] != second.result["transcript"]
    for done, count in ((first, 1), (second, 2)):
        assert done.rows == []
        assert done.result["epsilon"] == pytest.approx(1.0)
        for party in done.ledger["parties"]:
            assert {event["kind"] for event in party["events"]} == {"shared_gaussian"}
            assert sum(event["count"] for event in party["events"]) == count * ROUNDS
    for path in sorted((place.path / "parties").glob("*.sqlite")):
        assert verify(path).problems == ()
        data = path.with_name(f"{path.name}-keys").read_bytes()
        assert [data[at + NAME : at + NAME + KEY] for at in range(RECORD, len(data), RECORD)] == [ERASED] * 2


def test_a_deployment_in_which_one_process_reads_all_records_is_refused(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*given: Any) -> None:
        raise AssertionError("records were read")

    monkeypatch.setattr("privadmm.config.build.prepare", refuse)
    whole = with_changes(SGD, {"run": DEPLOYED})
    apart = by_party(place, SGD, **DEPLOYED)
    for tables, run, why in (
        (whole, {}, "is a curator"),
        (apart, {"engine": "dask", "workers": 1}, "is a curator"),
        (whole, {"engine": "dask", "workers": 2}, r"\[data\] source: .* would read everybody's records"),
    ):
        with pytest.raises(ConfigError, match=why):
            place.run(with_changes(tables, {"run": run}))
        assert not place.out.exists()
    with pytest.raises(AssertionError, match="records were read"):
        place.run(with_changes(apart, {"run": {"engine": "dask", "workers": 2}}))


def test_one_worker_of_a_simulation_needs_no_keys(cluster: Deployed, place: Place) -> None:
    whole = place.run(SGD, out=place.path / "whole")
    done = place.run(dasked(SGD, cluster, workers=1))
    assert said(done) == said(whole)
    left = sorted(path.name for path in (place.out / "ledgers").iterdir())
    assert left == ["block-0.sqlite", "block-0.sqlite-anchor"]
