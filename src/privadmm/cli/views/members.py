"""What `privadmm federation join`, `admit`, `pin`, `rotate`, `add` and `withdraw` print."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from privadmm.cli.views.screen import federation_command as command
from privadmm.deploy.federation.keys import certificate_fingerprint, check_certificate
from privadmm.deploy.federation.layout import Coordinator
from privadmm.deploy.federation.setup.invitation import Reply
from privadmm.deploy.federation.setup.joining import REPLY, Change, Joined, notable, policy_section
from privadmm.deploy.federation.setup.membership import Seat
from privadmm.deploy.federation.setup.pinning import Pinning

SAID = {
    "same": "as before",
    "new": "new",
    "vouched": "another key, signed by the one before",
    "replaced": "ANOTHER KEY, which the one before did not sign",
}

NOT_NOTED = "No note of its ledger can be left beside the records, since nothing can be written there."


def joined(made: Joined) -> dict[str, Any]:
    facts, folder = made.invitation.facts, made.folder
    return {
        "directory": str(folder),
        "party": facts.party,
        "name": made.reply.name,
        "records": None if made.party is None else made.party.party.records,
        "fingerprint": made.reply.fingerprint,
        "authority": made.invitation.fingerprint,
        "reply": str(folder / REPLY),
        "ledger": None,
        "noted": made.party is None or notable(made.party),
        "secure_sums": facts.secure_sums,
        "epsilon_warning": made.invitation.policy.weak_promise,
        "delta_warning": made.invitation.policy.weak_delta(None if made.party is None else made.party.party.records),
    }


def policy_text(made: Joined) -> str:
    """The proposed policy, which the party's people read before the ledger fixes it."""
    facts = made.invitation.facts
    lines = [
        f"Party {facts.party} of {facts.parties}, invited by {facts.superlink}.",
        "",
        "Compare with the coordinator, by telephone or on paper, the fingerprint of its authority:",
        f"  {made.invitation.fingerprint}",
        "",
        f"The proposed policy, which is yours to change in {made.folder / 'party.toml'}:",
        *(f"  {line}" for line in policy_section(made.invitation.policy).split("\n")[1:]),
        "",
    ]
    return "\n".join(lines)


def joined_text(shown: dict[str, Any]) -> str:
    folder = shown["directory"]
    count = "its records are not counted yet" if shown["records"] is None else f"it declares {shown['records']} records"
    then = [command("node", folder)]
    if shown["secure_sums"]:
        then.insert(0, command("pin", folder, "peers.toml") + "   # once the coordinator has sent it")
    if shown["ledger"] is None:
        then.insert(0, command("ledger", folder) + "   # once party.toml is as you want it")
    lines = [
        "",
        f"{shown['name']} is party {shown['party']}; {count}. Its private key is in {folder} and stays there.",
        f"Send {shown['reply']} to the coordinator, and tell it this fingerprint by another way:",
        f"  {shown['fingerprint']}",
        *([] if shown["noted"] else [NOT_NOTED]),
        "",
        "Then:",
        *(f"  {line}" for line in then),
    ]
    return "\n".join(lines)


def listed(changes: Sequence[Change]) -> list[dict[str, Any]]:
    return [
        {"party": key.party, "name": key.name, "fingerprint": key.fingerprint, "state": key.state} for key in changes
    ]


def rows(parties: list[dict[str, Any]]) -> list[str]:
    """A line for each party. The name is last and quoted: its owner chose it, and could imitate a fingerprint."""
    form = '  party {party:<3} {fingerprint}  {said}  "{name}"'
    return [form.format(**party, said=SAID[party["state"]]) for party in parties]


def admitting_text(changes: Sequence[Change]) -> str:
    """The fingerprints that the coordinator's people compare before keys are taken."""
    return "\n".join(["Compare these fingerprints with each party, by telephone or on paper:", *rows(listed(changes))])


def admitted(place: Coordinator, changes: Sequence[Change], agreed: dict[str, list[str]] | None) -> dict[str, Any]:
    invited = sorted(path.stem for path in place.invitations.glob("party-*.toml"))
    missing = [name for name in invited if not (place.keys / f"{name}.pub").is_file()]
    return {"admitted": listed(changes), "peers": str(place.peers), "superlink": agreed, "missing": missing}


def admitted_text(shown: dict[str, Any]) -> str:
    lines = ["", registered_line(shown["superlink"])]
    if shown["missing"]:
        lines.append(f"No reply yet of {', '.join(shown['missing'])}.")
    else:
        lines.append(f"All parties have replied. Send {shown['peers']} to each, for `privadmm federation pin`.")
    return "\n".join(lines)


def registered_line(agreed: dict[str, list[str]] | None) -> str:
    if agreed is None:
        return "The SuperLink does not run; `privadmm federation superlink` takes the keys over when it starts."
    if agreed["spent"]:
        return (
            f"The SuperLink had taken back the key of {', '.join(agreed['spent'])}, and takes no key a second time: "
            "that party makes another with `privadmm federation rotate`."
        )
    return "The SuperLink knows their keys." if not agreed["unregistered"] else "The SuperLink took the old key back."


def pinning(proposed: Pinning) -> dict[str, Any]:
    return {
        "directory": str(proposed.party.folder),
        "peers": listed(proposed.changes),
        "authority": proposed.authority,
        "authority_fingerprint": proposed.authority_fingerprint,
        "absent": list(proposed.absent),
        "code": proposed.code,
    }


def pinning_text(shown: dict[str, Any]) -> str:
    lines = ["Compare these with their owners, by a way that is not the coordinator's:", *rows(shown["peers"]), ""]
    if shown["authority"] in ("vouched", "replaced"):
        lines += [f"  the authority  {shown['authority_fingerprint']}  {SAID[shown['authority']]}", ""]
    lines.append("Or compare this one code, which is the same at every party that has the same keys:")
    lines.append(f"  {shown['code']}")
    for number in shown["absent"]:
        again = command("pin", shown["directory"], "PEERS.toml", "--drop", number)
        lines.append(f"Party {number} is pinned here and not in the file. If it told you that it left: {again}")
    return "\n".join(lines)


def rotated_key(folder: Path, reply: Reply) -> dict[str, Any]:
    lost = () if reply.vouched else ("--replace",)
    return {
        "fingerprint": reply.fingerprint,
        "reply": str(folder / REPLY),
        "done": f"Party {reply.party} has another key, {reply.fingerprint}. "
        + (
            "The one before signed it."
            if reply.vouched
            else "The one before is lost, so nobody vouches for it: say so."
        ),
        "steps": [
            f"send {folder / REPLY} to the coordinator: {command('admit', 'DIRECTORY', REPLY, *lost)}",
            "for secure sums, to every other party as well (or the coordinator's new peers.toml): "
            + command("pin", "DIRECTORY", REPLY, *lost),
            f"start the node again: {command('node', folder)}",
        ],
    }


def rotated_certificate(place: Coordinator, authority: bool) -> dict[str, Any]:
    path = place.certificates / "server.pem"
    steps = [f"start the SuperLink again: {command('superlink', place.folder)}"]
    done = f"The SuperLink has another certificate for {place.reached.host}: {check_certificate(path)}."
    if authority:
        mark = certificate_fingerprint((place.certificates / "ca.pem").read_bytes())
        done += f" So has its authority, {mark}, signed by the one before."
        steps += [
            f"send {place.peers} to every party, which runs: {command('pin', 'DIRECTORY', place.peers.name)}",
            "each party starts its node again; until then it is not let in, and goes on trying",
        ]
    return {"certificate": str(path), "peers": str(place.peers) if authority else None, "done": done, "steps": steps}


def added(place: Coordinator, seat: Seat) -> dict[str, Any]:
    changed = "" if seat.changed is None else f" {place.job} has {seat.changed} now."
    return {
        "party": seat.number,
        "parties": seat.parties,
        "invitation": str(seat.invitation),
        "done": f"Party {seat.number} of {seat.parties} is invited.{changed} No earlier run can be resumed.",
        "steps": [
            f"send {seat.invitation} to it; it runs: {command('join', f'party-{seat.number}.toml', '--out', 'OWN')}",
            f"with its reply: {command('admit', place.folder, REPLY)}",
            f"for secure sums, send the new {place.peers} to all: {command('pin', 'DIRECTORY', place.peers.name)}",
        ],
    }


def withdrawn(place: Coordinator, seat: Seat, agreed: dict[str, list[str]] | None) -> dict[str, Any]:
    if seat.changed is not None:
        left = f"{place.job} has {seat.changed} now: the next run is without it."
    else:
        left = (
            f"{place.job} still has {seat.parties} parties, and place {seat.number} is empty: invite another there, "
            f"{command('add', place.folder, '--party', seat.number)}."
        )
    return {
        "party": seat.number,
        "superlink": agreed,
        "done": f"Party {seat.number} has withdrawn. {registered_line(agreed)} {left}",
        "steps": [
            "the party ends its node, and keeps its ledger: what it released is in the world, and still counts",
            f"every other party, for secure sums: {command('pin', 'OWN', place.peers.name, '--drop', seat.number)}",
        ],
    }


def steps_text(shown: dict[str, Any]) -> str:
    return "\n".join([shown["done"], "", "What is left to do:", *(f"  - {step}" for step in shown["steps"])])
