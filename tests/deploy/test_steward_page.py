"""The steward's page: who may open it and decide there, what a request may do, and what hostile texts become."""

import http.client
import json
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from privadmm.cli.views.approvals import listed
from privadmm.deploy.federation.desk.approvals import Entry, Proposals
from privadmm.deploy.federation.desk.party_server import answer
from privadmm.deploy.federation.party import read as read_party
from privadmm.deploy.federation.proposal import Proposal
from privadmm.deploy.federation.steward import page, server, words
from privadmm.deploy.federation.steward.server import LARGEST, Server, serve
from privadmm.errors import ConfigError, WaitingError
from privadmm.privacy.ledger_file import identity_of
from privadmm.privacy.sqlite_ledger import SqliteLedger
from small_runs import PRIVATE

pytest.importorskip("cryptography")
from federations import Desks, Federated, federated

EVIL = "<script>alert(1)</script>\"'&\x1b[31m\u202e"


def waiting(folder: Path) -> Federated:
    """A federation in which one proposal waits for the steward of party 1."""
    found = federated(folder, PRIVATE)
    found.change(1, "[policy]", '[policy]\napprove = "ask"')
    with pytest.raises(WaitingError):
        found.run(Desks(found.folders), timeout=0.01)
    return found


@contextmanager
def served(made: Federated) -> Iterator[Server]:
    with serve([made.folders[1], made.folders[0]]) as found:
        thread = threading.Thread(target=found.serve_forever, args=(0.05,))
        thread.start()
        yield found
        found.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Federated:
    """For tests that change nothing."""
    return waiting(tmp_path_factory.mktemp("federation"))


@pytest.fixture(scope="module")
def serving(made: Federated) -> Iterator[Server]:
    with served(made) as found:
        yield found


@pytest.fixture
def fresh(tmp_path: Path) -> Federated:
    """For tests that decide."""
    return waiting(tmp_path)


@pytest.fixture
def deciding(fresh: Federated) -> Iterator[Server]:
    with served(fresh) as found:
        yield found


def entry(made: Federated) -> Entry:
    (found,) = Proposals(read_party(made.folders[1])).entries()
    return found


def ask(
    to: Server, method: str, path: str, body: bytes | None = None, **headers: str | None
) -> tuple[int, dict[str, str], str]:
    """Send a request with these headers, and those of a browser where nothing else is said."""
    own: dict[str, str | None] = {"Host": f"127.0.0.1:{to.port}"}
    if method == "POST":
        own |= {"Origin": f"http://127.0.0.1:{to.port}", "Content-Type": "application/json"}
        own |= {"Content-Length": str(len(body or b"")), "Sec-Fetch-Site": "same-origin"}
    own |= {name.replace("_", "-"): value for name, value in headers.items()}
    line = http.client.HTTPConnection("127.0.0.1", to.port, timeout=30)
    try:
        line.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in own.items():
            if value is not None:
                line.putheader(name, value)
        line.endheaders(body)
        said = line.getresponse()
        return said.status, dict(said.getheaders()), said.read().decode()
    finally:
        line.close()


def decision(made: Federated, **changes: Any) -> bytes:
    asked = {"place": "0", "digest": entry(made).digest, "approve": True, "why": "", "tell": False}
    return json.dumps(asked | changes).encode()


class Reader(HTMLParser):
    """Elements with their attributes, and the text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.found if name == tag]


def test_it_can_be_read_without_its_script(made: Federated, serving: Server) -> None:
    status, _, text = ask(serving, "GET", f"/{serving.token}/")
    first = Reader(text)
    assert status == 200
    assert "One proposal waits for you" in first.text
    (link,) = [one["href"] for one in first.all("a") if "button" in str(one.get("class"))]
    status, _, text = ask(serving, "GET", f"/{serving.token}/{link}")
    assert status == 200
    second = Reader(text)
    for row in words.whole(read_party(made.folders[1]), entry(made))["sentences"]:
        assert row["says"] in second.text
    assert entry(made).code in second.text
    assert f"privadmm federation approve {made.folders[1]} {entry(made).code}" in second.text


def test_everything_it_loads_is_its_own(made: Federated, serving: Server) -> None:
    for path in ("", f"proposal/0/{entry(made).digest}"):
        _, headers, text = ask(serving, "GET", f"/{serving.token}/{path}")
        seen = Reader(text)
        assert [one.get("src") for one in seen.all("script")] == ["page.js" if not path else "../../page.js"]
        assert not any(name == "style" or name.startswith("on") for _, has in seen.found for name in has)
        for _, has in seen.found:
            for key in ("href", "src", "action"):
                assert ":" not in str(has.get(key) or "")
        assert headers["Content-Security-Policy"].startswith("default-src 'none'; style-src 'self'; script-src 'self';")
        assert "unsafe" not in headers["Content-Security-Policy"]
        assert headers["X-Frame-Options"] == "DENY"
        assert headers["Cache-Control"] == "no-store"
        assert "Set-Cookie" not in headers
    for name, kind in server.FILES.items():
        status, headers, _ = ask(serving, "GET", f"/{serving.token}/{name}")
        assert (status, headers["Content-Type"]) == (200, f"{kind}; charset=utf-8")


def test_it_listens_on_this_machine_only(serving: Server) -> None:
    assert serving.server_address[0] == "127.0.0.1"
    assert len(serving.token) >= 32


def test_a_decision_is_made_by_a_post_of_the_page(fresh: Federated, deciding: Server) -> None:
    _, _, text = ask(deciding, "GET", f"/{deciding.token}/mark")
    status, _, said = ask(deciding, "POST", f"/{deciding.token}/decide", decision(fresh))
    assert (status, json.loads(said)["state"]) == (200, "approved")
    assert ask(deciding, "GET", f"/{deciding.token}/mark")[2] != text
    assert fresh.run(resume=True)["rounds"] == 6
    body = decision(fresh, approve=False, why="mind changed", tell=True)
    assert ask(deciding, "POST", f"/{deciding.token}/decide", body, Host=f"localhost:{deciding.port}")[0] == 403
    own = {"Host": f"localhost:{deciding.port}", "Origin": f"http://localhost:{deciding.port}"}
    assert ask(deciding, "POST", f"/{deciding.token}/decide", body, **own)[0] == 200
    found = entry(fresh)
    assert found.decision is not None
    assert (found.state, found.decision.why, found.decision.tell) == ("refused", "mind changed", True)


WRONG: list[tuple[int, dict[str, str | None]]] = [
    (421, {"Host": "evil.example:80"}),
    (421, {"Host": "127.0.0.1"}),
    (421, {"Host": None}),
    (403, {"Origin": "http://evil.example"}),
    (403, {"Origin": "null"}),
    (403, {"Origin": None}),
    (403, {"Sec_Fetch_Site": "cross-site"}),
    (403, {"Sec_Fetch_Site": "same-site"}),
    (415, {"Content_Type": "text/plain"}),
    (415, {"Content_Type": "application/x-www-form-urlencoded"}),
    (411, {"Content_Length": None}),
    (411, {"Content_Length": "-1"}),
    (411, {"Transfer_Encoding": "chunked"}),
    (413, {"Content_Length": str(LARGEST + 1)}),
    (413, {"Content_Length": "9" * 40}),
]


@pytest.mark.parametrize(("status", "headers"), WRONG)
def test_nobody_else_decides(made: Federated, serving: Server, status: int, headers: dict[str, str | None]) -> None:
    assert ask(serving, "POST", f"/{serving.token}/decide", decision(made), **headers)[0] == status
    assert entry(made).state == "waiting"


def test_a_port_of_the_same_machine_is_another_origin(made: Federated, serving: Server) -> None:
    other = {"Origin": f"http://127.0.0.1:{serving.port - 1}"}
    assert ask(serving, "POST", f"/{serving.token}/decide", decision(made), **other)[0] == 403
    assert entry(made).state == "waiting"


@pytest.mark.parametrize("token", ["", "x" * 32, "%2e%2e", "%c3%a9"])
def test_without_the_token_nothing_is_there(made: Federated, serving: Server, token: str) -> None:
    for rest in ("", "decide", "mark", "page.js", f"proposal/0/{entry(made).digest}"):
        status, headers, text = ask(serving, "GET", f"/{token}/{rest}")
        assert status == 404
        assert serving.token not in text
        assert headers["X-Frame-Options"] == "DENY"
    assert ask(serving, "POST", f"/{token}/decide", decision(made))[0] == 404
    assert entry(made).state == "waiting"


def test_a_get_changes_nothing(made: Federated, serving: Server) -> None:
    before = {path: path.stat().st_mtime_ns for path in (made.folders[1] / "proposals").iterdir()}
    paths = (
        "",
        "decide",
        "mark",
        f"proposal/0/{entry(made).digest}",
        f"decide?digest={entry(made).digest}&approve=true",
    )
    for path in paths:
        ask(serving, "GET", f"/{serving.token}/{path}")
    assert {path: path.stat().st_mtime_ns for path in (made.folders[1] / "proposals").iterdir()} == before
    for method in ("PUT", "DELETE", "HEAD", "OPTIONS"):
        status, headers, _ = ask(serving, method, f"/{serving.token}/decide")
        assert status == 501
        assert not any(name.lower().startswith("access-control") for name in headers)


@pytest.mark.parametrize(
    ("status", "changes"),
    [
        (400, {"digest": "0" * 64}),
        (400, {"digest": "0" * 8}),
        (400, {"approve": "yes"}),
        (400, {"tell": None}),
        (404, {"place": "7"}),
        (404, {"place": "-1"}),
        (404, {"place": "../1"}),
        (400, {"place": "1"}),  # a party that asks nobody
        (400, {"approve": False, "why": ""}),
        (400, {"approve": False, "why": "x" * 600}),
        (400, {"approve": False, "why": "a\x1b[2J"}),
    ],
)
def test_a_decision_that_says_something_else_changes_nothing(
    made: Federated, serving: Server, status: int, changes: dict[str, Any]
) -> None:
    assert ask(serving, "POST", f"/{serving.token}/decide", decision(made, **changes))[0] == status
    assert entry(made).state == "waiting"


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"[" * 4000, b"\xff\xfe"])
def test_what_is_no_table_is_refused(made: Federated, serving: Server, body: bytes) -> None:
    assert ask(serving, "POST", f"/{serving.token}/decide", body)[0] == 400


def test_a_slow_or_strange_client_stops_nobody(serving: Server) -> None:
    lines = [socket.create_connection(("127.0.0.1", serving.port)) for _ in range(8)]
    try:
        lines[0].sendall(b"\x16\x03\x01 nonsense\r\n\r\n")
        lines[1].sendall(b"GET /" + b"x" * 5000 + b" HTTP/1.0\r\n")
        assert ask(serving, "GET", f"/{serving.token}/")[0] == 200
        assert ask(serving, "GET", f"/{serving.token}/{'x' * 400}")[0] == 404
    finally:
        for line in lines:
            line.close()


def test_a_ledger_that_cannot_be_opened_is_not_said_to_have_no_budget(fresh: Federated) -> None:
    party = read_party(fresh.folders[1])
    assert words.standing(party)["hidden"] is None
    known = identity_of(party.ledger)
    assert known is not None
    assert known.policy.budget is not None
    with closing(SqliteLedger(party.ledger, known.parties, known.policy, known.mode)) as ledger:
        ledger.amend(replace(known.policy, budget=replace(known.policy.budget, epsilon=40.0)), "the board decided")
    said = Reader(page.overview([words.standing(party)], "")).text
    assert said.count("cannot be shown until party.toml and the ledger agree") == 3
    for untrue in ("no budget", "earlier version", "Nothing waits", "None waits"):
        assert untrue not in said
    assert "none waits" not in listed(words.standing(party))
    party.ledger.unlink()
    said = Reader(page.overview([words.standing(party)], "")).text
    assert "no budget" not in said
    assert "cannot be shown until the problem above is solved" in said


def test_a_taken_port_is_told(serving: Server) -> None:
    with pytest.raises(ConfigError, match="--port"):
        serve([], serving.port)


def test_hostile_texts_are_text(made: Federated) -> None:
    found = entry(made)
    one = words.whole(read_party(made.folders[1]), found) | {"job": EVIL, "text": EVIL, "problem": EVIL, "code": EVIL}
    one["sentences"] = [{"about": EVIL, "says": EVIL}]
    one["decided"] = {"approved": False, "at": EVIL, "until": EVIL, "why": EVIL, "told": True}
    owner = words.standing(read_party(made.folders[1]))
    owner |= {"name": EVIL, "coordinator": EVIL, "directory": EVIL, "problem": EVIL}
    said = {"purpose": EVIL, "requester": EVIL, "admitted": EVIL}
    costs = {"rounds": 1, "epsilon_spent": None, "epsilon_set_aside": None}
    owner["jobs"] = [{"job": EVIL, "state": EVIL, **costs, **said}]
    owner["refusals"] = [{"kind": EVIL, "why": EVIL, "first": EVIL, "times": 2, **said}]
    one |= said
    owner["proposals"] = [one | {"algorithm": EVIL}, one | {"state": "refused"}]
    for text in (page.overview([owner], EVIL), page.proposal(0, owner, one, EVIL)):
        seen = Reader(text)
        assert [one.get("src") for one in seen.all("script")] in (["page.js"], ["../../page.js"])
        assert not re.search("[\x00-\x08\x0b-\x1f\u202e]", text)
        assert "alert(1)" in seen.text


def test_a_label_with_control_characters_reaches_no_terminal(
    made: Federated, capsys: pytest.CaptureFixture[str]
) -> None:
    from privadmm.cli.views import approvals as view

    party = read_party(made.folders[1])
    evil = replace(entry(made), proposal=replace(entry(made).proposal, text=f'x = "{EVIL}"\n[bold]'))
    shown = view.proposal("party-1", words.whole(party, evil))
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "\\u001b[31m" in shown
    assert "[bold]" in shown


def test_the_page_reads_no_record(fresh: Federated, deciding: Server) -> None:
    for folder in fresh.folders[:2]:
        (folder / read_party(folder).data.source).unlink()
    for path in ("", f"proposal/0/{entry(fresh).digest}"):
        assert ask(deciding, "GET", f"/{deciding.token}/{path}")[0] == 200
    assert ask(deciding, "POST", f"/{deciding.token}/decide", decision(fresh))[0] == 200


def test_what_a_changed_policy_refuses_cannot_be_approved(fresh: Federated, deciding: Server) -> None:
    fresh.change(1, "minimum_parties = 2", "minimum_parties = 9")
    status, _, said = ask(deciding, "POST", f"/{deciding.token}/decide", decision(fresh))
    assert (status, json.loads(said)["error"]) == (409, "RefusedError")
    text = ask(deciding, "GET", f"/{deciding.token}/proposal/0/{entry(fresh).digest}")[2]
    assert "minimum_parties" in text
    assert 'data-opens="approve"' not in text


def test_what_was_sent_in_its_place_is_not_approved_with_it(fresh: Federated, deciding: Server) -> None:
    seen = entry(fresh)
    body = decision(fresh)
    other = replace(seen.proposal, text=seen.proposal.text.replace("rho = 0.1", "rho = 0.3"))
    heads = {"kind": "begin", "heads": "[]"}
    assert answer(fresh.folders[1], {**heads, "proposal": other.pack()})["status"] == "waiting"
    assert ask(deciding, "POST", f"/{deciding.token}/decide", body)[0] == 200
    assert answer(fresh.folders[1], {**heads, "proposal": other.pack()})["status"] == "waiting"
    assert answer(fresh.folders[1], {**heads, "proposal": seen.proposal.pack()})["status"] == "ok"
    assert Proposal.unpack(other.pack()).id == seen.proposal.id


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("dark", [False, True])
def test_contrast_is_enough_in_light_and_dark(dark: bool) -> None:
    style = Path(server.__file__).with_name("style.css").read_text()
    light, shade = (dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", block)) for block in style.split("@media")[:2])
    has = light | shade if dark else light
    pairs = [
        ("ink", "paper"),
        ("ink", "card"),
        ("quiet", "paper"),
        ("quiet", "card"),
        ("link", "paper"),
        ("link", "card"),
    ]
    pairs += [("on", "yes"), ("on", "no"), ("yes", "paper"), ("no", "paper"), ("alarm", "alarm-paper")]
    for front, back in pairs:
        one, other = sorted((luminance(has[front]), luminance(has[back])))
        assert (other + 0.05) / (one + 0.05) >= 4.5, (front, back)
    for front, back in (("line", "paper"), ("spent", "left"), ("aside", "left")):  # what is no text
        one, other = sorted((luminance(has[front]), luminance(has[back])))
        assert (other + 0.05) / (one + 0.05) >= 3, (front, back)
