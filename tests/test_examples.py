"""Every config in examples/ is accepted, says what it should cost, and trains."""

from pathlib import Path
from typing import Any

import pytest

from small_runs import Place, Tables, result, toml, with_changes, write_config

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.toml"))
NAMES = [path.stem for path in EXAMPLES]
# The DP-ADMM paper's own figures, and what its noise is worth: published, certified.
GOLDEN = {"dp_admm_paper": (0.5009, 0.2772), "dp_admm_paper_01": (1.0193, 0.6339)}


def shortened(place: Place, path: Path, **changes: Any) -> Path:
    tables: Tables = with_changes(toml(path), {"algorithm": {"rounds": 2}, **changes})
    return write_config(place.path / path.name, tables)


def test_there_is_one_for_every_algorithm() -> None:
    from privadmm.algorithms import ALGORITHMS

    assert set(ALGORITHMS) <= set(NAMES)


@pytest.mark.parametrize("path", EXAMPLES, ids=NAMES)
def test_an_example_is_accounted_for(path: Path, place: Place) -> None:
    said = place.call("account", path, "--json")
    assert said.code == 0, said.err
    found = said.object
    assert found["rounds"] == toml(path)["algorithm"]["rounds"]
    assert found["private"] == ("privacy" in toml(path))
    if path.stem in GOLDEN:
        published, certified = GOLDEN[path.stem]
        assert found["published"]["epsilon"] == pytest.approx(published, abs=5e-5)
        assert found["certified"]["epsilon"] == pytest.approx(certified, abs=5e-5)


def test_every_golden_figure_is_of_an_example() -> None:
    assert set(GOLDEN) <= set(NAMES)


@pytest.mark.parametrize("path", EXAMPLES, ids=NAMES)
@pytest.mark.usefixtures("skipped_plots")
def test_an_example_trains(path: Path, place: Place) -> None:
    said = place.train(shortened(place, path), "--json")
    assert said.code == 0, said.err
    assert said.object["rounds"] == 2
    assert said.object["accuracy_test"] > 0.7


@pytest.mark.usefixtures("skipped_plots")
def test_one_seed_is_one_transcript(place: Place) -> None:
    (path,) = (path for path in EXAMPLES if path.stem == "dp_admm")
    found = {}
    for name, seed in (("first", 7), ("again", 7), ("other", 8)):
        assert place.train(shortened(place, path), "--seed", seed, out=place.path / name).code == 0
        found[name] = result(place.path / name)["transcript"]
    assert found["first"] == found["again"] != found["other"]
