"""Malformed letters of a hostile coordinator: whatever stands in a field, the party refuses, and it costs nothing."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from privadmm.data import arrays
from privadmm.deploy.federation import letters
from privadmm.deploy.federation.desk import party_server
from privadmm.deploy.federation.desk.party_server import answer
from privadmm.deploy.federation.protocol import MOST_TOLD, Letter
from privadmm.engine.mail import Mail
from small_runs import PRIVATE, no_plots, with_changes

pytest.importorskip("cryptography")
from federations import SUMMED, Desks, Federated, accounts, federated

JOB = with_changes(PRIVATE, {**SUMMED, "algorithm": {**(SUMMED["algorithm"] or {}), "rounds": 2}})
FIELDS = [(kind, name) for kind, forms in letters.FORMS.items() for name in forms]
IDS = [f"{kind}-{name}" for kind, name in FIELDS]
OPTIONAL = {("begin", "receipts"), ("begin", "ended")}
LEFT_OUT = OPTIONAL  # lists of which entries that no party wrote are left out

numbers = st.one_of(
    st.booleans(),
    st.integers(),
    st.sampled_from([-1, 2**53 + 1, 2**63, 10**30, -(10**30), 10**4000]),
    st.floats(),
    st.sampled_from([math.nan, math.inf, -0.0, 1.0]),
)
texts = st.one_of(
    st.text(st.characters(), max_size=40),
    st.sampled_from(["", "\0", "\ud800", "\x1b[2J", "../../x", "6", "nan", "null", "{}", "[" * 100_000, "x" * 200_000]),
)
packed = st.one_of(
    st.binary(max_size=60),
    st.sampled_from([b"[" * 100_000, b"\xff" * 100, b"null", b"7" * 5000, b'{"id": 1}', bytes(1_000_000)]),
)
anything = st.recursive(
    st.one_of(st.none(), numbers, texts, packed),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
plain = st.recursive(
    st.one_of(st.none(), numbers, texts),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
fuzzed = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)


class Party:
    """A party that ran a job, the letters that it answered, and what it has spent."""

    def __init__(self, made: Federated, honest: dict[str, Letter]) -> None:
        self.folder, self.ledger, self.honest = made.folders[1], made.ledgers[1], honest
        self.before = accounts(self.ledger)

    @property
    def log(self) -> Path:
        return self.folder / "requests.log"

    def refuses(self, letter: Any, *said: str) -> None:
        """Check that it does so in one sentence, without a look at a record, at no charge and without a lock."""
        self.log.unlink(missing_ok=True)
        (self.folder / "jobs" / "lock").touch()
        kept = sorted(self.folder.rglob("*"))
        found = answer(self.folder, letter)
        assert (found["status"], found["error"]) == ("refused", "RefusedError"), found
        told, line = str(found["message"]), json.loads(self.log.read_text())
        assert (line["outcome"], "Traceback" in line["why"]) == ("refused", False), line["why"]
        assert all(word in told for word in said), told
        assert told.replace("\n", "").isprintable(), told  # a config's problems are one a line
        assert accounts(self.ledger) == self.before
        assert set(self.folder.rglob("*")) - set(kept) <= {self.log, self.folder / "jobs" / "proposed.toml"}


@pytest.fixture(scope="module")
def party(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Party]:
    with pytest.MonkeyPatch.context() as patch:
        no_plots(patch)
        made = federated(tmp_path_factory.mktemp("party"), JOB)
        post = Desks(made.folders)
        made.run(post)
        honest = {str(letter["kind"]): letter for number, letter, _ in post.captured if number == 1}
        job = honest["step"]["job"]
        honest |= {kind: {"kind": kind, "job": job} for kind in ("give_up", "end")}
        assert {kind: set(letter) - {"kind"} for kind, letter in honest.items()} == {
            kind: set(forms) for kind, forms in letters.FORMS.items()
        }
        for letter in honest.values():
            assert answer(made.folders[1], letter)["status"] == "ok", letter
        patch.setattr(party_server, "read_records", lambda *_: pytest.fail("records were read"))
        yield Party(made, honest)


@pytest.mark.parametrize(("kind", "name"), FIELDS, ids=IDS)
@given(value=anything)
@fuzzed
def test_a_field_of_another_type_is_refused_by_its_name(party: Party, kind: str, name: str, value: Any) -> None:
    assume(type(value) is not letters.FORMS[kind][name].python)
    party.refuses({**party.honest[kind], name: value}, name)


@pytest.mark.parametrize(("kind", "name"), FIELDS, ids=IDS)
@given(data=st.data())
@fuzzed
def test_a_field_of_an_absurd_value_is_refused(party: Party, kind: str, name: str, data: st.DataObject) -> None:
    values = {str: texts, bytes: packed, int: st.integers().filter(lambda t: not 0 <= t < 2)}
    value = data.draw(values[letters.FORMS[kind][name].python])
    if (kind, name) in LEFT_OUT:
        assume(not is_list(value))
    party.refuses({**party.honest[kind], name: value})


@pytest.mark.parametrize(("kind", "name"), FIELDS, ids=IDS)
def test_a_field_that_is_missing_is_named(party: Party, kind: str, name: str) -> None:
    if (kind, name) not in OPTIONAL:
        said = ("version",) if name == "version" else (name, "is missing")
        party.refuses({key: value for key, value in party.honest[kind].items() if key != name}, *said)


@pytest.mark.parametrize("kind", letters.KINDS)
@given(name=texts, value=anything)
@fuzzed
def test_a_field_that_the_letter_does_not_have_is_refused(party: Party, kind: str, name: str, value: Any) -> None:
    assume(name not in party.honest[kind])
    party.refuses({**party.honest[kind], name: value}, "has no field")


@given(kind=anything, rest=st.dictionaries(texts, anything, max_size=3))
@fuzzed
def test_a_letter_of_another_kind_is_refused(party: Party, kind: Any, rest: dict[str, Any]) -> None:
    assume(not (isinstance(kind, str) and kind in letters.KINDS))
    party.refuses({**rest, "kind": kind}, "kind of a letter")
    party.refuses({key: value for key, value in rest.items() if key != "kind"}, "kind of a letter")


@pytest.mark.parametrize("key", ["id", "text", "sizes", "dim", "columns", "more"])
@given(value=plain)
@fuzzed
def test_a_proposal_of_another_form_is_refused(party: Party, key: str, value: Any) -> None:
    begin = party.honest["begin"]
    facts = json.loads(bytes(begin["proposal"]))  # type: ignore[arg-type]
    assume(value != facts.get(key) or type(value) is not type(facts.get(key)))
    party.refuses({**begin, "proposal": json.dumps({**facts, key: value}).encode()})


@given(place=st.integers(0, 3), value=plain)
@fuzzed
def test_heads_of_another_form_are_refused(party: Party, place: int, value: Any) -> None:
    begin = party.honest["begin"]
    head: list[Any] = ["0" * 32, 0, 0, "0" * 64]
    assume(not (place in (1, 2) and type(value) is int and 0 <= value <= 2**53))
    head[place] = value
    for heads in ([head], [head[:place]], value):
        assume(heads != [])
        party.refuses({**begin, "heads": json.dumps(heads)}, "heads")


@pytest.mark.parametrize("key", ["receipts", "ended"])
def test_more_than_a_party_is_told_of_is_refused(party: Party, key: str) -> None:
    party.refuses({**party.honest["begin"], key: json.dumps([[]] * (MOST_TOLD + 1))}, key, "10,000")


SHAPES = st.one_of(st.just(()), st.lists(st.sampled_from([0, 1, 2, 5, 2**40]), max_size=3).map(tuple))


@given(name=st.sampled_from(["senders", "values", "absent", "more"]), data=st.data())
@fuzzed
def test_an_inbox_of_other_arrays_is_refused(party: Party, name: str, data: st.DataObject) -> None:
    step = party.honest["step"]
    sent = Mail.unpack(bytes(step["inbox"]))  # type: ignore[arg-type]
    held: dict[str, Any] = {"senders": sent.senders, "values": sent.values}
    kind = data.draw(st.sampled_from(["<f8", "<i8", "|b1", "<U3", "<c16", "<M8[s]", "|V4", ">f8", "<f2"]))
    shape = data.draw(SHAPES.filter(lambda shape: math.prod(shape) < 100))
    strange = np.zeros(shape, dtype=kind)
    value = strange + 7 if kind[1] == "i" else np.full(shape, math.nan) if kind == "<f8" else strange
    assume(not (name == "absent" and shape and len(shape) == 2 and 0 in shape and shape[1] == 2 and kind == "<i8"))
    party.refuses({**step, "inbox": arrays.pack({**held, name: value})})


@given(at=st.integers(0, 2), value=plain)
@fuzzed
def test_an_inbox_with_another_header_is_refused(party: Party, at: int, value: Any) -> None:
    step = party.honest["step"]
    whole = bytes(step["inbox"])  # type: ignore[arg-type]
    start = 8 + int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8:start])
    assume(value != header["arrays"][0][at])
    header["arrays"][0][at] = value
    changed = json.dumps(header).encode()
    party.refuses({**step, "inbox": len(changed).to_bytes(8, "little") + changed + whole[start:]})


def is_list(value: str) -> bool:
    try:
        return isinstance(json.loads(value), list)
    except (ValueError, RecursionError):
        return False
