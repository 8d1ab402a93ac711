"""Says in a line each when a node's connection to its SuperLink is made, lost and back, for its operator and its log.

Flower tries again for as long as it takes, with a warning for each try. These are left out: what matters is when the
connection changes. FLWR_LOG_LEVEL=INFO brings Flower's own lines back.
"""

import argparse
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

RETRYING = "Connection attempt failed, retrying"


class Connection:
    """Whether a node is connected, and what is said of it; `who` is connected to `address`."""

    def __init__(self, who: str, address: str, key: str, tell: Callable[[str], None]) -> None:
        self.who, self.address, self.key, self.tell = who, address, key, tell
        self.up: bool | None = None  # None: it was not tried yet
        self.made = False  # whether it was up before
        self.since = time.monotonic()
        self.lock = threading.Lock()  # answers and letters go over it at once

    def connected(self) -> None:
        """The SuperLink let the node in, or answers again."""
        with self.lock:
            if self.up:
                return
            again = (
                f" again, after {time.monotonic() - self.since:.0f} s" if self.made else f", with the key {self.key}"
            )
            self.tell(f"{self.who} is connected to the SuperLink at {self.address}{again}")
            self.up = self.made = True

    def failed(self, why: object) -> None:
        """A request did not reach the SuperLink."""
        with self.lock:
            if self.up is False:
                return
            state = "is lost" if self.made else "cannot be made yet"
            self.tell(
                f"the connection of {self.who} to the SuperLink at {self.address} {state} ({why}); it goes on trying"
            )
            self.up, self.since = False, time.monotonic()


def tell_connection(main: ModuleType, fleet: ModuleType, connection: Connection) -> None:
    """Have Flower's node tell of its connection. `main` is its main loop, `fleet` what carries its requests."""
    begin, retrying = main._init_connection, fleet.make_simple_http_retry_invoker

    @contextmanager
    def told(*given: Any, **named: Any) -> Iterator[Any]:
        with begin(*given, **named) as made:
            connection.connected()
            yield made

    def telling() -> Any:
        invoker = retrying()
        succeeded, waited = invoker.on_success, invoker.on_backoff

        def on_success(state: Any) -> None:
            succeeded(state)
            if connection.made:  # before that, an answer may be that the node is not let in
                connection.connected()

        def on_backoff(state: Any) -> None:
            waited(state)
            connection.failed(reason(state.exception))

        invoker.on_success, invoker.on_backoff = on_success, on_backoff
        return invoker

    main.__dict__["_init_connection"] = told
    fleet.__dict__["make_simple_http_retry_invoker"] = telling


def reason(error: object) -> str:
    """What went wrong, in a line."""
    return " ".join(str(error).split()) or type(error).__name__


def own_connection() -> Connection:
    """The connection of the party whose node this process is, by the options that `privadmm federation node` gave."""
    from privadmm.deploy.federation.keys import fingerprint
    from privadmm.deploy.federation.party import read
    from privadmm.deploy.federation.signing import public_of

    parser = argparse.ArgumentParser(add_help=False)
    for option in ("--superlink", "--auth-supernode-private-key", "--node-config"):
        parser.add_argument(option, required=True)
    given, _ = parser.parse_known_args()
    party = read(Path(given.node_config.removeprefix("party=").strip('"')))
    name = f"party {party.number}" + (f' "{party.party.name}"' if party.party.name else "")
    key = fingerprint(public_of(Path(given.auth_supernode_private_key)))
    return Connection(name, given.superlink, key, lambda line: print(f"privadmm: {line}", file=sys.stderr, flush=True))


def hush() -> None:
    """Leave out Flower's warning for every try, and what its web server says of itself."""
    if os.environ.get("FLWR_LOG_LEVEL", "WARNING") not in ("WARNING", "ERROR", "CRITICAL"):
        return
    logging.getLogger("flwr").addFilter(lambda record: not str(record.msg).startswith(RETRYING))
    logging.getLogger("uvicorn.error").addFilter(lambda record: record.levelno >= logging.WARNING)
