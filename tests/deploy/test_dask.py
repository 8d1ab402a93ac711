"""The Dask engine on real processes: the same transcripts whatever dies, and no access without a certificate."""

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from dask_deployment import (
    Certificates,
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
from privadmm.deploy.engines import orders
from privadmm.deploy.remote_block import Site
from privadmm.engine.job import Job
from privadmm.engine.loop import Callback, View, drive
from privadmm.engine.mail import Mail
from privadmm.errors import ClusterError, ConfigError, DataError, LedgerError, LockedError, RefusedError
from privadmm.privacy.verification import verify
from privadmm.runs.rundir import read_receipts, receipts_of
from small_runs import (
    CLEAR,
    DVP,
    PRIVATE,
    SHARING,
    Place,
    charged,
    rows,
    spawn,
    wait_for,
    with_changes,
    write_npz,
)

pytestmark = pytest.mark.usefixtures("skipped_plots")

PARTIES = 5
STAR = with_changes(PRIVATE, {"parties": {"count": PARTIES}})
GRAPH = with_changes(STAR, DVP)
RELAY = with_changes(STAR, {"algorithm": {"name": "first_order_consensus", "D_w": None, "rho": None}})
LABELS = with_changes(STAR, {"privacy": {"label_epsilon": 1.0}})
LEAVING = with_changes(STAR, {"parties": {"leave": ["1@2", "3@4", "4@4"]}})
PEOPLE = with_changes(STAR, SHARING)
KINDS = {
    "star": STAR,
    "graph": GRAPH,
    "relay": RELAY,
    "randomised labels": LABELS,
    "a block leaves": LEAVING,
    "secure sum": with_changes(RELAY, {"privacy": {"sum": "secure"}}),
    "columns": PEOPLE,
    "columns, randomised labels": with_changes(PEOPLE, {"privacy": {"label_epsilon": 1.0}}),
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    with deployed(tmp_path_factory.mktemp("dask")) as made:
        yield made


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_transcript_as_in_process(kind: str, cluster: Deployed, place: Place) -> None:
    whole = place.run(KINDS[kind], out=place.path / "whole")
    done = place.run(dasked(KINDS[kind], cluster))
    assert said(done) == said(whole)
    assert [verify(path).problems for path in ledgers(place.out)] == [(), ()]


def test_a_file_for_each_party_and_little_memory(cluster: Deployed, place: Place) -> None:
    whole = place.run(by_party(place, STAR), out=place.path / "whole")
    done = place.run(dasked(by_party(place, STAR), cluster, memory=500))
    assert said(done) == said(whole)


def test_who_starts_a_deployment_reads_no_party_s_file(
    cluster: Deployed, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The workers read the files, which would fail here; what they find is compared with what is declared."""
    pytest.importorskip("opendp")
    tables = by_party(place, STAR, **cluster.run, mode="deployment", seed=None, ledger="parties", memory="1kB")

    def refuse(*given: Any) -> None:
        raise AssertionError("the driver has read a party's file")

    monkeypatch.setattr("privadmm.config.data_source.read_file", refuse)
    policy = ("--epsilon", 1.0, "--delta", 1e-5)
    for number, (first, count) in enumerate([(0, 3), (3, 2)]):
        file = place.path / "parties" / f"block-{number}.sqlite"
        assert place.call("ledger", "create", file, "--parties", count, "--first", first, *policy).code == 0
    wrong = with_changes(tables, {"parties": {"sizes": [20, 12, 20, 13, 9]}})
    with pytest.raises(ConfigError, match=r"party-3\.npz: \[parties\] sizes .*13 .*party 3"):
        place.run(wrong, out=place.path / "wrong")
    done = place.run(tables)
    assert done.rows == []
    assert [party["epsilon"] for party in done.ledger["parties"]] == pytest.approx([1.0] * PARTIES)


def test_receipts_are_of_their_block(cluster: Deployed, place: Place) -> None:
    place.run(dasked(STAR, cluster))
    found = read_receipts(place.out)
    assert {party for _, party in found} == {0, 3}
    for path in ledgers(place.out):
        assert len(receipts_of(place.out, path)) == len(found) / 2
        assert place.call("ledger", "verify", path, "--against", place.out).code == 0


def test_a_worker_killed_in_the_middle_of_a_round(
    cluster: Deployed, place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    whole = place.run(GRAPH, out=place.path / "whole")
    before = set(cluster.pids())
    done = place.run(dasked(GRAPH, cluster), bar=at_round(2, lambda: kill_in_the_middle(cluster)))
    assert len(before - set(cluster.pids())) == 1
    (told,) = [record.getMessage() for record in caplog.records if record.name.startswith("privadmm")]
    assert "was lost; it goes on from its ledger" in told
    assert said(done)["transcript"] == said(whole)["transcript"]
    assert said(done)["ledger"] == said(whole)["ledger"]
    assert sum(charged(path) for path in ledgers(place.out)) == charged(place.path / "whole" / "ledger.sqlite")


def test_a_worker_that_does_not_answer(cluster: Deployed, place: Place) -> None:
    tables = dasked(STAR, cluster, timeout=2.0)
    pid = cluster.pids()[0]
    try:
        with pytest.raises(ClusterError, match=r"for 2 s: .* raise \[run\] timeout"):
            place.run(tables, bar=at_round(2, lambda: os.kill(pid, signal.SIGSTOP)))
    finally:
        os.kill(pid, signal.SIGCONT)
    done = place.run(dasked(STAR, cluster), resume=True)
    assert said(done)["transcript"] == place.run(STAR, out=place.path / "whole").result["transcript"]
    assert sum(charged(path) for path in ledgers(place.out)) == PARTIES * STAR["algorithm"]["rounds"]


def test_plain_text_is_refused(cluster: Deployed, place: Place) -> None:
    none = dict.fromkeys(cluster.certificates.run)
    tables = dasked(STAR, cluster, scheduler=f"tcp://127.0.0.1:{cluster.port}", timeout=2.0, **none)
    with pytest.raises(ClusterError, match="speaks TLS and refuses plain text: name it tls://"):
        place.run(tables)
    assert not place.out.exists()


def test_a_stranger_s_certificate_is_refused(cluster: Deployed, place: Place) -> None:
    other = Certificates.make(place.path / "other")
    with pytest.raises(ClusterError, match="do not accept each other's certificates"):
        place.run(dasked(STAR, cluster, timeout=3.0, **other.run))
    # Our certificate is refused by a cluster of another authority.
    with pytest.raises(ClusterError, match="do not accept each other's certificates"):
        place.run(dasked(STAR, cluster, timeout=3.0, tls_ca=other.run["tls_ca"]))
    assert not place.out.exists()


def test_a_key_of_another_certificate(cluster: Deployed, place: Place) -> None:
    other = Certificates.make(place.path / "other")
    with pytest.raises(ConfigError, match="tls_key cannot be used together"):
        place.run(dasked(STAR, cluster, tls_key=other.run["tls_key"]))
    with pytest.raises(ConfigError, match=r"\[run\] tls_ca: there is no file"):
        place.run(dasked(STAR, cluster, tls_ca="nowhere.pem"))


def test_more_workers_than_there_are(cluster: Deployed, place: Place) -> None:
    with pytest.raises(ClusterError, match=r"2 of 3 workers.*\[run\] workers = 2; nothing"):
        place.run(dasked(STAR, cluster, workers=3, timeout=1.0))


def test_ledgers_that_outlive_a_run(cluster: Deployed, place: Place) -> None:
    shared = dasked(with_changes(STAR, {"privacy": {"budget": 1.2}}), cluster, ledger="parties")
    place.run(shared)
    with pytest.raises(RefusedError, match="1 is spent or set aside"):
        place.run(shared, out=place.path / "second")
    assert not (place.path / "second").exists()
    with pytest.raises(LedgerError, match=r"parties = \[0, 1, 2\].* \[0, 1, 2, 3, 4\]"):
        place.run(with_changes(shared, {"run": {"workers": 1}}), out=place.path / "third")
    problems = [verify(path).problems for path in sorted((place.path / "parties").glob("*.sqlite"))]
    assert problems == [(), ()]


def test_a_deployment_has_a_ledger_for_every_block(cluster: Deployed, place: Place) -> None:
    pytest.importorskip("opendp")
    tables = dasked(STAR, cluster, mode="deployment", seed=None, ledger="parties")
    with pytest.raises(LedgerError, match="--parties 3 --epsilon E --delta D`"):
        place.run(tables)
    policy = ("--epsilon", 1.0, "--delta", 1e-5)
    for number, (first, count) in enumerate([(0, 3), (3, 2)]):
        file = place.path / "parties" / f"block-{number}.sqlite"
        assert place.call("ledger", "create", file, "--parties", count, "--first", first, *policy).code == 0
    done = place.run(tables)
    assert done.rows == []
    assert [party["epsilon"] for party in done.ledger["parties"]] == pytest.approx([1.0] * PARTIES)


PLANTED = {
    "the gradient": "privadmm.engine.party:Local.gradient",
    "noise": "privadmm.privacy.mechanisms:Deployment.gaussian",
    "the commit": "privadmm.privacy.sqlite_ledger:SqliteLedger.commit",
}


@pytest.mark.parametrize("fault", [*PLANTED, "the process"])
def test_a_worker_that_fails_in_a_deployment_locks_its_ledger(fault: str, cluster: Deployed, place: Place) -> None:
    """Charged and reported once: the driver learns that it is locked, and the reason stays in the ledger."""
    pytest.importorskip("opendp")
    tables = dasked(STAR, cluster, mode="deployment", seed=None, ledger="parties")
    policy, files = ("--epsilon", 3.0, "--delta", 1e-5), []
    for number, (first, count) in enumerate([(0, 3), (3, 2)]):
        files.append(place.path / "parties" / f"block-{number}.sqlite")
        assert place.call("ledger", "create", files[-1], "--parties", count, "--first", first, *policy).code == 0
    where, act = (PLANTED["the gradient"], "dies") if fault == "the process" else (PLANTED[fault], "fails")
    with planted(cluster, where, act), pytest.raises(LockedError, match="is locked") as told:
        place.run(tables, out=place.path / "first")
    assert "0.123" not in str(told.value)
    assert told.value.__cause__ is None
    for file in files:
        seen = place.call("ledger", "show", file, "--json").object
        if fault == "the process" and seen["locked"] is None:
            continue  # it did not wait for the others
        assert seen["locked"]["round"] == 0
        assert ("0.123" in seen["locked"]["why"]) == (fault != "the process")
        assert {party["releases"] for party in seen["parties"]} == {1}
    with pytest.raises(LockedError, match="is locked"):
        place.run(tables, out=place.path / "second")
    for file in files:
        assert place.call("ledger", "unlock", file, "--because", "the test planted it").code == 0
    done = place.run(tables, out=place.path / "third")
    assert [sum(one["count"] for one in party["events"]) for party in done.ledger["parties"]] == [7] * PARTIES


def alive(group: int) -> list[str]:
    found = subprocess.run(
        ["ps", "-o", "stat=,pid=,args=", "-g", str(group)], capture_output=True, text=True, check=False
    )
    return [line for line in found.stdout.splitlines() if not line.startswith("Z")]


def listening(group: int) -> set[str]:
    """Where the processes of a group listen."""
    psutil = pytest.importorskip("psutil")
    found = [line.split()[1] for line in alive(group)]
    sockets = [one for pid in found for one in psutil.Process(int(pid)).net_connections("inet")]
    return {one.laddr.ip for one in sockets if one.status == psutil.CONN_LISTEN}


def test_an_interrupt_leaves_no_process_and_can_be_resumed(place: Place) -> None:
    """Workers on this machine, started and ended by the command itself; Ctrl-C reaches all of them."""
    many = with_changes(STAR, {"algorithm": {"rounds": 60}, "run": {"engine": "dask"}})
    command = ["train", str(place.config(many)), "--out", str(place.out)]
    process = spawn(*command, "--json", start_new_session=True)
    try:
        path = place.out / "metrics.csv"
        wait_for(lambda: path.exists() and path.read_text().count("\n") > 10, "a round")
        assert listening(process.pid) == {"127.0.0.1"}
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert json.loads(out)["error"] == "InterruptedRunError"
    assert "Traceback" not in err
    wait_for(lambda: not alive(process.pid), "the end of every process", 5)
    advice = shlex.split(err.partition("Go on with: privadmm ")[2])
    assert sorted(advice) == sorted([*command, "--resume"])
    assert place.call(*command, "--resume").code == 0
    whole = place.run(with_changes(many, {"run": {"engine": "inprocess"}}), out=place.path / "whole")
    assert json.loads((place.out / "result.json").read_text())["transcript"] == whole.result["transcript"]
    assert sum(charged(path) for path in ledgers(place.out)) == PARTIES * 60


def test_without_dask_the_extra_is_named(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    for name in ("dask", "dask_client"):
        monkeypatch.delitem(sys.modules, f"privadmm.deploy.{name}", raising=False)
    done = place.train(place.config(run={"engine": "dask"}), "--json")
    assert (done.code, done.object["error"]) == (2, "ConfigError")
    assert "pip install 'privadmm[dask]'" in done.object["message"]
    assert not place.out.exists()


def test_a_scheduler_is_for_dask(place: Place) -> None:
    done = place.train(place.config(), "--scheduler", "tcp://127.0.0.1:1")
    assert (done.code, "--scheduler goes with --engine dask" in done.err) == (2, True)


def test_a_site_reads_its_own_records_and_no_others(place: Place) -> None:
    first, second = orders(order(place, STAR))
    assert (first.parties, second.parties) == ((0, 1, 2), (3, 4))
    write_npz(place.path / "data.npz", *rows(n=50))
    site = Site(second)
    with pytest.raises(DataError, match="parties 3 to 4 hold other records"):
        site.open()


def test_a_site_names_what_goes_wrong_with_its_files(place: Place) -> None:
    (site,) = [Site(one) for one in orders(order(place, with_changes(STAR, {"run": {"workers": 1}})))]
    (place.path / "ledgers").write_text("not a directory")
    with pytest.raises(LedgerError, match=r"is a file, .* name a directory with \[run\] ledger"):
        site.open()


@pytest.mark.parametrize("rounds", [1, 2])
def test_iterates_are_of_the_last_round_only(rounds: int, place: Place) -> None:
    (one,) = orders(order(place, with_changes(CLEAR, {"run": {"workers": 1}})))
    site = Site(one)
    site.open()
    site.begin()
    mail = one.job.algorithm.start(one.job.public)[1]
    site.step(0, 0, mail.pack())
    assert (site.iterates(rounds) is None) == (rounds == 2)
    site.close()


def test_two_sites_of_one_block_release_once(place: Place) -> None:
    """The first was wrongly believed dead: the second answers with what it committed and continues from there."""
    (one,) = orders(order(place, with_changes(STAR, {"run": {"workers": 1}})))
    first, second = Site(one), Site(one)
    for site in (first, second):
        site.open()
        site.begin()
    mail = one.job.algorithm.start(one.job.public)[1].pack()
    assert first.step(0, 0, mail) == second.step(0, 0, mail)
    assert second.step(1, 0, mail) == first.step(1, 0, mail)
    assert charged(one.ledger) == 2 * PARTIES
    first.close()
    second.close()


@dataclass
class Unruly:
    """An engine that sends each request twice, the previous again, the next too early, and a forged request."""

    engine: Any
    sent: list[tuple[tuple[int, int, Mail], bytes]] = field(default_factory=list)

    def step(self, round: int, phase: int, inbox: Mail) -> Mail:
        self.refused(f"are ready for round {round + 1} ", round + 1, phase, inbox)
        found = self.engine.step(round, phase, inbox)
        self.sent.append(((round, phase, inbox), found.pack()))
        for request, answer in self.sent[-1:-3:-1]:
            assert self.engine.step(*request).pack() == answer
        forged = replace(inbox, values=inbox.values + 0.5)
        self.refused("answered for another inbox", round, phase, forged)
        return found

    def refused(self, why: str, round: int, phase: int, inbox: Mail) -> None:
        """Check that each block refuses, one after another: requests under way could overtake each other."""
        for block in self.engine.blocks:
            alone = copy(self.engine)
            alone.blocks = [block]
            with pytest.raises(RefusedError, match=why):
                alone.step(round, phase, inbox)


@pytest.mark.parametrize("kind", ["star", "graph", "secure sum"])
def test_requests_that_come_twice_too_early_too_late_and_forged(kind: str, cluster: Deployed, place: Place) -> None:
    from federations import released
    from privadmm.deploy.dask import DaskCluster

    whole = place.run(KINDS[kind], out=place.path / "whole")
    asked = order(place, dasked(KINDS[kind], cluster))
    engine = DaskCluster(orders(asked))
    try:
        carrier = Unruly(engine.begin())
        done = drive(carrier, asked.job.algorithm, asked.job.public)
    finally:
        engine.close()
    assert done.transcript == whole.result["transcript"]
    found = sorted(asked.ledger.glob("*.sqlite"))
    kept = zip(*(map(Mail.unpack, released(path)) for path in found), strict=True)
    assert [answer for _, answer in carrier.sent] == [Mail.join(both).pack() for both in kept]
    assert sum(map(charged, found)) == charged(place.path / "whole" / "ledger.sqlite")
    assert [verify(path).problems for path in found] == [(), ()]


def test_a_process_that_knows_no_such_block_has_lost_it(cluster: Deployed, place: Place) -> None:
    """A new process at the address of one that died is not the block; an error of the block itself is passed on."""
    from privadmm.deploy.dask import GONE, DaskCluster, answered

    engine = DaskCluster(orders(order(place, dasked(STAR, cluster))))
    try:
        first, second = engine.blocks
        elsewhere = replace(first, address=second.address)
        assert engine.client.sync(answered, engine.client, elsewhere, "paid", ()) == GONE
        with pytest.raises(AttributeError):
            engine.client.sync(answered, engine.client, first, "no such method", ())
    finally:
        engine.close()


def test_a_connection_that_breaks_while_a_lost_block_is_made_again(
    cluster: Deployed, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new actor exists but is not open yet: it is opened before it is asked for the round."""
    from privadmm.deploy import dask

    whole = place.run(GRAPH, out=place.path / "whole")
    answered, broken = dask.answered, list[str]()

    async def breaking(client: Any, block: Any, method: str, args: Any) -> dict[str, Any]:
        if method == "open" and not broken:
            broken.append(method)
            return dask.GONE
        return await answered(client, block, method, args)

    def kill() -> None:
        monkeypatch.setattr(dask, "GRACE", 1.0)
        monkeypatch.setattr(dask, "answered", breaking)
        os.kill(cluster.pids()[0], signal.SIGKILL)

    done = place.run(dasked(GRAPH, cluster), bar=at_round(2, kill))
    assert broken == ["open"]
    assert said(done)["transcript"] == said(whole)["transcript"]
    assert said(done)["ledger"] == said(whole)["ledger"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["star", "secure sum"])
def test_workers_killed_again_and_again(kind: str, cluster: Deployed, place: Place) -> None:
    """At random moments, so that some die after the commit and before the answer."""
    many = with_changes(KINDS[kind], {"algorithm": {"rounds": 200}, "run": {"metrics_every": 0}})
    whole = place.run(many, out=place.path / "whole")
    rng, killed = np.random.default_rng(0), set()

    def kill() -> None:
        pid = int(rng.choice(cluster.pids()))
        os.kill(pid, signal.SIGKILL)
        killed.add(pid)

    @contextmanager
    def hunt(job: Job, done: int) -> Iterator[Callback]:
        def look(view: View) -> None:
            if view.progress.round % 20 == 0 and view.progress.round < 200:
                threading.Timer(float(rng.uniform(0.0, 0.05)), kill).start()

        yield look

    done = place.run(dasked(many, cluster), bar=hunt)
    assert len(killed) == 9
    assert said(done)["transcript"] == said(whole)["transcript"]
    assert said(done)["ledger"] == said(whole)["ledger"]


@pytest.mark.slow
def test_the_scheduler_dies(place: Place, tmp_path_factory: pytest.TempPathFactory) -> None:
    whole = place.run(STAR, out=place.path / "whole")
    gone = r"tls://.* is gone: .* --resume"
    with deployed(tmp_path_factory.mktemp("first")) as first, pytest.raises(ClusterError, match=gone):
        place.run(dasked(STAR, first), bar=at_round(2, first.processes[0].kill))
    with deployed(tmp_path_factory.mktemp("second")) as second:
        done = place.run(dasked(STAR, second), resume=True)
    assert said(done) == said(whole)
