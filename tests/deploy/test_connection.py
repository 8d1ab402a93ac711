"""A node says when its connection is made, lost and back; the SuperLink's keeper, when it listens."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from privadmm.deploy.federation.hub import supervisor

pytest.importorskip("flwr", reason="the extra flower is not installed: pip install 'privadmm[flower]'")
import httpx
from flwr.supercore.error.base import ApiErrorCode
from flwr.supercore.retry import make_simple_http_retry_invoker
from flwr.supernode import fleet_http_connection, start_client_internal

from privadmm.deploy.flower.connection import NOT_LET_IN, Connection, hush, tell_connection

LOST = httpx.ConnectError("[Errno 111] Connection refused")


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def connection(said: list[str]) -> Connection:
    return Connection("party 0", "hub.example:9100", "SHA256:abc", said.append)


class Requests:
    """Flower's main loop and its carrier of requests, some of which fail."""

    def __init__(self, connection: Connection) -> None:
        @contextmanager
        def begin(*_: Any, **__: Any) -> Iterator[str]:
            self.ask()  # to be let in
            yield "made"

        self.fails = 0
        self.main: Any = SimpleNamespace(_init_connection=begin)
        self.fleet: Any = SimpleNamespace(
            make_simple_http_retry_invoker=make_simple_http_retry_invoker, flwr_exit=lambda code, message: None
        )
        tell_connection(self.main, self.fleet, connection)
        self.invoker = self.fleet.make_simple_http_retry_invoker()
        self.invoker.wait_function = lambda seconds: None

    def ask(self, fails: int | None = None) -> None:
        self.fails = self.fails if fails is None else fails

        def request() -> None:
            if self.fails:
                self.fails -= 1
                raise LOST

        self.invoker.invoke(request)


def test_flower_has_what_is_replaced() -> None:
    assert callable(start_client_internal._init_connection)
    assert callable(fleet_http_connection.make_simple_http_retry_invoker)
    assert callable(fleet_http_connection.flwr_exit)
    assert f"[code: {ApiErrorCode.FLEET_NODE_ACTIVATION_FAILED}]" == NOT_LET_IN
    invoker = make_simple_http_retry_invoker()
    assert callable(invoker.on_success)
    assert callable(invoker.on_backoff)


def test_a_line_when_it_is_made_lost_and_back(connection: Connection, said: list[str]) -> None:
    requests = Requests(connection)
    with requests.main._init_connection() as made:
        assert made == "made"
        requests.ask()
        requests.ask()
        assert len(said) == 1
        for word in ("party 0 is connected", "hub.example:9100", "SHA256:abc"):
            assert word in said[0]
        requests.ask(fails=5)  # lost and back within one request: a line each, whatever the number of tries
        assert len(said) == 3
        assert "is lost ([Errno 111] Connection refused)" in said[1]
        assert "connected to the SuperLink at hub.example:9100 again, after" in said[2]


def test_a_superlink_that_is_not_there_yet(connection: Connection, said: list[str]) -> None:
    """An answer alone does not make a connection: it may be that the node is not let in."""
    requests = Requests(connection)
    requests.ask(fails=3)
    assert len(said) == 1
    assert "cannot be made yet" in said[0]
    with requests.main._init_connection():
        assert len(said) == 2
        assert "with the key SHA256:abc" in said[1]


def test_a_node_that_is_not_admitted_says_what_to_do(connection: Connection, said: list[str]) -> None:
    requests = Requests(connection)
    requests.fleet.flwr_exit(305, "Failed to initialize the connection to the SuperLink.\nanother reason")
    assert said == []
    requests.fleet.flwr_exit(305, f"Failed to initialize the connection to the SuperLink.\n{NOT_LET_IN} Failed")
    for word in ("party 0 is not let in", "hub.example:9100", "SHA256:abc", "reply.toml", "privadmm federation admit"):
        assert word in said[0]


def test_flowers_warning_for_every_try_is_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    logger, server = logging.getLogger("flwr"), logging.getLogger("uvicorn.error")
    for one in (logger, server):
        monkeypatch.setattr(one, "filters", [])
        monkeypatch.setattr(one, "propagate", True)
    monkeypatch.setenv("FLWR_LOG_LEVEL", "INFO")
    hush()
    assert logger.filters == server.filters == []
    monkeypatch.setenv("FLWR_LOG_LEVEL", "WARNING")
    hush()
    with caplog.at_level(logging.INFO):
        logger.warning("Connection attempt failed, retrying in %.2f seconds", 1.0)
        logger.error("Exit Code: 305\nFailed to initialize the connection.\n[code: 2004] Failed to activate SuperNode.")
        logger.warning("something else")
        server.info("Uvicorn running")
        server.error("a fault")
    assert [record.message for record in caplog.records] == ["something else", "a fault"]


def test_what_is_up_is_announced_after_every_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "PAUSE", 0.0)
    monkeypatch.setattr(supervisor, "TRIES", 2)
    monkeypatch.setattr(supervisor, "LOOK", 0.01)
    file, told = tmp_path / "up", list[str]()
    code = f"import pathlib, sys, time; pathlib.Path({str(file)!r}).touch(); time.sleep(0.5); sys.exit(4)"

    def announce() -> bool:
        if not file.exists():
            return False
        file.unlink()
        told.append("up")
        return True

    assert supervisor.keep_up([[sys.executable, "-c", code]], {}, announce=announce) == 4
    assert told == ["up", "up"]
