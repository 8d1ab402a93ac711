"""The steward's page, served to a browser on this machine: docs/decisions/0013-the-stewards-page.md says why so.

Who may ask. The server listens on 127.0.0.1. Every address has a random token, drawn when the server starts and kept in
memory; without it the answer is 404. The Host header must name this server: another site's name that points to
127.0.0.1 opens nothing. A change needs a POST of JSON whose Origin is this server; GET changes nothing. A request that
a browser marks as coming from another site is refused. There are no cookies.

What a page may do. It loads its own style and script, and nothing else; no site may frame it; the browser stores
nothing. Every text from outside is escaped (page.py).
"""

import hmac
import json
import secrets
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from privadmm.deploy.federation.desk.approvals import DIGEST, Proposals
from privadmm.deploy.federation.party import Party
from privadmm.deploy.federation.party import read as read_party
from privadmm.deploy.federation.steward import page, words
from privadmm.errors import ConfigError, PrivadmmError

LARGEST = 4096  # bytes of what a browser may send
LONGEST = 300  # characters of an address
AT_ONCE = 16  # connections
STATUS = {2: 400, 3: 409}  # by exit code
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    # The address has the token: no other site is told it. With "no-referrer" browsers would send no Origin, either.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
FILES = {"style.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}


class NoAnswerError(Exception):
    """Refuses a request, with a status and a sentence."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class Server(ThreadingHTTPServer):
    """The page of these parties' directories."""

    daemon_threads = True

    def __init__(self, folders: Sequence[Path], port: int) -> None:
        self.folders = [folder.absolute() for folder in folders]
        self.token = secrets.token_urlsafe(24)
        self.deciding = threading.Lock()
        self._slots = threading.BoundedSemaphore(AT_ONCE)
        super().__init__(("127.0.0.1", port), Handler)

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    @property
    def hosts(self) -> set[str]:
        """The names by which a browser on this machine may reach this server."""
        return {f"127.0.0.1:{self.port}", f"localhost:{self.port}"}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/{self.token}/"

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread; beyond AT_ONCE connections, not at all."""
        if self._slots.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def party(self, place: str) -> Party:
        """The party of a directory, by the directory's index on the command line; read anew each time."""
        if not (place.isascii() and place.isdigit() and len(place) < 5 and int(place) < len(self.folders)):
            raise NoAnswerError(404, "there is no such party here")
        return read_party(self.folders[int(place)])


class Handler(BaseHTTPRequestHandler):
    """Answers one request, then closes the connection."""

    server: Server
    timeout = 10  # seconds that somebody may take to ask
    server_version, sys_version = "privadmm", ""

    def do_GET(self) -> None:
        self._answer(self._look)

    def do_POST(self) -> None:
        self._answer(self._decide)

    def _answer(self, make: Any) -> None:
        try:
            status, kind, body = make(self._inside())
        except NoAnswerError as error:
            status, kind, body = error.status, "text/plain", f"{error}\n".encode()
        except PrivadmmError as error:  # whoever has the token is the steward, who may see everything
            status, kind = STATUS.get(error.exit_code, 500), "application/json"
            body = as_json({"error": type(error).__name__, "message": words.plain(error)})
        except Exception as error:
            sys.excepthook(type(error), error, error.__traceback__)
            status, kind, body = 500, "text/plain", b"unexpected; the terminal says more\n"
        self._send(status, kind, body)

    def _only(self, name: str) -> str | None:
        """A header that the request has once; None if it is missing or repeated."""
        values = self.headers.get_all(name, [])
        return str(values[0]) if len(values) == 1 else None

    def _inside(self) -> list[str]:
        """The parts of the address behind the token; an error unless the request may be answered."""
        if self._only("Host") not in self.server.hosts:
            raise NoAnswerError(421, "this server has another name")
        site = self.headers.get_all("Sec-Fetch-Site", [])
        if not set(site) <= {"same-origin", "none"}:
            raise NoAnswerError(403, "another site may not ask for this")
        _, token, *parts = [*self.path[:LONGEST].split("/"), ""]
        if len(self.path) > LONGEST or not hmac.compare_digest(token.encode(), self.server.token.encode()):
            raise NoAnswerError(404, "there is nothing here: open the whole address that `privadmm steward` printed")
        return parts[:-1]

    def _look(self, parts: list[str]) -> tuple[int, str, bytes]:
        match parts:
            case [""]:
                parties = [words.standing(self.server.party(str(place))) for place in range(len(self.server.folders))]
                return 200, "text/html", page.overview(parties, self._mark()).encode()
            case ["proposal", place, digest] if DIGEST.fullmatch(digest):
                party = self.server.party(place)
                entry = Proposals(party).entry(digest)
                if entry is None:
                    raise NoAnswerError(404, "this proposal is not here any more")
                html = page.proposal(int(place), words.standing(party), words.whole(party, entry), self._mark())
                return 200, "text/html", html.encode()
            case ["mark"]:
                return 200, "application/json", as_json({"mark": self._mark()})
            case [name] if name in FILES:
                return 200, FILES[name], Path(__file__).with_name(name).read_bytes()
        raise NoAnswerError(404, "there is no such page")

    def _mark(self) -> str:
        return words.mark([self.server.party(str(place)) for place in range(len(self.server.folders))])

    def _decide(self, parts: list[str]) -> tuple[int, str, bytes]:
        """Record a decision, which names its proposal by the whole digest."""
        if self._only("Origin") != f"http://{self._only('Host')}":
            raise NoAnswerError(403, "another site may not ask for this")
        if parts != ["decide"]:
            raise NoAnswerError(404, "there is nothing to be sent here")
        asked = self._sent()
        place, digest, why = (asked.get(key) for key in ("place", "digest", "why"))
        approve, tell = asked.get("approve"), asked.get("tell")
        texts = all(isinstance(value, str) for value in (place, digest, why))
        if not texts or not isinstance(approve, bool) or not isinstance(tell, bool):
            raise NoAnswerError(400, "a decision has place, digest and why as texts, approve and tell as yes or no")
        if not DIGEST.fullmatch(str(digest)):
            raise NoAnswerError(400, "a decision names a proposal by its whole digest")
        with self.server.deciding:
            result = words.decide(self.server.party(str(place)), str(digest), approve, str(why), tell)
        return 200, "application/json", as_json(result)

    def _sent(self) -> dict[str, Any]:
        length = self._only("Content-Length") or ""
        if self.headers.get_all("Transfer-Encoding") or not (length.isascii() and length.isdigit()):
            raise NoAnswerError(411, "say how long it is")
        if len(length) > 9 or int(length) > LARGEST:
            raise NoAnswerError(413, f"at most {LARGEST} bytes")
        if self._only("Content-Type") != "application/json":
            raise NoAnswerError(415, "send JSON")
        try:
            table = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError):
            table = None
        if not isinstance(table, dict):
            raise NoAnswerError(400, "send a table of JSON")
        return table

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        with suppress(BrokenPipeError, ConnectionResetError):  # the browser has gone
            self.end_headers()
            self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer a request that the standard library cannot read; with our own headers."""
        self._send(code, "text/plain", b"this request cannot be answered\n")

    def log_message(self, *_: object) -> None:
        """Log nothing: an address has the token."""


def as_json(content: Any) -> bytes:
    return json.dumps(content).encode() + b"\n"


def serve(folders: Sequence[Path], port: int = 0) -> Server:
    """Make the page's server, which listens; `serve_forever` makes it answer."""
    try:
        return Server(folders, port)
    except OSError as error:
        raise ConfigError(f"--port: 127.0.0.1:{port} cannot be listened at ({error.strerror}); take another") from None
