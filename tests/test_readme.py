"""README shows what works: its Python, its config, its table of claims, its figures; and it stays short."""

import json
import re
from pathlib import Path

import pytest

from privadmm.cli import main
from privadmm.papers.references import listed
from small_runs import toml

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def fenced(language: str) -> str:
    (block,) = re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    return str(block)


def test_it_is_two_screens() -> None:
    prose = re.sub(r"^(```.*?^```|\|.*?$|<.*?$)", "", README, flags=re.MULTILINE | re.DOTALL)
    assert 400 < len(re.findall(r"\w[\w'-]*", prose)) < 800


def test_its_python_works(capsys: pytest.CaptureFixture[str]) -> None:
    exec(fenced("python"), {})
    score, epsilon = map(float, capsys.readouterr().out.split())
    assert score > 0.83
    assert epsilon == pytest.approx(1.0, abs=1e-6)


def test_its_config_is_what_init_recommends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Key by key the same as the file that its own commands write; and it trains."""
    monkeypatch.chdir(tmp_path)
    shown, commands = tmp_path / "shown.toml", fenced_commands()
    for words in commands[:3]:
        call(words)
    shown.write_text(fenced("toml"))
    theirs, ours = toml(tmp_path / "config.toml"), toml(shown)
    for section, keys in ours.items():
        for key, value in keys.items():
            assert theirs[section][key] == value, (section, key)
    call(["train", str(shown), "--out", "shown"])


def fenced_commands() -> list[list[str]]:
    block = next(
        text for text in re.findall(r"^```sh\n(.*?)^```", README, re.MULTILINE | re.DOTALL) if " init " in text
    )
    lines = [line.split(" #")[0] for line in block.replace("\\\n", " ").splitlines()]
    return [line.split()[1:] for line in lines]


def call(words: list[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(words)
    assert not end.value.code, words


@pytest.mark.parametrize("page", ["README.md", "docs/papers/index.md"])
def test_its_scoreboard_is_what_the_papers_command_counts(page: str) -> None:
    text, counted = (ROOT / page).read_text(encoding="utf-8"), listed()
    rows = dict(re.findall(r"^\| (?:\[[^]]*\]\([\w/]*?)?([\w-]+)(?:\.md\))? \| ([\d |]+) \|$", text, re.MULTILINE))
    wanted = {name: paper["verdicts"]["paper"] for name, paper in counted["papers"].items()} | {"all": counted["total"]}
    assert {name: [int(cell) for cell in row.split(" | ")] for name, row in rows.items()} == {
        name: [counts[word] for word in ("claims", "held", "failed", "unjudged")] for name, counts in wanted.items()
    }


def test_its_figures_are_those_of_its_picture() -> None:
    measured = json.loads((ROOT / "docs/pictures/accuracy.json").read_text(encoding="utf-8"))
    at_one = measured["epsilon"].index(1.0)
    best, shared, own = (
        100 * measured["lines"][f"{name}, binned"][at_one]["mean"]
        for name in ("non-private", "secure sum", "recommended")
    )
    text = README.replace("\n", " ")
    assert f"privacy costs {best - shared:.1f} points of accuracy in secure sums, {best - own:.1f} with noise" in text


def test_the_plain_page_has_the_same_figures() -> None:
    measured = json.loads((ROOT / "docs/pictures/accuracy.json").read_text(encoding="utf-8"))
    lines = [measured["lines"][f"{name}, binned"] for name in ("secure sum", "recommended", "non-private")]
    rows = (
        f"| {epsilon:g} | " + " | ".join(f"{100 * line[place]['mean']:.1f} %" for line in lines) + " |"
        for place, epsilon in enumerate(measured["epsilon"])
    )
    assert "\n".join(rows) in (ROOT / "docs/plain.md").read_text(encoding="utf-8")
