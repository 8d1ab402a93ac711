"""What a simulation tells about cells and rows that were not read as they stood, and what a deployment does not."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privadmm.config import build
from privadmm.config.file import read
from privadmm.data.misread import Misread, all_misread, longer
from small_runs import PRIVATE, Place, no_plots, result, with_changes, write_config

SCHEMA = {
    "age": [0, 100],
    "ward": ["a", "b"],
    "seen": {"date": "%d.%m.%Y", "range": ["01.01.2020", "31.12.2029"]},
}
DATA = {"source": "p.csv", "label": "again", "classes": ["no", "yes"], "on_bad": "default", "schema": SCHEMA}
CELLS = {"age": {"clipped": 4, "no_number": 2}, "ward": {"unknown": 5, "missing": 3}, "seen": {"no_date": 40}}


def write(path: Path, dates: int = 40) -> None:
    ages = [*[120] * 4, "?", "", *[30] * 54]
    wards = [*["z"] * 5, *[""] * 3, *["a", "b"] * 26]
    seen = [*["2024-02-01"] * dates, *["01.02.2024"] * (60 - dates)]
    with path.open("w", newline="") as file:
        rows = zip(ages, wards, seen, ["no", "yes"] * 30, strict=True)
        csv.writer(file).writerows([("age", "ward", "seen", "again"), *rows])


@pytest.fixture
def patients(place: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    no_plots(monkeypatch)
    write(place.path / "p.csv")
    return place


def config(place: Place, **changes: Any) -> Path:
    return write_config(place.path / "c.toml", with_changes(PRIVATE, {"data": DATA, **changes}))


def test_a_simulation_counts_what_was_not_read_as_it_stood(patients: Place) -> None:
    said = patients.train(config(patients))
    assert result(patients.out)["misread"] == {"rows": 60, "cells": CELLS, "rows_clipped": 0}
    for words in ("40 of 60 cells with no date", "5 of 60 cells in no declared category", "4 of 60 cells beyond"):
        assert words in " ".join(said.out.split())


def test_files_of_parties_are_counted_together(patients: Place) -> None:
    for party, dates in enumerate((1, 2, 3)):
        write(patients.path / f"p{party}.csv", dates)
    prepared = build.prepare(read(config(patients, data={**DATA, "source": "p{party}.csv"})))
    assert prepared.misread.rows == 180
    assert prepared.misread.cells["seen"] == {"no_date": 6}
    assert prepared.misread.clipped == 0


def test_a_deployment_counts_nothing(patients: Place) -> None:
    """Neighbouring files leave the same: not even that there was something to count."""
    chosen = read(config(patients))
    deployed = replace(chosen, run=replace(chosen.run, mode="deployment", seed=None))
    assert build.prepare(deployed).misread == Misread(60)
    assert build.prepare(chosen).misread.cells == CELLS  # control: the same file in a simulation


def test_a_worker_of_a_simulation_counts_nothing(patients: Place) -> None:
    assert build.prepare(read(config(patients)), only=[0]).misread == Misread(60)


def numbers(place: Place, bound: float) -> Path:
    """A config for a number from -9 to 10, of which 15 % are beyond 8 and 45 % beyond 5."""
    lines = [f"{(k % 10) / 10},{k % 20 - 9}" for k in range(60)]
    (place.path / "n.csv").write_text("\n".join(["x,y", *lines]) + "\n")
    loss = {"name": "squared", "label_bound": bound, "radius": bound}
    data = {"source": "n.csv", "label": "y", "schema": {"x": [0, 1]}, "classes": None}
    return config(place, data=data, loss=loss)


def test_labels_beyond_their_bound_are_counted_and_many_warn(patients: Place) -> None:
    few = " ".join(patients.train(numbers(patients, 8.0), out=patients.path / "few").out.split())
    assert "y: 9 of 60 cells beyond label_bound" in few
    assert "% of the labels lie" not in few
    many = " ".join(patients.train(numbers(patients, 5.0), out=patients.path / "many").out.split())
    assert "45 % of the labels lie beyond label_bound" in many
    assert "smaller label_bound" not in many
    whole = " ".join(patients.train(numbers(patients, 10.0), out=patients.path / "whole").out.split())
    assert "label_bound" not in whole.replace("smaller label_bound", "")
    chosen = read(numbers(patients, 5.0))
    assert build.prepare(replace(chosen, run=replace(chosen.run, mode="deployment", seed=None))).misread == Misread(60)


def test_rows_that_nearly_all_get_clipped_warn(patients: Place) -> None:
    said = patients.train(config(patients, data={**DATA, "row_bound": 0.1}))
    assert result(patients.out)["misread"]["rows_clipped"] > 54
    assert "longer than row_bound = 0.1" in " ".join(said.out.split())
    unit = patients.train(config(patients, data={**DATA, "row_bound": None, "rows": "unit"}), out=patients.path / "u")
    assert "longer than row_bound" not in " ".join(unit.out.split())  # as it was declared


def test_counts_add_up_over_files() -> None:
    parts = [Misread(3, {"a": {"clipped": 1}}, 2), Misread(4, {"a": {"clipped": 2, "no_number": 1}}, 1)]
    assert all_misread(parts) == Misread(7, {"a": {"clipped": 3, "no_number": 1}}, 3)
    assert all_misread([*parts, Misread(1)]).clipped is None
    assert longer(np.array([[3.0, 4.0], [0.0, 1.0], [1e200, 1e200]]), 5.0) == 1


@pytest.mark.parametrize("command", ["account", "plan", "train"])
@pytest.mark.parametrize(("delta", "large"), [(0.03, True), (0.002, False)])
def test_a_delta_that_promises_nothing_warns(patients: Place, command: str, delta: float, large: bool) -> None:
    path = config(patients, privacy={"epsilon": 1.0, "delta": delta})
    if command == "train":
        said = patients.train(path)
        assert ("delta_warning" in result(patients.out)) is large
    else:
        options = ("--epsilon", 1.0, "--delta", delta) if command == "plan" else ()
        said = patients.call(command, path, "--records", 60, *options)
    words = " ".join((said.out + said.err).split())
    assert ("is not below 1/48" in words) is large
    assert ("Choose delta = 0.001 or less" in words) is large


def test_a_recommendation_counts_held_out_records_for_delta(place: Place) -> None:
    """They are protected too: 1/40 would do for the records trained on, and not for all."""
    held = {"evaluation": {"kind": "private", "held_out": 0.25}}
    public = {"parties": {"sizes": [16, 16, 16]}, "data": {"dim": 3}, "privacy": {"delta": 1 / 40}}
    said = json.loads(place.call("recommend", place.config(**public, **held), "--json").out)
    assert (said["records"], said["trained_on"]) == (48, 36)
    assert "1/48" in said["delta_warning"]
