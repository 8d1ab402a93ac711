"""The steward's page in headless Chromium: clicks, keys, widths, colours, paper, and a page of another origin."""

import threading
from pathlib import Path

import pytest

from browser import driven, in_a_browser, pictures
from privadmm.deploy.federation.desk.approvals import Proposals
from privadmm.deploy.federation.party import read as read_party
from privadmm.deploy.federation.steward.server import serve
from privadmm.errors import RefusedError, WaitingError
from small_runs import PRIVATE, with_changes

pytest.importorskip("cryptography")
from federations import DEPLOYED, Federated, federated

pytestmark = in_a_browser
EVALUATED = with_changes(
    PRIVATE,
    {
        "evaluation": {"kind": "private", "held_out": 0.3},
        "privacy": {"budget": 3.0},
        "run": {
            **DEPLOYED,
            "purpose": "which patients come back to the hospital within thirty days, for the plan of the wards",
            "requester": "Group for Outcomes Research, registry@example.org",
        },
    },
)


def busy(folder: Path) -> Federated:
    """A federation whose parties have run a job, refused one, and whose party 1 is asked about two more."""
    folder.mkdir()
    made = federated(folder, EVALUATED)
    made.run(out="runs/done")
    job = made.made.coordinator.job
    job.write_text(job.read_text().replace("epsilon = 1.0", "epsilon = 2.9"))
    with pytest.raises(RefusedError):
        made.run(out="runs/dear")
    job.write_text(job.read_text().replace("epsilon = 2.9", "epsilon = 1.0"))
    made.change(1, "[policy]", '[policy]\napprove = "ask"')
    for out in ("runs/one", "runs/two"):
        with pytest.raises(WaitingError):
            made.run(out=out, timeout=0.01)
    return made


def test_the_page_in_a_browser(tmp_path: Path) -> None:
    pytest.importorskip("opendp")
    made = busy(tmp_path / "busy")
    (tmp_path / "test").mkdir()
    rehearsed = federated(tmp_path / "test", PRIVATE)
    with serve([made.folders[1], made.folders[0], rehearsed.folders[0]]) as page:
        thread = threading.Thread(target=page.serve_forever, args=(0.05,))
        thread.start()
        try:
            seen = driven(Path(__file__).with_name("steward_page.mjs"), page.url, pictures(tmp_path))
        finally:
            page.shutdown()
            thread.join()
    assert seen["first"] == "2 proposals wait for you"
    assert seen["stops"][0] == "To the content"
    assert seen["stops"][-1] == "Approve"
    assert (seen["asked"], seen["closed"], seen["untouched"]) == (True, True, "waits for you")
    assert seen["approved"] == "approved"
    assert seen["unreasoned"] is True
    assert (seen["refused"], seen["why"]) == ("refused", True)
    assert sorted(seen["decided"]) == ["approved", "refused"]
    assert seen["stranger"] == ["failed", "failed"]
    assert seen["unscripted"] == "Nothing waits for you"
    entries = Proposals(read_party(made.folders[1])).entries()
    (entry,) = [entry for entry in entries if entry.state == "refused"]
    assert entry.decision is not None
    assert (entry.decision.why, entry.decision.tell) == ("<b>mind</b> changed", True)
    assert [entry.state for entry in entries].count("approved") == 1
