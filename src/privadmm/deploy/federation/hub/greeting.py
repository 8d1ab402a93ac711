"""Greets the parties of a job: a signed hello to every node, and a check of who answered."""

import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from privadmm.deploy.federation.facts import Facts, agree, same_version
from privadmm.deploy.federation.hub.coordinator import QUOTED, REASONS, Patience, Post, named, need_few, status_of, told
from privadmm.deploy.federation.keys import Credentials
from privadmm.deploy.federation.protocol import Greeting, Letter, text
from privadmm.deploy.federation.signing import sealed
from privadmm.errors import ClusterError, MessageError, PrivadmmError, RefusedError


def greet(
    post: Post,
    proposal: str,
    parties: Mapping[int, Path],
    patience: Patience,
    nodes: Sequence[int],
    credentials: Credentials,
    may_leave: bool = False,
    tell_refused: Callable[[Mapping[int, str]], None] = lambda states: None,
) -> tuple[dict[int, Facts], dict[int, str]]:
    """Ask every node who it is; returns facts by node, and the reasons why parties are missing.

    All `parties`, given with their public keys, must answer, unless they `may_leave`. A registered key lets a node in
    and does not say which party it is: the party signs that itself, in its answer to this hello.
    """
    greeting = credentials.greeting(secrets.token_hex(16), proposal)
    letter = credentials.hello(greeting, proposal)
    facts: dict[int, Facts] = {}
    answers = sorted(post.exchange(dict.fromkeys(nodes, letter), patience.timeout).items())
    answers = [(node, answer) for node, answer in answers if may_be_one(answer.get("party"), parties)]
    refused = unwilling(
        {node: answer for node, answer in answers if answer.get("status") != "ok"}, may_leave, tell_refused
    )
    for node, answer in answers:
        if answer.get("status") == "ok":
            facts[node] = recognise(node, answer, greeting, parties)
            same_version(facts[node])
    need_few(refused, len(parties))
    known = sorted(facts.values(), key=lambda own: own.party)
    numbers = [own.party for own in known]
    if twice := [number for number in set(numbers) if numbers.count(number) > 1]:
        raise ClusterError(f"two nodes say that they are party {twice[0]}: each party runs one node")
    missing = parties.keys() - set(numbers)
    if missing and not may_leave:
        raise ClusterError(
            f"{named(missing)} did not answer within {patience.timeout:g} s, and a run begins with all of them: start "
            "its node, see that its key is registered, and try again; a run that has begun goes on without it for good "
            'if it is resumed with absent = "continue"'
        )
    if not known:
        raise ClusterError(f"no party answered within {patience.timeout:g} s: start their nodes, and try again")
    agree(known)
    return facts, {party: refused.get(party, f"no answer for {patience.timeout:g} s") for party in sorted(missing)}


def may_be_one(number: object, parties: Mapping[int, Path]) -> bool:
    """Whether an answer may come from one of these parties; a node that does not name its party may be one."""
    return number is None or (isinstance(number, int) and number in parties)


def unwilling(
    answers: Mapping[int, Letter], may_leave: bool, tell_refused: Callable[[Mapping[int, str]], None]
) -> dict[int, str]:
    """Why parties refused, if the others may go on without them; else an error that names those that end the run."""
    if answers:
        tell_refused({node: status_of(answer) for node, answer in answers.items()})
    refused, ends, kinds = dict[int, str](), list[str](), list[type[PrivadmmError]]()
    for node, answer in answers.items():
        number, (name, why) = answer.get("party"), told(answer)
        if may_leave and answer.get("status") == "refused" and isinstance(number, int):
            refused[number] = f"refused: {why}"
            continue
        # A failure is not signed, so only the node is known for sure.
        who = f"node {node}" if number is None else f"party {number!r} (node {node})"
        ends.append(f"{who} did not take the job" + (f", {name}: {why}" if len(ends) < REASONS else ""))
        kinds.append(RefusedError if answer.get("status") == "refused" else ClusterError)
    if kinds:
        raise kinds[0]("; ".join(ends))
    return refused


def recognise(node: int, answer: Letter, greeting: Greeting, parties: Mapping[int, Path]) -> Facts:
    """The facts in a node's answer; refused unless it is signed with the key of the party that it says it is."""
    try:
        facts = Facts.of(answer)
        packed, signature = text(answer, "facts"), text(answer, "signature")
    except (ValueError, RecursionError) as error:
        raise MessageError(f"node {node} sent what no party says of itself ({error})"[:QUOTED]) from None
    if facts.party not in parties:
        raise MessageError(f"node {node} says that it is a party of this job, and then another")
    key = parties[facts.party]
    if not key.is_file():
        raise ClusterError(f"{key}: no such file; put the public key of that party there, as it handed it over")
    if not sealed(key.read_bytes(), greeting.answer(packed), signature):
        raise ClusterError(
            f"node {node} says that it is party {facts.party} and has not the key in {key}, or answers for another "
            "federation: unregister it, or put the key of that party there"
        )
    return facts
