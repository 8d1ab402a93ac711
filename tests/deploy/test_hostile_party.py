"""A hostile party: what it sends is checked on receipt, and that party is evicted or named."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cases import ALGORITHMS, CASES, shards
from privadmm.data import arrays
from privadmm.deploy.federation.protocol import Letter
from privadmm.engine.block import cluster
from privadmm.engine.job import train
from privadmm.engine.mail import COORDINATOR, Mail
from privadmm.engine.phases import AtParties
from privadmm.errors import AbsentError, ClusterError, DivergedError, PrivadmmError, RefusedError
from privadmm.privacy.mechanisms import Simulation
from privadmm.runs.model import Model
from small_runs import PRIVATE, SHARING, Tables, charged, with_changes
from vertical_cases import ALGORITHMS as VERTICAL

pytest.importorskip("cryptography")
from federations import Desks, Federated, federated

pytestmark = pytest.mark.usefixtures("skipped_plots")

ROUNDS, DIM, LIAR = 4, 3, 1
STAR = with_changes(PRIVATE, {"algorithm": {"rounds": ROUNDS}})
PEOPLE = with_changes(STAR, SHARING)
Forge = Callable[[Letter, Mail], dict[str, Any]]


@dataclass
class Forging(Desks):
    """Party 1 changes its answers from this round on."""

    forge: Forge = lambda said, mail: dict(said)
    first: int = 1

    def ask(self, party: int, letter: Letter) -> Letter:
        said = super().ask(party, letter)
        if party == LIAR and letter["kind"] == "step" and int(letter["round"]) >= self.first:
            return self.forge(said, Mail.unpack(said["mail"]))  # type: ignore[arg-type]
        return said


def values(change: Callable[[Any], Any]) -> Forge:
    """Forge a message with another array."""

    def forge(said: Letter, mail: Mail) -> dict[str, Any]:
        forged = {"senders": mail.senders, "values": np.asarray(change(mail.values))}
        return {**said, "mail": arrays.pack(forged)}

    return forge


def filled(number: float) -> Forge:
    return values(lambda x: np.full_like(x, number))


def senders(*who: int) -> Forge:
    """Forge a message with a row from each of these senders."""

    def forge(said: Letter, mail: Mail) -> dict[str, Any]:
        rows = np.repeat(mail.values, len(who), axis=0)
        return {**said, "mail": arrays.pack({"senders": np.array(who, dtype=np.int64), "values": rows})}

    return forge


def mail_of(**given: Any) -> Forge:
    return lambda said, mail: {**said, "mail": arrays.pack(given)}


def answer(**changes: Any) -> Forge:
    """Forge an answer with other keys; None removes a key."""
    return lambda said, mail: {key: value for key, value in {**said, **changes}.items() if value is not None}


def of_the_first_round() -> Forge:
    """Forge an answer with the receipt of the first round."""
    first: list[str] = []

    def forge(said: Letter, mail: Mail) -> dict[str, Any]:
        first.append(str(said["receipt"]))
        return {**said, "receipt": first[0]}

    return forge


def lying_header(said: Letter, mail: Mail) -> dict[str, Any]:
    """Forge a message of the right length whose header claims a terabyte."""
    sent = bytes(said["mail"])  # type: ignore[arg-type]
    return {**said, "mail": sent.replace(b"[1, 3]", b"[9e9,")[: len(sent)].ljust(len(sent), b"x")}


FORGED: dict[str, Forge] = {
    "one NaN": values(lambda x: np.where(np.arange(DIM) == 1, np.nan, x)),
    "infinite": filled(np.inf),
    "as large as floats are": filled(1.7e308),
    "what drives the mean beyond what parties accept": filled(9e99),
    "wider": values(lambda x: np.zeros((1, DIM + 1))),
    "narrower": values(lambda x: x[:, :-1]),
    "three dimensions": values(lambda x: x[None]),
    "one dimension": values(lambda x: x[0]),
    "whole numbers": values(lambda x: np.zeros((1, DIM), dtype=np.int64)),
    "half the digits": values(lambda x: x.astype(np.float32)),
    "complex numbers": values(lambda x: x.astype(np.complex128)),
    "texts": values(lambda x: np.array([["1.0"] * DIM])),
    "in the name of another": senders(0),
    "in everybody's name": senders(0, 1, 2),
    "twice": senders(LIAR, LIAR),
    "of the coordinator": senders(-1),
    "of nobody": answer(mail=Mail.empty().pack()),
    "without values": mail_of(senders=np.array([LIAR])),
    "without senders": mail_of(values=np.zeros((1, DIM))),
    "with more than a message has": mail_of(senders=np.array([LIAR]), values=np.zeros((1, DIM)), more=np.zeros(1)),
    "saying that the others left": mail_of(
        senders=np.array([LIAR]), values=np.zeros((1, DIM)), absent=np.array([[0, 0], [2, 0]])
    ),
    "no packed bytes": answer(mail=b"nonsense"),
    "no bytes at all": answer(mail=b""),
    "a header that lies": lying_header,
    "absurdly long": answer(mail=b"\x00" * (1 << 22)),
    "no mail": answer(mail=None),
    "a text for mail": answer(mail="mail"),
    "no receipt": answer(receipt=None),
    "an empty receipt": answer(receipt=""),
    "a receipt of two lines": answer(receipt="0" * 63 + "\n"),
    "a number for a receipt": answer(receipt=7),
}


@pytest.mark.parametrize("forge", FORGED.values(), ids=FORGED.keys())
def test_the_one_who_forged_leaves_and_nobody_else(forge: Forge, tmp_path: Path) -> None:
    made = federated(tmp_path, STAR)
    result = made.run(Forging(made.folders, forge=forge), absent="continue")
    assert [(gone["party"], gone["from_round"]) for gone in result["absent"]] == [(LIAR, 2)]
    assert result["absent"][0]["why"].startswith(f"party {LIAR} sent ")
    assert [charged(ledger) for ledger in made.ledgers] == [ROUNDS, 2, ROUNDS]
    assert np.abs(Model.load(Path(result["out"])).weights).max() < 1e6


@pytest.mark.parametrize("absent", ["abort", "wait"])
@pytest.mark.parametrize("name", ["one NaN", "wider", "three dimensions", "without values", "no receipt", "of nobody"])
def test_the_one_who_forged_is_named(name: str, absent: str, tmp_path: Path) -> None:
    made = federated(tmp_path, STAR)
    with pytest.raises(ClusterError, match=rf"^party {LIAR} sent .*go on with --resume"):
        made.run(Forging(made.folders, forge=FORGED[name]), absent=absent)
    # Once it sends what it should, the run goes on from there.
    assert made.run(resume=True)["rounds"] == ROUNDS


def test_a_receipt_of_another_round(tmp_path: Path) -> None:
    made = federated(tmp_path, STAR)
    result = made.run(Forging(made.folders, forge=of_the_first_round()), absent="continue")
    (gone,) = result["absent"]
    assert (gone["party"], gone["from_round"]) == (LIAR, 3)
    assert "receipt of another round" in gone["why"]


def test_an_answer_that_is_none(tmp_path: Path) -> None:
    """Records may have caused the abort, so the run ends. Its text is cut and made printable before it is shown."""
    made = federated(tmp_path, STAR)
    for forged in (
        {},
        {"status": b"ok"},
        {"status": "failed", "error": 3, "message": "\x1b[2J" + "x" * 10**6},
    ):
        with pytest.raises(ClusterError, match=f"^party {LIAR} failed") as failed:
            made.run(
                Forging(made.folders, forge=lambda said, mail, forged=forged: forged),
                out=f"runs/{len(forged)}",
            )
        assert str(failed.value).isprintable()
        assert len(str(failed.value)) < 3000
        made = federated_again(tmp_path / str(len(forged)))


def federated_again(folder: Path) -> Federated:
    folder.mkdir()
    return federated(folder, STAR)


def test_messages_at_the_limit_drive_no_honest_party_out(tmp_path: Path) -> None:
    """The limit of what parties refuse is far above what one party may send."""
    from privadmm.engine.mail import LARGEST_SENT

    made = federated(tmp_path, with_changes(STAR, {"algorithm": {"rounds": 8}}))
    post = Forging(made.folders, forge=filled(LARGEST_SENT))
    assert "absent" not in made.run(post, absent="continue")
    honest = [
        np.abs(Mail.unpack(said["mail"]).values).max()  # type: ignore[arg-type]
        for party, letter, said in post.captured
        if party != LIAR and letter["kind"] == "step"
    ]
    assert max(honest) > LARGEST_SENT / 10  # control: they were driven far out
    assert [charged(ledger) for ledger in made.ledgers] == [8, 8, 8]


def test_an_honest_party_cuts_its_message_to_what_it_may_send() -> None:
    """Duals sum messages, so that a limit on each message does not bound them."""
    from privadmm.engine.mail import LARGEST, LARGEST_SENT

    job = CASES["dp_admm"].job(rounds=3)
    blocks = cluster(job, shards(), Simulation(0))
    said = blocks.step(0, 0, Mail(np.array([COORDINATOR]), np.full((1, job.public.dim), -LARGEST)))
    assert (np.abs(said.values) == LARGEST_SENT).all()


def test_a_broadcast_that_everybody_would_refuse_is_not_sent(tmp_path: Path) -> None:
    """With a huge step an acceptable message leads to an inbox that is refused: nobody is evicted for refusing."""
    steep = {"name": "first_order_consensus", "step": 1e30, "D_w": None, "rho": None}
    made = federated(tmp_path, with_changes(STAR, {"algorithm": steep}))
    post = Forging(made.folders, forge=filled(9e79))
    with pytest.raises(DivergedError, match=rf"round 3 .* nobody is left out\. .* 9e\+79, is of party {LIAR}"):
        made.run(post, absent="continue")
    assert not [said for _, _, said in post.captured if said["status"] != "ok"]
    assert [charged(ledger) for ledger in made.ledgers] == [2, 2, 2]


def test_half_of_the_parties_are_not_left_out_at_once(tmp_path: Path) -> None:
    """A party that makes the others refuse does not continue the run alone."""
    made = federated(tmp_path, STAR)

    def stricter(party: int, letter: Letter) -> None:
        if party != LIAR and letter.get("round") == 2:
            made.change(party, "minimum_parties = 2", "minimum_parties = 9")

    with pytest.raises(RefusedError, match="parties 0, 2 refused at once"):
        made.run(Desks(made.folders, before=stricter), absent="continue")
    for party in (0, 2):
        made.change(party, "minimum_parties = 9", "minimum_parties = 2")
    assert "absent" not in made.run(resume=True, absent="continue")


def scored(where: Any, number: float) -> Forge:
    def change(x: Any) -> Any:
        x = x.copy()
        x[..., where] = number
        return x

    return values(change)


@pytest.mark.parametrize(
    "forge",
    [scored(0, np.nan), scored(-1, 0.0), scored(slice(None), np.nan), scored(3, -np.inf)],
    ids=["a score", "weights that are not due", "nothing", "an infinite score"],
)
def test_columns_where_a_part_is_nobodys(forge: Forge, tmp_path: Path) -> None:
    """Weights must be NaN until the last round; scores never are."""
    made = federated(tmp_path, PEOPLE)
    with pytest.raises(ClusterError, match=f"^party {LIAR} sent a number that is not finite"):
        made.run(Forging(made.folders, forge=forge))
    with pytest.raises(AbsentError, match=f"party {LIAR} left, and nobody else has its columns"):
        made.run(Forging(made.folders, forge=forge), absent="continue", resume=True)


def test_weights_are_due_in_the_last_round(tmp_path: Path) -> None:
    made = federated(tmp_path, PEOPLE)
    with pytest.raises(ClusterError, match=f"^party {LIAR} sent a number that is not finite"):
        made.run(Forging(made.folders, forge=scored(-1, np.nan), first=ROUNDS - 1))


def test_the_first_round_of_moments_has_a_width_of_its_own(tmp_path: Path) -> None:
    tables: Tables = with_changes(STAR, {"features": {"moments": True}})
    made = federated(tmp_path, tables)
    forged = values(lambda x: np.zeros((1, DIM + 1)))
    result = made.run(Forging(made.folders, forge=forged, first=0), absent="continue")
    assert [gone["from_round"] for gone in result["absent"]] == [1]


class Elsewhere:
    """An engine that changes what its parties sent in the second round."""

    def __init__(self, inner: Any, change: Callable[[Mail], Mail]) -> None:
        self.inner, self.change, self.labels = inner, change, inner.labels

    def step(self, round: int, phase: int, inbox: Mail) -> Mail:
        mail: Mail = self.inner.step(round, phase, inbox)
        return self.change(mail) if round == 1 else mail


CHANGES: dict[str, Callable[[Mail], Mail]] = {
    "NaN": lambda mail: Mail(mail.senders, np.where(mail.senders[:, None] == 3, np.nan, mail.values)),
    "too large": lambda mail: Mail(mail.senders, np.where(mail.senders[:, None] == 3, -1e81, mail.values)),
}
OTHERS: dict[str, Callable[[Mail], Mail]] = {
    "a stack": lambda mail: Mail(mail.senders, mail.values[None]),
    "narrower": lambda mail: Mail(mail.senders, mail.values[:, 1:]),
    "one twice": lambda mail: Mail(mail.senders[[0, 0, 1]], mail.values[[0, 0, 1]]),
    "a stranger": lambda mail: Mail(np.append(mail.senders, 9), np.vstack([mail.values, mail.values[:1]])),
    "senders that are no whole numbers": lambda mail: Mail(mail.senders * 1.0, mail.values),  # type: ignore[arg-type]
    "who left": lambda mail: Mail(mail.senders, mail.values, np.array([[0, 0]])),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_every_engine_names_the_sender(change: Callable[[Mail], Mail]) -> None:
    job = CASES["dp_admm"].job(rounds=3)
    with pytest.raises(ClusterError, match=r"^party 3 sent a number that is not finite"):
        train(job, Elsewhere(cluster(job, shards(), Simulation(0)), change))  # type: ignore[arg-type]


@pytest.mark.parametrize("change", OTHERS.values(), ids=OTHERS.keys())
@pytest.mark.parametrize("name", ["dp_admm", "dvp", "foc-gossip"])
def test_every_engine_checks_what_comes_back(name: str, change: Callable[[Mail], Mail]) -> None:
    job = CASES[name].job(rounds=3)
    with pytest.raises(ClusterError, match=r"^in round 2 parties sent "):
        train(job, Elsewhere(cluster(job, shards(), Simulation(0)), change))  # type: ignore[arg-type]


@pytest.mark.parametrize("case", [*ALGORITHMS, *VERTICAL], ids=lambda case: case.name)
def test_what_every_method_sends_is_what_it_says(case: Any) -> None:
    """In every round `sends` has the right shape and NaNs: if it were too narrow, honest parties would be blamed."""
    job, seen = case.job(), []

    def look(view: Any) -> None:
        (phase,) = (phase for phase in job.algorithm.phases if isinstance(phase, AtParties))
        like = phase.sends(job.public, view.progress.round - 1)
        blank = np.broadcast_to(np.isnan(like), view.released.values.shape)
        assert np.array_equal(np.isnan(view.released.values), blank)
        seen.append(like.shape)

    held = case.data()
    train(job, cluster(job, held, Simulation(0)), [look])
    assert len(seen) == job.public.rounds


def test_a_block_on_dask_is_named() -> None:
    pytest.importorskip("distributed")
    from privadmm.deploy.dask import Block, DaskCluster
    from privadmm.deploy.remote_block import Order

    job = CASES["dp_admm"].job(rounds=3)
    good = Mail(np.array([0, 1]), np.zeros((2, job.public.dim))).pack()
    nan = Mail(np.array([2, 4]), np.array([[np.nan], [0.0]]) * np.ones(job.public.dim)).pack()
    other = Mail(np.array([0, 2]), np.zeros((2, job.public.dim))).pack()
    for sent, words in ((nan, "^party 2 sent a number"), (other, "^the worker of parties 2 to 4 sent mail in the name"),
                        (b"x", "^the worker of parties 2 to 4 sent what is no mail")):  # fmt: skip
        carrier = object.__new__(DaskCluster)
        carrier.blocks = [
            Block(Order(None, job, parties, Path("none")), np.array([-1]), "")  # type: ignore[arg-type]
            for parties in ((0, 1), (2, 3, 4))
        ]
        carrier._ask = lambda *_, sent=sent: [(good, None), (sent, None)]  # type: ignore[method-assign]
        with pytest.raises(PrivadmmError, match=words):
            carrier.step(0, 0, Mail(np.array([-1]), np.zeros((1, job.public.dim))))


def test_the_workers_bound_is_the_coordinators() -> None:
    from privadmm.engine import mail, worker

    assert mail.LARGEST_SENT * 1e20 <= mail.LARGEST == worker.LARGEST
