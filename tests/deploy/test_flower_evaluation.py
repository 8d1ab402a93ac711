"""A private evaluation over Flower: real nodes release what one process would, pay what was planned, and no more."""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from privadmm.deploy.federation.desk.party_server import Desk
from privadmm.privacy.accounting import totals
from privadmm.runs.report.page import DEPLOYMENT, SIMULATION
from privadmm.runs.report.runs import Run
from small_runs import PRIVATE, Place, rows, with_changes, write_npz

pytest.importorskip("flwr", reason="the extra flower is not installed: pip install 'privadmm[flower]'")
from federations import DEPLOYED, SUMMED, key_of
from flower_deployment import Deployed, deployed, in_order, job_of, party

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("skipped_plots")]
RECORDS = 600
EVALUATED = with_changes(
    PRIVATE,
    {
        "algorithm": {"rounds": 4},
        "privacy": {"epsilon": 8.0, "budget": 10.0},
        "evaluation": {"kind": "private", "held_out": 0.3, "share": 0.4},
    },
)
KINDS = {
    "noise of their own": EVALUATED,
    "secure sum, moments": with_changes(
        EVALUATED, {**SUMMED, "features": {"moments": True}, "data": {"intercept": None}}
    ),
}


def paid_as_planned(made: Deployed, result: dict[str, Any]) -> None:
    """Check that each party's ledger verifies and holds what was planned, and that all rounds were asked for."""
    out = Path(result["out"])
    job = Run.at(out, None).job
    assert job is not None
    planned = totals(job.plan, job.public.parties)
    in_order(made, result, [sum(count for _, count in spent) for spent in planned])
    for number, ledger in enumerate(made.federated.ledgers):
        with closing(Desk(party(made, number)).opened()) as opened:
            assert opened.spent(number, job_of(out)) == opened.reserved(number, job_of(out)) == planned[number]
        asked = [letter for letter, _ in made.captured(number)]
        steps = [int(str(letter["round"])) for letter in asked if letter["kind"] == "step"]
        assert max(steps) == job.public.rounds - 1  # the second release of the evaluation
        assert ("roster" in [letter["kind"] for letter in asked]) == (job.sums is not None)
        assert key_of(ledger, job_of(out)) is None


def reported(place: Place, result: dict[str, Any]) -> str:
    """The report's page of a run, which has the figures of its private evaluation."""
    page, found = place.path / "report.html", result["private_evaluation"]
    said = place.call("report", result["out"], "--out", page, "--json")
    assert said.code == 0, said.err
    told = dict(said.object["results"])
    for name, key, factor, digits in (("area under the ROC", "auc", 1, 4), ("accuracy", "accuracy", 100, 1)):
        middle = f"{factor * found[key]['value']:.{digits}f}"
        assert told[f"{name}, by the private evaluation"].startswith(middle)
        assert middle in page.read_text()
    assert "paid-roc" in [chart["key"] for chart in said.object["charts"]]
    return page.read_text()


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_evaluation_as_in_one_process(kind: str, place: Place) -> None:
    write_npz(place.path / "data.npz", *rows(RECORDS))
    whole = place.run(KINDS[kind], out=place.path / "whole").result
    with deployed(place.path, KINDS[kind]) as made:
        made.run()
        result = made.finish()
        assert result["transcript"] == whole["transcript"]
        assert result["private_evaluation"] == json.loads(json.dumps(whole["private_evaluation"]))
        assert result["private_evaluation"]["auc"]["value"] > 0.5
        paid_as_planned(made, result)
    assert SIMULATION in reported(place, result)


def test_an_evaluation_with_noise_that_protects(place: Place) -> None:
    pytest.importorskip("opendp")
    write_npz(place.path / "data.npz", *rows(RECORDS))
    with deployed(place.path, with_changes(KINDS["secure sum, moments"], {"run": DEPLOYED})) as made:
        made.run()
        result = made.finish()
        assert (result["mode"], result["accuracy_test"]) == ("deployment", None)
        paid_as_planned(made, result)
    page = reported(place, result)
    assert DEPLOYMENT in page
    assert SIMULATION not in page
