"""The health of a coordinator or a party, for monitoring: /healthz on 127.0.0.1, and a Prometheus textfile.

It has public facts only: what the coordinator wrote about its run, what a party told the coordinator anyway, dates of
certificates, room on the disk. It has no reasons of failures, no time that a letter took, and nothing about records.
"""

import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from privadmm import __version__
from privadmm.data.files import write_text
from privadmm.deploy.federation.desk.approvals import Proposals
from privadmm.deploy.federation.hub.state import SILENT, at_rest, seconds_since
from privadmm.deploy.federation.hub.supervisor import reachable
from privadmm.deploy.federation.keys import load
from privadmm.deploy.federation.layout import Coordinator, json_table
from privadmm.deploy.federation.party import Party
from privadmm.errors import ConfigError, LedgerError
from privadmm.privacy.anchor import NONE, AnchorFile, lacks
from privadmm.privacy.ledger_file import alone_beside, connect, readable, start_of

EVERY = 15.0  # seconds between two textfiles
TAIL = 1 << 16  # bytes of a log's end that are read
# The fields of a run, and of the last letter, that are told if they are there.
RUN = ("run", "state", "at", "started", "beat", "round", "rounds", "exit_code")
LETTER = ("at", "kind", "round", "phase", "outcome")
Facts = dict[str, Any]


def of_coordinator(place: Coordinator) -> Facts:
    """The coordinator's health: whether its SuperLink listens, and where the latest run stands."""
    status, up = json_table(place.status), reachable(*place.address)
    if status.get("state") != "running" and isinstance(status.get("parties"), list):
        status = at_rest({**status, "parties": [party for party in status["parties"] if isinstance(party, dict)]})
    run: Facts = {key: status.get(key) for key in RUN if key in status}
    waiting, parties = status.get("waiting_for"), status.get("parties")
    if isinstance(waiting, list):
        run["waiting_for"] = [str(party) for party in waiting]
    if isinstance(parties, list):
        tables = [party for party in parties if isinstance(party, dict)]
        run["parties"] = [{key: party.get(key) for key in ("party", "name", "state")} for party in tables]
    silent = run.get("state") == "running" and seconds_since(run.get("beat")) > SILENT
    facts = {"role": "coordinator", "healthy": up and not silent, "listening": up, "run": run or None}
    certificate = place.certificates / "server.pem"
    return common(place.folder, facts, certificate)


def of_party(party: Party) -> Facts:
    """A party's health: whether its node is up, what it answered last, and how much of its budget is left."""
    up, last = reachable("127.0.0.1", party.node.port), last_letter(party.folder / "requests.log")
    letter: Facts = {key: last[key] for key in LETTER if key in last}
    facts: Facts = {"role": "party", "party": party.number, "listening": up, "last": letter or None}
    facts["locked"] = locked(party.ledger)
    for key in ("epsilon_spent", "epsilon_left"):
        if isinstance(last.get(key), int | float):
            facts[key] = last[key]
    if party.asks:
        facts["waiting"] = sum(entry.state == "waiting" for entry in Proposals(party).entries())
    facts["healthy"] = up and not facts["locked"]
    return common(party.folder, facts, party.folder / party.node.ca)


def locked(ledger: Path) -> bool:
    """Whether a ledger releases nothing until its steward decides. The ledger is not changed by this look.

    It is locked if it lacks what its anchor knows, if a step failed, or if the process of a step is gone.
    """
    try:
        anchor = AnchorFile(ledger).read()
        if not ledger.is_file():
            return anchor is not None and (anchor.seq > 0 or anchor.intent != NONE)
        with readable(ledger), closing(connect(ledger, read_only=True)) as db:
            tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
            marked = "anchored" in tables and db.execute("SELECT count(*) FROM anchored").fetchone()[0]
            if anchor is None:
                behind = bool(marked)
            else:
                behind = anchor.doubted or lacks(db, start_of(db).hash, anchor) is not None
            last = "SELECT kind FROM ticks WHERE kind IN ('fail', 'unlock') ORDER BY seq DESC LIMIT 1"
            if behind or db.execute(last).fetchone() == ("fail",):
                return True
            begun = "intents" in tables and db.execute("SELECT count(*) FROM intents").fetchone()[0]
        return bool(begun) and not at_work(ledger)
    except LedgerError:  # a ledger that cannot be read releases nothing either
        return True


def at_work(ledger: Path) -> bool:
    """Whether a process is in the middle of a step."""
    try:
        with alone_beside(ledger, 0.0):
            return False
    except LedgerError:
        return True


def common(folder: Path, facts: Facts, certificate: Path) -> Facts:
    facts |= {"version": __version__, "disk_free": shutil.disk_usage(folder).free}
    with suppress(OSError, ValueError):
        facts["certificate"] = {"file": certificate.name, "until": load(certificate).not_valid_after_utc.isoformat()}
    return facts


def last_letter(path: Path) -> Facts:
    """The last line about a letter in a party's log; empty if there is none near its end."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL))
            lines = file.read().split(b"\n")[:-1]
    except OSError:
        return {}
    for line in reversed(lines):
        with suppress(ValueError):
            letter = json.loads(line)
            if isinstance(letter, dict) and "outcome" in letter:
                return letter
    return {}


def as_metrics(facts: Facts) -> str:
    """The facts in Prometheus' text format."""
    lines = [f"# privadmm {facts['role']}", *_metrics(facts)]
    return "\n".join(lines) + "\n"


def _metrics(facts: Facts) -> Iterator[str]:
    yield _line("privadmm_info", 1, role=facts["role"], version=facts["version"])
    yield _line("privadmm_healthy", facts["healthy"])
    yield _line("privadmm_listening", facts["listening"])
    yield _line("privadmm_disk_free_bytes", facts["disk_free"])
    if known := facts.get("certificate"):
        until = datetime.fromisoformat(known["until"]).timestamp()
        yield _line("privadmm_certificate_expiry_timestamp_seconds", until, file=known["file"])
    if run := facts.get("run"):
        for state in ("running", "finished", "failed", "stopped"):
            yield _line("privadmm_run_state", run.get("state") == state, state=state)
        for key in ("round", "rounds"):
            if isinstance(run.get(key), int):
                yield _line(f"privadmm_run_{key}", run[key])
        if (quiet := seconds_since(run.get("beat"))) < float("inf"):
            yield _line("privadmm_run_beat_age_seconds", round(quiet, 1))
        yield _line("privadmm_run_waiting_for_parties", len(run.get("waiting_for", [])))
    if facts["role"] == "party":
        yield _line("privadmm_ledger_locked", facts["locked"])
        for key in ("epsilon_spent", "epsilon_left"):
            if key in facts:
                yield _line(f"privadmm_{key}", facts[key])
        if "waiting" in facts:
            yield _line("privadmm_proposals_waiting", facts["waiting"])
        if (last := facts["last"]) and (age := seconds_since(last.get("at"))) < float("inf"):
            yield _line("privadmm_last_letter_age_seconds", round(age, 1), outcome=last.get("outcome"))


def _line(name: str, value: float, **labels: object) -> str:
    def quoted(text: object) -> str:
        return str(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

    inner = ",".join(f'{key}="{quoted(text)}"' for key, text in labels.items())
    return f"{name}{{{inner}}} {value:.15g}" if inner else f"{name} {value:.15g}"


def serve(port: int, facts: Callable[[], Facts]) -> ThreadingHTTPServer:
    """Answer GET /healthz on 127.0.0.1, in a thread: 200 if all is well, else 503, with the facts as JSON."""

    class Handler(BaseHTTPRequestHandler):
        timeout = 5  # seconds that a request may take
        server_version, sys_version = "privadmm", ""

        def do_GET(self) -> None:
            if self.path != "/healthz":
                self.send_error(404)
                return
            status = facts()
            body = json.dumps(status).encode() + b"\n"
            self.send_response(200 if status["healthy"] else 503)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing: a look every few seconds is no news."""

    try:
        server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    except OSError as error:
        raise ConfigError(
            f"--health: 127.0.0.1:{port} cannot be listened at ({error.strerror}); take another"
        ) from None
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def export(path: Path, facts: Callable[[], Facts]) -> None:
    """Write the textfile now, and every few seconds in a thread. A disk that is full stops nothing."""
    if path.suffix != ".prom":
        raise ConfigError(f"--metrics: {path} has to end in .prom, or Prometheus' node exporter does not read it")
    write_text(path, as_metrics(facts()))

    def keep() -> None:
        while True:
            time.sleep(EVERY)
            with suppress(OSError):
                write_text(path, as_metrics(facts()))

    threading.Thread(target=keep, daemon=True).start()
