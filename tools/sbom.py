"""Write a list of what a release was tested with, from the lock: CycloneDX 1.5, as JSON. No registry is asked.

python tools/sbom.py OUT.json [requirements.txt]
"""

import json
import re
import sys
from pathlib import Path

from privadmm import __version__

ROOT = Path(__file__).parents[1]
PIN = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([^\s;]+)(?:\s*;\s*(.*))?$")


def component(name: str, version: str, **more: object) -> dict[str, object]:
    purl = f"pkg:pypi/{name.lower()}@{version}"
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl, **more}


def sbom(lock: str) -> dict[str, object]:
    """Every pinned package of a lock; where it is for some systems only, its marker says which."""
    pins = [PIN.match(line) for line in lock.splitlines() if line and not line.startswith((" ", "#"))]
    if None in pins or not pins:
        raise ValueError("a lock has lines NAME==VERSION, and nothing else but comments")
    parts = []
    for pin in filter(None, pins):
        marker = {"properties": [{"name": "python:marker", "value": pin[3]}]} if pin[3] else {}
        parts.append(component(pin[1], pin[2], **marker))
    this = component("privadmm", __version__)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": this},
        "components": parts,
        "dependencies": [{"ref": this["bom-ref"], "dependsOn": [part["bom-ref"] for part in parts]}],
    }


if __name__ == "__main__":
    out, lock = Path(sys.argv[1]), Path(sys.argv[2]) if sys.argv[2:] else ROOT / "requirements.txt"
    out.write_text(json.dumps(sbom(lock.read_text(encoding="utf-8")), indent=1) + "\n", encoding="utf-8")
    print(f"{out}: {lock.name}")
