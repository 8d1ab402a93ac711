"""Prints a line when a node's connection to its SuperLink is made, lost and back, for the operator and the journal.

Flower retries for ever, with a warning for each try. These warnings are left out: only changes of state matter.
If a node is not let in, Flower says that it "could not be activated"; the line here says what to do about it.
FLWR_LOG_LEVEL=INFO brings Flower's own lines back.
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

REPLY = "reply.toml"  # in a party's directory: its public key, for the coordinator
RETRYING = "Connection attempt failed, retrying"
NOT_LET_IN = "[code: 2004]"  # Flower's number for a node whose key it does not know, or whose node is there already


class Connection:
    """The state of a node's connection, and the lines about it; `who` is connected to `address`."""

    def __init__(self, who: str, address: str, key: str, tell: Callable[[str], None], reply: str = REPLY) -> None:
        self.who, self.address, self.key, self.tell, self.reply = who, address, key, tell, reply
        self.up: bool | None = None  # None: not tried yet
        self.made = False  # whether it was ever up
        self.since = time.monotonic()
        self.lock = threading.Lock()  # answers and letters share the connection

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

    def not_let_in(self) -> None:
        """The SuperLink answers, and refuses the node."""
        self.tell(
            f"{self.who} is not let in by the SuperLink at {self.address}: its key {self.key} is not admitted yet. "
            f"Send {self.reply} to the coordinator, who runs `privadmm federation admit`. If it was admitted, the node "
            "of before still counts, for a minute, or a clock is off. The node goes on trying"
        )


def tell_connection(main: ModuleType, fleet: ModuleType, connection: Connection) -> None:
    """Make Flower's node report its connection. `main` is its main loop, `fleet` the module that sends requests."""
    begin, retrying, leave = main._init_connection, fleet.make_simple_http_retry_invoker, fleet.flwr_exit

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
            if connection.made:  # before, an answer may say that the node is not let in
                connection.connected()

        def on_backoff(state: Any) -> None:
            waited(state)
            connection.failed(reason(state.exception))

        invoker.on_success, invoker.on_backoff = on_success, on_backoff
        return invoker

    def leaving(code: int, message: str | None = None, *given: Any, **named: Any) -> Any:
        if NOT_LET_IN in (message or ""):
            connection.not_let_in()
        return leave(code, message, *given, **named)

    main.__dict__["_init_connection"] = told
    fleet.__dict__["flwr_exit"] = leaving
    fleet.__dict__["make_simple_http_retry_invoker"] = telling


def reason(error: object) -> str:
    """An error in one line."""
    return " ".join(str(error).split()) or type(error).__name__


def own_connection() -> Connection:
    """The connection of the node in this process, from the options that `privadmm federation node` gave it."""
    from privadmm.deploy.federation.keys import fingerprint
    from privadmm.deploy.federation.party import read
    from privadmm.deploy.federation.signing import public_of
    from privadmm.errors import visible

    parser = argparse.ArgumentParser(add_help=False)
    for option in ("--superlink", "--auth-supernode-private-key", "--node-config"):
        parser.add_argument(option, required=True)
    given, _ = parser.parse_known_args()
    party = read(Path(given.node_config.removeprefix("party=").strip('"')))
    name = f"party {party.number}" + (f' "{party.party.name}"' if party.party.name else "")
    key = fingerprint(public_of(Path(given.auth_supernode_private_key)))

    def tell(line: str) -> None:
        print(f"privadmm: {visible(line)}", file=sys.stderr, flush=True)

    return Connection(name, given.superlink, key, tell, str(party.folder / REPLY))


def hush() -> None:
    """Drop Flower's lines that this module says in other words, and the chatter of its web server."""
    if os.environ.get("FLWR_LOG_LEVEL", "WARNING") not in ("WARNING", "ERROR", "CRITICAL"):
        return
    logging.getLogger("flwr").addFilter(
        lambda record: not str(record.msg).startswith(RETRYING) and NOT_LET_IN not in str(record.msg)
    )
    logging.getLogger("uvicorn.error").addFilter(lambda record: record.levelno >= logging.WARNING)
