"""The DP-ADMM paper's figures and tables, drawn again."""

from functools import partial
from typing import Literal

from privadmm.papers.dp_admm.runs import Case, Found, Method, Noise, Penalty, Ran, looked
from privadmm.papers.framework.study import Figure, Grid, Line, Panel, Row, spread_words
from privadmm.runs.palette import Meaning

# Seconds for 100 rounds (Table III): by epsilon, of METHODS.
TABLE_III = {
    0.01: (6.184117, 368.871413, 3.063915),
    0.05: (6.184117, 212.488406, 3.066966),
    0.1: (6.184117, 70.127314, 3.056092),
}
METHODS: dict[Method, Noise] = {"Algorithm 1": "off", "Algorithm 2": "published", "DP-ADMM": "published"}
PLAIN = 0.1, 1e-3  # a key in place of epsilon and delta for Algorithm 1, which has neither
NUMBERS: tuple[tuple[int, int, Penalty], ...] = ((1, 2, "l1"), (3, 6, "l2"))
What = Literal["objective", "loss"]
MEANINGS: dict[Noise, Meaning] = {"published": "published", "certified": "certified", "off": "non_private"}


def figures(ran: Ran) -> list[Figure]:
    drawn = versus_algorithm_2(ran)
    for convergence, accuracy, penalty in NUMBERS:
        case, plain = partial(Case, penalty, "DP-ADMM"), Case(penalty, "Algorithm 1", "off", *PLAIN)
        chosen = {
            "the paper's noise, by epsilon": [case("published", epsilon, 1e-3) for epsilon in ran.epsilons],
            "the paper's noise, by delta": [case("published", 0.1, delta) for delta in ran.deltas],
            "certified at the paper's totals": [case("certified", epsilon, 1e-3) for epsilon in ran.epsilons],
        }
        panels = [
            panel(ran, title, "objective", [plain, *cases], by="delta" if title.endswith("delta") else "epsilon")
            for title, cases in chosen.items()
        ]
        caption = f"Figure {convergence}: convergence of DP-ADMM, {penalty}"
        drawn.append(Figure(f"figure-{convergence}", caption, panels))
        caption = f"Figure {accuracy}: the trained classifiers, {penalty}"
        drawn.append(Figure(f"figure-{accuracy}", caption, last(ran, penalty)))
    return sorted(drawn, key=lambda figure: figure.name)


def versus_algorithm_2(ran: Ran) -> list[Figure]:
    methods: tuple[Method, ...] = ("DP-ADMM", "Algorithm 2")
    noises: tuple[Noise, ...] = ("published", "certified")
    drawn, whats = [], dict[int, What]({4: "objective", 5: "loss"})
    for number, what in whats.items():
        panels = []
        for epsilon in (0.05, 0.1):
            cases = [Case("l2", method, noise, epsilon, 1e-3) for method in methods for noise in noises]
            panels.append(panel(ran, f"epsilon = {epsilon:g}, delta = 1e-3", what, cases))
        drawn.append(Figure(f"figure-{number}", f"Figure {number}: DP-ADMM and Algorithm 2, {what}", panels))
    return drawn


def panel(ran: Ran, title: str, what: What, cases: list[Case], by: Literal["epsilon", "delta"] | None = None) -> Panel:
    """Draw cases by round. Colours show the noise or, if asked, epsilon or delta; Algorithm 2 is dashed."""
    lines = []
    for case in cases:
        curve = ran.curves[case]
        values = curve.objective if what == "objective" else curve.loss
        meaning = MEANINGS[case.noise] if by is None or case.noise == "off" else None
        level = None if by is None else case.epsilon if by == "epsilon" else case.delta
        dashed = case.method != "DP-ADMM"
        lines.append(Line.of(named(case, curve), values, looked(ran.rounds), dashed, meaning=meaning, level=level))
    return Panel(title, "round", f"{what}, sum over providers", lines, yscale="log")


def named(case: Case, curve: Found) -> str:
    """Label a curve, with the certified epsilon of the whole run."""
    if curve.certified is None:
        return f"{case.method}, not private"
    own = f", published epsilon {case.epsilon:g} a round:" if case.noise == "published" else ","
    delta = case.delta if curve.certified else curve.alone
    return f"{case.method}{own} certified ({curve.certified:.3g}, {delta:.2g})"


def last(ran: Ran, penalty: Penalty) -> list[Panel]:
    """Draw accuracy and loss after the last round; certified noise costs the total that the paper counts."""
    families = {(case.method, case.noise, case.delta) for case in ran.curves if case.penalty == penalty}
    accuracies, losses = [], []
    for method, noise, delta in sorted(families, key=lambda family: (*family[:2], -family[2])):
        each = [
            ran.plain(penalty) if noise == "off" else ran.of(penalty, method, noise, epsilon, delta)
            for epsilon in ran.epsilons
        ]
        x, dashed = [ran.total(epsilon, delta) for epsilon in ran.epsilons], method != "DP-ADMM"
        # All methods have the largest delta; curves of other deltas are paler.
        line = partial(Line.of, x=x, dashed=dashed, meaning=MEANINGS[noise])
        shade = 1.0 if delta == max(ran.deltas) else 0.4
        name = f"{method}, not private" if noise == "off" else f"{method}, {noise}, delta = {delta:g}"
        accuracies.append(line(name, [curve.accuracy for curve in each], shade=shade))
        losses.append(line(name, [curve.loss[-1] for curve in each], shade=shade))
    below, summed = "total epsilon, as the paper counts", "loss, sum over providers"
    panels = [
        Panel("accuracy on held-out records", below, "accuracy", accuracies, "log"),
        Panel("empirical loss", below, summed, losses, "log", "log"),
    ]
    near, closer = ([each for each in some if not disrupted(each)] for some in (accuracies, losses))
    if len(closer) < len(losses):
        title = "without Algorithm 2 as published"
        panels.append(Panel(f"accuracy, {title}", below, "accuracy", near, "log", closer=True))
        panels.append(Panel(title, below, summed, closer, "log"))
    return panels


def disrupted(line: Line) -> bool:
    """Whether this line is so far off that the others look alike beside it."""
    return line.label.startswith("Algorithm 2, published")


def totals(ran: Ran) -> Grid:
    rows: list[Row] = []
    for delta in ran.deltas:
        for epsilon in ran.epsilons:
            certified = ran.of("l2", "DP-ADMM", "published", epsilon, delta).certified
            rows.append((f"{epsilon:g}", f"{delta:g}", ran.total(epsilon, delta), certified))
    columns = ("epsilon of a round", "delta", "the paper's accountant", "certified, exact")
    return Grid("totals", f"Total epsilon of {ran.rounds} rounds with the paper's noise", columns, rows)


def finals(ran: Ran) -> Grid:
    known = ran.known
    rows: list[Row] = [
        ("always the majority", "", "", None, "", spread_words(known["majority"])),
        ("optimum, l2", "", "", None, spread_words(known["loss"]), spread_words(known["accuracy"])),
    ]
    for case in sorted(ran.curves, key=lambda case: (case.penalty, case.method, case.noise, case.epsilon)):
        if case.delta == 1e-3:
            curve, own = ran.curves[case], f"{case.epsilon:g}" if case.noise == "published" else ""
            # If the total is 0, give the smaller delta at which it is 0 already.
            total = f"0 at delta = {curve.alone:.2g} already" if curve.certified == 0 else curve.certified
            ends = spread_words(curve.loss[-1]), spread_words(curve.accuracy)
            rows.append((f"{case.method}, {case.penalty}", case.noise, own, total, *ends))
    columns = ("method", "noise", "epsilon of a round", "certified total", "loss (range)", "accuracy (range)")
    return Grid("finals", f"After {ran.rounds} rounds, delta = 1e-3", columns, rows)


def table_iii(ran: Ran) -> Grid:
    rows: list[Row] = [
        (f"{epsilon:g}", *seconds, *(ran.work[epsilon, method] for method in METHODS))
        for epsilon, seconds in TABLE_III.items()
    ]
    columns = [f"{name}: {what}" for what in ("seconds, printed", "passes") for name in METHODS]
    return Grid("table-iii", f"Table III: the cost of {ran.rounds} rounds", ("epsilon", *columns), rows)
