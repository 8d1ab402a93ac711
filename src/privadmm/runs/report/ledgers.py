"""Facts of ledgers: policy, jobs, spending and refusals, from what `privadmm ledger show` tells of each.

A failed step's reason, and which step it was, may tell of records: only the ledger's steward is told, and no page.
"""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from privadmm.engine.guarantees import AWAY, BARE, CLEAR, summed
from privadmm.errors import ConfigError
from privadmm.privacy.accounting import certified, printed
from privadmm.privacy.events import merge_all, untabled
from privadmm.privacy.ledger_file import extent_of, row_with
from privadmm.privacy.meaning import ONE, large_epsilon
from privadmm.runs.report import words
from privadmm.runs.report.card import Budget, Card, Holder, Person, Request
from privadmm.runs.report.charts import Chart, Spread

Json = Mapping[str, Any]
MOST_JOBS = 40  # of the newest, in a chart


def ledger_files(folder: Path) -> list[Path]:
    """The ledgers in a folder and in the folders right in it."""
    found = [*folder.glob("*.sqlite"), *folder.glob("*/*.sqlite")]
    return sorted(path for path in found if path.is_file())


def card_of(path: Path, found: Mapping[str, Json]) -> Card:
    """The card of one ledger, or of several with equal modes and neighbours; `found` by the name of each."""
    everything = {name: public(view) for name, view in found.items()}
    copies = copies_in(everything)
    found = {name: view for name, view in everything.items() if name not in copies}
    views = list(found.values())
    for what in ("mode", "adjacency"):
        if len({view[what] for view in views}) > 1:
            kinds = ", ".join(f"{name}: {view[what]}" for name, view in found.items())
            raise ConfigError(f"{path}: its ledgers differ in {what} ({kinds}); ask for a report of each by itself")
    budgets = [row for name, view in found.items() for row in spending(name if len(found) > 1 else "", view)]
    deltas = [view["policy"]["budget"]["delta"] for view in views if view["policy"]["budget"]]
    spent = [row.spent for row in budgets]
    private = len(deltas) == len(views) and all(total is not None for total in spent)
    # The largest of both holds for every party.
    total, delta = (max(total or 0.0 for total in spent), max(deltas)) if private else (None, None)
    adjacency, first = (views[0]["adjacency"] if private else None), views[0]
    randomised = max((label for view in views if (label := view["policy"]["label_epsilon"]) is not None), default=None)
    person = in_all(views, delta) if adjacency == "person" else None
    weak = large_epsilon(total, first["adjacency"], randomised)
    if person is not None and person.parties > 1 and person.epsilon is not None:
        weak = large_epsilon(person.epsilon, "people", randomised)
    jobs = [{"ledger": name, **told(job)} for name, view in found.items() for job in view["jobs"]]
    refused = [row for name, view in found.items() for row in refusals(name if len(found) > 1 else "", view)]
    again = "" if not copies else f"; copies of ledgers are not counted again: {', '.join(sorted(copies))}"
    return Card(
        kind="ledger" if len(found) == 1 else "ledgers",
        subject=str(path),
        simulation=first["mode"] == "simulation",
        status=f"{len(jobs)} {'job' if len(jobs) == 1 else 'jobs'} on record{again}",
        requests=tuple(request(job) for job in jobs),
        holders=tuple(Holder(row.who, None) for row in budgets),
        register_is_partial=any(view["register_is_partial"] for view in views),
        adjacency=adjacency,
        epsilon=total,
        delta=delta,
        learners=tuple(learners(views, budgets, total, delta, person)),
        budgets=tuple(budgets),
        refusals=tuple(refused) if all(view["refusals"] is not None for view in views) else None,
        vertical=first["adjacency"] in ("person", "column"),
        person=person,
        epsilon_warning=weak,
        notices=(*([] if weak is None else [weak]), *notices(everything, private, copies)),
        jobs=tuple(jobs),
        charts=tuple(charts(jobs, private, views)),
        declared=tuple(policies(found)),
        not_protected=tuple(not_protected(views)),
        hashes=tuple(
            ("end of the hash chain" + (f" of {n}" if len(found) > 1 else ""), v["head"] or "")
            for n, v in found.items()
        ),
        commands=tuple(shlex.join(["privadmm", "ledger", "verify", view["file"]]) for view in views),
    )


def copies_in(found: Mapping[str, Json]) -> dict[str, str]:
    """Of ledgers of which one begins with all rows of another: the name of the latter, and whose rows they are.

    Each was verified when it was looked at, so equal hashes are equal rows. Ledgers without a row are not compared:
    nothing tells a copy of one from another that was made with the same policy.
    """
    extents = {name: extent_of(Path(view["file"])) for name, view in found.items()}
    # The one with most rows last; of those with as many, the one whose anchor is beside it.
    order = sorted(found, key=lambda name: (extents[name][1], not found[name]["unanchored"]))
    copies: dict[str, str] = {}
    for place, name in enumerate(order):
        start, rows = extents[name]
        longer = [other for other in order[place + 1 :] if rows and extents[other][0] == start]
        whole = [other for other in longer if row_with(Path(found[other]["file"]), found[name]["head"]) is not None]
        copies |= {name: whole[-1]} if whole else {}
    return copies


def spending(name: str, view: Json) -> list[Budget]:
    """What each party of a ledger may spend and has spent; where a job failed, all of it.

    What a failed job had spent tells how far it came. That it is no more than the budget holds for every step.
    """
    allowed, rows = view["policy"]["budget"], []
    for party in view["parties"]:
        called = view["name"] if view["name"] and len(view["parties"]) == 1 else f"party {party['party']}"
        who = f"{name}: {called}" if name else called
        total, spent = party["epsilon_with_reservations"], party["epsilon_spent"]
        if failed(view) and allowed is not None:
            whole = allowed["epsilon"]
            rows.append(Budget(who, whole, whole, whole, None, None))
            continue
        rows.append(
            Budget(
                who,
                None if allowed is None else allowed["epsilon"],
                spent,
                total,
                party.get("left"),
                party.get("epsilon_if_all_others_collude"),
            )
        )
    return rows


def in_all(views: Sequence[Json], delta: float | None) -> Person:
    """What a person loses at all parties of these ledgers together; others may hold columns of the same people."""
    released = [view["released_of_a_person"] for view in views]
    total = None
    if None not in released:
        total = certified(merge_all(map(untabled, released)), delta)
    return Person(total, sum(len(view["parties"]) for view in views), all_parties=False)


def failed(view: Json) -> bool:
    """Whether a step failed after records were read, ever."""
    return any(job["state"] == "failed" for job in view["jobs"])


def public(view: Json) -> Json:
    """A ledger as others may see it: where a step failed, without what tells when, or how many rows were before it.

    When somebody was refused since, or the steward decided, was after it: such times are not told either.
    """
    if not failed(view):
        return view
    refused = [row | dict.fromkeys(("first", "last")) for row in view["refusals"] or ()]
    refused = [row | {"times": None} if row["kind"] == "locked" else row for row in refused]
    # The reason has what was spent by then, which in ledgers of format 1 told how far the failed job had come.
    refused = [row | {"why": "beyond the budget"} if row["kind"] == "budget" else row for row in refused]
    decided = [row | {"at": None} for row in view["decisions"]]
    unnumbered = {key: [row | {"row": None} for row in view[key]] for key in ("policies", "restored")}
    known = None if view["refusals"] is None else refused
    return {
        **view,
        **unnumbered,
        "released_of_a_person": None,
        "epsilon_of_a_person": None,
        "refusals": known,
        "decisions": decided,
        "jobs": [told(job) for job in view["jobs"]],
    }


def told(job: Json) -> dict[str, Any]:
    """What may be told of a job. Of a failed one it is not told how far it came, nor what that cost."""
    fields = ("job", "state", "rounds", "epsilon_spent", "epsilon_set_aside", "secure_sum")
    later = ("purpose", "requester", "admitted", "began", "ended", "algorithm", "config")
    row = {name: job[name] for name in (*fields, *later) if name in job}
    if job["state"] == "failed":
        row |= dict.fromkeys(("rounds", "epsilon_spent", "epsilon_set_aside", "began", "ended"))
    return row


def request(job: Json) -> Request:
    return Request(f"job {job['job']}", *(job.get(name) for name in ("purpose", "requester", "admitted", "ended")))


def refusals(name: str, view: Json) -> list[dict[str, Any]]:
    """What was refused; `name` is that of the ledger, where there are several."""
    return [{**({"ledger": name} if name else {}), **row} for row in view["refusals"] or ()]


def learners(
    views: Sequence[Json],
    budgets: Sequence[Budget],
    total: float | None,
    delta: float | None,
    person: Person | None,
) -> list[list[str]]:
    """Who learns what from all that these ledgers count."""
    labels = [view["policy"]["label_epsilon"] for view in views]
    clear = any(label is None for label in labels)
    own = CLEAR if clear else f"epsilon = {printed(max(labels))} at delta = 0 at most"
    others = words.guarantee({"epsilon": total, "delta": delta}) if total is not None else BARE
    adjacency = views[0]["adjacency"]
    rows = [
        ["The party's own server: features", CLEAR],
        ["The party's own server: label", AWAY if adjacency in ("person", "column") else own],
        [f"All others who read every message of all jobs: one {ONE[adjacency]}", others],
    ]
    if person is not None:
        rows.append(["Of a person, over the messages of all parties together", words.whole_person(person, delta)])
    if adjacency == "label":
        rows.append(["All others who read every message of all jobs: features", BARE])
    apart = [row.if_all_others_collude for row in budgets if row.if_all_others_collude is not None]
    if (sums := secure_sums(views)) or apart:
        rows += if_they_collude(sums, apart, any(map(failed, views)))
    elif total is not None:
        rows.append(["The coordinator with everybody else", "the same as all others: every message has its own noise"])
    return rows


def secure_sums(views: Sequence[Json]) -> list[tuple[int, int]]:
    """How many may collude in the jobs' secure sums, and of how many parties; each once."""
    found = [job["secure_sum"] for view in views for job in view["jobs"] if "secure_sum" in job]
    return sorted({(one["colluding"], one["parties"]) for one in found})


def if_they_collude(sums: Sequence[tuple[int, int]], apart: Sequence[float], hidden: bool) -> list[list[str]]:
    """Rows on who learns more of secure sums; `apart`: what parties lose if all others collude, unless `hidden`."""
    few = "as many parties as each secure sum tolerates"
    if len(sums) == 1:
        few = "up to {} of the {} parties".format(*sums[0])
    everybody = words.cost(max(apart)) if apart else "the same as all others: no secure sum was released yet"
    return [
        [
            f"The coordinator with {few}, who tell all they know",
            "the same as all others, as long as the cryptography holds",
        ],
        [
            "The coordinator with everybody else",
            "more; since a job failed, it is not told how much" if hidden else everybody,
        ],
        [
            "Of a person with records at two parties of a secure sum",
            "more: both records move before the noise. The report of each run has the figure",
        ],
    ]


def notices(found: Mapping[str, Json], private: bool, copies: Mapping[str, str] = MappingProxyType({})) -> list[str]:
    """What is unusual about each ledger; `copies` as `copies_in` has them."""
    lines = [] if private else ["Not private: no epsilon covers what these ledgers have on record."]
    for name, view in found.items():
        if name in copies:
            lines.append(
                f"The ledger {name} is a copy of {copies[name]}, which begins with the same rows: the two are one "
                "ledger, and are counted once."
            )
        elif view["unanchored"]:
            lines.append(
                f"The ledger {name} is not the one in use: its anchor is not beside it. It is a backup, or was moved "
                "without it; it says what was on record when it was copied."
            )
        if view["behind"] is not None and not view["unanchored"]:
            lines.append(
                f"The ledger {name} is locked: it lacks rows that were on record; it was put back from a copy."
            )
        if name in copies:
            continue  # the other tells the rest
        if view["locked"] is not None:
            lines.append(f"The ledger {name} is locked: a step failed. It is charged in full, and its job is over.")
        if failed(view):
            lines.append(
                f"The ledger {name}: a job failed after records were read, and no statement is certified for it. How "
                "far it came is not told here: all of the budget counts as spent."
            )
        lines += [
            f"The ledger {name}{in_row(row)}: put back from a copy; {words.cost(row['epsilon'])} was charged for it."
            for row in view["restored"]
        ]
    return lines


def in_row(change: Json) -> str:
    return "" if change["row"] is None else f" in row {change['row']}"


def charts(jobs: Sequence[Json], private: bool, views: Sequence[Json]) -> list[Chart]:
    """What each job has cost the party that paid most."""
    if not jobs or not private:
        return []
    some = jobs[-MOST_JOBS:]
    where = "{ledger}, job {job:.8}" if len(views) > 1 else "job {job:.8}"
    rows = tuple((where.format(**job), job["epsilon_spent"] or 0.0, None) for job in some if job["state"] != "failed")
    budgets = sorted({view["policy"]["budget"]["epsilon"] for view in views})
    levels = (("budget", budgets[0]), ("largest budget", budgets[-1]))[: 1 if len(budgets) == 1 else 2]
    allowed = f"{budgets[0]:g}" if len(budgets) == 1 else f"{budgets[0]:g} to {budgets[-1]:g}"
    newest = f"the newest {MOST_JOBS} of {len(jobs)} jobs" if len(jobs) > MOST_JOBS else "each job"
    said = f"Epsilon that {newest} has cost the party that paid most, beside the budget of {allowed} for all of them."
    return [Spread("jobs", "Epsilon by job", said, "epsilon spent", rows, levels)]


def policies(found: Mapping[str, Json]) -> list[list[str]]:
    """The policies of all ledgers as rows of name, value and meaning; where they differ, whose it is."""
    owners: dict[tuple[str, ...], list[str]] = {}
    for name, view in found.items():
        for row in policy(view):
            owners.setdefault(tuple(row), []).append(name)
    return [
        [what if len(whose) == len(found) else f"{words.parties(whose)}: {what}", value, meaning]
        for (what, value, meaning), whose in owners.items()
    ]


def policy(view: Json) -> list[list[str]]:
    now = view["policy"]
    budget = now["budget"]
    labels, sums = now["label_epsilon"], [now["colluding"], now["fewest"]]
    reported = "as they are" if labels is None else f"randomised, epsilon {printed(labels, '.6g')}"
    rows = [
        ["budget", "none" if budget is None else f"{budget['epsilon']:g} at delta {budget['delta']:g}", "for all jobs"],
        ["budget of one job", "as much as is left" if now["per_job"] is None else f"{now['per_job']:g}", ""],
        ["algorithms", ", ".join(now["algorithms"]) if now["algorithms"] else "any", "that a job may use"],
        ["row bound", "any" if now["row_bound"] is None else f"{now['row_bound']:g}", "to which records are clipped"],
        ["labels", reported, "before anybody reads them"],
        ["secure sums", "colluding {}, fewest {}".format(*("by rule" if x is None else x for x in sums)), ""],
    ]
    for key, value in (now["limits"] or {}).items():
        rows.append([f"limit on {key}", f"{value:g}", "that a job may ask for"])
    for change in view["policies"][1:]:
        rows.append([f"amended{in_row(change)}", ", ".join(change["changed"]), f"because: {change['because']}"])
    return rows


def not_protected(views: Sequence[Json]) -> list[str]:
    # A ledger does not know whether parties had pinned each other's keys: it is said where that counts.
    lines = [words.closed(summed(few, parties, pinned=False)) for few, parties in secure_sums(views)]
    lines += words.NEVER_COVERED
    if any(view["policy"]["label_epsilon"] is None for view in views):
        lines.insert(0, "Labels and features from the party's own server, which holds them in the clear.")
    if any(map(failed, views)):
        lines.insert(0, "What it tells of records that a step failed, and when: no epsilon counts that.")
    return lines
