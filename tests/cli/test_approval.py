"""What a steward types: `privadmm federation proposals`, `show`, `approve`, `refuse`, and `privadmm steward`."""

import http.client
import json
import signal
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from privadmm.errors import RefusedError, WaitingError
from small_runs import PRIVATE, Place, spawn

pytest.importorskip("cryptography")
from federations import Federated, federated


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Federated:
    found = federated(tmp_path_factory.mktemp("federation"), PRIVATE)
    found.change(1, "[policy]", '[policy]\napprove = "ask"')
    with pytest.raises(WaitingError):
        found.run(timeout=0.01)
    return found


def test_a_steward_lists_looks_and_decides(made: Federated, place: Place) -> None:
    folder = made.folders[1]
    (waits,) = place.call("federation", "proposals", folder, "--json").object["proposals"]
    code = waits["code"]
    assert (waits["state"], waits["epsilon"], waits["left_after"]) == (
        "waiting",
        pytest.approx(1.0),
        pytest.approx(0.0),
    )
    assert code in place.call("federation", "proposals", folder).out
    shown = place.call("federation", "show", folder, waits["job"], "--json").object
    about = [row["about"] for row in shown["sentences"]]
    assert {"who asks", "what leaves", "what it costs", "what remains"} <= set(about)
    printed = place.call("federation", "show", folder, code[:9]).out
    assert "[privacy]" in printed
    assert code in printed

    assert place.call("federation", "approve", folder, waits["job"]).code == 2
    assert place.call("federation", "approve", folder, "no-such-code").code == 2
    assert place.call("federation", "approve", folder, code, "--days", "0").code == 2
    assert place.call("federation", "approve", made.folders[0], code).code == 2
    assert place.call("federation", "refuse", folder, code).code == 2
    assert place.call("federation", "refuse", folder, code, "--why", "a\nb").code == 2
    assert place.call("federation", "proposals", folder, "--json").object["proposals"] == [waits]

    said = place.call("federation", "refuse", folder, code, "--why", "not yet", "--tell", "--json").object
    assert said["decided"]["why"] == "not yet"
    with pytest.raises(RefusedError, match="refused by its steward: not yet"):
        made.run(resume=True)
    assert place.call("federation", "proposals", folder, "--json").object["proposals"] == []
    (known,) = place.call("federation", "proposals", folder, "--all", "--json").object["proposals"]
    assert known["state"] == "refused"
    assert "approved" in place.call("federation", "approve", folder, code, "--days", "2").out
    assert made.run(resume=True)["rounds"] == 6


def test_what_the_policy_refuses_is_not_approved(made: Federated, place: Place) -> None:
    folder = made.folders[1]
    (one,) = place.call("federation", "proposals", folder, "--all", "--json").object["proposals"]
    made.change(1, "minimum_parties = 2", "minimum_parties = 9")
    try:
        failed = place.call("federation", "approve", folder, one["code"], "--json")
    finally:
        made.change(1, "minimum_parties = 9", "minimum_parties = 2")
    assert failed.code == 3
    assert "minimum_parties" in json.loads(failed.out)["message"]


def test_the_page_is_one_command(made: Federated) -> None:
    process = spawn("steward", made.folders[1], "--json")
    try:
        assert process.stdout is not None
        url = urlsplit(json.loads(process.stdout.readline())["url"])
        line = http.client.HTTPConnection(str(url.hostname), int(url.port or 0), timeout=30)
        line.request("GET", url.path)
        answer = line.getresponse()
        assert (url.hostname, answer.status) == ("127.0.0.1", 200)
        assert b"privadmm steward" in answer.read()
        line.close()
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)
    assert process.returncode == 0


def test_a_page_of_no_party_says_what_is_missing(place: Place, tmp_path: Path) -> None:
    failed = place.call("steward", tmp_path)
    assert failed.code == 2
    assert "party.toml" in failed.err
