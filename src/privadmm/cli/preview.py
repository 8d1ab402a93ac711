"""`privadmm account`, `plan` and `audit`: what a job costs, before it runs. None of them reads a file of records."""

import json
from typing import Annotated

import typer

from privadmm.cli.output import AsJson, ConfigFile, bar, emit

Records = Annotated[
    int | None,
    typer.Option(
        min=1, help="how many to train on, dealt out evenly over all parties, where \\[parties] sizes is not declared"
    ),
]


def account(config: ConfigFile, records: Records = None, as_json: AsJson = False) -> None:
    """Say what CONFIG.toml costs each party, certified and as published: what train will charge. Reads no file of
    records."""
    from privadmm.cli.views import jobs
    from privadmm.config.build import allowance
    from privadmm.config.file import read
    from privadmm.runs.preview import account as cost

    chosen = read(config)
    result = cost(chosen, records)
    emit(json.dumps(result) if as_json else jobs.account(result, allowance(chosen)))


def plan(
    config: ConfigFile,
    epsilon: Annotated[float, typer.Option(help="what each party may lose in all")],
    delta: Annotated[float, typer.Option(help="with what probability it may be more")],
    records: Records = None,
    as_json: AsJson = False,
) -> None:
    """Say what noise CONFIG.toml needs for this budget, what each party spends by round, and whether data of this
    size can stand it. Reads no file of records."""
    from privadmm.cli.views import jobs
    from privadmm.config.file import read
    from privadmm.runs.preview import planned

    result = planned(read(config), epsilon, delta, records)
    emit(json.dumps(result) if as_json else jobs.plan(result))


def audit(
    config: ConfigFile,
    trials: Annotated[int, typer.Option(min=1000, help="games on each of the two data sets")] = 400_000,
    records: Records = None,
    as_json: AsJson = False,
) -> None:
    """Attack the algorithm of CONFIG.toml, and planted bugs beside it; say what epsilon the attack proves."""
    from privadmm.cli.views import jobs
    from privadmm.config.file import read
    from privadmm.runs.preview import audited

    with bar("games") as update:
        result = audited(read(config), trials, update, records)
    emit(json.dumps(result) if as_json else jobs.audit(result))
