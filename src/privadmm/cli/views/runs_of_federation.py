"""What `privadmm federation run`, `status`, `logs` and `rehearse` print."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from privadmm.algorithms.evaluation_noise import accuracy_words
from privadmm.cli.views import screen
from privadmm.cli.views.screen import Facts, duration, escape
from privadmm.deploy.federation.hub.state import UNHEARD
from privadmm.engine.guarantees import less_than_asked
from privadmm.errors import apart
from privadmm.privacy.accounting import printed

if TYPE_CHECKING:
    from rich.console import Group

COLOURS = {"finished": "green", "failed": "bold red", "stopped": "yellow", "interrupted": "bold red"}
STATES = {
    "left": "red",
    "refused": "red",
    "locked": "red",
    "failed": "red",
    "answered": "green",
    "asked": "yellow",
    UNHEARD: "yellow",
    "waits for its steward": "yellow",
    "not there": "yellow",
}
MAY_HAVE_SPENT = (
    "Who was asked and not heard may have answered, and paid for that as is shown, or not: its own ledger knows. "
    "`run --resume` takes that answer, and it costs nothing again."
)


def headline(status: dict[str, Any]) -> str:
    """Where a run stands, in one line."""
    state, where = status.get("state"), Path(str(status.get("out", ""))).name
    if state is None:
        return "no run was started here yet"
    parts = [f"{where}: {state}"]
    if status.get("rounds"):
        parts.append(where_of(status["round"], status["rounds"]))
    elif state in ("running", "starting"):
        parts.append(str(status.get("at")))
    if state == "running" and status.get("seconds_left"):
        parts.append(f"{duration(status['seconds_left'])} left")
    if state == "running" and status.get("waiting_for"):
        at = str(status.get("at"))
        waits = at if at.startswith("waiting for approval") else f"waiting for {few(status['waiting_for'])}"
        parts += [] if waits in parts else [waits]
    if state != "running" and status.get("message"):
        parts.append(str(status["message"]))
    if state == "interrupted":
        parts.append(
            "it is taken up again by itself while `privadmm federation superlink` is up"
            if status.get("wanted")
            else "resume it with `privadmm federation run --resume`"
        )
    return "; ".join([", ".join(parts[:3]), *parts[3:]])


def milestone(status: dict[str, Any]) -> str:
    """The headline at the last full tenth of the rounds, without the parts that change with every answer."""
    steady = {**status, "waiting_for": [], "seconds_left": None}
    done, rounds = status.get("round") or 0, status.get("rounds") or 0
    if done < rounds:
        steady["round"] = -(-(done * 10 // rounds) * rounds // 10)
    return headline(steady)


def where_of(done: int, rounds: int) -> str:
    return f"round {done} of {rounds} is done" if done else f"before round 1 of {rounds}"


def few(names: list[str]) -> str:
    return ", ".join(map(apart, names[:4])) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def live(status: dict[str, Any]) -> "Group":
    """The headline and the table of parties, for a terminal that is redrawn."""
    from rich.console import Group
    from rich.text import Text

    colour = COLOURS.get(str(status.get("state")), "")
    parts: list[Any] = [Text(headline(status), style=colour)]
    if status.get("evaluation") and status.get("state") not in ("finished", "failed", "stopped"):
        parts.append(Text(f"its private evaluation will know the {accuracy_words(status['evaluation'])}"))
    if status.get("parties"):
        parts.append(parties(status))
        if any(party["state"] == UNHEARD for party in status["parties"]):
            parts.append(Text(MAY_HAVE_SPENT))
    return Group(*parts)


def parties(status: dict[str, Any]) -> Any:
    rows = [
        (
            escape(party["name"]),
            f"[{STATES[party['state']]}]{party['state']}[/]" if party["state"] in STATES else escape(party["state"]),
            "-" if party["epsilon_spent"] is None else printed(party["epsilon_spent"]),
            screen.number(party["epsilon_left"]),
        )
        for party in status["parties"]
    ]
    columns = ("party", "state", "epsilon of this job, spent at most", "still to spend")
    return screen.table("", columns, rows, left=("party", "state"))


def shown(status: dict[str, Any]) -> str:
    """Headline and table as text, drawn once."""
    return screen.shown(live(status))  # type: ignore[arg-type]


def finished(status: dict[str, Any], result: dict[str, Any]) -> str:
    """The end of a run that has a result."""
    facts: Facts = [
        ("finished", f"{result['rounds']} rounds in {duration(result['seconds'])}"),
        ("epsilon", None if result["epsilon"] is None else f"{printed(result['epsilon'])} for each party at most"),
        ("less than asked", less_than_asked(result.get("secure_sum") or {})),
        ("transcript", str(result["transcript"])),
    ]
    for gone in result.get("absent", ()):
        facts.append(("left", escape(f"party {gone['party']} from round {gone['from_round']} on: {gone.get('why')}")))
    return screen.shown(screen.rows([*facts, ("run directory", Path(str(status["out"])))]))


def line(event: dict[str, Any]) -> str:
    """A line of the log, for people."""
    rest = {key: value for key, value in event.items() if key not in ("at", "event") and value not in (None, "")}
    more = " ".join(f"{key}={value}" for key, value in rest.items())
    return f"{event.get('at')}  {event.get('event')}" + (f"  [{more}]" if more else "")


def rehearsal(done: dict[str, Any]) -> str:
    """The outcome of a rehearsal."""
    a_round, memory = done["seconds_a_round"], done["memory_a_node_mb"]
    facts: Facts = [
        ("parties", f"{done['parties']}, each with a node of its own, on this machine"),
        (
            "start-up",
            f"{done['nodes_seconds']:.1f} s until all nodes were up, {done['startup_seconds']:.1f} s until all parties "
            "had set the cost aside",
        ),
        ("a round", None if a_round is None else f"{a_round:.2f} s ({done['rounds']} rounds)"),
        ("memory", None if memory is None else f"{memory:.0f} MB for a node, its processes included, at most"),
        ("letters", f"{done['letters']}, of which {done['repeats']} were sent again"),
        ("ledgers", "[green]hold what the run received[/]" if done["ledgers_good"] else screen.alarm("DIFFER")),
        ("transcripts", compared(done["same_transcript"])),
        ("all in", Path(done["out"])),
    ]
    return screen.shown(screen.rows(facts))


def compared(same: bool | None) -> str | None:
    if same is None:
        return "not compared: a deployment draws secure noise, which no second run repeats"
    return (
        "[green]the same as in one process, bit for bit[/]" if same else screen.alarm("NOT the same as in one process")
    )
