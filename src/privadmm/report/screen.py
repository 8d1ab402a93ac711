"""What a person sees in the terminal after a command."""

from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from privadmm.demo import Pair
    from privadmm.run import Finished

SIMULATED = "simulation: noise from a seed, to study and not to publish"


def percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.2f} %"


def guarantee(result: dict[str, Any]) -> str:
    if not result["private"]:
        return "[bold red]NOT PRIVATE[/]"
    return f"[bold green]epsilon = {result['epsilon']:.4g}[/], delta = {result['delta']:g} (certified, each party)"


def facts(rows: list[tuple[str, str]]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def show_run(done: "Finished") -> None:
    r = done.result
    rows = [
        ("algorithm", f"{r['algorithm']}, {r['parties']} parties, {r['rounds']} rounds"),
        ("privacy", guarantee(r)),
        (
            "mode",
            SIMULATED if r["mode"] == "simulation" else "deployment: metrics on private data are not shown",
        ),
    ]
    if r["accuracy_train"] is not None:
        rows.append(
            ("accuracy", f"train {percent(r['accuracy_train'])}   test {percent(r['accuracy_test'])}")
        )
    if r["objective"] is not None:
        rows.append(("objective", f"{r['objective']:.8g}   consensus gap {r['gap']:.2g}"))
    rows += [("time", f"{r['seconds']:.1f} s"), ("run directory", r["out"])]
    Console().print(facts(rows))


def show_account(r: dict[str, Any]) -> None:
    rows = [("algorithm", f"{r['algorithm']}, {r['rounds']} rounds")]
    if r["private"]:
        rows += [
            (
                "certified",
                f"[bold green]epsilon = {r['certified']['epsilon']:.4f}[/] at delta = {r['delta']:g}",
            )
        ]
    else:
        rows += [("certified", "[bold red]NOT PRIVATE[/]: no epsilon covers this run")]
    claim = r["published"]
    said = "no claim" if claim["epsilon"] is None else f"epsilon = {claim['epsilon']:.4f}"
    rows += [("published", f"{said} [dim]({claim['caveat']})[/]")]
    Console().print(facts(rows))


def show_demo(pair: "Pair") -> None:
    console = Console()
    private, reference = pair.private.result, pair.reference.result
    table = Table(title="Adult census, 10 parties that share no record", title_justify="left")
    for heading in ("", "privacy", "test accuracy", "objective"):
        table.add_column(heading)
    table.add_row(
        "private model", guarantee(private), percent(private["accuracy_test"]), f"{private['objective']:.4f}"
    )
    table.add_row(
        "non-private model",
        guarantee(reference),
        percent(reference["accuracy_test"]),
        f"{reference['objective']:.4f}",
    )
    table.add_row("always the majority", "-", percent(private["majority_test"]), "-")
    console.print(table)
    spent = Table(title="Each party's own ledger", title_justify="left")
    for heading in ("party", "releases", "epsilon spent", "budget"):
        spent.add_column(heading, justify="right")
    budget = pair.private.ledger["budget"]["epsilon"]
    for party in pair.private.ledger["parties"]:
        releases = sum(event["count"] for event in party["events"])
        spent.add_row(str(party["party"]), str(releases), f"{party['epsilon']:.6f}", f"{budget:g}")
    console.print(spent)
    console.print(f"[dim]{SIMULATED}[/]")
    directory = pair.private.directory
    for what, path in (("convergence", directory.convergence), ("epsilon by round", directory.spending)):
        console.print(f"plot of {what}: {path}", soft_wrap=True)
