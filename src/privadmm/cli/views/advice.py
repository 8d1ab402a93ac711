"""What `privadmm recommend`, `frontier` and `scale` print, and the files that the last two write."""

import math
from pathlib import Path
from typing import Any

from privadmm.cli.views import screen
from privadmm.data.files import write_json
from privadmm.privacy.meaning import LARGE, weak_from
from privadmm.runs.accuracy_lost import curve
from privadmm.runs.metrics import amount, held_by
from privadmm.runs.palette import Theme, Zone
from privadmm.runs.recommend import Expected
from privadmm.runs.style import SMALL, band, finish, outline, picture

HONEST = "an estimate for two classes from public facts: what the data hold decides, and it is not their accuracy"
ON_ADULT = "points of accuracy lost were measured on Adult, at the same noise: they are Adult's, not those of your data"
HELD_BACK = "the others are held out to measure accuracy; a deployment without an evaluation trains on all"
VERDICTS = {"good": "most gets through", "thin": "a part is lost, or all", "too small": "no better than a constant"}
NAMES: dict[Zone, str] = {"good": "GOOD", "thin": "THIN", "poor": "TOO SMALL"}  # of zones of the frontier
WORST_FIRST: tuple[Zone, ...] = ("poor", "thin", "good")
SUMS = {True: "in secure sums", False: "noise of each party's own"}
MARKS = {"good": "o", "thin": "D", "too small": "X"}  # of points, by verdict
MODELLED = "A model of the network, not a measurement."
TOPOLOGIES = {
    "star": "star",
    "graph": "graph, relayed by the coordinator",
    "peers": "graph, neighbours directly",
    "sharing": "split features",
}


def recommendation(r: dict[str, Any]) -> str:
    width = "" if r["dim"] is None else f", {r['dim']} features"
    bins = "ten" if r["encoding"] == "binned" else "five"
    expected = Expected(r["expected"]["noise_to_signal"])
    verdict = f"{screen.verdict(expected.verdict)}: {expected.meaning}"
    gain, sums = r["with_secure_sum"], None
    if gain is not None:
        less = f"{gain['times_less_noise']:.3g} times less noise, {gain['noise_to_signal']:.2g} times the signal"
        sums = f'\\[privacy] sum = "secure" would have {less}: {screen.verdict(gain["verdict"])}, as long as at most '
        sums += f"{gain['colluding']} of {r['parties']} parties collude"
    if r["sum"] == "secure":
        sums = f"secure: one noise for all, as long as at most {r['colluding']} of {r['parties']} parties collude"
    own = None
    if (alone := r["with_own_noise"]) is not None:
        own = f"if each party added its own instead, {alone['noise_to_signal']:.2g} times the signal: "
        own += screen.verdict(alone["verdict"])
    facts: screen.Facts = [
        ("facts", held_by(r["records"], r["trained_on"], r["parties"])),
        ("held out", HELD_BACK if r["trained_on"] < r["records"] else None),
        ("budget", f"epsilon = {r['epsilon']:g}, delta = {r['delta']:g}, for each party"),
        ("method", f"{r['method']}, {r['rounds']} rounds: one of moments, {r['rounds'] - 1} of gradients"),
        ("loss", r["loss"]),
        ("sums", sums),
        ("encoding", f"{r['encoding']}: numbers one-hot in {bins} bins, rows of norm 1{width}"),
        ("warning", screen.alarm(r["warning"])),
        ("warning", screen.alarm(r["epsilon_warning"])),
        ("warning", screen.alarm(r["delta_warning"])),
        ("verdict", verdict if r["warning"] is None else None),
        ("own noise", own),
        ("on Adult", f"{lost(r['expected'], True)} points of accuracy lost at the same noise"),
        ("mind", f"{HONEST}; {ON_ADULT}"),
    ]
    methods = [(m["method"], *estimated(m)) for m in r["methods"]]
    title = "Noise, in times the signal of a middling data set, and points that Adult lost at it"
    columns = ("method", "lost on Adult", "noise", "verdict")
    return screen.shown(screen.rows(facts), screen.table(title, columns, methods, left=("method", "verdict")))


def frontier(r: dict[str, Any], out: Path | None) -> str:
    columns: tuple[str, ...] = ("epsilon", "lost on Adult", "noise / signal", "verdict")
    both = "least_epsilon_with_secure_sum" in r
    columns += ("in secure sums", "noise there", "verdict there") if both else ()
    lines = [
        (f"{at['epsilon']:g}", *estimated(at), *(estimated(at["with_secure_sum"]) if both else ())) for at in r["lines"]
    ]
    title = f"{held_by(r['records'], r['trained_on'], r['parties'])}, delta = {r['delta']:g}"
    facts: screen.Facts = [(word, f"from epsilon = {least:.2g} on") for word, least in r["least_epsilon"].items()]
    if both:
        least = [f"{word} from {value:.2g}" for word, value in r["least_epsilon_with_secure_sum"].items()]
        facts.append(("in secure sums", ", ".join(least)))
    if r["lines"][-1]["epsilon"] >= LARGE:
        facts.append(("weak promise", screen.alarm(weak_from())))
    facts += [("mind", f"{HONEST}; {ON_ADULT}"), ("written to", out)]
    return screen.shown(screen.table(title, columns, lines, left=(columns[3], *columns[6:])), screen.rows(facts))


def estimated(at: dict[str, Any]) -> tuple[str, str, str]:
    """What Adult lost, noise over signal, and the verdict."""
    return lost(at), f"{at['noise_to_signal']:.2g}", screen.verdict(at["verdict"])


def lost(at: dict[str, Any], spread: bool = False) -> str:
    """Points that Adult lost at this noise, with their spread if that is asked; empty where nothing was measured."""
    if (points := at.get("lost_on_adult")) is None:
        return ""
    if not points["measured"]:
        return f"{'over' if points['mean'] > 1 else 'below'} {points['mean']:.1f}"
    return f"{points['mean']:.1f}" + (f" ({points['low']:.1f} to {points['high']:.1f})" if spread else "")


def save_frontier(r: dict[str, Any], out: Path) -> None:
    """frontier.json, and points lost on Adult by epsilon, under a strip of the verdicts of each curve."""
    write_json(out / "frontier.json", r)
    title = f"What a budget can buy: {r['records']:,} records at {amount(r['parties'], 'party')}"
    words = (
        f"{r['trained_on']:,} of the records are trained on. No record was read: {HONEST} (docs/recommend.md). Strips: "
        f"verdicts by noise ({'; '.join(f'{verdict}: {told}' for verdict, told in VERDICTS.items())}). "
        "Height: points that the recommended method lost on the public Adult data at the same noise, Adult's and not "
        "yours; bands: the spread between the ways to have that noise there, hollow points: a noise beyond those; "
        "dotted: always the more frequent class."
    )
    curves = [(r["lines"], r["least_epsilon"], r["sum"] == "secure")]
    if "least_epsilon_with_secure_sum" in r:
        lines = [line["with_secure_sum"] for line in r["lines"]]
        curves.append((lines, r["least_epsilon_with_secure_sum"], True))
    epsilons = [line["epsilon"] for line in r["lines"]]
    height = 4.2 + 0.3 * len(curves)
    with picture(out / "frontier", height=height, title=title, words=words, mode=None) as (drawing, theme):
        strips, axes = drawing.subplots(2, 1, sharex=True, height_ratios=(0.28 * len(curves), 4.0))
        for lines, _, summed in curves:
            color = theme.secure_sum if summed else theme.own_noise
            mean, low, high = ([line["lost_on_adult"][what] for line in lines] for what in ("mean", "low", "high"))
            band(axes, epsilons, low, high, color, among=len(curves))
            axes.plot(epsilons, mean, color=color, label=f"recommended method, {SUMS[summed]}", zorder=3)
            for x, y, line in zip(epsilons, mean, lines, strict=True):
                ground = color if line["lost_on_adult"]["measured"] else theme.paper
                mark = {"marker": MARKS[line["verdict"]], "markerfacecolor": ground, "markersize": 6, "zorder": 4}
                axes.plot([x], [y], color=color, **mark)
        all_lost = curve().majority
        top = 1.25 * max(all_lost, *(line["lost_on_adult"]["high"] for lines, _, _ in curves for line in lines))
        axes.axhline(all_lost, color=theme.majority, linestyle=":", linewidth=1.3)
        axes.set(
            xscale="log",
            xlabel=f"epsilon of each party (delta = {r['delta']:g})",
            ylabel="accuracy lost, in points,\nas measured on Adult at the same noise",
            ylim=(0, top),
        )
        weak(axes, epsilons, theme)
        finish(axes, x=epsilons, legend="upper right")
        verdicts(strips, [(least, summed) for _, least, summed in curves], axes.get_xlim(), theme)


def weak(axes: Any, epsilons: list[float], theme: Theme) -> None:
    """Mark the epsilon from which on a promise is weak, if it is on the axis."""
    if epsilons[0] < LARGE <= epsilons[-1]:
        axes.axvline(LARGE, ymax=0.84, color=theme.verdicts["poor"], linestyle="--", linewidth=1.0, zorder=2)
        words = f"a weak promise\nfrom {LARGE:g} on"
        at = {"xytext": (4, 6), "textcoords": "offset points", "xycoords": ("data", "axes fraction"), "va": "bottom"}
        color, edge = theme.verdicts["poor"], outline(theme.paper)
        axes.annotate(words, (LARGE, 0.42), color=color, fontsize=SMALL, path_effects=edge, zorder=5, **at)


def verdicts(
    strips: Any, curves: list[tuple[dict[str, float], bool]], limits: tuple[float, float], theme: Theme
) -> None:
    """Draw a strip for each curve, coloured by the verdict at each epsilon; the verdict's name stands where it fits."""
    left, right = limits
    for row, (least, _) in enumerate(curves):
        borders = [left, *(min(max(least[word], left), right) for word in ("not too small", "good")), right]
        for zone, low, high in zip(WORST_FIRST, borders[:-1], borders[1:], strict=True):
            strips.barh(row, high - low, left=low, height=0.86, color=theme.zones[zone])
            share = math.log(high / low) / math.log(right / left)
            if share > 0.08:  # else its name does not fit
                size, middle = (SMALL if share > 0.12 else 0.75 * SMALL), {"ha": "center", "va": "center"}
                strips.text(
                    math.sqrt(low * high), row, NAMES[zone], color=theme.verdicts[zone], fontsize=size, **middle
                )
    strips.set_yticks(range(len(curves)), [SUMS[summed] for _, summed in curves])
    strips.set(ylim=(len(curves) - 0.5, -0.5))
    strips.tick_params(length=0, labelbottom=False)
    strips.spines[:].set_visible(False)


def scale(r: dict[str, Any], out: Path | None) -> str:
    columns = ("parties", "who talks to whom", "seconds", "bytes in all", "through the coordinator")
    lines = [
        (
            f"{at['parties']:,}",
            TOPOLOGIES[at["kind"]],
            seconds(at["seconds"]),
            size(at["bytes"]),
            size(at["bytes_at_hub"]),
        )
        for at in r["lines"]
    ]
    title = f"One round of {r['algorithm']} on {place(r)}, latency {1000 * r['network']['latency']:g} ms"
    facts: screen.Facts = [("note", MODELLED), ("written to", out)]
    tables = [screen.table(title, columns, lines, left=columns[1:2])]
    if r["secure_sum"]:
        tables.append(sealing(r["lines"]))
    return screen.shown(*tables, screen.rows(facts))


def place(r: dict[str, Any]) -> str:
    """Name the engine and, if they are given, the numbers of its workers and cores."""
    workers = [] if r["workers"] is None else [amount(r["workers"], "worker")]
    cores = [] if r["cores"] is None else [amount(r["cores"], "core")]
    return ", ".join([r["engine"], *workers, *cores])


def sealing(lines: list[dict[str, Any]]) -> Any:
    """A table of what a secure sum adds. The seconds of a round, in the table above, include its masks."""
    columns = ("parties", "masks, seconds a round", "keys, seconds once", "roster, bytes once")
    rows = [(f"{at['parties']:,}", seconds(at["masks"]), seconds(at["keys"]), size(at["roster"])) for at in lines]
    return screen.table("What the secure sum adds for each node", columns, rows)


def seconds(count: float) -> str:
    return f"{count:.3g}" if count < 100 else f"{count:,.0f}"


def size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.4g} TB"


def save_scale(r: dict[str, Any], out: Path) -> None:
    """scale.json, and seconds and bytes of a round by the number of parties."""
    write_json(out / "scale.json", r)
    title = f"One round of {r['algorithm']} on {place(r)}"
    with picture(out / "scale", 9.5, 4.2, title=title, words=MODELLED, mode=None) as (drawing, theme):
        whats = {"seconds": "seconds a round", "bytes": "bytes a round, on all wires"}
        for axes, (key, words) in zip(drawing.subplots(1, 2), whats.items(), strict=True):
            for number, (kind, name) in enumerate(TOPOLOGIES.items()):
                if lines := [(line["parties"], line[key]) for line in r["lines"] if line["kind"] == kind]:
                    marker = "osD^"[number]
                    axes.plot(*zip(*lines, strict=True), marker=marker, color=theme.series(number), label=name)
            axes.set(xlabel="parties", ylabel=words, xscale="log", yscale="log")
            finish(axes, x=sorted({line["parties"] for line in r["lines"]}))
