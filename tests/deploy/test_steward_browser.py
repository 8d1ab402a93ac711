"""The steward's page in headless Chromium: clicks, keys, widths, and a page of another origin.

It runs where PRIVADMM_BROWSER names a folder in which `npm install @sparticuz/chromium puppeteer-core` was run.
"""

import json
import os
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from privadmm.deploy.federation.desk.approvals import Proposals
from privadmm.deploy.federation.party import read as read_party
from privadmm.deploy.federation.steward.server import serve
from privadmm.errors import WaitingError
from small_runs import PRIVATE

pytest.importorskip("cryptography")
from federations import federated

pytestmark = pytest.mark.skipif(
    not os.environ.get("PRIVADMM_BROWSER") or shutil.which("node") is None, reason="PRIVADMM_BROWSER names no browser"
)


def test_the_page_in_a_browser(tmp_path: Path) -> None:
    made = federated(tmp_path, PRIVATE)
    made.change(1, "[policy]", '[policy]\napprove = "ask"')
    with pytest.raises(WaitingError):
        made.run(timeout=0.01)
    shots = Path(os.environ.get("PRIVADMM_SHOTS") or tmp_path)
    with serve([made.folders[1], made.folders[0]]) as page:
        thread = threading.Thread(target=page.serve_forever, args=(0.05,))
        thread.start()
        script = Path(__file__).with_name("steward_page.mjs")
        try:
            done = subprocess.run(
                ["node", str(script), page.url, str(shots)], capture_output=True, text=True, timeout=300
            )
        finally:
            page.shutdown()
            thread.join()
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["console"] == []
    assert seen["first"] == "One proposal waits for you"
    assert all(width == int(name.split()[1]) for name, width in seen["widths"].items()), seen["widths"]
    assert seen["stops"][0] == "To the content"
    assert seen["stops"][-1] == "Approve"
    assert (seen["asked"], seen["closed"], seen["untouched"]) == (True, True, "waits for you")
    assert seen["approved"] == "approved"
    assert seen["unreasoned"] is True
    assert (seen["refused"], seen["why"]) == ("refused", True)
    assert seen["stranger"] == ["failed", "failed"]
    assert seen["unscripted"] == "Nothing waits for you"
    (entry,) = Proposals(read_party(made.folders[1])).entries()
    assert entry.decision is not None
    assert (entry.state, entry.decision.why, entry.decision.tell) == ("refused", "<b>mind</b> changed", True)
