"""Outcomes that a hostile coordinator provokes: none tells two neighbours apart unless it is a charged release.

The party server, the ledger and the files are real. The same letters go to two parties whose records differ in one;
an answer that differs must have been paid for by both.
"""

import itertools
import shutil
import uuid
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privadmm.config.file import read
from privadmm.deploy.federation.desk.party_server import answer
from privadmm.deploy.federation.proposal import Proposal, neutral, written
from privadmm.deploy.federation.protocol import Letter
from privadmm.engine.mail import Mail
from small_runs import PRIVATE, Tables, charged, with_changes, write_config

pytest.importorskip("cryptography")
pytest.importorskip("opendp")
from federations import federated

DEPLOYED = with_changes(
    PRIVATE,
    {
        "data": {"intercept": 0.2},
        "privacy": {"epsilon": 1.0, "budget": 1000.0},
        "algorithm": {"D_w": None, "rho": None},
        "run": {"mode": "deployment", "seed": None, "ledger": "none"},
    },
)
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "pvp": ("rho", {"algorithm": {"name": "pvp"}}),
    "pdml": ("beta", {"algorithm": {"name": "pdml"}, "graph": {"kind": "ring"}}),
    "dvp": ("eta", {"algorithm": {"name": "dvp"}, "graph": {"kind": "ring"}}),
    "sharing": (
        "rho",
        {
            "algorithm": {"name": "sharing", "ball": 5.0},
            "parties": {"split": "features"},
            "privacy": {"adjacency": "person"},
            "regularizer": {"weight": 0.01},
        },
    ),
}


@dataclass(frozen=True)
class Neighbours:
    """Party 0, and the same party with one record replaced."""

    tables: Tables
    folders: tuple[Path, Path]
    config: Path

    def ask(self, **letter: Any) -> tuple[Letter, Letter]:
        one, other = (answer(folder, letter) for folder in self.folders)
        return one, other

    def charges(self) -> tuple[int, int]:
        one, other = (charged(folder / "ledger.sqlite") for folder in self.folders)
        return one, other

    def proposal(self, sizes: tuple[int, ...], dim: int, columns: tuple[int, ...] = (), **algorithm: Any) -> Proposal:
        tables = with_changes(self.tables, {"algorithm": algorithm, "privacy": {"epsilon": 1e-2, "budget": None}})
        text = written(neutral(read(write_config(self.config, tables))))
        return Proposal(uuid.uuid4().hex, text, sizes, dim, columns)


def neighbours(folder: Path, method: str) -> Neighbours:
    tables = with_changes(DEPLOYED, METHODS[method][1])
    made = federated(folder, tables)
    other = folder / "other"
    shutil.copytree(made.folders[0], other)
    (source,) = [*other.glob("data*.npz"), *other.glob("data*.csv")]
    if source.suffix == ".csv":
        header, first, *rest = source.read_text().splitlines()
        pairs = zip(header.split(","), first.split(","), strict=True)
        cells = ["0.25" if name.startswith("x") else cell for name, cell in pairs]
        source.write_text("\n".join([header, ",".join(cells), *rest]) + "\n")
    else:
        arrays = dict(np.load(source))
        arrays["X"][0] = -arrays["X"][0] + 0.5
        np.savez(source, **arrays)
    if method == "sharing":
        tables = with_changes(tables, {"data": {"label": "y", "id": "id"}})  # as the party declares them
    return Neighbours(tables, (made.folders[0], other), folder / "hostile.toml")


def facts(pair: Neighbours, method: str) -> dict[str, Any]:
    records = int(
        next(
            line for line in (pair.folders[0] / "party.toml").read_text().splitlines() if line.startswith("records")
        ).split("=")[1]
    )
    if method == "sharing":
        return {"sizes": (records,) * 3, "dim": records, "columns": (1, 1, 2)}
    return {"sizes": (records, 15, 15), "dim": 4}


def inboxes(method: str, dim: int) -> list[Mail]:
    senders = np.array([-1] if method in ("pvp", "sharing") else [1, 2])
    rng = np.random.default_rng(0)
    point = rng.normal(size=(len(senders), dim))
    return [Mail(senders, scale * point) for scale in (0.0, 1.0, 1e6, 1e99)]


def same_unless_paid(pair: Neighbours, before: tuple[int, int], said: tuple[Letter, Letter]) -> bool:
    """Whether both answered with a release. Any other answer must be the same for both, and neither may be locked."""
    after = pair.charges()
    assert after[0] - before[0] == after[1] - before[1]
    assert "locked" not in {one["status"] for one in said}
    if said[0]["status"] == said[1]["status"] == "ok" and "mail" in said[0]:
        assert after[0] > before[0]
        return True
    assert after == before
    assert said[0] == said[1]
    return False


# With sharing the largest penalty makes a problem beyond the limits; with the others only "beyond" is refused.
EDGES = {"smallest": 1e-9, "middle": 0.1, "largest": 1e9, "beyond": 1e30}


@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("method", METHODS)
def test_no_answer_tells_neighbours_apart_without_a_charge(method: str, edge: str, tmp_path: Path) -> None:
    """Closed jobs, rounds beyond the plan, repeated rounds, frozen iterates, tolerances of the coordinator's choice."""
    pair = neighbours(tmp_path, method)
    known, released, refused = facts(pair, method), 0, 0
    tolerances = [1e-15, 1e-9, 1e-5, 1e-2] if method != "sharing" else [None]
    for tolerance, close in itertools.product(tolerances, [True, False]):
        proposal = pair.proposal(**known, **{METHODS[method][0]: EDGES[edge], "tolerance": tolerance})
        before = pair.charges()
        began = pair.ask(kind="begin", proposal=proposal.pack(), heads="[]")
        assert began[0] == began[1]
        if close:
            gone = pair.ask(kind="give_up", job=proposal.id)
            assert gone[0] == gone[1]
        phase = 1 if method == "sharing" else 0
        for inbox in inboxes(method, known["dim"]):
            for round in (0, 6, 7, 10**6, -1):
                said = pair.ask(kind="step", job=proposal.id, round=round, phase=phase, inbox=inbox.pack())
                paid = same_unless_paid(pair, before, said)
                before = pair.charges()
                released += paid
                refused += not paid
    assert refused
    allowed = {"middle"} if method == "sharing" else {"middle", "largest"}
    assert released if edge in allowed else edge != "beyond" or not released


@pytest.mark.parametrize("method", ["pvp", "pdml"])
def test_a_gradient_cannot_be_bisected(method: str, tmp_path: Path) -> None:
    """The attack on a solver that gives up: a huge penalty freezes the iterate at a point of the coordinator's choice,
    and "missed" then told that the gradient there was above the tolerance; from a closed job, for free."""
    pair, penalty = neighbours(tmp_path, method), METHODS[method][0]
    known, told = facts(pair, method), set()
    inbox = inboxes(method, known["dim"])[1]
    for tolerance in np.linspace(0.002, 0.5, 40):
        for size in (1e9, 1e30):
            proposal = pair.proposal(**known, **{penalty: size, "tolerance": float(tolerance)})
            pair.ask(kind="begin", proposal=proposal.pack(), heads="[]")
            pair.ask(kind="give_up", job=proposal.id)
            said = pair.ask(kind="step", job=proposal.id, round=0, phase=0, inbox=inbox.pack())
            assert said[0] == said[1]
            told.add((size, str(said[0]["status"]), tolerance <= 0.01 and size == 1e9))
    assert len(told) == 3  # what limits accept, a larger tolerance, a larger penalty: one answer each
    assert pair.charges() == (0, 0)


@pytest.mark.parametrize("what", [{"rounds": 10**7}, {"rounds": 10_001}])
def test_a_job_that_is_too_large_is_refused_before_anything_is_derived_from_it(
    what: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its plan alone would take a party minutes and gigabytes."""
    pair = neighbours(tmp_path, "pvp")
    proposal = pair.proposal(**facts(pair, "pvp"), **what)
    monkeypatch.setattr("privadmm.config.build.job", lambda *_, **__: pytest.fail("the job was made"))
    for said in pair.ask(kind="begin", proposal=proposal.pack(), heads="[]"):
        assert said["status"] == "refused"
        assert "rounds up to 10000" in str(said["message"])


RING = {"graph": {"kind": "ring"}}
SHARING = METHODS["sharing"][1]
COLUMN = {
    "algorithm": {"name": "sharing", "column_bound": 1.0, "rho": 0.1},
    "parties": {"split": "features"},
    "privacy": {"adjacency": "column"},
    "regularizer": {"weight": 0.01},
    "data": {"intercept": None},
}


def refused_or_paid(folder: Path, changes: dict[str, Any], job: dict[str, Any], letters: list[Any]) -> list[str]:
    """The statuses of begin and of these steps. A coordinator must not be able to lock a ledger."""
    vertical = changes.get("parties", {}).get("split") == "features"
    tables = with_changes(DEPLOYED, changes)
    made = federated(folder, tables)
    if vertical:
        tables = with_changes(tables, {"data": {"label": "y", "id": "id"}})
    pair = Neighbours(tables, (made.folders[0], made.folders[0]), folder / "hostile.toml")
    more = job.pop("tables", {})
    known = facts(pair, "sharing" if vertical else "pvp") | job
    known["sizes"] = (facts(pair, "sharing" if vertical else "pvp")["sizes"][0], *known["sizes"][1:])
    proposal = replace(pair, tables=with_changes(tables, more)).proposal(**known)
    said = [answer(made.folders[0], {"kind": "begin", "proposal": proposal.pack(), "heads": "[]"})]
    for number, (phase, inbox) in enumerate(letters):
        letter = {"kind": "step", "job": proposal.id, "round": number, "phase": phase, "inbox": inbox.pack()}
        said.append(answer(made.folders[0], letter))
    statuses = [str(one["status"]) for one in said]
    assert "locked" not in statuses, said
    return statuses


def hostile_jobs() -> dict[str, tuple[dict[str, Any], dict[str, Any], list[Any], list[str]]]:
    """By name: the party's setup, the job, what is sent, and the expected answer."""
    star, zeros = np.array([-1]), np.zeros((1, 4))
    nobody, gone = np.empty(0, dtype=np.int64), np.array([[1, 0], [2, 0]])
    pdml = {"algorithm": {"name": "pdml"}, **RING}
    squared = {"tables": {"loss": {"name": "squared", "label_bound": 1.0}}}
    first = {"algorithm": {"name": "dp_admm", "D_w": 1.0, "rho": 1.0}}
    uneven = {"tables": {"privacy": {"profile": [1e-12, 1e48, 1e48]}}, "rounds": 3}
    wide = Mail(np.array([1, 2]), np.zeros((2, 13)))
    return {
        "a label alone, of a loss without a bound": (
            {"algorithm": {"name": "pvp"}, "privacy": {"adjacency": "label"}},
            squared,
            [(0, Mail(star, zeros))],
            ["failed", "refused"],  # what was not admitted is forgotten, and so was never begun
        ),
        "moments, and every neighbour is said to have left": (
            {**pdml, "features": {"moments": True}},
            {},
            [(0, wide), (0, Mail(nobody, np.zeros((0, 13)), gone))],
            ["ok", "ok", "refused"],
        ),
        "noise that grows beyond all numbers": (
            first,
            uneven,
            [(0, Mail(star, zeros + 1e99))],
            ["refused"] * 2,
        ),
        "columns of another party that no memory holds": (
            SHARING,
            {"columns": (1, 1, 2**53)},
            [(1, Mail(star, np.ones((1, 60))))],
            ["refused"] * 2,
        ),
        "a column, and a target of zeros": (
            COLUMN,
            {"columns": (1, 1, 1)},
            [(1, Mail(star, np.zeros((1, 60))))],
            ["ok", "ok"],
        ),
        "sizes whose sum turns negative": (
            first,
            {"sizes": (0, *[2**53] * 2047, 2**53 - 2049 * 20), "tables": {"parties": {"count": 2049}}},
            [(0, Mail(star, zeros))],
            ["failed", "refused"],  # what was not admitted is forgotten, and so was never begun
        ),
        "a graph that no memory holds": (
            pdml,
            {
                "sizes": (0, *[12] * 9999),
                "tables": {"parties": {"count": 10_000}, "graph": {"kind": "complete"}},
            },
            [],
            ["refused"],
        ),
        "a plan that no memory holds": (
            pdml,
            {"sizes": (0, *[12] * 9999), "tables": {"parties": {"count": 10_000}}, "rounds": 9999},
            [],
            ["refused"],
        ),
    }


@pytest.mark.parametrize("name", hostile_jobs())
def test_a_coordinator_can_lock_no_ledger(name: str, tmp_path: Path) -> None:
    changes, job, letters, expected = hostile_jobs()[name]
    assert refused_or_paid(tmp_path, changes, job, letters) == expected


def test_a_tiny_target_has_the_noise_that_it_needs() -> None:
    """The squares of such a target underflow to 0, and with them the norm behind one column's sensitivity."""
    from privadmm.privacy import ridge_sensitivity

    t = np.full((1, 5000), 1.55e-162)
    scores, weights = ridge_sensitivity.moves("column", t, 1, 0.05, None, 1.0, 1.0)
    assert scores > 1e-162 * np.linalg.norm(1e162 * t)
    assert weights > 1e-162 * np.linalg.norm(1e162 * t) / np.sqrt(0.05)
