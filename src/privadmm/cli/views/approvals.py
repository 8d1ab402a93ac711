"""What `privadmm federation proposals`, `show`, `approve` and `refuse` print."""

import shlex
from pathlib import Path
from typing import Any

from privadmm.cli.views import screen
from privadmm.cli.views.screen import escape
from privadmm.deploy.federation.steward.page import asks
from privadmm.deploy.federation.steward.words import left
from privadmm.privacy.accounting import printed

COLOURS = {"waiting": "yellow", "approved": "green", "refused": "red", "ended": "dim"}


def coloured(state: str) -> str:
    return f"[{COLOURS[state]}]{state}[/]"


def listed(found: dict[str, Any]) -> str:
    """The party's budget, and its proposals with their codes."""
    budget = found["budget"]
    facts: screen.Facts = [
        ("party", escape(found["name"])),
        ("budget", found["hidden"] and f"cannot be shown {found['hidden']}" if budget is None else spent(budget)),
        ("problem", screen.alarm(found["problem"])),
        ("approval", asked(found["approve"])),
        ("proposals", None if found["proposals"] or found["hidden"] else "none waits"),
    ]
    parts: list[Any] = [screen.rows(facts)]
    for one in found["proposals"]:
        total = one.get("epsilon")
        cost = "" if total is None else f", epsilon {printed(total)}"
        what = "cannot be read"
        if "algorithm" in one:
            what = f"{asks(one)}{one['algorithm']}, {one['rounds']} rounds{cost}"
        line = f"{coloured(one['state'])}  {escape(what)}, asked for since {one['first']}"
        parts.append(screen.rows([(one["code"], line), ("", screen.alarm(one["problem"]))]))
    if found["proposals"]:
        look = shlex.join(["privadmm", "federation", "show", found["directory"], found["proposals"][0]["code"]])
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


def proposal(directory: str, found: dict[str, Any]) -> str:
    """A proposal in plain words, and how to decide about it."""
    code, decided = found["code"], found["decided"]
    facts: screen.Facts = [
        ("proposal", Path(code)),
        ("state", coloured(found["state"])),
        ("job", Path(found["job"])),
        ("asked for", f"first {found['first']}, last {found['last']}"),
        ("decided", None if decided is None else said(decided)),
        ("problem", screen.alarm(found["problem"])),
        *((one["about"], escape(one["says"])) for one in found["sentences"]),
    ]
    text = [("its config", Path(line)) if not number else ("", Path(line)) for number, line in lines(found["text"])]
    yes = shlex.join(["privadmm", "federation", "approve", directory, code])
    no = shlex.join(["privadmm", "federation", "refuse", directory, code, "--why", "..."])
    return screen.shown(screen.rows([*facts, *text, ("say yes", Path(yes)), ("say no", Path(no))]))


def lines(text: str) -> list[tuple[int, str]]:
    return list(enumerate(line for line in text.split("\n") if line.strip()))


def said(decided: dict[str, Any]) -> str:
    what = "approved" if decided["approved"] else "refused"
    why = f": {escape(decided['why'])}" if decided["why"] else ""
    told = " (the coordinator is told why)" if decided["told"] else ""
    return f"{what} at {decided['at']}, until {decided['until']}{why}{told}"


def decision(found: dict[str, Any]) -> str:
    """What was decided, once it is on record."""
    return screen.shown(screen.rows([(found["code"], said(found["decided"]))]))
