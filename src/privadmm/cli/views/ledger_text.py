"""A ledger for people: budget, spent, set aside and left; every job with who asked for it; what was refused.

Texts that came from others are shown with `visible`: nothing in them moves a cursor or is taken for markup.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from privadmm.cli.views import screen
from privadmm.engine.sums import ROSTER
from privadmm.privacy.accounting import printed, rounded_down
from privadmm.runs.metrics import amount
from privadmm.runs.report.safe import SHORT, visible
from privadmm.runs.report.words import NOT_RECORDED
from privadmm.runs.report.words import parties as names_of

Json = dict[str, Any]
LATEST = 20  # refusals that are shown; --json has all


def told(text: object) -> str:
    """A text from outside, for a line of a terminal."""
    return screen.escape(visible(text, SHORT))


def minute(moment: str | None) -> str:
    return NOT_RECORDED if moment is None else f"{moment[:16].replace('T', ' ')} UTC"


def shown_cost(value: float | None, form: str = ".6g") -> str:
    return "[bold red]not private[/]" if value is None else printed(value, form)


def row_of(change: Json) -> str:
    return f"row {change['row']}"


def as_text(ledger: Json) -> str:
    """The `overview` of a ledger for people."""
    policy, budget, failed = ledger["policy"], ledger["policy"]["budget"], ledger["locked"]
    labels, words = policy["label_epsilon"], "epsilon = {epsilon:g} at delta = {delta:g} for each party"
    facts: screen.Facts = [
        ("ledger", Path(ledger["file"])),
        ("party", None if ledger["name"] is None else told(ledger["name"])),
        ("mode", ledger["mode"]),
        ("budget", "none: nothing here is private" if budget is None else words.format(**budget)),
        ("adjacency", None if budget is None else ledger["adjacency"]),
        ("labels", labels and f"randomised once for all jobs, epsilon = {shown_cost(labels)}"),
        ("per job", screen.given("epsilon = {:g}", policy["per_job"])),
        ("algorithms", None if policy["algorithms"] is None else ", ".join(policy["algorithms"])),
        ("row bound", screen.given("{:g}", policy["row_bound"])),
        ("secure sums", summing(policy)),
    ]
    if policy["limits"] is not None:
        facts.append(("limits", ", ".join(f"{name} {value:g}" for name, value in policy["limits"].items())))
    for change in ledger["policies"][1:]:
        facts.append((row_of(change), f"amended: {changes(change['changed'])} ({told(change['because'])})"))
    for change in ledger["restored"]:
        charged = f"epsilon {shown_cost(change['epsilon'])} charged for what was lost"
        facts.append((row_of(change), f"put back from a copy: {charged} ({told(change['because'])})"))
    if (reason := ledger["policies"][0]["because"]) is not None:
        facts.append(("row 1", told(reason)))
    if ledger["unanchored"]:
        facts.append(("NOT IN USE", f"{ledger['behind']}: it is a backup, or was moved without it"))
    elif ledger["behind"] is not None:
        facts.append(("LOCKED", f"{screen.escape(ledger['behind'])}: it was put back from a copy"))
    if ledger["behind"] is not None:
        facts.append(("", Path(f'privadmm ledger restore BACKUP {ledger["file"]} --because "..."')))
    if failed is not None:
        last = failed["why"].strip().splitlines()[-1:] or [""]
        facts.append(("LOCKED", f"round {failed['round'] + 1} of job {failed['job']} failed: {told(last[0])}"))
    facts.append(("now", "a process is in the middle of a step" if ledger["at_work"] else None))
    for draw in ledger["kept"]:
        owner = "all jobs" if draw["job"] is None else f"job {draw['job']}"
        if draw["name"] == ROSTER:
            facts.append(("kept", f"the roster of {owner}: the keys of a secure sum's parties, which are public"))
            continue
        facts.append(("drawn once", f"{draw['name']}, for {owner}; it left to the party's own server only"))
    for job in ledger["jobs"]:
        facts += job_facts(ledger, job)
    for label, *figures in standing(ledger["parties"]):
        facts.append((label, figures[0]))
    facts.append(("a person", whole_person(ledger)))
    facts.append(("warning", screen.alarm(ledger["epsilon_warning"])))
    facts += refused(ledger)
    return screen.shown(screen.rows([*facts, ("head", ledger["head"])]))


def job_facts(ledger: Json, job: Json) -> screen.Facts:
    """One job: where it stands, what it cost, who asked for it and what for, and when."""
    cost = f"epsilon {shown_cost(job['epsilon_spent'])} spent"
    if job["state"] == "open":
        cost += f", {shown_cost(job['epsilon_set_aside'])} more set aside"
    key = "; the key of its sums is there until it ends, or `ledger close`" if job["key"] else ""
    facts: screen.Facts = [
        ("job", f"[bold]{told(job['job'])}[/]"),
        ("", f"{job['state']}, {amount(job['rounds'], 'round')}, {cost}{colluded(job)}{key}"),
        ("", f"purpose: {told(job['purpose'] or NOT_RECORDED)}"),
        ("", f"asked by: {told(job['requester'] or NOT_RECORDED)}"),
        ("", f"when: {period(job)}"),
    ]
    if job["algorithm"] is not None:
        facts.append(("", f"{told(job['algorithm'])}, config {told((job['config'] or NOT_RECORDED)[:16])}"))
    if job["silent_since"] is not None:
        days = ledger["policy"]["silent_days"]
        facts.append(("", f"silent since {job['silent_since']}, longer than {days:g} days; this frees what it holds:"))
        facts.append(("", Path(f"privadmm ledger close {ledger['file']} {job['job']}")))
    return facts


def period(job: Json) -> str:
    """The time from a job's admission to its end."""
    if job["admitted"] is None:
        return NOT_RECORDED
    end = {"open": "still open"}.get(job["state"], f"to {minute(job['ended'])}")
    return f"{minute(job['admitted'])}, {end}"


def standing(parties: Sequence[Json]) -> Iterator[tuple[str, str]]:
    """Budget, spent, set aside and left of each party; neighbours with the same figures share a line."""
    told_of = [{**party, "figures": figures(party), "beside": colluded(party)} for party in parties]
    for label, said, beside in screen.alike(told_of, "figures", "beside"):
        yield label, f"{said}{beside}"


def whole_person(ledger: Json) -> str | None:
    """What one person loses over all parties, where each party holds columns of everybody."""
    if ledger["adjacency"] != "person" or ledger["policy"]["budget"] is None:
        return None
    count = len(ledger["parties"])
    part = "has a row at every party that holds columns: an epsilon above is one party's part"
    if count == 1:
        return f"{part}, and what other parties release adds to it"
    total = shown_cost(ledger["epsilon_of_a_person"])
    return f"{part}. These {count} parties together: epsilon {total} spent; other parties add to it"


def figures(party: Json) -> str:
    releases = amount(party["releases"], "release")
    if party["epsilon_budget"] is None:
        return f"{releases}, epsilon {shown_cost(party['epsilon_spent'])}"
    aside, left, following = party["epsilon_set_aside"], party["epsilon_left"], party["epsilon_next"]
    more = ""
    if following > left and rounded_down(following) != rounded_down(left):  # both may be 0, but for rounding
        most = f"a further job with Gaussian noise may ask for up to {rounded_down(following)}"
        more = f"; {most}, since releases add up like squares"
    return (
        f"epsilon {shown_cost(party['epsilon_spent'])} spent ({releases}), "
        f"{'-' if aside is None else printed(aside, '.6g')} set aside, {rounded_down(left)} left "
        f"of {party['epsilon_budget']:g}{more}"
    )


def refused(ledger: Json) -> screen.Facts:
    """Refused requests, the latest last."""
    rows = ledger["refusals"]
    if rows is None:
        return [("refused", NOT_RECORDED)]
    partial = "; what was before this version is not recorded" if ledger["register_is_partial"] else ""
    if not rows:
        return [("refused", f"nothing{partial}")]
    facts: screen.Facts = [("refused", f"{amount(len(rows), 'different request')}{partial}")]
    for row in rows[-LATEST:]:
        often = "" if row["times"] in (None, 1) else f", {row['times']} times"
        who = f"asked by {told(row['requester'])}" if row["requester"] else ""
        what = f"purpose: {told(row['purpose'])}" if row["purpose"] else ""
        asked = f" ({', '.join(filter(None, (who, what)))})" if who or what else ""
        facts.append(("", f"{minute(row['first'])}, {row['kind']}{often}: {told(row['why'])}{asked}"))
    return facts


def several(folder: Path, ledgers: Sequence[Json]) -> str:
    """Many ledgers in one table, a row for each party."""
    rows = []
    for ledger in ledgers:
        name = told(Path(ledger["file"]).relative_to(folder))
        if ledger["unanchored"]:
            name += " (copy)"
        elif ledger["behind"] is not None or ledger["locked"] is not None:
            name += " (LOCKED)"
        known = ledger["name"]
        count = "-" if ledger["refusals"] is None else str(len(ledger["refusals"]))
        for party in ledger["parties"]:
            who = told(known) if known else f"party {party['party']}"
            budget = "-" if party["epsilon_budget"] is None else f"{party['epsilon_budget']:g}"
            aside, left = party["epsilon_set_aside"], party["epsilon_left"]
            rest = ["-" if aside is None else printed(aside), "-" if left is None else rounded_down(left)]
            spent = shown_cost(party["epsilon_spent"], ".4f")
            rows.append([name, who, budget, spent, *rest, str(len(ledger["jobs"])), count])
    columns = ("ledger", "party", "budget", "spent", "aside", "left", "jobs", "refused")
    weak: dict[str, list[str]] = {}
    for ledger in ledgers:
        if ledger["epsilon_warning"] is not None:
            weak.setdefault(ledger["epsilon_warning"], []).append(str(Path(ledger["file"]).relative_to(folder)))
    warnings: screen.Facts = [("warning", screen.alarm(f"{names_of(names)}: {why}")) for why, names in weak.items()]
    copies = any(ledger["unanchored"] for ledger in ledgers)
    note = "its anchor is not beside it: a backup, or moved without it, and not the ledger in use"
    return screen.shown(
        screen.table(f"{amount(len(ledgers), 'ledger')}, epsilon", columns, rows, ("ledger", "party")),
        *([screen.rows([("copy", note)])] if copies else []),
        *([screen.rows(warnings)] if warnings else []),
    )


def changes(changed: Json) -> str:
    """What an amendment changed, as `name = value`."""
    return ", ".join(f"{screen.escape(fact)} = {screen.escape(json.dumps(value))}" for fact, value in changed.items())


def summing(policy: Json) -> str:
    """What the policy asks of secure sums."""
    few, least = policy["colluding"], policy["fewest"]
    tolerated = "that a third of their parties collude" if few is None else amount(few, "colluding party")
    present = "nine tenths of a job's parties" if least is None else amount(least, "party")
    return f"jobs must tolerate {tolerated}; a sum has at least {present}"


def colluded(spent: Json) -> str:
    """What the epsilon of secure sums assumes, and the epsilon if all other parties colluded."""
    if "epsilon_if_all_others_collude" not in spent:
        return ""
    few = "as few colluded as each job's secure sums tolerate"
    if "secure_sum" in spent:
        few = f"up to {spent['secure_sum']['colluding']} of {spent['secure_sum']['parties']} parties colluded"
    everybody = shown_cost(spent["epsilon_if_all_others_collude"])
    return f" (computational, and if {few}; {everybody} if everybody else did)"


def registered(report: Json) -> str:
    """The outcome of checking a register."""
    fits = "[bold green]everything fits[/]" if report["ok"] else "[bold red]CHANGED, OR NOT SIGNED BY THE KEY[/]"
    believed = "" if report["believed"] else ". Compare this with the party's own, or name its key with --key"
    signer = "nobody: anybody can have written it"
    if report["signed"]:
        signer = f"the key {told(report['fingerprint'] or 'that cannot be read')}{believed}"
    facts: screen.Facts = [
        ("register", Path(report["file"])),
        ("of", told(", ".join(map(str, report["ledgers"])))),
        ("jobs", str(report["jobs"])),
        ("made", told(report["made"])),
        ("table", Path(report["table"]) if report["table"] else "not beside it, and not checked"),
        ("signed by", signer),
        ("verdict", fits),
        *(("problem", told(problem)) for problem in report["problems"]),
    ]
    return screen.shown(screen.rows(facts))
