"""A ledger as its steward sees it: policy, jobs, spending, and the result of a check."""

import json
import math
from contextlib import closing
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

from privadmm.cli.views import screen
from privadmm.cli.views.ledger_text import colluded, shown_cost
from privadmm.data.files import finite
from privadmm.errors import LedgerError
from privadmm.privacy.accounting import certified, largest_next
from privadmm.privacy.backups import Restored
from privadmm.privacy.events import SharedGaussian, Spent, alone, less, merge, merge_all, tables
from privadmm.privacy.ledger_file import (
    PUT_BACK,
    connect,
    current,
    identity_of,
    moment,
    readable,
    start_of,
    time_in,
    unpack_charges,
)
from privadmm.privacy.policy import Budget
from privadmm.privacy.refusals import SALT
from privadmm.privacy.register import Entry, register
from privadmm.privacy.sqlite_ledger import SqliteLedger
from privadmm.privacy.verification import Verification, sound, verify
from privadmm.runs.metrics import amount

Json = dict[str, Any]
COLUMNS = ("seq", "kind", "job", "round", "phase", "inbox", "charges", "hash")


def opened(path: Path, anchored: bool = True) -> SqliteLedger:
    """Open a ledger whose rows verify. One that fails verification is neither shown nor changed."""
    sound(path)
    known = identity_of(path)
    if known is None:
        raise LedgerError(f"{path}: there is no ledger there")
    return SqliteLedger(path, known.parties, known.policy, known.mode, anchored)


def worst(spendings: list[Spent], delta: float | None) -> float | None:
    """The largest epsilon of several parties; None if a party has no epsilon, since nothing bounds its loss."""
    costs = [certified(spent, delta) for spent in set(spendings)]
    known = [total for total in costs if total is not None]
    return max(known, default=None) if len(known) == len(costs) else None


def in_sums(spendings: list[Spent]) -> Json:
    """The parties of a job's secure sums, and how many of them may collude; empty if it has no secure sums."""
    shared = [event for spent in spendings for event, _ in spent if isinstance(event, SharedGaussian)]
    return {"secure_sum": {"parties": shared[0].parties, "colluding": shared[0].colluding}} if shared else {}


def if_all_collude(spendings: list[Spent], delta: float | None) -> Json:
    """What was spent if all others in every secure sum colluded with the coordinator; empty without secure sums."""
    if not any(alone(spent) for spent in spendings):
        return {}
    return {"epsilon_if_all_others_collude": worst([alone(spent) or spent for spent in spendings], delta)}


def overview(path: Path) -> Json:
    """What `ledger show` tells, as data."""
    checked = verify(path)
    behind = checked.behind or ("its anchor is not beside it" if checked.unanchored else None)
    with closing(opened(path, anchored=behind is None)) as ledger:
        # A ledger that is behind its anchor is not changed: its steward may still put the right file back.
        resting, failures = behind is not None or ledger.settle(), ledger.failures()
        silent, kept = ledger.silent(), register(path)
        entries = {entry.job: entry for entry in kept.entries}
        budget, failed = ledger.policy.budget, ledger.failed
        delta = None if budget is None else budget.delta
        jobs = []
        for name in ledger.jobs():
            latest = ledger.latest(name)
            set_aside = [merge(ledger.reserved(party, name) or (), ()) for party in ledger.ids]
            sums, fate = in_sums(set_aside), state(ledger, name, failures)
            rest = [less(aside, ledger.spent(party, name)) for party, aside in zip(ledger.ids, set_aside, strict=True)]
            jobs.append(
                {
                    "job": name,
                    "state": fate,
                    **dated(entries[name], fate),
                    "rounds": 0 if latest is None else latest[0].round + 1,
                    "epsilon_spent": worst([ledger.spent(party, name) for party in ledger.ids], delta),
                    "epsilon_set_aside": worst(rest if fate == "open" else [()], delta),
                    "key": bool(sums) and ledger.holds_key(name),
                    "silent_since": moment(silent[name]) if name in silent else None,
                    **sums,
                    **if_all_collude([ledger.spent(party, name) for party in ledger.ids], delta),
                }
            )
        parties = [
            {
                "party": party,
                "epsilon_spent": certified(ledger.spent(party), delta),
                "epsilon_with_reservations": certified(ledger.others(party, ""), delta),
                **remaining(ledger, party),
                "releases": sum(count for _, count in ledger.spent(party)),
                **if_all_collude([ledger.spent(party)], delta),
            }
            for party in ledger.ids
        ]
        person = None
        if ledger.policy.adjacency == "person":
            person = merge_all(ledger.spent(party) for party in ledger.ids)
        of_a_person = None if person is None else certified(person, delta)
        return {
            "file": str(path),
            "name": kept.name,
            "mode": ledger.identity.mode,
            "adjacency": ledger.policy.adjacency,
            "policy": asdict(ledger.policy),
            "policies": policies(path),
            "restored": restores(path, delta),
            "head": ledger.head,
            # What its anchor knows and the ledger lacks.
            "behind": behind,
            # The anchor is not beside it: the file is a backup, or was moved alone, and is not the ledger in use.
            "unanchored": checked.unanchored,
            # The failed tick, with the reason, which only the ledger's steward is told.
            "locked": None if failed is None else {**asdict(failed), "why": ledger.why},
            "at_work": not resting,
            "kept": [draw.as_dict() for draw in ledger.keepsakes()],
            "jobs": jobs,
            "parties": parties,
            # Where parties hold columns, a person has a row at each: what these parties released of one person.
            "released_of_a_person": None if person is None else tables(person),
            "epsilon_of_a_person": of_a_person,
            "epsilon_warning": ledger.policy.weak_total((party["epsilon_spent"] for party in parties), of_a_person),
            "refusals": None if kept.refusals is None else [row.as_dict() for row in kept.refusals],
            "decisions": [row.as_dict() for row in kept.decisions],
            # An earlier version made the ledger: what happened before the update is not on record.
            "register_is_partial": kept.partial,
        }


def dated(entry: Entry, fate: str) -> Json:
    """Who asked for a job and what for, and its times, from the register."""
    times = {"admitted": entry.admitted, "began": entry.began, "ended": None if fate == "open" else entry.last}
    return {**asdict(entry.asked), **times}


def remaining(ledger: SqliteLedger, party: int) -> Json:
    """A party's budget, what open jobs hold of it beyond what they spent, and what is left; None without a budget.

    `epsilon_next` is the largest epsilon that one more job with Gaussian noise may ask for.
    """
    if (budget := ledger.policy.budget) is None:
        return {"epsilon_budget": None, "epsilon_set_aside": None, "epsilon_left": None, "epsilon_next": None}
    spent, taken = (certified(kept, budget.delta) for kept in (ledger.spent(party), ledger.others(party, "")))
    aside = None if spent is None or taken is None else max(0.0, taken - spent)
    left = 0.0 if taken is None else max(0.0, budget.epsilon - taken)
    following = min(ledger.policy.per_job or math.inf, room(ledger.others(party, ""), budget)) if left else 0.0
    rest = {"epsilon_left": left, "epsilon_next": following}
    return {"epsilon_budget": budget.epsilon, "epsilon_set_aside": aside, **rest}


@lru_cache(maxsize=256)  # many parties have spent the same
def room(spent: Spent, budget: Budget) -> float:
    """The largest epsilon of one more job with Gaussian noise."""
    return largest_next(spent, budget.epsilon, budget.delta)


def policies(path: Path) -> list[Json]:
    """All policies of the ledger, the first one first: the row that made it, the reason, and what it changed."""
    with readable(path), closing(connect(path, read_only=True)) as db:
        facts = {fact: json.loads(value) for fact, value in start_of(db).facts().items()}
        reasons = {"anew": "made anew: {}", "amend": "{}"}
        rows = db.execute("SELECT seq, kind, inbox, outbox FROM ticks WHERE job = '' AND kind IN ('amend', 'anew')")
        history: list[Json] = [{"row": 0, "because": None, "changed": facts}]
        for seq, kind, why, outbox in sorted(rows):
            if kind == "anew":
                history[0]["because"] = reasons[kind].format(why)
                continue
            now = {fact: json.loads(value) for fact, value in json.loads(outbox).items()}
            changed = {fact: now.get(fact) for fact in {**facts, **now} if facts.get(fact) != now.get(fact)}
            history.append({"row": seq, "because": why, "changed": changed})
            facts = now
    return history


def restores(path: Path, delta: float | None) -> list[Json]:
    """Backups that were put back: the row, the reason, and the largest charge that it made to a party."""
    with readable(path), closing(connect(path, read_only=True)) as db:
        of = "WHERE kind = 'restore' AND job = ? ORDER BY seq"
        rows = db.execute(f"SELECT seq, inbox, charges FROM ticks {of}", (PUT_BACK,)).fetchall()
    copies = ((seq, why, list(unpack_charges(charges).values()) or [()]) for seq, why, charges in rows)
    return [{"row": seq, "because": why, "epsilon": worst(spent, delta)} for seq, why, spent in copies]


def freed(ledger: SqliteLedger, job: str, dry_run: bool) -> Json:
    """What closing a job frees, by party, as data; asked before it is closed."""
    budget, parties = ledger.policy.budget, []
    delta, free = None if budget is None else budget.delta, ledger.freed_by(job)
    for party in ledger.ids:
        before = ledger.others(party, "")
        after = less(before, free.get(party, ()))
        releases = sum(count for _, count in free.get(party, ()))
        costs = {"epsilon_before": certified(before, delta), "epsilon_after": certified(after, delta)}
        parties.append({"party": party, **costs, "releases": releases})
    done = {"closed": not dry_run, "frees": bool(free), "key": ledger.holds_key(job)}
    return {"file": str(ledger.path), "job": job, **done, "parties": parties}


def freed_text(report: Json) -> str:
    """What closing a job frees, for people."""
    done = "closed" if report["closed"] else "would be closed (--dry-run: nothing was changed)"
    facts: screen.Facts = [("ledger", Path(report["file"])), (f"job {report['job']}", done)]
    if not report["frees"]:
        facts.append(("frees", "nothing: all that it set aside is spent, or it was over already"))
    both = [{**party, "change": (party["epsilon_before"], party["epsilon_after"])} for party in report["parties"]]
    for label, (before, after), releases in screen.alike(both, "change", "releases") if report["frees"] else ():
        change = f"epsilon {shown_cost(before)} is spent or set aside, {shown_cost(after)} after it"
        facts.append((label, f"{change}, which frees {amount(releases, 'release')}"))
    erased = "erased" if report["closed"] else "would be erased"
    return screen.shown(screen.rows([*facts, ("its key", erased if report["key"] else None)]))


def backed_up(report: Json) -> str:
    """A backup, for people."""
    facts: screen.Facts = [
        ("ledger", Path(report["file"])),
        ("backup", Path(report["backup"])),
        ("rows", f"{report['rows']}, every one verified; no keys"),
        ("put it back", Path(f'privadmm ledger restore {report["backup"]} {report["file"]} --because "..."')),
        ("", "Copied back by hand, the ledger would be locked: it must be charged with what was released meanwhile."),
    ]
    return screen.shown(screen.rows([*facts, ("head", report["head"])]))


def restored(source: Path, path: Path, done: Restored) -> Json:
    """The effect of putting a backup back, as data."""
    seen = overview(path)
    charged = [{"party": party, "events": tables(spent)} for party, spent in done.charged.items()]
    return {
        "file": str(path),
        "backup": str(source),
        "rows": done.rows,
        "missing": done.missing,
        "known": done.known,
        "ended": list(done.ended),
        "charged": charged,
        "replaced": None if done.replaced is None else str(done.replaced),
        "parties": seen["parties"],
        "head": seen["head"],
    }


def restored_text(report: Json) -> str:
    """The report of `restored` as text."""
    facts: screen.Facts = [
        ("ledger", Path(report["file"])),
        ("backup", Path(report["backup"])),
        ("rows", f"{report['rows']} in the backup"),
        ("missing", screen.escape(report["missing"] or "nothing: it is as new as the anchor, and its jobs go on")),
    ]
    if report["missing"] is not None:
        facts.append(("charged", "what the anchor knew" if report["known"] else "what you decided"))
        facts.append(("over", ", ".join(f"job {job}" for job in report["ended"]) or "no job was open"))
        facts.append(("keys", "erased"))
    if report["replaced"] is not None:
        facts.append(("moved to", Path(report["replaced"])))
    for label, total, _ in screen.alike(report["parties"], "epsilon_with_reservations", "releases"):
        facts.append((label, f"epsilon {shown_cost(total)} is spent or set aside"))
    return screen.shown(screen.rows([*facts, ("head", report["head"])]))


def state(ledger: SqliteLedger, job: str, failures: set[str]) -> str:
    """The state of a job. Of a failed job no more is told: which step failed may tell of records."""
    if job in failures:
        return "failed"
    if ledger.over(job):
        return "closed"
    whole = all(ledger.spent(party, job) == (ledger.reserved(party, job) or ()) for party in ledger.ids)
    return "finished" if whole else "open"


def rows(path: Path) -> Json:
    """Every row without the released values, as `ledger export` prints them."""
    sound(path)
    with readable(path), closing(connect(path, read_only=True)) as db:
        facts = {fact: json.loads(value) for fact, value in db.execute("SELECT fact, value FROM identity")}
        policy = {fact: json.loads(value) for fact, value in current(db).facts().items()}
        ticks = db.execute(f"SELECT {', '.join(COLUMNS)}, state, outbox FROM ticks ORDER BY seq")
        listed = [{**dict(zip(COLUMNS, tick, strict=False)), **said(tick[1], *tick[-2:])} for tick in ticks]
    for row in listed:
        row["charges"] = [
            {"parties": parties, "events": [{**json.loads(event), "count": count} for event, count in charge]}
            for parties, charge in json.loads(row["charges"])
        ]
        if row["kind"] == "keep":
            row["name"], row["inbox"] = row["inbox"], ""
        if row["kind"] in ("amend", "anew", "behind", "restore", "unlock"):
            row["because"], row["inbox"] = row["inbox"], ""
    return {"file": str(path), "identity": facts, "current": policy, "rows": listed}


def said(kind: str, state: str, outbox: bytes) -> Json:
    """When a row was written, and the facts in it that the register shows."""
    told = {"reserve": 0, "refuse": SALT, "decide": SALT, "format": 0}
    facts = {} if kind not in told or not outbox else {"says": json.loads(bytes(outbox)[told[kind] :])}
    return {"at": time_in(state), **facts}


def verification(path: Path, checked: Verification, against: Path | None) -> Json:
    """What `ledger verify` tells, as data."""
    apart = {str(party): finite(total) for party, total in checked.if_all_collude.items()}
    return {
        "file": str(path),
        "ok": not checked.problems and checked.behind is None,
        "rows": checked.rows,
        "head": checked.head,
        "against": None if against is None else str(against),
        "problems": list(checked.problems),
        "rows_fit": len(checked.problems) == len(checked.receipts),  # apart from what others received
        "behind": checked.behind,
        "anchor": not checked.unanchored,
        "adjacency": checked.adjacency,
        "epsilon_warning": checked.weak,
        "epsilon": {str(party): finite(total) for party, total in checked.epsilon.items()},
        **({"epsilon_if_all_others_collude": apart} if apart else {}),
    }


def verified(report: Json) -> str:
    """The verification for people."""
    verdict = "[bold green]everything fits[/]" if report["ok"] else "[bold red]TAMPERED WITH OR DAMAGED[/]"
    if not report["ok"] and report["rows_fit"]:
        verdict = "[bold red]ITS ROWS FIT, AND NOT WHAT THE RUN RECEIVED[/]"
        if report["behind"] is not None:
            verdict = "[bold red]LOCKED: IT WAS PUT BACK FROM A COPY[/]"
    facts: screen.Facts = [("ledger", Path(report["file"])), ("rows", str(report["rows"])), ("verdict", verdict)]
    facts += [("problem", problem) for problem in report["problems"]]
    facts.append(("behind", None if report["behind"] is None else screen.escape(report["behind"])))
    if report["behind"] is not None:
        facts.append(("", Path(f'privadmm ledger restore BACKUP {report["file"]} --because "..."')))
    backup = "none beside it: it is a backup, or was moved without it, and opens only after `privadmm ledger restore`"
    facts.append(("anchor", None if report["anchor"] else backup))
    totals, apart = [], report.get("epsilon_if_all_others_collude", {})
    for party, total in report["epsilon"].items():
        beside = colluded({"epsilon_if_all_others_collude": apart[party]} if apart else {})
        totals.append({"party": party, "epsilon": total, "beside": beside})
    for label, total, beside in screen.alike(totals, "epsilon", "beside"):
        facts.append((label, f"epsilon {shown_cost(total)}, {report['adjacency']}{beside}"))
    facts.append(("warning", screen.alarm(report["epsilon_warning"])))
    return screen.shown(screen.rows([*facts, ("head", report["head"])]))
