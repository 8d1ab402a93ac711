"""Which nodes a SuperLink lets in: those whose keys the coordinator has in nodes/, and no retired ones.

As a program, `python -m privadmm.deploy.flower.registry DIRECTORY` registers missing keys and takes back retired ones.
The process that keeps the SuperLink up starts it, so that nobody calls Flower's commands by hand.
"""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from privadmm.data.files import for_owner
from privadmm.deploy.federation.hub.state import take_lock
from privadmm.deploy.federation.keys import as_flower
from privadmm.deploy.federation.layout import Coordinator
from privadmm.errors import ClusterError, ConfigError

LOCK = "registry.lock"  # in the coordinator's directory


@dataclass(frozen=True)
class Registered:
    """A node as the SuperLink knows it."""

    id: int
    status: str  # registered, online, offline or unregistered
    key: bytes
    seen: str = ""  # when it was last there, as far as Flower tells; empty for never

    @property
    def gone(self) -> bool:
        return self.status == "unregistered"


@contextmanager
def connected(place: Coordinator) -> Iterator[Any]:
    """Connect to the coordinator's own SuperLink. Flower's account of a failure becomes one line."""
    os.environ.update(place.environment)
    host, port = place.address
    try:
        import httpx
        from flwr.supercore.control import ControlHttpClient
        from flwr.supercore.error import FlowerError
        from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
    except ImportError:
        raise ConfigError("Flower is not installed: pip install 'privadmm[flower]'") from None
    try:
        client = ControlHttpClient.from_server_address(
            server_address=f"{host}:{port}",
            insecure=False,
            root_certificates=(place.certificates / "ca.pem").read_bytes(),
            interceptors=[RuntimeVersionHttpInterceptor(component_name="flwr CLI")],
        )
        try:
            yield client
        finally:
            client.close()
    except httpx.HTTPStatusError as error:
        told = FlowerError.from_json(error.response.text)
        why = str(error) if told is None else told.message
        raise ClusterError(f"the SuperLink at {host}:{port} refused: {' '.join(why.split())}") from None
    except httpx.HTTPError as error:
        raise ClusterError(
            f"the SuperLink at {host}:{port} cannot be reached ({error}): start it with `privadmm federation superlink "
            f"{place.folder}`"
        ) from None


def nodes(client: Any) -> list[Registered]:
    from flwr.proto.control_pb2 import ListNodesRequest

    answer = client.ListNodes(ListNodesRequest())
    return [
        Registered(node.node_id, node.status, node.public_key, node.last_deactivated_at or node.online_until or "")
        for node in answer.nodes_info
    ]


def known(place: Coordinator) -> dict[int, Registered | None]:
    """The node of every party whose public key is in nodes/; None if the key is not registered."""
    with connected(place) as client:
        by_key = {node.key: node for node in nodes(client)}
    return {number_of(path): by_key.get(as_flower(path)) for path in sorted(place.keys.glob("party-*.pub"))}


def agree(place: Coordinator) -> dict[str, list[str]]:
    """Register the keys in nodes/ that are missing, and take back those that are retired."""
    from flwr.proto.control_pb2 import UnregisterNodeRequest

    done: dict[str, list[str]] = {"registered": [], "unregistered": [], "spent": []}
    with connected(place) as client, alone(place):
        by_key = {node.key: node for node in nodes(client)}
        for path in sorted(place.keys.glob("party-*.pub")):
            key = as_flower(path)
            if key not in by_key:
                if register(client, key, path.stem):
                    done["registered"].append(path.stem)
            elif by_key[key].gone:
                done["spent"].append(path.stem)  # Flower takes no key a second time
        for path in sorted(place.retired.glob("party-*.pub")):
            node = by_key.get(as_flower(path))
            if node is not None and not node.gone:
                client.UnregisterNode(UnregisterNodeRequest(node_id=node.id))
                done["unregistered"].append(path.stem)
    return done


@contextmanager
def alone(place: Coordinator, seconds: float = 30.0) -> Iterator[None]:
    """Let one process at a time register keys: of two at once, Flower shows an error for each key of the second.

    Nothing else depends on the lock: without it after this time, the process goes on.
    """
    with ExitStack() as held:
        with suppress(OSError):
            take_lock(held.enter_context(open(place.folder / LOCK, "a", opener=for_owner)), seconds)
        yield


def register(client: Any, key: bytes, name: str) -> bool:
    """Register a key; returns False if another process did so at the same moment."""
    import httpx
    from flwr.proto.control_pb2 import RegisterNodeRequest

    try:
        client.RegisterNode(RegisterNodeRequest(public_key=key, name=name))
    except httpx.HTTPStatusError:
        if key not in [node.key for node in nodes(client)]:
            raise
        return False
    return True


def number_of(path: Path) -> int:
    return int(path.stem.removeprefix("party-"))


if __name__ == "__main__":
    try:
        print(json.dumps(agree(Coordinator(Path(sys.argv[1])))))
    except (ClusterError, ConfigError) as failure:
        sys.exit(str(failure))
