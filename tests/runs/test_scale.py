"""The model of a network: bytes are those that engines carry, and times are what can be counted by hand."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cases import ALGORITHMS, Case, named, shards
from privadmm.cli import main
from privadmm.engine.block import cluster
from privadmm.engine.inprocess import InProcess
from privadmm.engine.job import train
from privadmm.engine.mail import Mail
from privadmm.engine.phases import inbox_width, message_width
from privadmm.errors import ConfigError
from privadmm.privacy.masks import Entry, Roster
from privadmm.privacy.mechanisms import Simulation
from privadmm.runs.scale import (
    Engine,
    Network,
    mail_bytes,
    next_look,
    one_round,
    queue_end,
    roster_bytes,
    simulate,
    traffic,
)


class Weighed:
    """A cluster that notes how long the mail of every party is."""

    def __init__(self, parties: InProcess) -> None:
        self.parties, self.seen = parties, list[tuple[int, int, int]]()

    def step(self, round: int, phase: int, inbox: Mail) -> Mail:
        found = []
        for worker in self.parties.workers:
            heard = inbox.only(worker.senders)
            said = worker.step(round, phase, heard)
            self.seen.append((len(heard.senders), len(heard.pack()), len(said.pack())))
            found.append(said)
        return Mail.join(found)


@pytest.mark.parametrize("case", ALGORITHMS, ids=named)
def test_bytes_are_those_of_the_mail(case: Case) -> None:
    job, data = case.job(), shards()
    watched = Weighed(cluster(job, data, Simulation(0), parts=[[party] for party in data.ids]))
    train(job, watched)
    up, down = message_width(job.algorithm, job.public), inbox_width(job.algorithm, job.public)
    last = watched.seen[-len(data.ids) :]
    sealed = job.sums is not None
    assert [(rows, mail_bytes(rows, down), mail_bytes(1, up, sealed)) for rows, _, _ in last] == last


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_a_round_of_a_star_by_hand() -> None:
    load = traffic("star", nodes=3, up=10, down=10)
    each = mail_bytes(1, 10)
    assert load.total == 6 * each
    plain = Network(latency=1.0, bandwidth=each, hub=each)
    # Sends end at 1, 2, 3; wires take 1 + 1 to get there and as much back; then one after another, each 1.
    assert one_round(load, plain, Engine(), 0.5, rng()) == pytest.approx(3 + 2 + 0.5 + 2 + 1)
    waiting = one_round(load, plain, Engine(handling=1.0), 0.5, rng())
    assert waiting == pytest.approx(6 + 2 + 0.5 + 2 + 2)


def test_neighbours_need_no_hub() -> None:
    load = traffic("peers", nodes=10, up=5, down=5, degree=2)
    each = mail_bytes(1, 5)
    assert (load.at_hub, load.total) == (0.0, 20 * each)
    assert one_round(load, Network(0.5, each, each), Engine(start=1.0), 2.0, rng()) == pytest.approx(1 + 2 + 2 + 0.5)
    relayed = traffic("graph", nodes=10, up=5, down=5, degree=2)
    assert relayed.at_hub == 10 * (each + mail_bytes(2, 5))


def test_looks_and_queues() -> None:
    assert next_look(np.array([0.1, 3.0, 3.1]), 3.0, 0.0).tolist() == [3.0, 3.0, 6.0]
    assert next_look(np.array([0.1]), 0.0, 0.0).tolist() == [0.1]
    assert queue_end(np.array([5.0, 0.0, 0.5]), np.array([1.0, 1.0, 1.0])) == 6.0
    assert queue_end(np.array([0.0, 0.0, 0.0]), np.array([1.0, 1.0, 1.0])) == 3.0


def test_the_slowest_of_many_is_waited_for() -> None:
    few, many = (traffic("star", nodes=n, up=1, down=1) for n in (3, 3000))
    uneven = Network(latency=1.0, bandwidth=1e12, hub=1e12, spread=1.0)
    assert simulate(many, uneven, Engine(), 1.0)["seconds"] > 3 * simulate(few, uneven, Engine(), 1.0)["seconds"]
    even = replace(uneven, spread=0.0)
    assert simulate(many, even, Engine(), 1.0)["seconds"] == pytest.approx(3.0, rel=1e-3)


@pytest.mark.parametrize("bad", [{"latency": -1.0}, {"bandwidth": 0.0}, {"spread": float("nan")}])
def test_impossible_networks_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(bad))):
        Network(**bad)
    with pytest.raises(ConfigError, match="degree"):
        traffic("graph", 3, 1, 1, degree=5)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    example = Path(__file__).parents[2] / "examples"
    for name, kinds in [("dp_admm", {"star"}), ("dvp", {"graph", "peers"}), ("sharing", {"sharing"})]:
        arguments = [
            "scale",
            str(example / f"{name}.toml"),
            "--parties",
            "10,100000",
            "--out",
            str(tmp_path),
            "--json",
        ]
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 0
        told = json.loads(capsys.readouterr().out)
        assert {line["kind"] for line in told["lines"]} == kinds
        assert {line["nodes"] for line in told["lines"]} == {10, 100000}
        assert (tmp_path / "scale.png").stat().st_size > 1000
    for wrong in ("ten", "0", "1000000000"):
        with pytest.raises(SystemExit) as ended:
            main(["scale", str(example / "dp_admm.toml"), "--parties", wrong, "--json"])
        assert ended.value.code == 2
        assert json.loads(capsys.readouterr().out)["exit_code"] == 2


def test_split_features_send_a_number_for_each_person(capsys: pytest.CaptureFixture[str]) -> None:
    example = Path(__file__).parents[2] / "examples" / "sharing.toml"
    found = {}
    for people in (1000, 2000):
        with pytest.raises(SystemExit):
            main(["scale", str(example), "--parties", "3", "--people", str(people), "--json"])
        (line,) = json.loads(capsys.readouterr().out)["lines"]
        found[people] = line["bytes"]
    assert found[2000] - found[1000] == pytest.approx(3 * 2 * 8 * 1000, abs=20)  # up and down


def test_nodes_of_one_machine_share_its_cores() -> None:
    load, alone = traffic("star", 8, 1, 1), Network(0.0, 1e12, 1e12)
    apart = simulate(load, alone, Engine(start=1.0), 1.0)["seconds"]
    assert simulate(load, alone, Engine(start=1.0, cores=2), 1.0)["seconds"] == pytest.approx(4 * apart)


@pytest.mark.parametrize("parties", [2, 9, 10, 11, 99, 100, 1001])
@pytest.mark.parametrize("signature", [0, 206])
def test_the_roster_of_a_secure_sum_is_as_long_as_it_is_packed(parties: int, signature: int) -> None:
    entries = [Entry((party,), bytes(32), "a" * signature) for party in range(parties)]
    assert roster_bytes(parties, signature) == len(Roster.of(entries).pack())


def test_a_secure_sum_adds_masks_for_every_other_party(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    example = (Path(__file__).parents[2] / "examples" / "first_order_consensus.toml").read_text()
    found = {}
    for name, text in {"local": example, "secure": example.replace("[privacy]", '[privacy]\nsum = "secure"')}.items():
        path = tmp_path / f"{name}.toml"
        path.write_text(text)
        with pytest.raises(SystemExit) as ended:
            main(["scale", str(path), "--parties", "10,1000", "--engine", "ideal", "--json"])
        assert ended.value.code == 0
        found[name] = json.loads(capsys.readouterr().out)
    assert (found["local"]["secure_sum"], found["secure"]["secure_sum"]) == (False, True)
    for local, secure, others in zip(found["local"]["lines"], found["secure"]["lines"], (9, 999), strict=True):
        assert "masks" not in local
        assert secure["bytes"] - local["bytes"] == pytest.approx(8 * (others + 1), abs=2 * (others + 1))  # a word each
        assert secure["seconds"] - local["seconds"] == pytest.approx(secure["masks"], rel=0.05)
        assert secure["masks"] == pytest.approx(others * found["secure"]["lines"][0]["masks"] / 9)
    assert secure["masks"] < 0.1
    with pytest.raises(SystemExit):
        main(["scale", str(tmp_path / "secure.toml"), "--parties", "1000"])
    assert "What the secure sum adds for each node" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        main(["scale", str(tmp_path / "secure.toml"), "--parties", "1", "--json"])
    assert ended.value.code == 2


def test_workers_share_the_parties_and_cores_are_shared_by_workers(capsys: pytest.CaptureFixture[str]) -> None:
    example = Path(__file__).parents[2] / "examples" / "dp_admm.toml"

    def told(*options: str) -> dict[str, Any]:
        wires = ("--latency", "0", "--bandwidth", "1e9", "--hub", "1e9", "--work", "0.001")
        with pytest.raises(SystemExit) as ended:
            main(["scale", str(example), "--engine", "dask", "--parties", "1000", *wires, "--json", *options])
        said = json.loads(capsys.readouterr().out)
        assert ended.value.code == (2 if "error" in said else 0)
        return said if "error" in said else {**said["lines"][0], **{key: said[key] for key in ("workers", "cores")}}

    apart, shared, one_core = told(), told("--workers", "2"), told("--workers", "2", "--cores", "1")
    assert [line["nodes"] for line in (apart, shared, one_core)] == [1000, 2, 2]
    assert {line["parties"] for line in (apart, shared, one_core)} == {1000}
    assert (one_core["workers"], one_core["cores"], apart["workers"]) == (2, 1, None)
    # A worker works for its 500 parties, and for as long again where both share a core.
    assert shared["seconds"] == pytest.approx(0.5, rel=0.1)
    assert one_core["seconds"] - shared["seconds"] == pytest.approx(0.5, rel=0.1)
    assert "no more workers than parties" in told("--workers", "1001")["message"]
    assert "every party is a node" in told("--workers", "2", "--engine", "flower")["message"]


@pytest.mark.parametrize("name", ["dp_admm", "foc", "dvp"])
def test_bytes_of_blocks_are_those_of_their_mail(name: str) -> None:
    """Of a graph they are at most that: neighbours of a block's parties may be the same."""
    (case,) = [case for case in ALGORITHMS if case.name == name]
    job, data = case.job(), shards()
    watched = Weighed(cluster(job, data, Simulation(0), parts=np.array_split(data.ids, 2)))
    train(job, watched)
    kind: Any = "star" if job.algorithm.topology == "star" else "graph"
    heard = float(job.public.graph.degrees.mean()) if job.algorithm.topology == "graph" else 1.0
    block = -(-len(data.ids) // 2)
    load = traffic(
        kind, 2, message_width(job.algorithm, job.public), inbox_width(job.algorithm, job.public), heard, block
    )
    down, up = max(down for _, down, _ in watched.seen[-2:]), max(up for *_, up in watched.seen[-2:])
    assert load.up == up
    assert load.down == down if job.algorithm.topology != "graph" else load.down >= down
