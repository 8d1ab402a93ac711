"""The report as one HTML page: no script runs in it, nothing is fetched, and every text is escaped."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from privadmm.privacy.accounting import printed, rounded_down
from privadmm.runs.report import charts, words
from privadmm.runs.report.card import ELEMENT, Budget, Card, Request, embedded
from privadmm.runs.report.head import head
from privadmm.runs.report.safe import SHORT, safe, short, visible

SIMULATION = (
    "This is a simulation. Its noise comes from a seed and can be repeated, so it protects nobody, and its figures may "
    "be computed on the records themselves. It shows what a deployment would promise; do not publish it as one."
)
DEPLOYMENT = (
    "This is a deployment. Nothing on this page was computed on private records but what was released and is counted "
    "in a ledger."
)
JOB_FIRST = ("purpose", "requester", "job", "ledger", "state", "admitted", "began", "ended")
REFUSAL_FIRST = ("why", "kind", "times", "first", "last", "requester", "purpose")
HEADS = {"requester": "who asked", "epsilon_set_aside": "epsilon still set aside"}
MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
SHA256 = re.compile(r"[0-9a-f]{64}")
PARTIAL = "What was before a version of privadmm that keeps it is not recorded."
STACKED, CARDS = 3, 7  # columns
LONG = 20  # letters of a number with its deviations
MOST = 100  # rows of a table; the twin has all of them


@cache
def style() -> str:
    return files("privadmm.runs.report").joinpath("style.css").read_text(encoding="utf-8")


def render(card: Card) -> str:
    """The whole page. The same card gives the same bytes."""
    sections = "".join(part(card) for part in PARTS)
    return f"""{head(f"Privacy report: {visible(card.subject, SHORT)}", style())}
<body>
<a class="skip" href="#main">Skip to the report</a>
<header>
<h1>Privacy report</h1>
<p class="muted">{"Run" if card.kind == "run" else "Ledger" if card.kind == "ledger" else "Ledgers"} \
<bdi>{short(card.subject)}</bdi>, {safe(card.status)}</p>
</header>
<main id="main" tabindex="-1">
{sections}</main>
<footer><p>Made by privadmm; the same facts give the same page, byte for byte. All of it stands once more in the page \
for machines, as a model card in JSON.</p></footer>
{ELEMENT}{embedded(card)}</script>
</body>
</html>
"""


def first_screen(card: Card) -> str:
    """Warnings, who asked for what and when, whose records, the promise."""
    lines = [paragraph(SIMULATION, "alarm") if card.simulation else paragraph(DEPLOYMENT, "muted")]
    if not card.private:
        lines.append(paragraph("Not private: no epsilon covers this.", "alarm"))
    shown = [line for line in card.notices if not line.startswith(("simulation:", "NOT PRIVATE:"))]
    lines += [paragraph(words.closed(line), "notice") for line in shown]
    counts = [holder.records for holder in card.holders]
    total = sum(count for count in counts if count is not None)
    known = bool(counts) and None not in counts
    held = f"{total} records" if known else "number of records not recorded"
    if card.vertical and known:
        held = f"{counts[0]} people, some columns of each at every party"
    whose = f"{words.parties([holder.name for holder in card.holders])}: {held}" if card.holders else words.NOT_RECORDED
    facts = [
        *(asked(card.requests[0]) if len(card.requests) == 1 else several(card.requests)),
        ("Whose records", safe(whose)),
        ("What one record is", safe(words.unit(card.adjacency))),
    ]
    return "".join(lines) + listing(facts) + promise(card)


def asked(request: Request) -> list[tuple[str, str]]:
    unknown = f'<span class="muted">{words.NOT_RECORDED}</span>'
    when = " to ".join(short(text_of(moment)) for moment in (request.began, request.ended) if moment is not None)
    return [
        ("Purpose", isolated(request.purpose) or unknown),
        ("Who asked", isolated(request.requester) or unknown),
        ("When", when or unknown),
    ]


def several(requests: Sequence[Request]) -> list[tuple[str, str]]:
    """Of many jobs: where to look, or that there was none."""
    if not requests:
        return [("Purpose, who asked, when", "no job is on record")]
    return [("Purpose, who asked, when", f"of {len(requests)} jobs: see the table of jobs below")]


def promise(card: Card) -> str:
    said = words.sentence(card.epsilon, card.delta, card.adjacency, card.simulation)
    if card.epsilon is None or card.delta is None:
        return f'<div class="promise"><p class="figure">No guarantee</p>{paragraph(said)}</div>\n'
    figure = f"epsilon {printed(card.epsilon)}, delta {printed(card.delta)}"
    whole = ""
    if card.person is not None:
        figure, whole = (
            f"{figure}, of one party's part of a person",
            paragraph(words.of_person(card.person, card.delta)),
        )
    more = paragraph(words.notation(card.epsilon, card.delta, card.adjacency), "muted")
    return f'<div class="promise"><p class="figure">{safe(figure)}</p>{whole}{paragraph(said)}{more}</div>\n'


def learners(card: Card) -> str:
    if not card.learners:
        return section("Who learns what", paragraph("Not known: the run's job could not be made anew."))
    return section("Who learns what", table("What each can learn of one record", ["Who", "What"], card.learners))


def budgets(card: Card) -> str:
    """Spent and left, parties alike in one row."""
    alike: dict[tuple[float | None, ...], list[str]] = {}
    for row in card.budgets:
        alike.setdefault((row.budget, row.spent, row.committed, row.left, row.if_all_others_collude), []).append(
            row.who
        )
    if not alike:
        return section("Budgets", paragraph("No party's account is here: each party's ledger has it."))
    head = ["Party", "Budget", "Spent", "Spent or set aside", "Left for one more such job"]
    rows = [[words.parties(who), *spending(Budget("", *numbers))] for numbers, who in alike.items()]
    note = "" if any(row.budget for row in card.budgets) else "Budgets are kept in each party's own ledger. "
    why = f"{note}Epsilon at one delta. Releases compose to less than their sum: more may be left than the rest."
    return section("Budgets", table("Epsilon of each party", head, rows, 1), paragraph(why, "muted"))


def spending(row: Budget) -> list[str]:
    def figure(value: float | None) -> str:
        return "not private" if value is None else printed(value)

    rest = words.NOT_RECORDED
    if row.left is not None:
        rest = rounded_down(row.left)
    elif row.budget is not None and row.committed is not None:
        rest = rounded_down(max(0.0, row.budget - row.committed))
        rest = rest if rest == "0" else f"{rest} (the rest)"
    allowed = words.NOT_RECORDED if row.budget is None else f"{row.budget:g}"
    return [allowed, figure(row.spent), figure(row.committed), rest]


def refusals(card: Card) -> str:
    if card.refusals is None:
        return section("What was refused", paragraph(words.closed(words.not_here(card.kind, card.refusals_at))))
    note = paragraph(PARTIAL, "muted") if card.register_is_partial else ""
    if not card.refusals:
        return section("What was refused", paragraph("Nothing."), note)
    listed = records("Refused requests, the newest first", card.refusals[::-1], REFUSAL_FIRST)
    return section("What was refused", listed, note)


def jobs(card: Card) -> str:
    if not card.jobs:
        return ""
    shown = [{**job, "ended": "still open"} if job.get("state") == "open" else job for job in card.jobs]
    return section("Jobs", records("Every job on record, oldest first", shown, JOB_FIRST))


def records(caption: str, rows: Sequence[Mapping[str, Any]], first: Sequence[str]) -> str:
    """A table of what was recorded, these columns first."""
    known = dict.fromkeys(key for row in rows for key in row if key != "secure_sum")
    keys = [*(key for key in first if key in known), *(key for key in known if key not in first)]
    heads = [HEADS.get(key, key.replace("_", " ")) for key in keys]
    return table(caption, heads, [[text_of(row.get(key)) for key in keys] for row in rows], brief=True)


def pictures(card: Card) -> str:
    drawn = [figure(chart) for chart in card.charts]
    missing = [paragraph(f"{name}: not drawn, since {why}.", "muted") for name, why in card.not_drawn]
    whose = "the records of the simulation" if card.simulation else "held-out records, as it was paid for"
    deviation = "; ± is one standard deviation" if any("±" in value for _, value in card.results) else ""
    results = table(f"The model on {whose}{deviation}", ["Figure", "Value"], card.results, 1)
    return section("Charts", results if card.results else "", *drawn, *missing)


def figure(chart: charts.Chart) -> str:
    caption, heads, rows = charts.table(chart)
    keys = "".join(f'<li class="{kind}">{short(name)}</li>' for kind, name in charts.legend(chart))
    summary = f"<summary>The numbers of “{short(chart.title)}”</summary>"
    numbers = f"<details>{summary}{table(caption, heads, rows, 1)}</details>"
    legend = f'<ul class="key">{keys}</ul>' if keys else ""
    said = f"<figcaption>{paragraph(chart.words, 'muted')}</figcaption>"
    return f"<figure><h3>{short(chart.title)}</h3>{charts.drawn(chart)}{legend}{said}</figure>\n{numbers}\n"


def declared(card: Card) -> str:
    if not card.declared:
        return ""
    rows = [[name, value, meaning] for name, value, meaning in card.declared]
    said = "Fixed before a record was read; sensitivities and noise follow from these alone."
    return section("Bounds and declarations", paragraph(said), table("Declared", ["Name", "Value", "Meaning"], rows))


def not_protected(card: Card) -> str:
    lines = "".join(f"<li>{safe(line)}</li>" for line in card.not_protected)
    return section("What is not protected", f"<ul>{lines}</ul>")


def published(card: Card) -> str:
    claim = card.published
    if claim is None:
        return ""
    told = "no figure" if claim.epsilon is None else f"epsilon = {claim.epsilon:.4g}"
    of = " for one round" if claim.of_one_round else ""
    certified = "none: not private" if card.epsilon is None else f"epsilon = {printed(card.epsilon)}"
    rows = [
        ["Certified here, for the whole run", certified],
        [f"Claimed by the method's paper{of}", f"{told}. {words.closed(claim.caveat)}"],
        ["Whose rule set the noise", claim.calibration],
    ]
    return section("The published claim", table("Certified and published", ["What", "Epsilon"], rows))


def proof(card: Card) -> str:
    digests = table("Digests", ["What", "Digest"], card.hashes) if card.hashes else ""
    lines = "\n".join(safe(line) for line in card.commands)
    commands = f"{paragraph('These commands check them:')}<pre><code>{lines}</code></pre>" if lines else ""
    versions = table("Versions of privadmm", ["Of", "Version"], card.versions)
    return section("Hashes, and how to verify them", digests, commands) + section("Versions", versions)


PARTS: tuple[Callable[[Card], str], ...] = (
    *(first_screen, learners, budgets, refusals, jobs, pictures, declared, not_protected, published, proof),
)


def isolated(text: str | None) -> str:
    """A text from outside, in a direction of its own."""
    return "" if text is None else f"<bdi>{short(text)}</bdi>"


def digest(text: str) -> str:
    """A text; of a SHA-256 only its beginning is seen, and all of it where the mouse is."""
    return f'<bdi title="{text}">{text[:12]}…</bdi>' if SHA256.fullmatch(text) else isolated(text)


def text_of(value: object) -> str:
    if value is None:
        return words.NOT_RECORDED
    if isinstance(value, str) and MOMENT.fullmatch(value):
        return f"{value[:10]} {value[11:19]} UTC"
    return printed(value) if isinstance(value, float) else str(value)


def paragraph(text: str, kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f"<p{named}>{safe(text)}</p>\n"


def section(title: str, *parts: str) -> str:
    """A part under its own heading."""
    return f"<section><h2>{safe(title)}</h2>\n{''.join(parts)}</section>\n"


def listing(facts: Iterable[tuple[str, str]]) -> str:
    return "<dl>" + "".join(f"<dt>{safe(name)}</dt><dd>{value}</dd>\n" for name, value in facts) + "</dl>\n"


def table(
    caption: str, heads: Sequence[str], rows: Sequence[Sequence[str]], numbers_from: int = 99, brief: bool = False
) -> str:
    """A table that scrolls by itself where it is wider than the screen; columns from `numbers_from` on are numbers.

    A row of more than STACKED columns, or with numbers longer than LONG, becomes a list on a narrow screen, each cell
    beside the name of its column; one of more than CARDS columns always does. Of STACKED columns of words the last
    explains the others, and stands below them there. `brief` shows a digest by its beginning.
    """
    long = any(len(cell) > LONG for row in rows for cell in row[numbers_from:])
    shape = "cards" if len(heads) > CARDS else "stack" if len(heads) > STACKED or long else ""
    shape = shape or ("explained" if len(heads) == STACKED <= numbers_from else "")
    kind = ["" if place < numbers_from else ' class="n"' for place in range(len(heads))]
    # A browser forgets what a table is where its style makes a list of it, unless the roles are written out.
    role = ' role="{}"'.format if shape else lambda _: ""
    names = [f' data-name="{short(head)}"' if shape else "" for head in heads]
    top = "".join(
        f'<th scope="col"{role("columnheader")}{k}>{short(head)}</th>' for head, k in zip(heads, kind, strict=True)
    )
    body = []
    for row in rows[:MOST]:
        first, *others = row
        cells = "".join(
            f"<td{role('cell')}{k}{name}>{digest(cell) if brief else isolated(cell)}</td>"
            for cell, k, name in zip(others, kind[1:], names[1:], strict=True)
        )
        start = f'<th scope="row"{role("rowheader")}{names[0]}><bdi>{short(first)}</bdi></th>'
        body.append(f"<tr{role('row')}>{start}{cells}</tr>\n")
    more = f" (the first {MOST} of {len(rows)}; the model card has all)" if len(rows) > MOST else ""
    named = f'role="region" tabindex="0" aria-label="{short(caption)}"'
    said = f"<caption>{short(caption)}{more}</caption>"
    groups = f"<thead{role('rowgroup')}><tr{role('row')}>{top}</tr></thead><tbody{role('rowgroup')}>"
    opened = f'<table class="{shape}"{role("table")}>' if shape else "<table>"
    return f'<div class="scroll" {named}>{opened}{said}{groups}\n{"".join(body)}</tbody></table></div>\n'
