"""The DP-ADMM paper's figures and tables, drawn again."""

from typing import Literal

from privadmm.papers.dp_admm.runs import Case, Found, Method, Noise, Penalty, Ran, looked
from privadmm.papers.framework.study import Figure, Grid, Line, Panel, Spread, spread_words

# Seconds for 100 rounds (Table III): by epsilon, of METHODS.
TABLE_III = {
    0.01: (6.184117, 368.871413, 3.063915),
    0.05: (6.184117, 212.488406, 3.066966),
    0.1: (6.184117, 70.127314, 3.056092),
}
METHODS: tuple[tuple[Method, Noise], ...] = (
    ("Algorithm 1", "off"),
    ("Algorithm 2", "published"),
    ("DP-ADMM", "published"),
)
PLAIN = 0.1, 1e-3  # under which Algorithm 1 is found, which has neither
NUMBERS: tuple[tuple[int, int, Penalty], ...] = ((1, 2, "l1"), (3, 6, "l2"))
What = Literal["objective", "loss"]


def figures(ran: Ran) -> tuple[Figure, ...]:
    found = [*versus_algorithm_2(ran)]
    for convergence, accuracy, penalty in NUMBERS:
        plain = Case(penalty, "Algorithm 1", "off", *PLAIN)
        chosen = {
            "the paper's noise, by epsilon": [
                Case(penalty, "DP-ADMM", "published", epsilon, 1e-3) for epsilon in ran.epsilons
            ],
            "the paper's noise, by delta": [Case(penalty, "DP-ADMM", "published", 0.1, delta) for delta in ran.deltas],
            "certified at the paper's totals": [
                Case(penalty, "DP-ADMM", "certified", epsilon, 1e-3) for epsilon in ran.epsilons
            ],
        }
        panels = tuple(panel(ran, title, "objective", [plain, *cases]) for title, cases in chosen.items())
        caption = f"Figure {convergence}: convergence of DP-ADMM, {penalty}"
        found.append(Figure(f"figure-{convergence}", caption, panels))
        caption = f"Figure {accuracy}: the trained classifiers, {penalty}"
        found.append(Figure(f"figure-{accuracy}", caption, last(ran, penalty)))
    return tuple(sorted(found, key=lambda figure: figure.name))


def versus_algorithm_2(ran: Ran) -> list[Figure]:
    found, whats = [], dict[int, What]({4: "objective", 5: "loss"})
    both: list[tuple[Method, Noise]] = [
        (method, noise) for method in ("DP-ADMM", "Algorithm 2") for noise in ("published", "certified")
    ]
    for number, what in whats.items():
        panels = [
            panel(
                ran,
                f"epsilon = {epsilon:g}, delta = 1e-3",
                what,
                [Case("l2", method, noise, epsilon, 1e-3) for method, noise in both],
                by_method=True,
            )
            for epsilon in (0.05, 0.1)
        ]
        caption = f"Figure {number}: DP-ADMM and Algorithm 2, {what}"
        found.append(Figure(f"figure-{number}", caption, tuple(panels)))
    return found


def panel(ran: Ran, title: str, what: What, cases: list[Case], by_method: bool = False) -> Panel:
    """Colours are by method, or by epsilon and delta; dashes tell the noise."""
    lines = []
    for case in cases:
        found = ran.curves[case]
        values = found.objective if what == "objective" else found.loss
        dashed = case.noise != "published"
        series = f"{case.method}" if by_method or case.noise == "off" else f"{case.epsilon:g}, {case.delta:g}"
        lines.append(Line(named(case, found), looked(ran.rounds), Spread.of(values), dashed=dashed, series=series))
    return Panel(title, "round", f"{what}, sum over providers", tuple(lines), yscale="log")


def named(case: Case, found: Found) -> str:
    """A curve's label, with the certified epsilon of the whole run."""
    if found.certified is None:
        return f"{case.method}, not private"
    own = f", published epsilon {case.epsilon:g} a round:" if case.noise == "published" else ","
    delta = case.delta if found.certified else found.alone
    return f"{case.method}{own} certified ({found.certified:.3g}, {delta:.2g})"


def certified_words(found: Found) -> str | float | None:
    """The certified total; where it is 0, the delta that is enough for it."""
    return f"0 at delta = {found.alone:.2g} already" if found.certified == 0 else found.certified


def last(ran: Ran, penalty: Penalty) -> tuple[Panel, ...]:
    """Accuracy and, beside it, loss after the last round; certified noise costs the total that the paper counts."""
    families = sorted(
        {(case.method, case.noise, case.delta) for case in ran.curves if case.penalty == penalty},
        key=lambda family: (*family[:2], -family[2]),
    )
    lines: dict[str, list[Line]] = {"accuracy": [], "loss": []}
    for method, noise, delta in families:
        each = [
            ran.plain(penalty) if noise == "off" else ran.of(penalty, method, noise, epsilon, delta)
            for epsilon in ran.epsilons
        ]
        x = [ran.total(epsilon, delta) for epsilon in ran.epsilons]
        name = f"{method}, not private" if noise == "off" else f"{method}, {noise}, delta = {delta:g}"
        for what, y in (
            ("accuracy", [found.accuracy for found in each]),
            ("loss", [found.loss[-1] for found in each]),
        ):
            lines[what].append(Line(name, x, Spread.of(y), dashed=noise != "published"))
    below, summed = "total epsilon, as the paper counts", "loss, sum over providers"
    panels = [
        Panel("accuracy on held-out records", below, "accuracy", tuple(lines["accuracy"]), "log"),
        Panel("empirical loss", below, summed, tuple(lines["loss"]), "log", "log"),
    ]
    closer = tuple(line for line in lines["loss"] if not line.label.startswith("Algorithm 2, published"))
    if len(closer) < len(lines["loss"]):
        panels.append(Panel("without Algorithm 2 as published", below, summed, closer, "log"))
    return tuple(panels)


def grids(ran: Ran) -> tuple[Grid, ...]:
    return totals(ran), finals(ran), table_iii(ran)


def totals(ran: Ran) -> Grid:
    rows = tuple(
        (
            f"{epsilon:g}",
            f"{delta:g}",
            ran.total(epsilon, delta),
            ran.of("l2", "DP-ADMM", "published", epsilon, delta).certified,
        )
        for delta in ran.deltas
        for epsilon in ran.epsilons
    )
    columns = ("epsilon of a round", "delta", "the paper's accountant", "certified, exact")
    return Grid("totals", f"Total epsilon of {ran.rounds} rounds with the paper's noise", columns, rows)


def finals(ran: Ran) -> Grid:
    known = ran.known
    rows: list[tuple[str | float | None, ...]] = [
        ("always the majority", "", "", None, "", spread_words(known["majority"])),
        ("optimum, l2", "", "", None, spread_words(known["loss"]), spread_words(known["accuracy"])),
    ]
    order = sorted(ran.curves, key=lambda case: (case.penalty, case.method, case.noise, case.epsilon))
    for case in order:
        if case.delta == 1e-3:
            found, own = ran.curves[case], f"{case.epsilon:g}" if case.noise == "published" else ""
            ends = spread_words(found.loss[-1]), spread_words(found.accuracy)
            rows.append((f"{case.method}, {case.penalty}", case.noise, own, certified_words(found), *ends))
    columns = ("method", "noise", "epsilon of a round", "certified total", "loss (range)", "accuracy (range)")
    return Grid("finals", f"After {ran.rounds} rounds, delta = 1e-3", columns, tuple(rows))


def table_iii(ran: Ran) -> Grid:
    rows: list[tuple[str | float | None, ...]] = [
        (f"{epsilon:g}", *seconds, *(ran.work[epsilon, method] for method, _ in METHODS))
        for epsilon, seconds in TABLE_III.items()
    ]
    names = [method for method, _ in METHODS]
    printed, passes = (tuple(f"{name}: {what}" for name in names) for what in ("seconds, printed", "passes"))
    caption = f"Table III: the cost of {ran.rounds} rounds"
    return Grid("table-iii", caption, ("epsilon", *printed, *passes), tuple(rows))
