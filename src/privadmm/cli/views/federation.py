"""What `privadmm federation` prints."""

import json
from typing import Any

from privadmm.cli.views.screen import federation_command as command
from privadmm.deploy.federation.keys import certificate_fingerprint
from privadmm.deploy.federation.setup.init import Made
from privadmm.deploy.federation.setup.symptoms import Finding

Checked = dict[str, list[Finding]]  # by directory
SIMULATION = (
    "privadmm: this federation is a simulation: noise comes from a seed that everybody knows, and nobody's records are "
    "protected. For records of people, make it without --simulation"
)
MARKS = {"good": "ok  ", "note": "note", "bad": "BAD "}


def commands(made: Made) -> dict[str, Any]:
    """What was made, and the commands that start it, in the order in which to run them."""
    place = made.coordinator
    folder, reached = place.folder.parent, place.reached
    return {
        "directory": str(folder),
        "coordinator": {
            "directory": str(place.folder),
            "job": str(place.job),
            "superlink": command("superlink", place.folder),
            "address": reached.address,
            "listen": f"{reached.listen}:{reached.port}",
            "authority": certificate_fingerprint((place.certificates / "ca.pem").read_bytes()),
            "admit": None if made.parties else command("admit", folder, "REPLY.toml..."),
            "run": command("run", place.folder),
        },
        "epsilon_warning": made.weak_promise,
        "delta_warning": made.weak_delta,
        "invitations": [str(path) for path in made.invitations],
        "parties": [
            {"directory": str(party.folder)} | {step: command(step, party.folder) for step in ("check", "node")}
            for party in made.parties
        ],
    }


def instructions(steps: dict[str, Any]) -> str:
    """How to start what was made, for people."""
    coordinator, parties = steps["coordinator"], steps["parties"]
    up = [
        f"At the coordinator, in a terminal that stays open; it listens at {coordinator['listen']}:",
        f"   {coordinator['superlink']}",
    ]
    if parties:
        lines = [
            f"A federation of {len(parties)} parties is in {steps['directory']}, to be tried on this machine.",
            *("", f"1. {up[0]}", up[1]),
            *("", "2. Each party, in a terminal of its own:", *(f"   {party['node']}" for party in parties)),
            *("", "3. In another terminal of the coordinator:", f"   {coordinator['run']}"),
        ]
        return "\n".join(lines)
    lines = [
        f"The coordinator's directory is {coordinator['directory']}. Parties reach it at {coordinator['address']}.",
        *changes(steps["changed"], coordinator["job"]),
        *("", "1. Send each party its invitation, which holds nothing secret:"),
        *(f"   {path}" for path in steps["invitations"]),
        "   and tell it, by telephone or on paper, the fingerprint of your authority:",
        f"   {coordinator['authority']}",
        *("", f"2. {up[0]}", up[1]),
        *("", "3. With the replies that come back:", f"   {coordinator['admit']}"),
        *("", "4. When all parties are there:", f"   {coordinator['run']}"),
    ]
    return "\n".join(lines)


def changes(changed: list[dict[str, Any]], job: str) -> list[str]:
    """List where the job differs from the config that it was made from, and why."""
    if not changed:
        return []

    def said(value: Any) -> str:
        return "left out" if value is None else json.dumps(value)

    rows = [f"   {edit['key']}: {said(edit['before'])} -> {said(edit['after'])}; {edit['why']}" for edit in changed]
    return ["", f"The job is in {job}. In your config it was otherwise:", *rows]


def good(checked: Checked) -> bool:
    return all(finding.state != "bad" for findings in checked.values() for finding in findings)


def as_json(checked: Checked) -> dict[str, Any]:
    places = {place: [vars(finding) for finding in findings] for place, findings in checked.items()}
    return {"good": good(checked), "checked": places}


def as_text(checked: Checked) -> str:
    lines = []
    for place, findings in checked.items():
        lines.append(place)
        for finding in findings:
            lines.append(f"  {MARKS[finding.state]} {finding.what}: {finding.said}")
            if finding.fix and finding.state != "good":
                lines.append(f"       {' ' * len(finding.what)}  to mend it: {finding.fix}")
        lines.append("")
    return "\n".join(lines)
