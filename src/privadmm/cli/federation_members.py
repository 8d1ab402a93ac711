"""`privadmm federation join`, `admit`, `pin`, `rotate`, `add`, `withdraw`: who takes part, and with which key."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from privadmm.cli.output import AsJson, PartyFolder, emit, warn
from privadmm.errors import ClusterError, ConfigError, RefusedError

if TYPE_CHECKING:
    from privadmm.deploy.federation.layout import Coordinator

Yes = Annotated[bool, Option("--yes", help="do it without asking")]
Federation = Annotated[Path, Argument(metavar="DIRECTORY", help="the coordinator's, or the folder that has it")]


def join(
    invitation: Annotated[Path, Argument(metavar="INVITATION.toml", help="as the coordinator sent it")],
    out: Annotated[Path, Option(help="the party's directory, which is made")],
    records: Annotated[Path | None, Option(metavar="FILE", help="its records, which are read and counted")] = None,
    name: Annotated[str | None, Option(help="what people call the party; everybody may know")] = None,
    port: Annotated[int | None, Option(min=1024, max=65535, help="of the node, on 127.0.0.1")] = None,
    yes: Annotated[bool, Option("--yes", help="make the ledger with the proposed policy, without asking")] = False,
    no_ledger: Annotated[
        bool, Option("--no-ledger", help="make no ledger yet, without asking: the policy is to be changed first")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Become a party: make its private key here, its policy, its ledger, and a reply to send back."""
    from privadmm.cli.views import members as view
    from privadmm.deploy.federation.setup.joining import join as make
    from privadmm.deploy.federation.setup.joining import with_ledger

    if yes and no_ledger:
        raise ConfigError("--yes makes the ledger and --no-ledger does not: say one of them")
    if records is not None and not (yes or no_ledger or askable(as_json)):
        raise ConfigError(
            "join asks whether the ledger shall keep the proposed policy, and nobody can be asked here. Look at "
            f"[policy] in {invitation}, then say --yes (make the ledger) or --no-ledger (`privadmm federation ledger` "
            "makes it, once party.toml is as you want it). Nothing was made"
        )
    made = make(invitation, out, records, name, port)
    shown = view.joined(made)
    if not as_json:
        emit(view.policy_text(made))
    warn(shown["epsilon_warning"], shown["delta_warning"])
    if (
        made.party is not None
        and not no_ledger
        and agreed("Is this the policy that the ledger shall keep?", yes, as_json)
    ):
        try:
            with_ledger(out)
        except RefusedError:  # its records have had a ledger; all else is made
            if not as_json:
                emit(view.joined_text(shown))
            raise
        shown["ledger"] = str(made.party.ledger)
    emit(json.dumps(shown) if as_json else view.joined_text(shown))


def admit(
    directory: Federation,
    replies: Annotated[list[Path], Argument(metavar="REPLY.toml...", help="as the parties sent them")],
    replace: Annotated[
        bool, Option("--replace", help="take a key in the place of another that did not sign it; ask the party first")
    ] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Take the public keys of parties, after showing their fingerprints; register them if the SuperLink runs, and
    write peers.toml for everybody."""
    from privadmm.cli.views import members as view
    from privadmm.deploy.federation.layout import coordinator_in
    from privadmm.deploy.federation.setup.joining import admit as take
    from privadmm.deploy.federation.setup.joining import look_at

    place = coordinator_in(directory)
    admission = look_at(place, replies, replace)
    if not as_json:
        emit(view.admitting_text(admission.changes))
    if not agreed("Did you compare these with each party?", yes, as_json):
        raise ConfigError("nothing was changed; --yes admits them without asking")
    if look_at(place, replies, replace).changes != admission.changes:
        raise ConfigError("keys were admitted while you were asked; nothing was changed: look at them again")
    take(admission)
    shown = view.admitted(place, admission.changes, registered(place))
    emit(json.dumps(shown) if as_json else view.admitted_text(shown))


def pin(
    directory: PartyFolder,
    files: Annotated[list[Path], Argument(metavar="PEERS.toml...", help="peers.toml, or replies of other parties")],
    drop: Annotated[list[int] | None, Option(metavar="N", help="forget the key of party N, which has left")] = None,
    replace: Annotated[
        bool, Option("--replace", help="take keys that those before them did not sign; ask their owners first")
    ] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Take the public keys of the other parties, after showing their fingerprints; and a new authority."""
    from privadmm.cli.views import members as view
    from privadmm.deploy.federation.setup.pinning import look
    from privadmm.deploy.federation.setup.pinning import pin as take

    pinning = look(directory, files)
    shown = view.pinning(pinning)
    if not as_json:
        emit(view.pinning_text(shown))
    if pinning.suspicious and not replace:
        raise ConfigError(
            f"{', '.join(pinning.suspicious)}: the key before did not sign this one. Ask its owner, and not the "
            "coordinator, whether it is right; then --replace takes it. Nothing was changed"
        )
    if not agreed("Did you compare these with their owners?", yes, as_json):
        raise ConfigError("nothing was changed; --yes takes the keys without asking")
    take(pinning, drop or ())
    if as_json:
        emit(json.dumps(shown))


def rotate(
    directory: Annotated[Path, Argument(metavar="DIRECTORY", help="a party's, or the coordinator's")],
    authority: Annotated[
        bool, Option("--authority", help="at the coordinator: another authority, too; every party has to pin it")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make another node key for a party, or another certificate for the coordinator. Not while a run is under way."""
    from privadmm.cli.views import members as view
    from privadmm.deploy.federation.layout import coordinator_in
    from privadmm.deploy.federation.party import FILE
    from privadmm.deploy.federation.setup import membership

    if (directory / FILE).is_file():
        if authority:
            raise ConfigError("--authority is for the coordinator's directory")
        shown = view.rotated_key(directory, membership.rotate_key(directory))
    else:
        place = coordinator_in(directory)
        if authority:
            membership.rotate_authority(place)
        else:
            membership.rotate_certificate(place)
        shown = view.rotated_certificate(place, authority)
    emit(json.dumps(shown) if as_json else view.steps_text(shown))


def add(
    directory: Federation,
    party: Annotated[int | None, Option(min=0, help="a place that is empty; one more if left out")] = None,
    as_json: AsJson = False,
) -> None:
    """Invite one party more, or another one to a place that is empty."""
    from privadmm.cli.views import members as view
    from privadmm.deploy.federation.layout import coordinator_in
    from privadmm.deploy.federation.setup import membership

    place = coordinator_in(directory)
    shown = view.added(place, membership.add(place, party))
    emit(json.dumps(shown) if as_json else view.steps_text(shown))


def withdraw(
    directory: Federation,
    party: Annotated[int, Argument(metavar="PARTY", help="its number")],
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Let a party go: its key is taken back, and it is in no job any more. What it released stays released."""
    from privadmm.cli.views import members as view
    from privadmm.deploy.federation.layout import coordinator_in
    from privadmm.deploy.federation.setup import membership

    place = coordinator_in(directory)
    if not agreed(f"Take back the key of party {party} for good?", yes, as_json):
        raise ConfigError("nothing was changed; --yes does it without asking")
    seat = membership.withdraw(place, party)
    shown = view.withdrawn(place, seat, registered(place))
    emit(json.dumps(shown) if as_json else view.steps_text(shown))


COMMANDS = (join, admit, pin, rotate, add, withdraw)


def askable(as_json: bool) -> bool:
    """Whether a person can be asked: there is a terminal, and no --json."""
    return not as_json and bool(sys.stdin and sys.stdin.isatty())


def agreed(question: str, yes: bool, as_json: bool) -> bool:
    """Ask a person; False if nobody can be asked. With `yes` nobody is asked."""
    return yes or (askable(as_json) and typer.confirm(question, err=True))


def registered(place: "Coordinator") -> dict[str, list[str]] | None:
    """Register the keys of nodes/ at the SuperLink; None if it is not running: it takes them over when it starts."""
    try:
        from privadmm.deploy.flower.registry import agree
    except ImportError:
        return None
    try:
        return agree(place)
    except (ClusterError, ImportError):
        return None
