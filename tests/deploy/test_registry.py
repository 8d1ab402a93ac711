"""What a SuperLink's operator sees while keys are registered and it starts: nothing that looks like a fault."""

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from small_runs import PRIVATE

pytest.importorskip("cryptography")
pytest.importorskip("flwr", reason="the extra flower is not installed: pip install 'privadmm[flower]'")
from federations import Federated, federated
from privadmm.deploy.federation.layout import EXECUTOR, Coordinator, superlink_environment
from privadmm.deploy.flower import pinned, registry


class SuperLink:
    """Takes each key once, and says who is there a moment later."""

    def __init__(self) -> None:
        self.keys: list[bytes] = []

    def ListNodes(self, _: Any) -> Any:  # noqa: N802
        seen = list(self.keys)
        time.sleep(0.1)
        state = {"status": "registered", "last_deactivated_at": "", "online_until": ""}
        return SimpleNamespace(
            nodes_info=[SimpleNamespace(node_id=n, public_key=key, **state) for n, key in enumerate(seen)]
        )

    def RegisterNode(self, asked: Any) -> None:  # noqa: N802
        self.keys.append(asked.public_key)


@pytest.fixture
def made(tmp_path: Path) -> Federated:
    return federated(tmp_path, PRIVATE)


@pytest.fixture
def superlink(monkeypatch: pytest.MonkeyPatch) -> SuperLink:
    found = SuperLink()

    @contextmanager
    def connected(place: Coordinator) -> Iterator[SuperLink]:
        yield found

    monkeypatch.setattr(registry, "connected", connected)
    return found


def test_no_key_is_registered_twice_by_two_at_once(made: Federated, superlink: SuperLink) -> None:
    """As `admit` and whoever keeps the SuperLink up do: Flower would show an error for each."""
    place, done = made.made.coordinator, list[dict[str, list[str]]]()
    threads = [threading.Thread(target=lambda: done.append(registry.agree(place))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(superlink.keys) == len(set(superlink.keys)) == 3
    assert sorted(len(one["registered"]) for one in done) == [0, 0, 3]


def test_who_cannot_have_the_lock_goes_on_without(made: Federated, superlink: SuperLink) -> None:
    place = made.made.coordinator
    with registry.alone(place), registry.alone(place, 0.1):
        pass
    (place.folder / registry.LOCK).unlink()
    (place.folder / registry.LOCK).mkdir()
    assert len(registry.agree(place)["registered"]) == 3


def test_a_superlink_that_starts_shows_no_failed_tries(
    made: Federated, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The process beside it tries until it listens."""
    place, logger = made.made.coordinator, logging.getLogger("flwr")
    first = superlink_environment(place)["PATH"].split(os.pathsep)[0]
    assert place.superexec()[0] == EXECUTOR
    assert pinned.coordinators_executor.__name__ in (Path(first) / EXECUTOR).read_text()
    monkeypatch.setattr(logger, "filters", [])
    monkeypatch.setattr(logger, "propagate", True)
    monkeypatch.setenv("FLWR_LOG_LEVEL", "WARNING")

    def superexec() -> None:
        logger.warning("Connection attempt failed, retrying in %.2f seconds", 1.0)
        logger.warning("something else")

    monkeypatch.setattr(pinned, "import_module", lambda name: SimpleNamespace(flower_superexec=superexec))
    pinned.coordinators_executor()
    assert [record.message for record in caplog.records if record.name == "flwr"] == ["something else"]
