"""Pages in headless Chromium, where PRIVADMM_BROWSER names a folder that has one.

    npm install --prefix FOLDER @sparticuz/chromium puppeteer-core axe-core

Pictures go to PRIVADMM_SHOTS, if that is set.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

in_a_browser = pytest.mark.skipif(
    not os.environ.get("PRIVADMM_BROWSER") or shutil.which("node") is None, reason="PRIVADMM_BROWSER names no browser"
)


def pictures(otherwise: Path) -> Path:
    """The folder for pictures."""
    place = Path(os.environ.get("PRIVADMM_SHOTS") or otherwise)
    place.mkdir(parents=True, exist_ok=True)
    return place


def driven(script: Path, *words: object) -> dict[str, Any]:
    """What a script saw in the browser; nothing may have gone wrong on a page."""
    done = subprocess.run(["node", str(script), *map(str, words)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert isinstance(seen, dict)
    assert seen["wrong"] == [], "\n".join(seen["wrong"])
    return seen
