"""What `privadmm recommend`, `frontier` and `scale` print, and the files that the last two write."""

from pathlib import Path
from typing import Any

from privadmm.cli.views import screen
from privadmm.data.files import write_json
from privadmm.runs.metrics import amount
from privadmm.runs.plots import BLUE, GREEN, GREY, ORANGE, RED, canvas
from privadmm.runs.recommend import THIN, TOO_SMALL, Expected

HONEST = "an estimate for two classes from public facts; what the data hold decides, and it is not an accuracy"
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
        ("warning", screen.alarm(r["delta_warning"])),
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
    """frontier.json, and noise over signal by epsilon with the two lines that divide the verdicts."""
    write_json(out / "frontier.json", r)
    drawing = canvas(height=4.4)
    axes = drawing.subplots()
    epsilons = [line["epsilon"] for line in r["lines"]]
    noise = [line["noise_to_signal"] for line in r["lines"]]
    how = "in secure sums" if r["sum"] == "secure" else "each party with noise of its own"
    axes.plot(epsilons, noise, color=BLUE, marker="o", label=f"recommended method, {how}")
    if "least_epsilon_with_secure_sum" in r:
        noise = [line["with_secure_sum"]["noise_to_signal"] for line in r["lines"]]
        axes.plot(epsilons, noise, color=GREEN, marker="s", label="recommended method, in secure sums")
    axes.axhline(TOO_SMALL, color=RED, linestyle="--", linewidth=1, label="above: too small")
    axes.axhline(THIN, color=ORANGE, linestyle="--", linewidth=1, label="below: good")
    axes.set(
        xscale="log",
        yscale="log",
        xlabel=f"epsilon of each party (delta = {r['delta']:g})",
        ylabel="noise / signal",
        title=f"{r['records']} records at {amount(r['parties'], 'party')}",
    )
    axes.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
    axes.xaxis.minorticks_off()
    finish(axes)
    drawing.supxlabel(HONEST, fontsize=9, color=GREY)
    drawing.savefig(out / "frontier.png")


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
    drawing = canvas(height=4.6)
    drawing.set_size_inches(9.5, 4.6)
    plots = drawing.subplots(1, 2)
    for axes, key, words in zip(
        plots, ("seconds", "bytes"), ("seconds a round", "bytes a round, on all wires"), strict=True
    ):
        for kind, name in TOPOLOGIES.items():
            if lines := [(line["parties"], line[key]) for line in r["lines"] if line["kind"] == kind]:
                axes.plot(*zip(*lines, strict=True), "o-", color=ORANGE if kind == "peers" else BLUE, label=name)
        axes.set(xlabel="parties", ylabel=words, xscale="log", yscale="log")
        finish(axes)
    drawing.suptitle(f"{r['algorithm']} on {place(r)}")
    drawing.supxlabel(MODELLED, fontsize=9, color=GREY)
    drawing.savefig(out / "scale.png")


def finish(axes: Any) -> None:
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9)
