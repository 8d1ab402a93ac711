"""What a party's steward decides about jobs: `privadmm federation proposals`, `show`, `approve`, `refuse`, and the same
as a local page, `privadmm steward`.
"""

import json
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from privadmm.cli.output import AsJson, PartyFolder, emit, say

Code = Annotated[str, Argument(metavar="CODE", help="the proposal's whole code, as `show` prints it")]


def proposals(
    directory: PartyFolder,
    everything: Annotated[bool, Option("--all", help="also those that were decided about")] = False,
    as_json: AsJson = False,
) -> None:
    """List the jobs that wait for this party's steward, with their cost."""
    from privadmm.cli.views import approvals as view
    from privadmm.deploy.federation.party import read
    from privadmm.deploy.federation.steward import words

    facts = words.standing(read(directory))
    if not everything:
        facts["proposals"] = [proposal for proposal in facts["proposals"] if proposal["state"] == "waiting"]
    emit(json.dumps(facts) if as_json else view.listed(facts))
    if facts["problem"] is not None:
        raise typer.Exit(1)


def show(
    directory: PartyFolder,
    proposal: Annotated[str, Argument(metavar="CODE", help="its code or the first digits of it, or its job")],
    as_json: AsJson = False,
) -> None:
    """Show a proposal in plain words: what would leave, what it would cost, what remains, who asks."""
    from privadmm.cli.views import approvals as view
    from privadmm.deploy.federation.desk.approvals import Proposals
    from privadmm.deploy.federation.party import read
    from privadmm.deploy.federation.steward import words

    party = read(directory)
    facts = words.whole(party, Proposals(party).find(proposal))
    emit(json.dumps(facts) if as_json else view.proposal(str(directory), facts))


def approve(
    directory: PartyFolder,
    code: Code,
    days: Annotated[
        float | None, Option(help="for how long it holds; as \\[policy] approval_days says, if left out")
    ] = None,
    why: Annotated[str, Option(help="kept here, for your own register")] = "",
    as_json: AsJson = False,
) -> None:
    """Approve exactly this proposal: the job may begin, and go on, until the approval ends."""
    from privadmm.cli.views import approvals as view
    from privadmm.deploy.federation.party import read
    from privadmm.deploy.federation.steward import words

    facts = words.decide(read(directory), code, True, why, days=days)
    emit(json.dumps(facts) if as_json else view.decision(facts))


def refuse(
    directory: PartyFolder,
    code: Code,
    why: Annotated[str, Option(help="the reason; it stays here unless --tell")],
    tell: Annotated[bool, Option("--tell", help="tell the coordinator the reason, too")] = False,
    as_json: AsJson = False,
) -> None:
    """Refuse exactly this proposal, or take its approval back: nothing more is released for it."""
    from privadmm.cli.views import approvals as view
    from privadmm.deploy.federation.party import read
    from privadmm.deploy.federation.steward import words

    facts = words.decide(read(directory), code, False, why, tell)
    emit(json.dumps(facts) if as_json else view.decision(facts))


COMMANDS = (proposals, show, approve, refuse)


def steward(
    directories: Annotated[list[Path], Argument(metavar="DIRECTORY...", help="of parties, with party.toml in each")],
    port: Annotated[int, Option(min=0, max=65535, help="on 127.0.0.1; any free one if left out")] = 0,
    as_json: AsJson = False,
) -> None:
    """Open a page on this machine: budgets, jobs, and the proposals that wait for you. Ctrl-C ends it."""
    from privadmm.deploy.federation.party import read
    from privadmm.deploy.federation.steward.server import serve

    for directory in directories:  # an error in a file ends the command now, instead of showing on the page
        read(directory)
    with serve(directories, port) as server:
        said = "Open this in a browser on this machine. Whoever has the address can decide; Ctrl-C ends it."
        emit(json.dumps({"url": server.url, "port": server.port}) if as_json else f"{said}\n\n  {server.url}\n")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            say("privadmm: the page is closed")
