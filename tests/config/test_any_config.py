"""Any config that validation accepts: `account` and `train` end well or with a named error, and with nothing else.

Configs are drawn from the declared fields: every algorithm with its own keys, every section, good values mostly, and a
few keys anywhere within their declared limits, however large or small.
"""

import json
import shutil
import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from config_draws import tables
from privadmm.algorithms import admm_star, pvp, star
from privadmm.cli.views import jobs, runs
from privadmm.config import file as configs
from privadmm.config.build import allowance
from privadmm.engine.mail import Mail
from privadmm.errors import ConfigError, PrivadmmError
from privadmm.runs.preview import account
from privadmm.runs.run import run
from small_runs import no_plots, write_config


@dataclass
class Ends:
    """Counts how configs ended, by kind: a search that only saw refusals would prove little."""

    counts: Counter[str]

    def note(self, end: str) -> None:
        self.counts[end] += 1


def attempt(folder: Path, content: dict[str, dict[str, Any]], ends: Ends) -> None:
    path = write_config(folder / "config.toml", content)
    assert tomllib.loads(path.read_text()) == content
    try:
        chosen = configs.read(path)
    except ConfigError:
        return ends.note("not accepted")
    for what in (lambda: forecast(chosen), lambda: trained(chosen, folder)):
        try:
            what()
        except PrivadmmError as error:
            named = error.exit_code in (1, 2, 3) and str(error).strip()
            ends.note(type(error).__name__ if named else "nameless")
        else:
            ends.note("well")


def forecast(chosen: configs.Config) -> None:
    said = account(chosen)
    json.dumps(said, allow_nan=False)
    assert jobs.account(said, allowance(chosen))


def trained(chosen: configs.Config, folder: Path) -> None:
    out = folder / "out"
    try:
        done = run(chosen, out)
        assert runs.run(done)
        assert json.loads((out / "result.json").read_text())["algorithm"] == chosen.algorithm.name
    finally:
        shutil.rmtree(out, ignore_errors=True)
        for item in folder.glob("party.sqlite*"):
            item.unlink()


def search(folder: Path, examples: int, plots: bool, phases: Any = tuple(Phase)) -> Counter[str]:
    ends = Ends(Counter())

    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=phases,
    )
    @given(tables())
    def every(content: dict[str, dict[str, Any]]) -> None:
        attempt(folder, content, ends)

    with pytest.MonkeyPatch.context() as patch:
        if not plots:
            no_plots(patch)
        every()
    return ends.counts


def enough(ends: Counter[str]) -> None:
    total = ends.total()
    assert ends["well"] > 0.2 * total, ends
    assert ends["not accepted"] < 0.5 * total, ends
    assert {"ConfigError", "RefusedError"} <= set(ends), ends
    assert not ends["nameless"]


def test_any_config_ends_well_or_by_name(drawn_folder: Path) -> None:
    enough(search(drawn_folder, 400, plots=False))


@pytest.mark.slow
@pytest.mark.parametrize(("examples", "plots"), [(4000, False), (500, True)], ids=["many", "with plots"])
def test_many_configs_end_well_or_by_name(drawn_folder: Path, examples: int, plots: bool) -> None:
    enough(search(drawn_folder, examples, plots))


def test_a_fault_is_found(drawn_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: a KeyError when five parties send to a coordinator."""
    average = star.average

    def fragile(inbox: Mail, *rest: Any) -> Any:
        return {2: 0}[5] if len(inbox.senders) == 5 else average(inbox, *rest)

    for home in (admm_star, pvp, star):
        monkeypatch.setattr(home, "average", fragile)
    with pytest.raises(KeyError):
        search(drawn_folder, 2000, plots=False, phases=(Phase.generate,))
