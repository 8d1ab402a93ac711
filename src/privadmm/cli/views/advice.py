"""What `privadmm recommend`, `frontier` and `scale` print, and the files that the last two write."""

from pathlib import Path
from typing import Any

from privadmm.cli.views import screen
from privadmm.data.files import write_json
from privadmm.runs.metrics import amount
from privadmm.runs.palette import Zone
from privadmm.runs.recommend import THIN, TOO_SMALL, Expected
from privadmm.runs.style import SMALL, finish, picture

HONEST = "an estimate for two classes from public facts; what the data hold decides, and it is not an accuracy"
ZONES: dict[Zone, str] = {  # of the frontier, from the bottom
    "good": "GOOD: most of what the data can tell gets through",
    "thin": "THIN: a part is lost; of unequal classes maybe all",
    "poor": "TOO SMALL: do not expect to beat a constant",
}
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
    facts: screen.Facts = [
        ("facts", f"{r['records']} records to train on, {amount(r['parties'], 'party')}"),
        ("budget", f"epsilon = {r['epsilon']:g}, delta = {r['delta']:g}, for each party"),
        ("method", f"{r['method']}, {r['rounds']} rounds: one of moments, {r['rounds'] - 1} of gradients"),
        ("loss", r["loss"]),
        ("sums", sums),
        ("encoding", f"{r['encoding']}: numbers one-hot in {bins} bins, rows of norm 1{width}"),
        ("warning", screen.alarm(r["warning"])),
        ("verdict", verdict if r["warning"] is None else None),
        ("mind", HONEST),
    ]
    methods = [(m["method"], f"{m['noise_to_signal']:.2g}", screen.verdict(m["verdict"])) for m in r["methods"]]
    title = "Noise, in times the signal of a middling data set"
    return screen.shown(
        screen.rows(facts), screen.table(title, ("method", "noise", "verdict"), methods, left=("method", "verdict"))
    )


def frontier(r: dict[str, Any], out: Path | None) -> str:
    columns: tuple[str, ...] = ("epsilon", "noise / signal", "verdict", "encoding")
    both = "least_epsilon_with_secure_sum" in r
    columns += ("in secure sums", "verdict there") if both else ()
    lines = [
        (f"{at['epsilon']:g}", *estimated(at), at["encoding"], *(estimated(at["with_secure_sum"]) if both else ()))
        for at in r["lines"]
    ]
    title = f"{r['records']} records at {amount(r['parties'], 'party')}, delta = {r['delta']:g}"
    facts: screen.Facts = [(word, f"from epsilon = {least:.2g} on") for word, least in r["least_epsilon"].items()]
    if both:
        least = [f"{word} from {value:.2g}" for word, value in r["least_epsilon_with_secure_sum"].items()]
        facts.append(("in secure sums", ", ".join(least)))
    facts += [("mind", HONEST), ("written to", out)]
    return screen.shown(screen.table(title, columns, lines, left=(*columns[2:4], *columns[5:])), screen.rows(facts))


def estimated(at: dict[str, Any]) -> tuple[str, str]:
    return f"{at['noise_to_signal']:.2g}", screen.verdict(at["verdict"])


def save_frontier(r: dict[str, Any], out: Path) -> None:
    """frontier.json, and noise over signal by epsilon, on the zones of the three verdicts."""
    write_json(out / "frontier.json", r)
    title = f"What a budget can buy: {r['records']:,} records at {amount(r['parties'], 'party')}"
    words = f"Nothing was run: {HONEST} (docs/recommend.md)"
    with picture(out / "frontier", height=4.4, title=title, words=words, mode=None) as (drawing, theme):
        axes = drawing.subplots()
        epsilons = [line["epsilon"] for line in r["lines"]]
        secure = r["sum"] == "secure"
        curves = [([line["noise_to_signal"] for line in r["lines"]], secure)]
        if "least_epsilon_with_secure_sum" in r:
            curves.append(([line["with_secure_sum"]["noise_to_signal"] for line in r["lines"]], True))
        for noise, summed in curves:
            color, marker = (theme.secure_sum, "s") if summed else (theme.own_noise, "o")
            how = "in secure sums" if summed else "each party with noise of its own"
            axes.plot(epsilons, noise, color=color, marker=marker, label=f"recommended method, {how}", zorder=3)
        every = [noise for line, _ in curves for noise in line]
        low, high = min(*every, THIN / 3), max(*every, TOO_SMALL * 3)
        axes.set(
            xscale="log",
            yscale="log",
            xlabel=f"epsilon of each party (delta = {r['delta']:g})",
            ylabel="noise in a score, in times the signal",
            ylim=(low / 1.3, high * 1.3),
        )
        edges = (low / 1.3, THIN, TOO_SMALL, high * 1.3)
        for (zone, words), bottom, top in zip(ZONES.items(), edges[:-1], edges[1:], strict=True):
            axes.axhspan(bottom, top, color=theme.zones[zone], zorder=0)
            # Curves fall from the top left to the bottom right.
            side: dict[str, Any] = {"ha": "right", "x": 0.99} if zone == "poor" else {"ha": "left", "x": 0.012}
            axes.annotate(
                words,
                (side.pop("x"), bottom),
                xycoords=("axes fraction", "data"),
                xytext=(0, 5),
                textcoords="offset points",
                color=theme.verdicts[zone],
                fontsize=SMALL,
                **side,
            )
        finish(axes, x=epsilons, y=[0.01, 0.03, 0.1, THIN, 1, TOO_SMALL, 5, 10, 20, 50, 100], legend="upper right")


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
    """The engine, and what its nodes are where they are not machines with a party each."""
    workers = [] if r["workers"] is None else [amount(r["workers"], "worker")]
    cores = [] if r["cores"] is None else [amount(r["cores"], "core")]
    return ", ".join([r["engine"], *workers, *cores])


def sealing(lines: list[dict[str, Any]]) -> Any:
    """What a secure sum adds; its masks are part of a round above."""
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
