"""A ledger as its steward sees it: policy, jobs, spending, and what a check found."""

import json
import math
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from privadmm.cli.views.screen import Facts, alike, shown
from privadmm.cli.views.screen import rows as table
from privadmm.errors import LedgerError
from privadmm.privacy.accounting import epsilon, printed
from privadmm.privacy.events import Spent, merge
from privadmm.privacy.ledger_file import connect, identity_of, readable
from privadmm.privacy.sqlite_ledger import SqliteLedger
from privadmm.privacy.verification import Verification, sound

Json = dict[str, Any]


def opened(path: Path) -> SqliteLedger:
    """A ledger in which everything fits; none is shown or changed in which something does not."""
    sound(path)
    known = identity_of(path)
    if known is None:
        raise LedgerError(f"{path}: there is no ledger there")
    return SqliteLedger(path, known.parties, known.policy, known.mode)


def cost(spent: Spent, delta: float | None) -> float | None:
    """null where no epsilon can be given."""
    total = math.inf if delta is None else epsilon(spent, delta)
    return total if math.isfinite(total) else None


def overview(path: Path) -> Json:
    with closing(opened(path)) as ledger:
        resting, failures = ledger.settle(), ledger.failures()
        budget = ledger.policy.budget
        delta = None if budget is None else budget.delta
        jobs = []
        for name in ledger.jobs():
            set_aside = [merge(ledger.reserved(party, name) or (), ()) for party in ledger.ids]
            spent = [ledger.spent(party, name) for party in ledger.ids]
            latest = ledger.latest(name)
            jobs.append(
                {
                    "job": name,
                    "state": state(ledger, name, failures),
                    "rounds": 0 if latest is None else latest[0].round + 1,
                    "epsilon_spent": worst([cost(one, delta) for one in set(spent)]),
                    "epsilon_set_aside": worst([cost(one, delta) for one in set(set_aside)]),
                }
            )
        parties = [
            {
                "party": party,
                "epsilon_spent": cost(ledger.spent(party), delta),
                "epsilon_with_reservations": cost(ledger.others(party, ""), delta),
                "releases": sum(count for _, count in ledger.spent(party)),
            }
            for party in ledger.ids
        ]
        return {
            "file": str(path),
            "mode": ledger.identity.mode,
            "adjacency": ledger.policy.adjacency,
            "policy": asdict(ledger.policy),
            "head": ledger.head,
            "locked": locked(ledger),
            "at_work": not resting,
            "kept": [one.as_dict() for one in ledger.keepsakes()],
            "jobs": jobs,
            "parties": parties,
        }


def state(ledger: SqliteLedger, job: str, failures: set[str]) -> str:
    """Of a failed job nothing certified is said: which of its steps failed may tell of records."""
    if job in failures:
        return "failed"
    if ledger.over(job):
        return "closed"
    whole = all(ledger.spent(party, job) == (ledger.reserved(party, job) or ()) for party in ledger.ids)
    return "finished" if whole else "open"


def locked(ledger: SqliteLedger) -> Json | None:
    """The tick that failed and locked the ledger, with what only its steward is told."""
    tick = ledger.failed
    return None if tick is None else {**asdict(tick), "why": ledger.why}


def worst(costs: list[float | None]) -> float | None:
    finite = [one for one in costs if one is not None]
    return max(finite) if len(finite) == len(costs) and finite else None


def rows(path: Path) -> Json:
    sound(path)
    with readable(path), closing(connect(path, read_only=True)) as db:
        facts = {fact: json.loads(value) for fact, value in db.execute("SELECT fact, value FROM identity")}
        found = db.execute("SELECT seq, kind, job, round, phase, inbox, charges, hash FROM ticks ORDER BY seq")
        names = ("seq", "kind", "job", "round", "phase", "inbox", "charges", "hash")
        listed = [dict(zip(names, row, strict=True)) for row in found]
    for row in listed:
        row["charges"] = [
            {"parties": parties, "events": [{**json.loads(event), "count": count} for event, count in charge]}
            for parties, charge in json.loads(row["charges"])
        ]
        if row["kind"] == "keep":
            row["name"], row["inbox"] = row["inbox"], ""
    return {"file": str(path), "identity": facts, "rows": listed}


def shown_cost(value: float | None) -> str:
    return "[bold red]not private[/]" if value is None else printed(value, ".6g")


def as_text(found: Json) -> str:
    policy, budget = found["policy"], found["policy"]["budget"]
    facts: Facts = [("ledger", Path(found["file"])), ("mode", found["mode"])]
    if budget is None:
        facts.append(("budget", "none: nothing here is private"))
    else:
        facts.append(("budget", f"epsilon = {budget['epsilon']:g} at delta = {budget['delta']:g} for each party"))
        facts.append(("adjacency", found["adjacency"]))
    if policy["label_epsilon"] is not None:
        facts.append(("labels", f"randomised once for all jobs, epsilon = {policy['label_epsilon']:g}"))
    if policy["per_job"] is not None:
        facts.append(("per job", f"epsilon = {policy['per_job']:g}"))
    if policy["algorithms"] is not None:
        facts.append(("algorithms", ", ".join(policy["algorithms"])))
    if policy["row_bound"] is not None:
        facts.append(("row bound", f"{policy['row_bound']:g}"))
    if policy["limits"] is not None:
        facts.append(("limits", ", ".join(f"{name} {value:g}" for name, value in policy["limits"].items())))
    if (failed := found["locked"]) is not None:
        last = failed["why"].strip().splitlines()[-1:] or [""]
        facts.append(("LOCKED", f"round {failed['round'] + 1} of job {failed['job']} failed: {last[0]}"))
    if found["at_work"]:
        facts.append(("now", "a process is in the middle of a step"))
    for one in found["kept"]:
        owner = "all jobs" if one["job"] is None else f"job {one['job']}"
        facts.append(("drawn once", f"{one['name']}, for {owner}; it left to the party's own server only"))
    for job in found["jobs"]:
        spent, aside = shown_cost(job["epsilon_spent"]), shown_cost(job["epsilon_set_aside"])
        facts.append(
            (
                f"job {job['job']}",
                f"{job['state']}, {job['rounds']} rounds, epsilon {spent} spent of {aside} set aside",
            )
        )
    for label, spent, releases in alike(found["parties"], "epsilon_spent", "releases"):
        facts.append((label, f"{releases} releases, epsilon {shown_cost(spent)}"))
    facts.append(("head", found["head"]))
    return shown([table(facts)])


def verification(path: Path, found: Verification, against: Path | None) -> Json:
    return {
        "file": str(path),
        "ok": not found.problems,
        "rows": found.rows,
        "head": found.head,
        "against": None if against is None else str(against),
        "problems": list(found.problems),
        "adjacency": found.adjacency,
        "epsilon": {str(party): total if math.isfinite(total) else None for party, total in found.epsilon.items()},
    }


def verified(report: Json) -> str:
    whose = ", OR OF ANOTHER RUN" if report["against"] else ""
    verdict = "[bold green]everything fits[/]" if report["ok"] else f"[bold red]TAMPERED WITH OR DAMAGED{whose}[/]"
    facts: Facts = [("ledger", Path(report["file"])), ("rows", str(report["rows"])), ("verdict", verdict)]
    facts += [("problem", problem) for problem in report["problems"]]
    totals = [{"party": party, "epsilon": total} for party, total in report["epsilon"].items()]
    facts += [
        (label, f"epsilon {shown_cost(total)}, {report['adjacency']}")
        for label, total, _ in alike(totals, "epsilon", "epsilon")
    ]
    return shown([table([*facts, ("head", report["head"])])])
