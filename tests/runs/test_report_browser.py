"""Reports in headless Chromium: of a run with a private evaluation, and of a party's ledger; nothing may be fetched."""

from pathlib import Path

import pytest

from browser import driven, in_a_browser, pictures
from privadmm.errors import RefusedError
from small_runs import PRIVATE, Place, rows, with_changes, write_npz

pytest.importorskip("cryptography")
from federations import DEPLOYED, SUMMED, federated

pytestmark = in_a_browser
EVALUATED = with_changes(
    PRIVATE,
    {
        **SUMMED,
        "features": {"moments": True},
        "privacy": {"sum": "secure", "epsilon": 4.0, "budget": 5.0},
        "evaluation": {"kind": "private", "held_out": 0.3, "share": 0.3},
        "run": {
            **DEPLOYED,
            "purpose": "which patients come back to the hospital within thirty days, for the plan of the wards",
            "requester": "Group for Outcomes Research, registry@example.org",
        },
    },
)


def test_reports_in_a_browser(place: Place) -> None:
    pytest.importorskip("opendp")
    write_npz(place.path / "data.npz", *rows(3000, d=8))
    made = federated(place.path, EVALUATED)
    result = made.run()
    with pytest.raises(RefusedError):  # the budget does not pay it twice
        made.run(out="runs/again")
    subjects = {"report-run": result["out"], "report-ledger": made.ledgers[1]}
    pages = {name: place.path / f"{name}.html" for name in subjects}
    for name, subject in subjects.items():
        said = place.call("report", subject, "--out", pages[name])
        assert said.code == 0, said.err
    named = [f"{name}={page}" for name, page in pages.items()]
    seen = driven(Path(__file__).with_name("report_page.mjs"), pictures(place.path), *named)
    stops = {name: one["stops"] for name, one in seen["pages"].items()}
    assert all(one[0] == "Skip to the report" for one in stops.values())
    assert any("ROC by the private evaluation" in stop for stop in stops["report-run"])  # the table of its chart
