"""Studies as one HTML page: every figure and table beside what the paper printed, and verdicts to filter by.

The page fetches nothing, and only its own script runs. Figures are the SVG files of the studies with named colours,
so that they follow the reader's light or dark theme. The page and results.md are made from the same studies.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path

from privadmm import __version__
from privadmm.papers.framework.drawing import columns
from privadmm.papers.framework.pages import BY, SETTINGS, kind, word
from privadmm.papers.framework.study import VERDICTS, Check, Figure, Grid, Study
from privadmm.papers.references import REFERENCES
from privadmm.runs.palette import LIGHT, THEMES, Theme, Zone
from privadmm.runs.report.head import head
from privadmm.runs.report.safe import safe
from privadmm.runs.style import symbols

ZONES: dict[bool | None, Zone] = {True: "good", False: "poor", None: "thin"}
LONGEST = 100_000  # letters of a text, more than any: a study has no texts from outside
SCORED = {"held": "hold", "failed": "do not hold", "unjudged": "cannot be judged", "claims": "claims"}
OURS = "our expectations that hold"
MANY = 5  # columns of a table, beyond which it needs the whole width
ROWS = 14  # of a table, beyond which it is folded
PLACE = re.compile(r"\b(Figures?|Tables?) (\d+|[IVX]+)(?:(?:\([a-z]\))?(?: and |, | to )(\d+))?")
CURVES = 12  # the most curves of a panel that differ in a number
IDS = re.compile(r'\b(id="|href="#|url\(#)')


def text(words: object) -> str:
    return safe(words, LONGEST)


@dataclass
class Block:
    """A figure or table of a paper: our version of it, and the claims about it."""

    title: str
    places: set[str]
    figures: list[Figure] = field(default_factory=list)
    grids: list[Grid] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)


def places(words: str) -> set[str]:
    """The figures and tables that a caption or a claim begins with: {"Figure 3", "Figure 4"}."""
    match = PLACE.match(words)
    if match is None:
        return set()
    kind_, first, last = match[1].rstrip("s"), match[2], match[3]
    if last is None or not first.isdigit():
        return {f"{kind_} {first}"}
    return {f"{kind_} {number}" for number in range(int(first), int(last) + 1)}


def blocks(study: Study) -> list[Block]:
    """Sort figures, tables and claims by the figure or table of the paper that they are about."""
    made: list[Block] = []

    def home(words: str, new: bool) -> Block | None:
        named = places(words)
        block = next((block for block in made if named & block.places), None)
        if block is None and named and new:
            block = Block(" and ".join(sorted(named)), named)
            made.append(block)
        return block

    rest = Block("Everything else", set())
    for figure in study.figures:
        (home(figure.caption, True) or rest).figures.append(figure)
    for grid in study.grids:
        (home(grid.caption, True) or rest).grids.append(grid)
    for check in study.checks:
        (home(check.name, True) or rest).checks.append(check)
    return [*sorted(made, key=order), *([rest] if rest.figures or rest.grids or rest.checks else [])]


def order(block: Block) -> tuple[int, int, str]:
    """Figures by their numbers, then tables."""
    number = re.search(r"\d+", block.title)
    return int(block.title.startswith("Table")), int(number[0]) if number else 0, block.title


@cache
def part(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def styles() -> str:
    """The style sheet, with the palette's colours as variables."""
    both = {}
    for name, theme in THEMES.items():
        # On dark paper links take the paler blue, which reads as text.
        link = theme.certified if name == "light" else theme.own_noise
        colors = theme.names | scaled(theme) | {"certified-text": link}
        both[name] = "".join(f"--{key}:{color};" for key, color in colors.items())
    dark = f"@media (prefers-color-scheme: dark) {{ :root {{{both['dark']}}} }}"
    return f":root {{{both['light']}}}\n{dark}\n{part('web.css')}"


def page(studies: Sequence[Study], folders: Mapping[str, Path], quick: bool) -> str:
    """The whole page. Figures are read from each paper's folder."""
    css, script = styles(), part("web.js")
    title = "The papers' claims, put to the test" if len(studies) > 1 else f"{studies[0].title}: claims put to the test"
    sections = "".join(section(study, folders[study.paper]) for study in studies)
    stamp = f'<p class="stamp">This is {text(kind(True))}.</p>' if quick else ""
    return f"""{head(title, css, script, inline=True)}
<body>
<a class="skip" href="#main">Skip to the claims</a>
<header>
<h1>{text(title)}</h1>
<p>What each paper printed, beside what came out when its experiments were run again, and the same with certified \
noise. All of it was simulated: noise comes from seeds.</p>
{stamp}
{scores(studies)}
{filters(studies)}
</header>
<main id="main" tabindex="-1">
{sections}</main>
<footer><p>Made by privadmm {text(__version__)}, {text(kind(quick))}. The same studies stand in results.md and \
study.json, one folder for each paper.</p></footer>
<script>{script}</script>
</body>
</html>
"""


def scores(studies: Sequence[Study]) -> str:
    """The table of how many claims hold."""
    rows = []
    for study in studies:
        count = study.verdicts["paper"]
        shares = zip(("good", "poor", "thin"), (count["held"], count["failed"], count["unjudged"]), strict=True)
        bar = "".join(f'<span class="{zone}" style="flex:{share}"></span>' for zone, share in shares if share)
        own = study.verdicts["ours"]
        told = (*(str(count[key]) for key in SCORED), f"{own['held']} of {own['claims']}")
        numbers = "".join(
            f'<td class="n" role="cell" data-name="{name}">{value}</td>'
            for name, value in zip((*SCORED.values(), OURS), told, strict=True)
        )
        rows.append(
            f'<tr role="row"><td role="cell"><a href="#{text(study.paper)}">{text(study.title)}</a>'
            f'<div class="bar" aria-hidden="true">{bar}</div></td>{numbers}</tr>'
        )
    names = (*SCORED.values(), OURS)
    heads = "".join(f'<th class="n" scope="col" role="columnheader">{name}</th>' for name in names)
    # On a narrow screen the style makes a list of each row; the roles say that it still is a table.
    return (
        '<div class="scroll"><table class="score" role="table">'
        "<caption>The papers' claims, and our own expectations</caption>"
        f'<thead role="rowgroup"><tr role="row"><th scope="col" role="columnheader">paper</th>{heads}</tr></thead>'
        f'<tbody role="rowgroup">{"".join(rows)}</tbody></table></div>'
    )


def filters(studies: Sequence[Study]) -> str:
    """Controls for the script; without it they stay hidden."""

    def boxes(name: str, choices: Mapping[str, str]) -> str:
        return "".join(
            f'<label><input type="checkbox" name="{name}" value="{value}" checked> {label}</label>'
            for value, label in choices.items()
        )

    verdicts: dict[str, str] = {ZONES[ok]: text(words) for ok, words in VERDICTS.items()}
    options = "".join(f'<option value="{text(study.paper)}">{text(study.title)}</option>' for study in studies)
    return (
        f'<form class="filters" hidden><fieldset><legend>Verdict</legend>{boxes("verdict", verdicts)}</fieldset>'
        f"<fieldset><legend>Claimed by</legend>{boxes('whose', BY)}</fieldset>"
        f'<label>Paper <select name="paper"><option value="">all</option>{options}</select></label>'
        '<label>Words <input type="search" name="words" size="14"></label><output aria-live="polite"></output></form>'
    )


def section(study: Study, folder: Path) -> str:
    """One paper."""
    reference = REFERENCES.get(study.paper)
    cited = ""
    if reference is not None:
        cited = (
            f'<p>{text(reference.cited)} (<a href="{text(reference.link)}" rel="noreferrer">look it up</a>)</p>'
            f"<details><summary>BibTeX</summary><pre>{text(reference.bibtex)}</pre></details>"
        )
    parts = "".join(shown(block, study.paper, folder) for block in blocks(study))
    notes = "".join(f"<li>{text(symbols(note))}</li>" for note in study.notes)
    return (
        f'<section id="{text(study.paper)}" aria-labelledby="{text(study.paper)}-title">'
        f'<h2 id="{text(study.paper)}-title">{text(study.title)}</h2>{cited}<p>{text(study.tally)}.</p>'
        f"<details><summary>Settings, and whose they are</summary>"
        f"{table(SETTINGS, [parameter.cells for parameter in study.parameters])}</details>"
        f"{f'<details><summary>Notes</summary><ul>{notes}</ul></details>' if notes else ''}{parts}</section>\n"
    )


def shown(block: Block, paper: str, folder: Path) -> str:
    """Figures and tables on one side, claims about them on the other."""
    narrow, wide = ([g for g in block.grids if (len(g.columns) > MANY) is broad] for broad in (False, True))
    left = "".join(drawn(figure, paper, folder) for figure in block.figures)
    left += "".join(tabled(grid) for grid in narrow)
    below = f'<div class="under">{"".join(tabled(grid) for grid in wide)}</div>' if wide else ""
    claims = "".join(claim(check) for check in block.checks)
    listed = f'<ul class="claims">{claims}</ul>' if claims else '<p class="muted">No claim is judged by it.</p>'
    # Three panels in a row, and tables of many columns, need the whole width.
    kind_ = "block wordy" if not left or any(columns(figure) > 2 for figure in block.figures) else "block"
    return f'<div class="{kind_}"><h3>{text(block.title)}</h3><div>{left}</div><div>{listed}</div>{below}</div>'


def claim(check: Check) -> str:
    """A claim: its verdict, what was printed, what came out, and why."""
    within = "" if check.tolerance is None else f" ± {check.tolerance:g}"
    zone, why = ZONES[check.ok], f'<p class="why">{text(symbols(check.why))}</p>' if check.why else ""
    printed = "printed" if check.of == "paper" else "expected"
    return (
        f'<li class="claim {zone}" data-verdict="{zone}" data-of="{check.of}">'
        f'<span class="chip {zone}">{text(VERDICTS[check.ok])}</span>'
        f'<span class="whose">claimed by {text(BY[check.of])}</span><p class="name">{text(symbols(check.name))}</p>'
        f"<dl><dt>{printed}</dt><dd>{text(symbols(word(check.published)))}{within}</dd>"
        f"<dt>here</dt><dd>{text(symbols(word(check.ours)))}</dd></dl>{why}</li>"
    )


def drawn(figure: Figure, paper: str, folder: Path) -> str:
    """A figure, with a table of its curves' last points for readers who cannot see it."""
    rows = [
        (panel.title, line.label, word(float(line.x[-1])), *map(finite, (line.mean[-1], line.low[-1], line.high[-1])))
        for panel in figure.panels
        for line in panel.lines
    ]
    heads = ("panel", "curve", "last x", "mean", "least", "most")
    picture = inlined((folder / f"{figure.name}.svg").read_text(encoding="utf-8"), f"{paper}-{figure.name}")
    size = ("", "", "wide", "widest")[columns(figure)]
    return (
        f'<figure class="{size}" role="group" aria-label="{text(symbols(figure.caption))}">{picture}</figure>'
        f"<details><summary>Where the curves end</summary>{table(heads, rows, 3)}</details>"
    )


def finite(value: float) -> str:
    return word(float(value)) if math.isfinite(value) else "ran away"


def inlined(svg: str, name: str) -> str:
    """An SVG file of matplotlib as an element of the page: ids of its own, and colours by name."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", body, flags=re.DOTALL)
    body = IDS.sub(lambda match: f"{match[1]}{name}-", body)
    body = re.sub(r'^<svg[^>]*viewBox="([^"]*)"[^>]*>', r'<svg viewBox="\1" aria-hidden="true">', body)
    for key, color in (LIGHT.names | scaled(LIGHT)).items():
        body = body.replace(color, f"var(--{key})")
    return body


def scaled(theme: Theme) -> dict[str, str]:
    """The colours of scales by names that light and dark paper share."""
    return {f"scale-{n}-{at}": color for n in range(1, CURVES + 1) for at, color in enumerate(theme.scale(n))}


def tabled(grid: Grid) -> str:
    rows = [tuple(map(word, row)) for row in grid.rows]
    content = table(grid.columns, rows, caption=grid.caption)
    if len(rows) <= ROWS:
        return content
    return f"<details><summary>{text(symbols(grid.caption))}</summary>{content}</details>"


def table(names: Sequence[str], rows: Sequence[Sequence[str]], words: int = 0, caption: str = "") -> str:
    """A table; columns of numbers alone, from column `words` on, are aligned to the right."""
    right = [at >= words and bool(rows) and all(numeric(row[at]) for row in rows) for at in range(len(names))]
    marks = ['class="n" ' if is_right else "" for is_right in right]
    head = "".join(f'<th {mark}scope="col">{text(symbols(name))}</th>' for mark, name in zip(marks, names, strict=True))
    body = "".join(f"<tr>{''.join(cells(row, marks))}</tr>" for row in rows)
    named = f"<caption>{text(symbols(caption))}</caption>" if caption else ""
    return f'<div class="scroll"><table>{named}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def cells(row: Sequence[str], marks: Sequence[str]) -> Iterator[str]:
    for mark, cell in zip(marks, row, strict=True):
        yield f"<td {mark}>{text(symbols(cell))}</td>".replace(" >", ">")


def numeric(cell: str) -> bool:
    return cell in ("-", "ran away") or re.fullmatch(r"[-+]?[\d.,]+(e[-+]?\d+)?( %)?", cell) is not None
