"""What `privadmm federation proposals`, `show`, `approve` and `refuse` print."""

from pathlib import Path
from typing import Any

from privadmm.cli.views import screen
from privadmm.cli.views.screen import escape
from privadmm.cli.views.screen import federation_command as command
from privadmm.deploy.federation.steward.page import asks
from privadmm.deploy.federation.steward.words import left
from privadmm.privacy.accounting import printed

COLOURS = {"waiting": "yellow", "approved": "green", "refused": "red", "ended": "dim"}


def coloured(state: str) -> str:
    return f"[{COLOURS[state]}]{state}[/]"


def listed(party: dict[str, Any]) -> str:
    """The party's budget, and its proposals with their codes."""
    budget = party["budget"]
    facts: screen.Facts = [
        ("party", escape(party["name"])),
        ("budget", party["hidden"] and f"cannot be shown {party['hidden']}" if budget is None else spent(budget)),
        ("problem", screen.alarm(party["problem"])),
        ("approval", asked(party["approve"])),
        ("proposals", None if party["proposals"] or party["hidden"] else "none waits"),
    ]
    parts: list[Any] = [screen.rows(facts)]
    for proposal in party["proposals"]:
        total = proposal.get("epsilon")
        cost = "" if total is None else f", epsilon {printed(total)}"
        what = "cannot be read"
        if "algorithm" in proposal:
            what = f"{asks(proposal)}{proposal['algorithm']}, {proposal['rounds']} rounds{cost}"
        line = f"{coloured(proposal['state'])}  {escape(what)}, asked for since {proposal['first']}"
        parts.append(screen.rows([(proposal["code"], line), ("", screen.alarm(proposal["problem"]))]))
    if party["proposals"]:
        look = command("show", party["directory"], party["proposals"][0]["code"])
        parts.append(screen.rows([("look at one", Path(look))]))
    return screen.shown(*parts)


def spent(budget: dict[str, Any]) -> str:
    used = "more than any" if budget["spent"] is None else printed(budget["spent"])
    aside = budget["set_aside"]
    return (
        f"epsilon {budget['epsilon']:g} at delta {budget['delta']:g}: {used} spent, "
        f"{'an unknown part' if aside is None else printed(aside)} set aside, {left(budget['left'])} left"
    )


def asked(approve: str) -> str:
    if approve == "ask":
        return "every job waits until you say yes"
    return f'nobody is asked: \\[policy] approve = "{approve}" in party.toml'


def proposal(directory: str, entry: dict[str, Any]) -> str:
    """A proposal in plain words, and how to decide about it."""
    code, decided = entry["code"], entry["decided"]
    facts: screen.Facts = [
        ("proposal", Path(code)),
        ("state", coloured(entry["state"])),
        ("job", Path(entry["job"])),
        ("asked for", f"first {entry['first']}, last {entry['last']}"),
        ("decided", None if decided is None else said(decided)),
        ("problem", screen.alarm(entry["problem"])),
        *((sentence["about"], escape(sentence["says"])) for sentence in entry["sentences"]),
    ]
    text = [("its config", Path(line)) if not number else ("", Path(line)) for number, line in lines(entry["text"])]
    yes = command("approve", directory, code)
    no = command("refuse", directory, code, "--why", "...")
    return screen.shown(screen.rows([*facts, *text, ("say yes", Path(yes)), ("say no", Path(no))]))


def lines(text: str) -> list[tuple[int, str]]:
    return list(enumerate(line for line in text.split("\n") if line.strip()))


def said(decided: dict[str, Any]) -> str:
    what = "approved" if decided["approved"] else "refused"
    why = f": {escape(decided['why'])}" if decided["why"] else ""
    told = " (the coordinator is told why)" if decided["told"] else ""
    return f"{what} at {decided['at']}, until {decided['until']}{why}{told}"


def decision(entry: dict[str, Any]) -> str:
    """What was decided, once it is on record."""
    return screen.shown(screen.rows([(entry["code"], said(entry["decided"]))]))
