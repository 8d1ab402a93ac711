"""What `privadmm federation` says on a terminal."""

import shlex
from pathlib import Path
from typing import Any

from privadmm.deploy.federation.doctor import Finding
from privadmm.deploy.federation.init import Made
from privadmm.deploy.federation.layout import NAME, PROMPT


def commands(made: Made) -> dict[str, Any]:
    """What was made, and the commands that start it, in the order in which they are given."""
    place = made.coordinator
    exports = [f"export {key}={shlex.quote(value)}" for key, value in place.environment.items() if key not in PROMPT]
    folder = place.folder.parent
    parties = sorted(path.stem for path in place.keys.glob("*.pub"))
    register = [shlex.join(place.register(number)) for number in range(len(parties))]
    return {
        "directory": str(folder),
        "coordinator": {
            "directory": str(place.folder),
            "environment": place.environment,
            "superlink": command("superlink", place.folder),
            "register": register,
            "run": shlex.join([*place.run(), "--stream"]),
        },
        "parties": [
            {
                "directory": str(folder / name),
                **({} if made.parties else {"ledger": command("ledger", folder / name)}),
                "check": command("check", folder / name),
                "node": command("node", folder / name),
            }
            for name in parties
        ],
        "exports": exports,
        "connection": NAME,
    }


def command(name: str, folder: Path) -> str:
    return shlex.join(["privadmm", "federation", name, str(folder)])


def made(said: dict[str, Any]) -> str:
    one, parties = said["coordinator"], said["parties"]
    lines = [
        f"A federation of {len(parties)} parties is in {said['directory']}. Its certificates are for a test.",
        "",
        "1. At the coordinator, in a terminal that stays open:",
        f"   {one['superlink']}",
        "",
        "2. In another terminal of the coordinator, the keys of the parties:",
        *(f"   {line}" for line in [*said["exports"], *one["register"]]),
        "",
        "3. Each party takes its own directory, looks at party.toml, puts its records there, and starts its node:",
        *(f"   {party[key]}" for party in parties for key in ("ledger", "check", "node") if key in party),
        "",
        "4. In the coordinator's second terminal:",
        f"   {one['run']}",
    ]
    return "\n".join(lines)


Found = dict[str, list[Finding]]


def good(found: Found) -> bool:
    return all(one.state != "bad" for findings in found.values() for one in findings)


def as_json(found: Found) -> dict[str, Any]:
    places = {place: [vars(one) for one in findings] for place, findings in found.items()}
    return {"good": good(found), "checked": places}


def checked(found: Found) -> str:
    mark = {"good": "ok  ", "note": "note", "bad": "BAD "}
    lines = []
    for place, findings in found.items():
        lines += [place, *(f"  {mark[one.state]} {one.what}: {one.said}" for one in findings), ""]
    return "\n".join(lines)
