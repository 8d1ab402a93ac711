"""The algorithm that CONTRIBUTING.md shows works as it stands."""

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from cases import BUDGET, Case, shards, transcript
from privadmm.engine.audit import attack, instance
from privadmm.optim import graphs
from privadmm.privacy.calibration import Target

PAGE = Path(__file__).parents[1] / "CONTRIBUTING.md"


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Any:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    module = ModuleType("noisy_descent")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(code, module.__dict__)
    return module


def test_the_algorithm_that_is_shown_keeps_its_contracts(shown: Any) -> None:
    case = Case("shown", shown.NoisyDescent(), graphs.star, BUDGET)
    whole = transcript(case.job(), shards())
    assert whole == transcript(case.job(), shards(), parts=[[0, 3], [1, 2, 4]])
    assert case.job().epsilon == pytest.approx(1.0, rel=1e-6)
    game = instance(case.algorithm, Case("loud", case.algorithm, graphs.star, Target(2.0, 0.02)).public(rounds=5))
    assert 0.6 * game.claimed < attack(game, 20_000, 0.02, 0.99, seed=0).epsilon_lower <= game.claimed
