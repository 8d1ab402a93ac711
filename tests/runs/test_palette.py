"""Every meaning has a colour of its own that everybody can tell from the others, and see on the paper."""

from itertools import combinations, pairwise

import numpy as np
import pytest

from privadmm.data.arrays import Floats
from privadmm.runs.palette import DARK, LIGHT, SERIES, THEMES, Theme

# Linear RGB as someone without working green or red cones sees it (Machado, Oliveira and Fernandes, 2009).
VISION = {
    "usual": np.eye(3),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
}
TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503]]
)
WHITE = np.array([0.95047, 1.0, 1.08883])
APART = 20.0  # CIELAB; about 2 is the least difference that is seen side by side
SEEN, READ = 3.0, 4.5  # contrast that WCAG 2 asks of shapes, and of text


def linear(color: str) -> Floats:
    parts = np.array([int(color[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def lab(rgb: Floats) -> Floats:
    x, y, z = np.clip(rgb, 0, 1) @ TO_XYZ.T / WHITE
    f = [np.cbrt(v) if v > 0.008856 else 7.787 * v + 16 / 116 for v in (x, y, z)]
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def distance(a: str, b: str, vision: str) -> float:
    return float(np.linalg.norm(lab(VISION[vision] @ linear(a)) - lab(VISION[vision] @ linear(b))))


def contrast(a: str, b: str) -> float:
    low, high = sorted(float(linear(color) @ [0.2126, 0.7152, 0.0722]) for color in (a, b))
    return (high + 0.05) / (low + 0.05)


def nearest(colors: list[str], vision: str) -> float:
    return min(distance(a, b, vision) for a, b in combinations(colors, 2))


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("theme", THEMES.values(), ids=THEMES)
def test_meanings_are_told_apart(theme: Theme, vision: str) -> None:
    assert nearest([theme.of(meaning) for meaning in SERIES], vision) > APART


def test_red_and_green_of_equal_brightness_would_be_found() -> None:
    planted = ["#c0504d", "#7f7a2e"]
    assert nearest(planted, "usual") > APART > nearest(planted, "deuteranopia")


@pytest.mark.parametrize("theme", THEMES.values(), ids=THEMES)
def test_everything_stands_out_from_its_paper(theme: Theme) -> None:
    assert min(contrast(theme.of(meaning), theme.paper) for meaning in SERIES) > SEEN
    texts = [theme.ink, theme.muted, *theme.verdicts.values()]
    assert min(contrast(color, theme.paper) for color in texts) > READ
    # Words of a verdict stand on its zone, too.
    assert min(contrast(theme.verdicts[zone], theme.zones[zone]) for zone in theme.zones) > READ
    # A line crosses every zone.
    assert min(contrast(theme.of(m), zone) for m in SERIES[:6] for zone in theme.zones.values()) > 2.4


@pytest.mark.parametrize("theme", THEMES.values(), ids=THEMES)
@pytest.mark.parametrize("vision", VISION)
def test_a_scale_gets_brighter_step_by_step(theme: Theme, vision: str) -> None:
    colors = theme.scale(6)
    bright = [lab(VISION[vision] @ linear(color))[0] for color in colors]
    assert all(below < above for below, above in pairwise(bright))
    assert min(contrast(color, theme.paper) for color in colors) > 2.3
    assert theme.scale(1) == [theme.ordered[0]]
    assert (theme.scale(9)[0], theme.scale(9)[-1]) == (theme.ordered[0], theme.ordered[-1])


def test_both_papers_name_the_same_colours_each_once() -> None:
    assert list(LIGHT.names) == list(DARK.names)
    # One colour stands for one name, so that a page may replace it where it finds it.
    for theme in THEMES.values():
        assert len(set(theme.names.values())) == len(theme.names)
