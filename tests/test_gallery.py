"""Every script of the gallery (examples/*.py) runs, draws its figure, and shows what its title says."""

import ast
import json
import runpy
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from privadmm.runs.palette import DARK, LIGHT
from small_runs import PNG

ROOT = Path(__file__).parents[1]
SCRIPTS = {path.stem: path for path in sorted((ROOT / "examples").glob("*.py"))}
LONGEST = 125  # lines of a script
Names = dict[str, Any]  # what a script has defined when it is done


def audit(names: Names) -> bool:
    """The attack proves less than the certificate of the sound code, and more than that of every planted bug."""
    found = names["audits"].values()
    return all(one["epsilon_lower"] < one["epsilon_certified"] for one in found) and all(
        bug["caught"] for one in found for bug in one["negative_controls"]
    )


def banks(names: Names) -> bool:
    return bool(names["alone"] < names["best"] and names["found"][0].mean() < names["found"][-1].mean())


def frontier(names: Names) -> bool:
    """With a secure sum fewer records are enough at every epsilon."""
    own, secure = names["borders"].values()
    return bool(all((a > b).all() for a, b in zip(own, secure, strict=True)))


def hospitals(names: Names) -> bool:
    spent = names["spent"]
    return spent == sorted(spent) and spent[-1] <= names["BUDGET"] and "Nothing was fitted" in names["refused"]


def killed_node(names: Names) -> bool:
    """The transcript is that of one process, and every round was paid for once."""
    once = all(len({line["round"] for line in log}) == names["ROUNDS"] for log in names["steps"])
    same = names["federated"] == names["in_process"]
    return same and once and not any(names["problems"]) and max(names["spent"]) <= 1.0


def paper_dp_admm(names: Names) -> bool:
    """Algorithm 2 is ruined by the paper's noise, and ahead with its own."""
    last = {key: [float(cell.loss[-1].mean()) for cell in cells] for key, cells in names["runs"].items()}
    ruined = zip(last["Algorithm 2", "published"], last["DP-ADMM", "published"], strict=True)
    mended = zip(last["Algorithm 2", "certified"], last["DP-ADMM", "certified"], strict=True)
    return all(a > 5 * b for a, b in ruined) and all(a < b for a, b in mended)


def paper_dvp(names: Names) -> bool:
    """Rounds compose, and certified noise has less loss at a smaller total."""
    best = min(seen.last.mean() for seen in names["papers"].values())
    return bool(names["spent"][-1] > 3 * names["spent"][0] and names["ours"][1.0].last.mean() < best)


def paper_mr_admm(names: Names) -> bool:
    """At one published total R-ADMM is ahead of ADMM, and half of ADMM's rounds are ahead of R-ADMM."""
    last = {name: float(run.last.mean()) for name, run in names["published"].items()}
    return last[names["HALF"]] < last[names["R"]] < last[names["ADMM"]]


def paper_pdml(names: Names) -> bool:
    """A label keeps less with decaying noise than with certified noise, whose risk is lower as well."""
    risk = {name: float(risks[-1].mean()) for name, risks in names["found"].items()}
    lost = names["learnt"][0.8][-1][1] > names["ours"][1]
    return bool(lost and risk["certified phase 2"] < names["ZERO"] < risk["phase 2 as printed, R = 1"])


def paper_sharing(names: Names) -> bool:
    """Sharing without noise beats the first party alone; with a small certified epsilon it does not."""
    epsilon, losses = min(names["points"]["certified"])
    return bool(epsilon < 2 and names["shared"] < names["first"] < losses.mean())


def secure_sums(names: Names) -> bool:
    return bool(names["secure"][-1].mean() > names["own"][-1].mean() + 1)


def survey(names: Names) -> bool:
    """To hide the answer alone leaves more of it than to hide the row."""
    return bool((names["found"]["the answer alone"] >= names["found"]["a person's whole row"]).mean() > 0.5)


CHECKS = (audit, banks, frontier, hospitals, killed_node, paper_dp_admm, paper_dvp, paper_mr_admm, paper_pdml)
SHOWN: dict[str, Callable[[Names], bool]] = {
    check.__name__: check for check in (*CHECKS, paper_sharing, secure_sums, survey)
}

# What a person of each persona has to read.
SAID = {
    "hospitals": ("fits on this account", "hospitals: east, north, south, west", "Nothing was fitted"),
    "banks": ("NOT PRIVATE", "a customer loses", "person neighbours", "labels are not protected"),
    "survey": ("the answer alone", "fits on this account", "label neighbours"),
}


def drawn(name: str, out: Path, monkeypatch: pytest.MonkeyPatch) -> Names:
    """Run a script, quickly, with its figure in `out`."""
    monkeypatch.setattr(sys, "argv", [str(SCRIPTS[name]), "--quick", "--out", str(out)])
    return runpy.run_path(str(SCRIPTS[name]), run_name="__main__")


def same_but_for_colours(light: str, dark: str) -> bool:
    """Whether two drawings have the same shapes at the same places. Names of shapes are made of their colours."""

    def shapes(drawing: str) -> list[tuple[str, str | None]]:
        return [(item.tag, item.get("d")) for item in ElementTree.fromstring(drawing).iter()]

    return shapes(light) == shapes(dark)


@pytest.mark.parametrize("name", [name for name in SCRIPTS if name != "killed_node"])
def test_a_script_draws_what_its_title_says(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = drawn(name, tmp_path, monkeypatch)
    assert SHOWN[name](names)
    said = capsys.readouterr().out
    assert len(said.splitlines()) >= 2  # the few numbers that matter
    assert [words for words in SAID.get(name, ()) if words not in said] == []
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{name}-dark.svg", f"{name}.png", f"{name}.svg"]
    assert (tmp_path / f"{name}.png").read_bytes().startswith(PNG)
    light, dark = ((tmp_path / f"{name}{which}.svg").read_text(encoding="utf-8") for which in ("", "-dark"))
    assert same_but_for_colours(light, dark)
    assert (LIGHT.paper in light, DARK.paper in light) == (True, False)
    assert (LIGHT.ink in dark, DARK.paper in dark) == (False, True)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning")  # of a library that Flower uses
def test_a_federation_with_a_killed_node_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("flwr", reason="the extra flower is not installed: pip install 'privadmm[flower]'")
    assert killed_node(drawn("killed_node", tmp_path, monkeypatch))
    assert (tmp_path / "killed_node.svg").exists()


def test_the_picture_of_readme_is_drawn_from_its_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And its numbers are in the order that README tells."""
    place, script = ROOT / "docs" / "pictures", ROOT / "benchmarks" / "accuracy_picture.py"
    shutil.copy(place / "accuracy.json", tmp_path)
    monkeypatch.syspath_prepend(str(script.parent))
    monkeypatch.setattr(sys, "argv", [str(script), "--out", str(tmp_path)])
    names = runpy.run_path(str(script), run_name="__main__")
    pictures = [f"accuracy-{theme}.svg" for theme in ("dark", "light")]
    assert sorted(path.name for path in tmp_path.glob("*.svg")) == pictures
    assert all((place / name).exists() for name in pictures)
    numbers = json.loads((place / "accuracy.json").read_text(encoding="utf-8"))
    own, secure, clear = (
        names["means"](numbers, f"{name}, binned") for name in ("recommended", "secure sum", "non-private")
    )
    assert (100 * numbers["majority"] < own).all()
    assert (own < secure).all()
    assert (secure < clear).all()


def test_every_script_has_a_check_and_a_committed_figure() -> None:
    assert set(SHOWN) == set(SCRIPTS)
    drawings = {f"{name}{which}" for name in SCRIPTS for which in ("", "-dark")}
    assert {path.stem for path in (ROOT / "docs" / "gallery").glob("*.svg")} == drawings


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_begins_with_a_title_and_a_paragraph(name: str) -> None:
    text = SCRIPTS[name].read_text(encoding="utf-8")
    title, gap, *paragraphs = (ast.get_docstring(ast.parse(text)) or "").splitlines()
    assert title
    assert not title.endswith(".")
    assert not gap
    assert len(" ".join(paragraphs).split()) > 60
    assert len(text.splitlines()) <= LONGEST
