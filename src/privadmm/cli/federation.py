"""`privadmm federation`: organisations that train one model and do not trust one another, over Flower."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from privadmm.cli import federation_members as members
from privadmm.cli import federation_runs, steward
from privadmm.cli.output import AsJson, ConfigFile, PartyFolder, emit, say, warn
from privadmm.config.file import override, read
from privadmm.errors import ClusterError, ConfigError

if TYPE_CHECKING:
    from privadmm.deploy.federation.layout import Coordinator

app = typer.Typer(no_args_is_help=True, help="Train over organisations that keep their records (Flower).")
for command in (*members.COMMANDS, *federation_runs.COMMANDS, *steward.COMMANDS):
    app.command()(command)
Health = Annotated[int | None, Option(min=1, max=65535, metavar="PORT", help="answer /healthz on 127.0.0.1 here")]
Metrics = Annotated[Path | None, Option(metavar="FILE.prom", help="keep a textfile for Prometheus here")]


@app.command()
def init(
    config: ConfigFile,
    out: Annotated[Path, Option(help="where to put the coordinator's directory")],
    host: Annotated[str, Option(help="the name or address under which parties reach the coordinator")] = "127.0.0.1",
    port: Annotated[int, Option(min=1024, max=65000, help="of the coordinator; nodes take those after it")] = 9100,
    listen: Annotated[
        str | None, Option(help="the address of this machine to listen at; if left out, all, or loopback for a test")
    ] = None,
    rehearse: Annotated[
        bool, Option("--rehearse", help="make every party here, with its records of \\[data], to try it on one machine")
    ] = False,
    simulation: Annotated[
        bool, Option("--simulation", help="keep a simulation's seed, to study: nobody's records are protected")
    ] = False,
    purpose: Annotated[str | None, Option(help="what the job is for, in place of the file's")] = None,
    requester: Annotated[str | None, Option(help="who asks for it, in place of the file's")] = None,
    as_json: AsJson = False,
) -> None:
    """Write the coordinator's directory for the job in CONFIG.toml, and an invitation for each party.

    A config that simulates, as `privadmm init` writes it, becomes a deployment; the output lists what changes.
    """
    from privadmm.cli.views import federation as view
    from privadmm.deploy.federation.setup.deployed import deployed, differences
    from privadmm.deploy.federation.setup.init import init as make

    asked = override(read(config), purpose=purpose, requester=requester)
    job = asked if rehearse or simulation else deployed(asked)
    made = make(job, out, host, port, rehearse, listen)
    changed = [] if rehearse else [vars(difference) for difference in differences(asked, read(made.coordinator.job))]
    steps = {"mode": job.run.mode, "changed": changed, **view.commands(made)}
    emit(json.dumps(steps) if as_json else view.instructions(steps))
    warn(made.weak_promise, made.weak_delta)
    if job.run.mode == "simulation" and not rehearse and not as_json:
        say(view.SIMULATION)


@app.command()
def ledger(
    directory: PartyFolder,
    amend: Annotated[
        bool, Option("--amend", help="put the policy of party.toml in the place of the ledger's; spending stays")
    ] = False,
    anew: Annotated[
        bool, Option("--anew", help="make one for records that have had a ledger, which forgets what was spent")
    ] = False,
    because: Annotated[str | None, Option(help="why; it is kept in the ledger")] = None,
    as_json: AsJson = False,
) -> None:
    """Make the ledger of a party, with the policy that its party.toml has; or amend the policy of the one it has."""
    from privadmm.cli.ledger import show
    from privadmm.deploy.federation.setup.joining import amended, with_ledger

    if amend and anew:
        raise ConfigError("--amend keeps the ledger and --anew makes another: say one of them")
    if (amend or anew) and not (because or "").strip():
        raise ConfigError("--amend and --anew need --because, which is kept in the ledger")
    party = amended(directory, because or "") if amend else with_ledger(directory, because if anew else None)
    show(party.ledger, as_json)
    warn(*party.fixed.warnings(party.party.records))


@app.command()
def node(directory: PartyFolder, health: Health = None, metrics: Metrics = None) -> None:
    """Start the party's node and keep it up. It runs privadmm's own ClientApp, and no code that comes with a job."""
    from privadmm.deploy.federation.hub.running import marked
    from privadmm.deploy.federation.hub.supervisor import need_port
    from privadmm.deploy.federation.keys import check_node_key
    from privadmm.deploy.federation.layout import node as command
    from privadmm.deploy.federation.layout import node_environment
    from privadmm.deploy.federation.party import read as read_party
    from privadmm.deploy.federation.setup import health as watch
    from privadmm.deploy.federation.setup.joining import need_ledger

    party = read_party(directory)
    check_node_key(directory / party.node.key)
    need_ledger(party)
    with marked(directory):
        need_port("127.0.0.1", party.node.port, "this party's node", "[node] port in party.toml")
        watched(lambda: watch.of_party(party), health, metrics)
        # The coordinator may admit the key at any time, so a node is never given up.
        hint = f"`privadmm federation check {directory}` says what is wrong"
        kept_up("the node", directory, [command(party)], node_environment(party), hint)


@app.command()
def superlink(
    directory: Annotated[Path, Argument(metavar="DIRECTORY", help="the coordinator's, with job.toml in it")],
    host: Annotated[
        str | None, Option(help="the address of this machine to listen at; as coordinator.toml says, if left out")
    ] = None,
    health: Health = None,
    metrics: Metrics = None,
) -> None:
    """Start the coordinator's SuperLink and keep it up, and let the parties' nodes in. It runs the coordinator's own
    job, and no code that comes with a run.
    """
    from privadmm.deploy.federation.hub.running import Registrar, marked
    from privadmm.deploy.federation.hub.supervisor import need_port
    from privadmm.deploy.federation.layout import coordinator_in, dialled, superlink_environment
    from privadmm.deploy.federation.setup import health as watch

    place = coordinator_in(directory)
    reached = place.reached
    at = host or reached.listen
    with marked(place.folder):
        need_port(at, reached.port, "this SuperLink", f"port in {place.settings}")
        if place.settings.exists():
            place.connect(dialled(at, reached.host), reached.port)
        commands, environment = [place.superlink(at), place.superexec()], superlink_environment(place)
        watched(lambda: watch.of_coordinator(place), health, metrics)
        Registrar(place, os.environ | environment).start()
        kept_up("the SuperLink", place.folder, commands, environment, announce=lambda: listening(place, at))


def listening(place: "Coordinator", at: str) -> bool:
    """Announce where the SuperLink listens and by which authority; False as long as it does not listen."""
    from privadmm.deploy.federation.hub.state import note
    from privadmm.deploy.federation.hub.supervisor import reachable
    from privadmm.deploy.federation.keys import certificate_fingerprint

    if not reachable(*place.address):
        return False
    reached, mark = place.reached, certificate_fingerprint((place.certificates / "ca.pem").read_bytes())
    where = f"{at}:{reached.port}"
    say(f"privadmm: the SuperLink listens at {where}; parties reach it at {reached.address}, with the authority {mark}")
    note(place, "listening", listen=where, address=reached.address, authority=mark)
    return True


def watched(facts: Callable[[], dict[str, Any]], health: int | None, metrics: Path | None) -> None:
    """Serve /healthz and write the textfile for Prometheus, where asked for."""
    from privadmm.deploy.federation.setup import health as watch

    if health is not None:
        watch.serve(health, facts)
    if metrics is not None:
        watch.export(metrics, facts)


def kept_up(
    what: str,
    directory: Path,
    commands: list[list[str]],
    environment: dict[str, str],
    hint: str = "",
    announce: Callable[[], bool] | None = None,
) -> None:
    """Run these commands until a signal, and start each again when it ends; with a `hint`, never give one up."""
    from privadmm.deploy.federation.hub.supervisor import keep_up

    try:
        code = keep_up(commands, os.environ | environment, bool(hint), hint, announce)
    except FileNotFoundError:
        raise ConfigError("Flower is not installed: pip install 'privadmm[flower]'") from None
    if code:
        raise ClusterError(f"{what} does not stay up (exit code {code}): see `privadmm federation check {directory}`")


@app.command()
def check(
    directory: Annotated[
        Path, Argument(metavar="DIRECTORY", help="a party's, the coordinator's, or the folder of all")
    ],
    job: Annotated[Path | None, Option(metavar="JOB.toml", help="read the party's records as this job would")] = None,
    as_json: AsJson = False,
) -> None:
    """Look at everything that a federation needs: policy, records, ledger, keys, certificates, ports, versions."""
    from privadmm.cli.views import federation as view
    from privadmm.deploy.federation.setup.doctor import check as look

    checked = look(directory, job)
    emit(json.dumps(view.as_json(checked)) if as_json else view.as_text(checked))
    if not view.good(checked):
        raise typer.Exit(1)


# The order of the help: to try a federation, set it up, run it, decide about jobs, change who takes part.
ORDER = (
    *("rehearse", "init", "join", "admit", "pin", "ledger", "check", "superlink", "node"),
    *("run", "status", "logs", "stop", "proposals", "show", "approve", "refuse", "rotate", "add", "withdraw"),
)
RANK = {name: number for number, name in enumerate(ORDER)}
app.registered_commands.sort(key=lambda info: RANK.get(getattr(info.callback, "__name__", ""), len(ORDER)))
