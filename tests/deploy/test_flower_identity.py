"""Certificates and clocks that are wrong, on real processes: nobody is let in, nothing is spent, it can be mended."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from small_runs import ENVIRONMENT, PRIVATE, Place, charged, no_plots, with_changes

pytest.importorskip("flwr", reason="the extra flower is not installed: pip install 'privadmm[flower]'")
from federations import federated
from flower_deployment import PATIENCE, Deployed, listens
from privadmm.deploy.federation import keys
from privadmm.deploy.federation.hub.supervisor import free_ports
from privadmm.deploy.flower.registry import known
from privadmm.privacy.verification import verify
from privadmm.runs.rundir import receipts_of

pytestmark = pytest.mark.slow
ROUNDS = 2
SHORT = with_changes(PRIVATE, {"algorithm": {"rounds": ROUNDS}})
REFUSED = "is started again"  # what the supervisor says of a node that is not let in


@pytest.fixture
def whole(place: Place, monkeypatch: pytest.MonkeyPatch) -> str:
    no_plots(monkeypatch)
    return str(place.run(SHORT, out=place.path / "whole").result["transcript"])


@pytest.fixture
def made(place: Place) -> Iterator[Deployed]:
    port = free_ports(5)
    deployed = Deployed(federated(place.path, SHORT, port), port)
    try:
        yield deployed
    finally:
        deployed.stop()


def found(made: Deployed, folder: Path, shift: str | None = None) -> dict[str, dict[str, str]]:
    """Findings of `check` by the name of their check; with a shifted clock, if asked to."""
    clock = [] if shift is None else ["faketime", "-f", shift]
    words = [*clock, sys.executable, "-m", "privadmm", "federation", "check", str(folder), "--json"]
    done = subprocess.run(words, capture_output=True, text=True, env=ENVIRONMENT, timeout=PATIENCE, check=False)
    (findings,) = json.loads(done.stdout)["checked"].values()
    assert done.returncode == any(one["state"] == "bad" for one in findings)
    return {one["what"]: one for one in findings}


def own_node(made: Deployed, number: int, shift: str | None = None) -> None:
    """Start a party's node by its command; with its clock shifted, if asked to."""
    clock = [] if shift is None else ["faketime", "-f", shift]
    folder = made.federated.folders[number]
    words = [*clock, sys.executable, "-m", "privadmm", "federation", "node", str(folder)]
    made.start(f"node-{number}", words, dict(ENVIRONMENT))


def ended(made: Deployed) -> None:
    """End the SuperLink, and see that it is gone."""
    made.kill("superlink")
    made.wait_for(lambda: not listens(made.port), "its end")


def online(made: Deployed) -> set[int]:
    return {number for number, one in known(made.place).items() if one is not None and one.status == "online"}


def sound(made: Deployed, result: dict[str, Any], transcript: str) -> None:
    """The same transcript, ledgers that equal it, and every round paid once."""
    assert result["transcript"] == transcript
    for ledger in made.federated.ledgers:
        assert verify(ledger, receipts_of(Path(result["out"]), ledger)).problems == ()
        assert charged(ledger) == ROUNDS


def test_certificates_that_are_expired_or_for_another_host(
    made: Deployed, whole: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, folders = made.place, made.federated.folders
    monkeypatch.setattr(keys, "alternative_names", lambda host: [keys.x509.DNSName(host)])
    keys.make_server(place.certificates, "hub.example")
    monkeypatch.undo()
    made.superlink()
    for number in range(len(folders)):
        own_node(made, number)
    assert "not for 127.0.0.1" in found(made, folders[0])["SuperLink"]["said"]
    assert "is not for 127.0.0.1" in found(made, place.folder)["certificate"]["said"]
    made.wait_for(lambda: "CERTIFICATE_VERIFY_FAILED" in made.tail("node-0"), "a node that sees it")

    ended(made)
    monkeypatch.setattr(keys, "DAYS", -1 / 1440)
    keys.make_server(place.certificates, "127.0.0.1")
    monkeypatch.undo()
    made.superlink()
    assert "has expired" in found(made, folders[0])["SuperLink"]["said"]
    assert all(charged(ledger) == 0 for ledger in made.federated.ledgers)

    ended(made)
    words = [sys.executable, "-m", "privadmm", "federation", "rotate", str(place.folder)]
    subprocess.run(words, env=ENVIRONMENT, check=True, capture_output=True, timeout=PATIENCE)
    made.superlink()
    made.wait_for(lambda: online(made) == {0, 1, 2}, "all nodes")
    made.run()
    sound(made, made.finish(), whole)


@pytest.mark.skipif(shutil.which("faketime") is None, reason="faketime is not installed")
@pytest.mark.parametrize("shift", ["+1h", "-1h"])
def test_a_clock_that_is_an_hour_off(made: Deployed, whole: str, shift: str) -> None:
    folder = made.federated.folders[1]
    made.superlink()
    for number in (0, 2):
        own_node(made, number)
    own_node(made, 1, shift)
    made.wait_for(lambda: online(made) >= {0, 2}, "the others")
    checked = found(made, folder, shift)
    if shift == "+1h":
        assert (checked["clock"]["state"], "ahead of" in checked["clock"]["said"]) == ("bad", True)
        made.wait_for(lambda: made.tail("node-1").count(REFUSED) > 1, "a node that is refused")
    else:
        assert "is not valid yet" in checked["SuperLink"]["said"]
    assert 1 not in online(made)
    assert charged(made.federated.ledgers[1]) == 0
    made.kill("node-1")
    own_node(made, 1)  # its clock was set
    made.wait_for(lambda: online(made) == {0, 1, 2}, "all nodes")
    made.run()
    sound(made, made.finish(), whole)
