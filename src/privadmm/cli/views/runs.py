"""What `train` and `demo` print about a run: its figures, its cost, and the budget that is left."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privadmm.cli.views import screen
from privadmm.cli.views.jobs import adversaries, guarantee, in_sums, of_people
from privadmm.cli.views.screen import Facts, escape, percent
from privadmm.data.misread import amiss, clipped_warning, labels_warning
from privadmm.privacy.accounting import printed, rounded_down
from privadmm.runs.measures import worse_than_constant
from privadmm.runs.metrics import amount
from privadmm.runs.model import NOT_PRIVATE, SIMULATED

if TYPE_CHECKING:
    from privadmm.data.frame import Frame
    from privadmm.runs.demo import Demo
    from privadmm.runs.ending import Finished

MOST_PARTIES = 20
HEADINGS = {"auc": "AUC", "r2": "R^2", "rmse": "RMSE", "rmse_constant": "RMSE of the constant"}


def run(done: "Finished") -> str:
    """The summary of one run."""
    r = done.result
    facts: Facts = [("algorithm", f"{r['algorithm']}, {amount(r['parties'], 'party')}, {amount(r['rounds'], 'round')}")]
    certified = f"{guarantee(r)}, certified, for each party"
    facts.append(("privacy", certified if r["private"] else screen.alarm(NOT_PRIVATE)))
    if r["mode"] == "simulation":
        facts += [("mode", SIMULATED), *measured(r), *misread(r, done.model.frame)]
        clipped = labels_warning(labels_clipped(r), (r.get("misread") or {"rows": 0})["rows"]) is not None
        worse = worse_than_constant(r.get("evaluation") or {}, "secure_sum" in r, done.chosen, clipped)
        facts.append(("warning", screen.alarm(worse if r["private"] else None)))
    else:
        paid = " but by the charged evaluation" if "private_evaluation" in r else ""
        facts.append(("mode", f"deployment: nothing is measured on private records{paid}"))
    facts += privately_evaluated(r.get("private_evaluation"))
    facts += adversaries(r["adversaries"]) + of_people(r) + in_sums(r) + absent(r) + budgets(done)
    facts += [("time", f"{r['seconds']:.1f} s"), ("run directory", Path(r["out"]))]
    tables = evaluated(r.get("evaluation"), done.model.frame.classes, r.get("party_names", ()))
    return screen.shown(screen.rows(facts), *tables)


def privately_evaluated(noisy: dict[str, Any] | None) -> Facts:
    """A line for each figure of a private evaluation, with its errors; nothing where there is none."""
    if noisy is None:
        return []
    if "missing" in noisy:
        return [("evaluation", f"private, lost ({noisy['missing']})")]
    from privadmm.runs.private_evaluation import told

    loss = "log_loss" if "log_loss" in noisy else "loss"
    records = f"{noisy['records']:,} held-out records, {noisy['share']:.0%} of the budget; one standard deviation each"
    return [
        ("evaluation", f"private, charged: {records}"),
        ("  AUC", told(noisy, "auc")),
        ("  accuracy", told(noisy, "accuracy")),
        ("  majority", told(noisy, "majority")),
        (f"  {loss.replace('_', ' ')}", f"{told(noisy, loss)}; a record counts up to {noisy['clip']:g}"),
    ]


def evaluated(exact: dict[str, Any] | None, classes: tuple[Any, Any] | None, parties: Sequence[str] = ()) -> list[Any]:
    """The exact figures of a simulation: a line for all records, and one for each party, by its name if it has one."""
    if exact is None:
        return []

    def called(party: int) -> str:
        return escape(parties[party]) if parties else str(party)

    columns = [key for key in ("auc", "log_loss", "brier", "rmse", "rmse_constant", "r2") if exact.get(key) is not None]
    shares = [key for key in ("accuracy", "majority") if key in exact]
    rows = [
        (name, f"{row['records']:,}", *(decimals(row[key]) for key in columns), *(percent(row[key]) for key in shares))
        for name, row in (("all", exact), *((called(row["party"]), row) for row in exact["parties"][:MOST_PARTIES]))
    ]
    names = [HEADINGS.get(key, key.replace("_", " ")) for key in (*columns, *shares)]
    tables = [screen.table(f"On {exact['on']}", ("party", "records", *names), rows)]
    if (cells := exact.get("confusion")) is not None:
        first, second = (escape(str(name)) for name in classes or ("-1", "+1"))
        lines = [
            (first, f"{cells['true_negative']:,}", f"{cells['false_positive']:,}"),
            (second, f"{cells['false_negative']:,}", f"{cells['true_positive']:,}"),
        ]
        heads = ("true class", f"said {first}", f"said {second}")
        tables.append(screen.table("Confusion at the threshold", heads, lines))
    return tables


def decimals(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def measured(r: dict[str, Any]) -> Facts:
    def shares(key: str) -> str | None:
        train, test = percent(r[f"{key}_train"]), percent(r[f"{key}_test"])
        return None if r["accuracy_train"] is None else f"train {train}, test {test}"

    value = "none: the model ran away" if r["objective"] is None else f"{r['objective']:.8g}"
    gap = screen.given("; parties' own iterates within {:.2g} of the model", r["gap"]) or ""
    same = "all records have one class, so there is nothing to tell apart: check \\[data] label and classes"
    return [
        ("accuracy", shares("accuracy")),
        ("majority", shares("majority")),
        ("warning", f"[bold red]{same}[/]" if r["majority_train"] == 1 else None),
        ("objective", value + gap),
    ]


def misread(r: dict[str, Any], frame: "Frame") -> Facts:
    """How many cells and rows were read as something else than they hold; only a simulation may tell."""
    if (counts := r.get("misread")) is None:
        return []
    lines: Facts = [("read", escape(line)) for line in amiss(counts["cells"], counts["rows"])]
    too_long = clipped_warning(counts["rows_clipped"] or 0, counts["rows"], frame.row_bound)
    many = labels_warning(labels_clipped(r), counts["rows"])
    return [*lines, ("warning", screen.alarm(too_long)), ("warning", screen.alarm(many))]


def labels_clipped(r: dict[str, Any]) -> int:
    """How many numbers to predict lie beyond the declared bound; 0 if that was not counted."""
    return sum(kinds.get("label", 0) for kinds in (r.get("misread") or {"cells": {}})["cells"].values())


def absent(r: dict[str, Any]) -> Facts:
    """Parties that left, what they had spent, and the objective that the others minimise."""
    facts: Facts = []
    for party in r.get("absent", ()):
        words = f"gave no answer from round {party['from_round']} on"
        if party["epsilon"] is not None:
            spent, aside = printed(party["epsilon"]), printed(party["set_aside"])
            words += f"; it had spent epsilon = {spent} at most, of the {aside} set aside for it"
            words += f"; `privadmm ledger close` with job {party['job']} frees the rest"
        facts.append((f"party {party['party']}", words))
    if (lost := r.get("lost_rounds")) is not None:
        which = f"{'round' if len(lost) == 1 else 'rounds'} {', '.join(map(str, lost))}"
        facts.append(("lost", f"{which}: a message was missing, so the sum could not be read; charged all the same"))
    if facts:
        facts.append(("those left", f"minimise their own losses with C = {r['C_present']:.6g}, at the planned weights"))
    return facts


def budgets(done: "Finished") -> Facts:
    """The budget that is left to each party, if the ledger is not this run's alone."""
    r, budget = done.result, done.ledger["budget"]
    if r["ledger"] in (str(done.directory.ledger), str(done.directory.ledgers)):
        alone = "of this run alone; name \\[run] ledger to count other runs on these records with it"
        return [("ledger", alone)] if r["mode"] == "deployment" and r["private"] else []
    facts: Facts = [("ledger", Path(r["ledger"]))]
    for label, spent, left in screen.alike(done.ledger["parties"], "epsilon", "left") if budget else ():
        room = f"another run may ask for up to {left:.4g}" if left else "nothing is left"
        if left and left > (rest := budget["epsilon"] - (spent or 0.0)):
            room += f" (more than the plain rest of {rounded_down(max(0.0, rest))}, since releases add up like squares)"
        facts.append((label, f"epsilon {printed(spent)} of {budget['epsilon']:.4g} spent; {room}"))
    return facts


def demo(made: "Demo") -> str:
    from privadmm.runs.demo import WORDS

    results = {name: done.result for name, done in made.runs.items()}
    models = [(WORDS[name], guarantee(r), percent(r["accuracy_test"])) for name, r in results.items()]
    secure = results["secure"]
    models.append(("always the majority", "", percent(secure["majority_test"])))
    ledger, spent = made.secure.ledger, []
    for party in ledger["parties"]:
        releases = sum(event["count"] for event in party["events"])
        budget = f"{ledger['budget']['epsilon']:g}"
        spent.append((str(party["party"]), str(releases), printed(party["epsilon"], ".6f"), budget))
    best = results["reference"]["accuracy_test"]
    below, alone = (100 * (best - results[name]["accuracy_test"]) for name in ("secure", "local"))
    costs = (
        f"privacy costs {below:.1f} points of accuracy in secure sums, and {alone:.1f} with noise of each party's own"
    )
    facts: Facts = [
        ("in short", costs),
        ("mode", SIMULATED),
        *in_sums({"secure_sum": {k: v for k, v in secure["secure_sum"].items() if k != "roster"}}),
        ("all three", made.figure),
        ("convergence", made.secure.directory.convergence),
        ("epsilon by round", made.secure.directory.spending),
    ]
    headings = ("model", "privacy of each party", "test accuracy")
    title = "Adult census income, 10 parties that share no record"
    return screen.shown(
        screen.table(title, headings, models, left=headings[:2]),
        screen.table("Each party's own ledger", ("party", "releases", "epsilon spent", "budget"), spent),
        screen.rows(facts),
    )
