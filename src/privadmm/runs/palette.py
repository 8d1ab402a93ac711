"""The colours of all figures and pages: one colour for one meaning, for light and for dark paper.

Meanings are told apart with any colour vision, and lines stand out from the paper: tests/runs/test_palette.py measures
both. A figure never says anything by colour alone: lines have labels, verdicts have words.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Literal

Meaning = Literal[
    "certified",  # what this library certifies, where no other meaning below is nearer
    "published",  # what a paper printed, claims, or does with its own noise
    "non_private",  # the same without noise
    "majority",  # always the more frequent class
    "curator",  # one trusted hand that has all records
    "secure_sum",  # noise shared between the parties of a secure sum
    "own_noise",  # every party adds all of the noise that protects it
    "baseline",  # DP-FedSGD, and other methods to compare with
]
Zone = Literal["good", "thin", "poor"]  # of verdicts: what holds or suffices, what is in doubt, what does not


@dataclass(frozen=True)
class Theme:
    """The colours for one kind of paper."""

    paper: str
    ink: str  # text and axes
    muted: str  # captions, and lines that others are compared with
    faint: str  # grids and borders
    certified: str
    published: str
    non_private: str
    majority: str
    curator: str
    secure_sum: str
    own_noise: str
    baseline: str
    zones: dict[Zone, str] = field(repr=False)  # to shade an area with
    verdicts: dict[Zone, str] = field(repr=False)  # to write on paper with
    ordered: tuple[str, ...] = field(repr=False)  # stops of a scale from low to high

    def of(self, meaning: Meaning) -> str:
        """The colour of a meaning."""
        return str(getattr(self, meaning))

    def series(self, number: int) -> str:
        """The colour of the curve with this number, counted from 0, among curves that have no meaning above."""
        return self.of(SERIES[number % len(SERIES)])

    def scale(self, count: int) -> list[str]:
        """This many colours from low to high, for curves that differ in a number such as epsilon."""
        last = len(self.ordered) - 1
        places = [last * number / max(count - 1, 1) for number in range(count)]
        return [mixed(self.ordered, place) for place in places]

    @property
    def names(self) -> dict[str, str]:
        """Every colour by a name, the same names in every theme: what a page's style sheet needs."""
        plain = {item.name: str(getattr(self, item.name)) for item in fields(self) if item.type is str}
        zones = {f"zone-{zone}": color for zone, color in self.zones.items()}
        verdicts = {f"verdict-{zone}": color for zone, color in self.verdicts.items()}
        return plain | zones | verdicts


SERIES: tuple[Meaning, ...] = (
    *("certified", "baseline", "secure_sum", "curator", "published", "own_noise", "non_private", "majority"),
)

LIGHT = Theme(
    paper="#ffffff",
    ink="#222222",
    muted="#666666",
    faint="#e2e2e2",
    certified="#1a4bc3",
    published="#c23423",
    non_private="#222223",
    majority="#8f8f8f",
    curator="#9e2f90",
    secure_sum="#00a158",
    own_noise="#5b92d9",
    baseline="#ca8700",
    zones={"good": "#e2f3e9", "thin": "#fbf1d3", "poor": "#f9e1dd"},
    verdicts={"good": "#0f6b3c", "thin": "#7a5a00", "poor": "#b3261e"},
    ordered=("#3a0a5e", "#3b4c9b", "#217f93", "#2d9559", "#8aa61c"),
)
DARK = Theme(
    paper="#16191d",
    ink="#e6e6e6",
    muted="#a3a8ae",
    faint="#353a41",
    certified="#3676ff",
    published="#f9741e",
    non_private="#f2f2f2",
    majority="#8a8f96",
    curator="#bf66c4",
    secure_sum="#30c97f",
    own_noise="#bfd0ff",
    baseline="#fbeb3a",
    zones={"good": "#16352a", "thin": "#3a3117", "poor": "#40211f"},
    verdicts={"good": "#5fd39a", "thin": "#e6c35c", "poor": "#ff8f80"},
    ordered=("#7f62c4", "#5a8cdc", "#31a5b8", "#35b779", "#a6e04a"),
)
THEMES: dict[str, Theme] = {"light": LIGHT, "dark": DARK}


def mixed(stops: Sequence[str], place: float) -> str:
    """The colour at a place between 0 and the last stop's number."""
    low = min(int(place), len(stops) - 2)
    ends = [[int(stop[at : at + 2], 16) for at in (1, 3, 5)] for stop in stops[low : low + 2]]
    parts = [round(a + (place - low) * (b - a)) for a, b in zip(*ends, strict=True)]
    return "#" + "".join(f"{part:02x}" for part in parts)
