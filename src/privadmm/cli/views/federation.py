"""What `privadmm federation` prints."""

import shlex
from pathlib import Path
from typing import Any

from privadmm.deploy.federation.doctor import Finding
from privadmm.deploy.federation.init import Made
from privadmm.deploy.federation.layout import NAME, PROMPT

Checked = dict[str, list[Finding]]  # by directory
MARKS = {"good": "ok  ", "note": "note", "bad": "BAD "}


def commands(made: Made) -> dict[str, Any]:
    """What was made, and the commands that start it, in the order in which they are given."""
    place = made.coordinator
    folder, parties = place.folder.parent, sorted(path.stem for path in place.keys.glob("*.pub"))
    steps = ("check", "node") if made.parties else ("ledger", "check", "node")
    return {
        "directory": str(folder),
        "coordinator": {
            "directory": str(place.folder),
            "environment": place.environment,
            "superlink": command("superlink", place.folder),
            "register": [shlex.join(place.register(number)) for number in range(len(parties))],
            "run": shlex.join([*place.run(), "--stream"]),
        },
        "parties": [
            {"directory": str(folder / name)} | {step: command(step, folder / name) for step in steps}
            for name in parties
        ],
        "exports": [f"export {k}={shlex.quote(v)}" for k, v in place.environment.items() if k not in PROMPT],
        "connection": NAME,
    }


def command(name: str, folder: Path) -> str:
    return shlex.join(["privadmm", "federation", name, str(folder)])


def instructions(steps: dict[str, Any]) -> str:
    """How to start what was made, for people."""
    coordinator, parties = steps["coordinator"], steps["parties"]
    lines = [
        f"A federation of {len(parties)} parties is in {steps['directory']}. Its certificates are for a test.",
        "",
        "1. At the coordinator, in a terminal that stays open:",
        f"   {coordinator['superlink']}",
        "",
        "2. In another terminal of the coordinator, the keys of the parties:",
        *(f"   {line}" for line in [*steps["exports"], *coordinator["register"]]),
        "",
        "3. Each party takes its own directory, looks at party.toml, puts its records there, and starts its node:",
        *(f"   {party[step]}" for party in parties for step in ("ledger", "check", "node") if step in party),
        "",
        "4. In the coordinator's second terminal:",
        f"   {coordinator['run']}",
    ]
    return "\n".join(lines)


def good(checked: Checked) -> bool:
    return all(finding.state != "bad" for findings in checked.values() for finding in findings)


def as_json(checked: Checked) -> dict[str, Any]:
    places = {place: [vars(finding) for finding in findings] for place, findings in checked.items()}
    return {"good": good(checked), "checked": places}


def as_text(checked: Checked) -> str:
    lines = []
    for place, findings in checked.items():
        lines += [place, *(f"  {MARKS[finding.state]} {finding.what}: {finding.said}" for finding in findings), ""]
    return "\n".join(lines)
