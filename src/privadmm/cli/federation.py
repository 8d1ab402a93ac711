"""`privadmm federation`: organisations that train one model and do not trust one another, over Flower."""

import json
import os
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from privadmm.cli import federation_runs
from privadmm.cli.output import AsJson, ConfigFile, emit
from privadmm.config.file import read
from privadmm.errors import ClusterError, ConfigError

app = typer.Typer(no_args_is_help=True, help="Train over organisations that keep their records (Flower).")
for command in federation_runs.COMMANDS:
    app.command()(command)
Directory = Annotated[Path, Argument(metavar="DIRECTORY", help="a party's, with party.toml in it")]


@app.command()
def init(
    config: ConfigFile,
    out: Annotated[Path, Option(help="where to put the coordinator's and the parties' directories")],
    host: Annotated[str, Option(help="where parties reach the coordinator")] = "127.0.0.1",
    port: Annotated[int, Option(min=1024, max=65000, help="of the coordinator; nodes take those after it")] = 9100,
    rehearse: Annotated[
        bool, Option("--rehearse", help="give every party its records of \\[data], to try it on one machine")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write a federation for the job in CONFIG.toml: certificates for a test, keys, policies; say how to start it."""
    from privadmm.cli.views import federation as view
    from privadmm.deploy.federation.init import init as make

    steps = view.commands(make(read(config), out, host, port, rehearse))
    emit(json.dumps(steps) if as_json else view.instructions(steps))


@app.command()
def ledger(directory: Directory, as_json: AsJson = False) -> None:
    """Make the ledger of a party, with the policy that its party.toml has, which it then fixes for good."""
    from privadmm.cli.ledger import show
    from privadmm.deploy.federation.init import with_ledger

    show(with_ledger(directory).ledger, as_json)


@app.command()
def node(directory: Directory) -> None:
    """Start the party's node and keep it up. It runs privadmm's own ClientApp, and no code that comes with a job."""
    from privadmm.deploy.federation.layout import node as command
    from privadmm.deploy.federation.layout import node_environment
    from privadmm.deploy.federation.party import read as read_party
    from privadmm.deploy.federation.supervisor import need_port

    party = read_party(directory)
    need_port("127.0.0.1", party.node.port, "this party's node", "[node] port in party.toml")
    kept_up("the node", directory, [command(party)], node_environment(party))


@app.command()
def superlink(
    directory: Annotated[Path, Argument(metavar="DIRECTORY", help="the coordinator's, with job.toml in it")],
    host: Annotated[str, Option(help="the address of this machine to listen at")] = "127.0.0.1",
) -> None:
    """Start the coordinator's SuperLink and keep it up. It runs the coordinator's own job, and no code that comes
    with a run.
    """
    from privadmm.deploy.federation.layout import Coordinator, superlink_environment
    from privadmm.deploy.federation.supervisor import need_port

    place = Coordinator(directory)
    need_port(host, place.address[1], "this SuperLink", f"the address in {place.flower / 'config.toml'}")
    commands = [place.superlink(host), place.superexec()]
    kept_up("the SuperLink", directory, commands, superlink_environment(place))


def kept_up(what: str, directory: Path, commands: list[list[str]], environment: dict[str, str]) -> None:
    """Run these commands, and start them again if they end, until somebody stops us."""
    from privadmm.deploy.federation.supervisor import keep_up

    try:
        code = keep_up(commands, os.environ | environment)
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
    from privadmm.deploy.federation.doctor import check as look

    checked = look(directory, job)
    emit(json.dumps(view.as_json(checked)) if as_json else view.as_text(checked))
    if not view.good(checked):
        raise typer.Exit(1)
