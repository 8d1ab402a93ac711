"""Figures: ticks that read, Greek letters, a stamp, a caption, and the same bytes each time."""

import re
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from privadmm.runs.palette import DARK, THEMES, Theme
from privadmm.runs.style import QUICK, band, caption, finish, log_ticks, picture, pictures, plain, symbols


@settings(max_examples=60)
@given(st.floats(-8, 8), st.floats(0.05, 12))
@example(0.0, 7.0)  # eight powers of ten
def test_a_logarithmic_axis_has_a_few_ticks_inside_it(start: float, decades: float) -> None:
    low, high = 10**start, 10 ** (start + decades)
    ticks = log_ticks(low, high)
    assert len(ticks) <= 7
    assert all(low * 0.999 <= tick <= high * 1.001 for tick in ticks)
    assert all(a < b for a, b in pairwise(ticks))
    assert len(ticks) >= 2 or decades < 0.35


def test_numbers_are_written_as_people_write_them() -> None:
    assert [plain(value) for value in (0.1, 0.25, 2.0, 1500, 0)] == ["0.1", "0.25", "2", "1,500", "0"]
    assert plain(1e-5) == "$10^{-5}$"
    assert plain(2e7) == r"$2 \times 10^{7}$"


def test_greek_letters_stand_in_place_of_whole_words() -> None:
    assert symbols("epsilon = 1, delta = 0.1, round_epsilon, deltas") == "ε = 1, δ = 0.1, round_epsilon, deltas"
    assert symbols("DP-ADMM, l1") == "DP-ADMM, L1"  # a small l is a one in most fonts
    assert symbols("delta = 1e-06, 2.5e-12, 1.7e+04, sha1e-3") == "δ = 10⁻⁶, 2.5·10⁻¹², 17,000, sha1e-3"


def test_a_caption_says_whether_noise_was_simulated() -> None:
    assert caption("simulation", "Bands: the range").startswith("Bands: the range. Simulation: ")
    assert "deployment" in caption("deployment").lower()
    assert caption(None, "A model.") == "A model."


def drawn(place: Path, theme: Theme, quick: bool = False) -> str:
    with picture(place, title="epsilon", quick=quick, theme=theme) as (figure, colors):
        axes = figure.subplots()
        axes.plot([0.1, 1, 2], [1, 2, 3], color=colors.secure_sum, label="epsilon")
        band(axes, [0.1, 1, 2], [0, 1, 2], [2, 3, 4], colors.secure_sum)
        axes.set(xscale="log", xlabel="epsilon")
        finish(axes, x=[0.1, 1, 2])
        ticks = [label.get_text() for label in axes.get_xticklabels()]
        assert ticks == ["0.1", "1", "2"]
        assert axes.get_legend().get_texts()[0].get_text() == axes.get_xlabel() == "ε"
    assert place.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    return place.with_suffix(".svg").read_text()


@pytest.mark.parametrize("theme", THEMES.values(), ids=THEMES)
def test_a_picture_is_written_twice_in_the_colours_of_its_paper(tmp_path: Path, theme: Theme) -> None:
    text = drawn(tmp_path / "figure", theme)
    assert drawn(tmp_path / "again", theme) == text
    assert theme.secure_sum in text
    assert theme.paper in text
    named = set(theme.names.values())
    assert {color for color in re.findall(r"#[0-9a-f]{6}", text)} <= named


def test_a_quick_run_is_stamped(tmp_path: Path) -> None:
    plain_, stamped = (drawn(tmp_path / str(quick), DARK, quick) for quick in (False, True))
    # Text is drawn as shapes, and matplotlib leaves the words beside them as a comment.
    assert QUICK in stamped
    assert QUICK not in plain_


def test_the_same_code_draws_for_light_and_for_dark_paper(tmp_path: Path) -> None:
    for figure, theme in pictures(tmp_path / "both", title="Both", words="Bands"):
        axes = figure.subplots()
        axes.plot([1, 2], [1, 2], color=theme.certified, label="a line")
        finish(axes)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["both-dark.svg", "both.png", "both.svg"]
    light, dark = ((tmp_path / f"both{which}.svg").read_text(encoding="utf-8") for which in ("", "-dark"))
    assert (THEMES["light"].certified in light, DARK.certified in light) == (True, False)
    assert (THEMES["light"].certified in dark, DARK.certified in dark) == (False, True)


def test_a_drawing_that_fails_leaves_no_picture(tmp_path: Path) -> None:
    def draw() -> None:
        for _ in pictures(tmp_path / "both"):
            raise KeyError("no such line")

    with pytest.raises(KeyError):
        draw()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("width", [5.2, 7.2, 10.4])
def test_long_words_stay_inside_the_figure(width: float, tmp_path: Path) -> None:
    """Of ordinary words; no line of a title or a caption ends beyond the right edge."""
    words = "the recommended method lost on the public Adult data at the same noise, whom nobody minds; " * 5
    title = "Figures 3 and 4: MR-ADMM by gamma and growth of its penalties. " * 3
    with picture(tmp_path / "long", width, title=title, words=words, mode=None) as (figure, _):
        figure.subplots()
    above, below = (text.get_window_extent(figure.canvas.get_renderer()) for text in figure.texts)
    assert 0.8 * figure.bbox.x1 < max(above.x1, below.x1) <= figure.bbox.x1
