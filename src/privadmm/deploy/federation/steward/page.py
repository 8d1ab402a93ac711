"""The steward's page as HTML. Every value goes through `text`: a proposal's texts come from whoever asks.

It can be read without its script; decisions need the script, or the command line.
"""

import re
import shlex
from collections.abc import Sequence
from html import escape
from typing import Any

from privadmm.deploy.federation.steward.words import left, plain
from privadmm.privacy.accounting import printed

Facts = dict[str, Any]
NOT_RECORDED = "not recorded"
FINGERPRINT = re.compile("(?:[0-9A-F]{2}:){31}[0-9A-F]{2}")
JOB_COLUMNS = ("Job", "State", "Purpose", "Who asked", "Admitted", "Rounds", "Epsilon spent", "Still set aside")
STATES = {
    "waiting": "waits for you",
    "approved": "approved",
    "refused": "refused",
    "ended": "was approved, and that has ended",
}


def text(value: object, lines: bool = False) -> str:
    """Escape any value, for the text of a page or for an attribute."""
    return escape(plain(value, lines), quote=True)


def time(moment: str) -> str:
    """A time to the minute, as HTML."""
    if not moment:
        return ""
    day, clock = text(moment[:10]), text(moment[11:16])
    return f'<time datetime="{text(moment)}"><span>{day}</span> <span>{clock} UTC</span></time>'


def sentence(value: object) -> str:
    """A sentence as HTML, in which a long fingerprint may be broken after each of its colons."""
    return FINGERPRINT.sub(lambda match: f"<code>{match[0].replace(':', ':<wbr>')}</code>", text(value))


def framed(title: str, body: str, root: str, mark: str) -> str:
    """A whole page."""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{text(title)}</title>
<link rel="icon" type="image/svg+xml" href="{root}icon.svg">
<link rel="stylesheet" href="{root}style.css">
<script src="{root}page.js" defer></script>
</head>
<body data-root="{root}" data-mark="{text(mark)}">
<a class="skip" href="#main">To the content</a>
<header><p class="brand">privadmm steward</p></header>
<p id="news" role="status" hidden>Something has changed here. <button type="button" id="anew">Load it anew</button></p>
<main id="main" tabindex="-1">
{body}
</main>
<footer><p>On this machine only. No record is read to make this page.</p></footer>
</body>
</html>
"""


def overview(parties: Sequence[Facts], mark: str) -> str:
    """All parties: budget, what waits, what was decided, jobs."""
    sections = "\n".join(party(place, facts) for place, facts in enumerate(parties))
    count = sum(entry["state"] == "waiting" for facts in parties for entry in facts["proposals"])
    nothing = "Nothing waits for you"
    if any(facts["hidden"] for facts in parties):
        nothing = "A ledger cannot be opened"
    waits = {0: nothing, 1: "One proposal waits for you"}.get(count, f"{count} proposals wait for you")
    return framed(f"Steward: {waits}", f"<h1>{waits}</h1>\n{sections}", "", mark)


def party(place: int, facts: Facts) -> str:
    """One party's part of the overview."""
    waiting = [entry for entry in facts["proposals"] if entry["state"] == "waiting"]
    rest = [entry for entry in reversed(facts["proposals"]) if entry["state"] != "waiting"]
    parts = [
        # Parties of two federations may have the same name: the directory tells them apart.
        f'<section aria-labelledby="party-{place} folder-{place}">',
        f'<h2 id="party-{place}">{text(facts["name"])}</h2>',
        f'<p class="quiet">Party {facts["party"]} of the coordinator at {text(facts["coordinator"])}, in '
        f'<span id="folder-{place}">{text(facts["directory"])}</span></p>',
        alarm(facts["problem"]),
        test(facts["mode"]),
        money(facts["budget"], facts["hidden"]),
        "<h3>Proposals</h3>",
        asked(facts["approve"], waiting, facts["hidden"]),
        *(card(place, entry) for entry in waiting),
        table(
            "Decided before", ("Proposal", "State", "Since", "Until", "Why"), [decided(place, entry) for entry in rest]
        ),
        table("Jobs", JOB_COLUMNS, map(job, facts["jobs"][::-1])),
        refused(facts["refusals"], facts["hidden"]),
        "</section>",
    ]
    return "\n".join(part for part in parts if part)


def alarm(problem: str | None) -> str:
    return "" if problem is None else f'<p class="alarm"><strong>Beware:</strong> {text(problem)}</p>'


def test(mode: str) -> str:
    return alarm("a directory for tests: noise comes from a seed, and protects nobody") if mode == "simulation" else ""


def unseen(what: str, hidden: str) -> str:
    return f"<p>{text(f'{what} cannot be shown {hidden}.')}</p>"


def asked(approve: str, waiting: Sequence[Facts], hidden: str | None) -> str:
    if approve != "ask":
        said = f'You are not asked: party.toml has approve = "{approve}", and a job that keeps the policy begins.'
        return f"<p>{text(said)}</p>"
    if hidden is not None:
        return unseen("Proposals", hidden)
    return "" if waiting else "<p>None waits. A job that comes will wait here until you say yes.</p>"


def money(budget: Facts | None, hidden: str | None) -> str:
    """The budget as a bar and in words."""
    if hidden is not None:
        return unseen("The budget, what is spent of it and the jobs", hidden)
    if budget is None:
        return "<p>There is no budget here: nothing is refused for its cost.</p>"
    whole, rest = budget["epsilon"], budget["left"]
    spent = whole if budget["spent"] is None else min(budget["spent"], whole)
    aside = max(0.0, whole - rest - spent)
    unit = 100 / whole if whole else 0.0
    parts = {"spent": f"{printed(spent)} spent", "aside": f"{printed(aside)} set aside", "left": f"{left(rest)} left"}
    of = f"of epsilon {whole:g} at delta {budget['delta']:g}"
    words = f"{', '.join(parts.values())}, {of}"
    keys = ", ".join(f'<span class="key {kind}">{text(said)}</span>' for kind, said in parts.items())
    return (
        f'<svg class="bar" viewBox="0 0 100 4" preserveAspectRatio="none" role="img" aria-label="{text(words)}">'
        f'<rect class="left" width="100" height="4"/>'
        f'<rect class="aside" width="{(spent + aside) * unit:.2f}" height="4"/>'
        f'<rect class="spent" width="{spent * unit:.2f}" height="4"/></svg>\n'
        f"<p>Budget: {keys}, {text(of)}.</p>"
    )


def card(place: int, entry: Facts) -> str:
    """A proposal that waits, in a few lines."""
    link = f"proposal/{place}/{entry['digest']}"
    if "algorithm" not in entry:
        about = "It cannot be read."
    else:
        cost = "no epsilon can be given" if entry["epsilon"] is None else f"epsilon {printed(entry['epsilon'])}"
        rest = "" if entry["left_after"] is None else f", and leaves {left(entry['left_after'])}"
        about = (
            f"{asks(entry)}{entry['algorithm']} among {entry['parties']} parties, {entry['rounds']:,} rounds, "
            f"{entry['releases']:,} releases. It costs {cost}{rest}."
        )
    return (
        f'<article class="card"><p><strong>{text(about)}</strong></p>'
        f'<p class="quiet">Asked for since {time(entry["first"])}, last {time(entry["last"])}. Code '
        f"<code>{text(entry['code'])}</code></p>{alarm(entry['problem'])}"
        f'<p><a class="button" href="{link}">Look at it and decide</a></p></article>'
    )


def asks(entry: Facts) -> str:
    """Who asks, and what for, in the words of whoever sent the proposal."""
    who = entry["requester"] and f"“{entry['requester']}” asks"
    what = entry["purpose"] and f"“{entry['purpose']}”"
    return f"{' for '.join(filter(None, [who, what]))}: " if who or what else ""


def decided(place: int, entry: Facts) -> tuple[str, ...]:
    said = entry["decided"] or {"at": "", "until": "", "why": ""}
    link = f'<a href="proposal/{place}/{entry["digest"]}"><code>{text(entry["code"][:14])}…</code></a>'
    return link, text(STATES[entry["state"]]), time(said["at"]), time(said["until"]), text(said["why"])


def job(entry: Facts) -> tuple[str, ...]:
    spent, aside = (
        "-" if entry[key] is None else printed(entry[key]) for key in ("epsilon_spent", "epsilon_set_aside")
    )
    asked = (known(entry["purpose"]), known(entry["requester"]), time(entry["admitted"] or "") or NOT_RECORDED)
    return f"<code>{text(entry['job'])}</code>", text(entry["state"]), *asked, str(entry["rounds"]), spent, aside


def known(value: object) -> str:
    """A cell: the value, isolated so that its writing direction changes nothing else, or the words for none."""
    return NOT_RECORDED if value is None else f"<bdi>{text(value)}</bdi>"


def refused(rows: Sequence[Facts] | None, hidden: str | None) -> str:
    """What was refused, newest first."""
    if hidden is not None:
        return f"<h3>Refused</h3>{unseen('What was refused', hidden)}"
    if rows is None:
        return f"<h3>Refused</h3><p>{NOT_RECORDED}: the ledger was made by an earlier version.</p>"
    cells = (
        (
            text(refusal["kind"]),
            known(refusal["why"]),
            time(refusal["first"] or "") or NOT_RECORDED,
            text(refusal["times"]),
            known(refusal["requester"]),
            known(refusal["purpose"]),
        )
        for refusal in reversed(rows)
    )
    return table("Refused", ("Kind", "Why", "First", "Times", "Who asked", "Purpose"), cells)


def table(title: str, columns: Sequence[str], rows: Any) -> str:
    """A table of cells that are HTML already; nothing if it has no rows. On a narrow screen each row is a list."""
    # Styled as a list, a table loses its meaning for screen readers, unless the roles are written out.
    cells = [
        '<tr role="row">'
        + "".join(f'<td role="cell" data-name="{text(n)}">{cell}</td>' for n, cell in zip(columns, row, strict=True))
        + "</tr>"
        for row in rows
    ]
    if not cells:
        return ""
    head = "".join(f'<th scope="col" role="columnheader">{text(name)}</th>' for name in columns)
    return (
        f'<h3>{text(title)}</h3>\n<div class="wide" role="group" aria-label="{text(title)}" tabindex="0">'
        f'<table role="table"><thead role="rowgroup"><tr role="row">{head}</tr></thead>'
        f'<tbody role="rowgroup">{"".join(cells)}</tbody></table></div>'
    )


def proposal(place: int, owner: Facts, item: Facts, mark: str) -> str:
    """One proposal in plain words, and what to decide."""
    said = item["decided"]
    told = "" if said is None else verdict(said)
    rows = "\n".join(f"<dt>{text(row['about'])}</dt><dd>{sentence(row['says'])}</dd>" for row in item["sentences"])
    body = f"""<p class="back"><a href="../../">Back to all</a></p>
<h1>A proposal to {text(owner["name"])}</h1>
<p><span class="state {text(item["state"])}">{text(STATES[item["state"]])}</span>
Asked for since {time(item["first"])}, last {time(item["last"])}.</p>
{told}{alarm(item["problem"])}
<dl>
{rows}
<dt>its code</dt><dd><code>{text(item["code"])}</code>: the coordinator has the same for this proposal, and for no other
</dd>
<dt>its job</dt><dd><code>{text(item["job"])}</code></dd>
</dl>
<details><summary>All that is proposed, as it came</summary>
<pre tabindex="0">{text(item["text"], lines=True)}</pre></details>
{decision(place, owner, item)}"""
    return framed(f"Proposal {item['code'][:9]} to {owner['name']}", body, "../../", mark)


def verdict(said: Facts) -> str:
    what = "Approved" if said["approved"] else "Refused"
    why = f" Because: {said['why']}." if said["why"] else ""
    told = " The coordinator is told why." if said["told"] else ""
    return f"<p>{text(what)} at {time(said['at'])}, until {time(said['until'])}.{text(why)}{told}</p>\n"


def decision(place: int, owner: Facts, entry: Facts) -> str:
    """Buttons with a question each; below them the commands, which work without the script."""
    yes = shlex.join(["privadmm", "federation", "approve", owner["directory"], entry["code"]])
    no = shlex.join(["privadmm", "federation", "refuse", owner["directory"], entry["code"], "--why", "..."])
    cost = "" if entry.get("epsilon") is None else f" It may spend epsilon {printed(entry['epsilon'])}."
    button = '<button type="button" class="yes" data-opens="approve">Approve</button>'
    approve = button if entry["problem"] is None else ""
    again = "Take the approval back" if entry["state"] == "approved" else "Refuse"
    return f"""<div class="decide"><h2>Decide</h2>
<p class="buttons" id="decide" hidden data-place="{place}" data-digest="{text(entry["digest"])}">{approve}
<button type="button" class="no" data-opens="refuse">{again}</button></p>
<p id="failed" role="alert" hidden></p>
<p>On the command line:</p>
<ul><li><code>{text(yes)}</code></li>
<li><code>{text(no)}</code></li></ul></div>
<dialog id="approve" aria-labelledby="approve-title"><h2 id="approve-title">Approve this proposal?</h2>
<p>{text(owner["name"])} would take part in exactly this job.{text(cost)} What leaves cannot be taken back.</p>
<p>Code <code>{text(entry["code"])}</code></p>
<label>For your register, if you like <input name="why" maxlength="500" autocomplete="off"></label>
<p class="buttons"><button type="button" class="yes" data-says="yes">Yes, approve</button>
<button type="button" data-closes>Not now</button></p></dialog>
<dialog id="refuse" aria-labelledby="refuse-title"><h2 id="refuse-title">Refuse this proposal?</h2>
<p>Nothing more is released for it. You can change your mind later.</p>
<label>Why <input name="why" maxlength="500" required autocomplete="off"></label>
<label class="check"><input type="checkbox" name="tell"> Tell the coordinator why</label>
<p class="buttons"><button type="button" class="no" data-says="no">Yes, refuse</button>
<button type="button" data-closes>Not now</button></p></dialog>"""
