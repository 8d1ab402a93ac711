"""Figures of a run: whatever its course, a whole picture with every number that it must name."""

import math
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from privadmm.privacy.accounting import Claim
from privadmm.runs import metrics, plots
from privadmm.runs.chart import Axis, Line, Panel, draw
from small_runs import words_of

PLAIN = {
    **{"algorithm": "dp_admm", "parties": 3, "rounds": 2, "mode": "simulation", "private": True},
    **{"epsilon": 1.0, "delta": 1e-5, "accuracy_train": 0.5, "majority_train": 0.6, "majority_test": None},
}


@pytest.mark.parametrize(
    "values",
    [[0.5], [0.5, 0.4], [0.5, 1e9], [0.0, 1.0], [math.inf, 0.5], [math.nan, math.inf]],
    ids=str,
)
@pytest.mark.parametrize("classifier", [True, False])
def test_any_course_of_a_run_can_be_drawn(values: list[float], classifier: bool, tmp_path: Path) -> None:
    """Plots of one round, a wide range, and no finite value."""
    share = 0.5 if classifier else None
    rows = [metrics.Row(t, 0.1, value, share, None, value) for t, value in enumerate(values, 1)]
    result = {**PLAIN, "accuracy_train": share, "majority_train": share}
    reference = {"objective": 0.3, "accuracy_test": share}
    plots.convergence(rows, result, tmp_path / "a.svg", reference)
    words = words_of(tmp_path / "a.svg")
    assert words[0] == "dp_admm, 3 parties, 2 rounds, ε = 1, δ = 10⁻⁵"
    assert ("accuracy (%)" in words) is classifier
    assert ("the model ran away: no objective is finite" in words) is (not any(map(math.isfinite, values)))


def test_what_is_spent_is_drawn_with_what_was_published_and_its_caveat(tmp_path: Path) -> None:
    plots.spending([0.5, 0.8], PLAIN, Claim(0.7, "a caveat & <more>"), tmp_path / "a.svg")
    words = " ".join(words_of(tmp_path / "a.svg"))
    assert "certified, 0.8 at the end" in words
    assert "published, 0.7 at the end (a caveat & <more>)" in words
    # Without a guarantee there is nothing to draw, and no empty picture is left.
    plots.spending([], {**PLAIN, "private": False}, None, tmp_path / "b.svg")
    assert not (tmp_path / "b.svg").exists()


numbers = st.floats(allow_nan=True, allow_infinity=True)


@given(values=st.lists(numbers, max_size=6), level=numbers, log=st.booleans(), zero=st.booleans())
@example(values=[5e-324, 1e308], level=0.0, log=True, zero=False)
@example(values=[1.0, 1.0 + 1e-12], level=1.0, log=False, zero=False)
def test_any_numbers_stay_inside_of_the_picture(
    values: list[float], level: float, log: bool, zero: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "drawn.svg"
    panel = Panel("anything", log, zero and not log, [Line(list(enumerate(values, 1)), "a line", "red")])
    panel.level(level, "a level", "dashed")
    draw(path, "a title", [panel], max(1, len(values)))
    root = ElementTree.parse(path).getroot()
    wide, tall = (float(root.attrib[name]) for name in ("width", "height"))
    for item in root.iter():
        for x, y in re.findall(r"(\S+),(\S+)", item.attrib.get("points", "")):
            assert 0 <= float(x) <= wide
            assert 0 <= float(y) <= tall


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6), st.booleans())
@example(1e6, 0.001953125, True)
def test_ticks_are_few_rising_and_on_the_axis(low: float, span: float, log: bool) -> None:
    low = abs(low) + 1e-3 if log else low
    axis = Axis.around([low, low + span], 100.0, 0.0, log, zero=False)
    ticks = axis.ticks(5)
    assert 2 <= len(ticks) <= 8
    assert ticks == sorted(set(ticks))
    places = [axis.at(value) for value in ticks]
    assert all(-0.1 <= place <= 100.1 for place in places)
    assert len({f"{value:.12g}" for value in ticks}) == len(ticks)  # as they are written
