"""`privadmm recommend` and `privadmm frontier`: what a budget can buy, from public facts. Neither touches data."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click
import typer

from privadmm.cli.output import AsJson, emit, numbers

if TYPE_CHECKING:
    from privadmm.runs.recommend import Facts

Config = Annotated[
    Path | None, typer.Argument(metavar="[CONFIG.toml]", help="take the facts from it; or give them below")
]
Records = Annotated[int | None, typer.Option(min=1, help="how many to train on, at all parties together")]
Parties = Annotated[int | None, typer.Option(min=1, help="how many, if there is no config")]
Epsilon = Annotated[float | None, typer.Option(help="what each party may lose; the config's if left out")]
Delta = Annotated[float | None, typer.Option(help="with what probability it may be more; 1e-6 without a config")]
Signal = Annotated[
    float | None,
    typer.Option(help="how much labels say about features, between 0 and 1; 1/6 if left out"),
]


def recommend(
    config: Config = None,
    records: Records = None,
    parties: Parties = None,
    epsilon: Epsilon = None,
    delta: Delta = None,
    signal: Signal = None,
    as_json: AsJson = False,
) -> None:
    """Recommend method, rounds and encoding for two classes, and say whether data of this size can stand the noise."""
    from privadmm.runs.recommend import SIGNAL
    from privadmm.runs.recommend import recommend as advise

    found = advise(known(config, records, parties, epsilon, delta), SIGNAL if signal is None else signal).table
    if as_json:
        emit(json.dumps(found))
    else:
        from privadmm.cli.views import advice

        emit(advice.recommendation(found))


def frontier(
    config: Config = None,
    records: Records = None,
    parties: Parties = None,
    delta: Delta = None,
    signal: Signal = None,
    epsilons: Annotated[str | None, typer.Option(help="which to look at, as 0.1,0.5,1; 0.05 to 10 if left out")] = None,
    out: Annotated[Path | None, typer.Option(help="where to put frontier.json and frontier.png")] = None,
    as_json: AsJson = False,
) -> None:
    """Show how noise against signal falls as epsilon grows. An estimate for two classes from public facts."""
    from privadmm.runs.recommend import GRID, SIGNAL
    from privadmm.runs.recommend import frontier as trace

    grid = numbers("--epsilons", epsilons, float) or GRID
    facts = known(config, records, parties, 1.0, delta)  # an epsilon for each point comes in its place
    found = trace(facts, grid, SIGNAL if signal is None else signal)
    if out is not None:
        from privadmm.cli.views.advice import save

        out.mkdir(parents=True, exist_ok=True)
        save(found, out)
    if as_json:
        emit(json.dumps(found))
    else:
        from privadmm.cli.views import advice

        emit(advice.frontier(found, out))


def known(
    config: Path | None, records: int | None, parties: int | None, epsilon: float | None, delta: float | None
) -> "Facts":
    """The facts of a config, or those of the options."""
    from privadmm.runs.recommend import Facts

    if config is not None:
        from privadmm.config.file import read
        from privadmm.runs.preview import facts

        if parties is not None:
            raise click.UsageError("--parties goes without a config, which says how many there are")
        return facts(read(config), records, epsilon, delta)
    if records is None or parties is None or epsilon is None:
        raise click.UsageError("give a CONFIG.toml, or --records, --parties and --epsilon")
    return Facts(records, (epsilon,) * parties, 1e-6 if delta is None else delta)
