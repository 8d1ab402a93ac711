"""Flower's `flwr-clientapp` with privadmm's own ClientApp in place of the one that a job brings.

In Flower the code that runs beside a party's records comes in a bundle from whoever may start a run. A sovereign party
runs what it has installed: this command takes messages as Flower's does, unpacks no bundle and imports nothing of it.
`privadmm federation node` puts it before Flower's on the path of the node that it starts, and a refusal before every
other command that a job could ask a node for.
"""

import argparse
import os
import sys
from pathlib import Path

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before numpy: more threads than one change bits

VERSION = "1.41."  # the runtime below is Flower's own, and may change with any minor version
REPLACED = ("install_from_fab", "get_project_dir", "get_load_client_app_fn")


def main() -> None:
    import flwr

    if not flwr.__version__.startswith(VERSION):
        sys.exit(
            f"privadmm pins Flower {VERSION}x, and {flwr.__version__} is installed: pip install 'privadmm[flower]'"
        )
    # Not by way of Flower's own command, which imports twice as much.
    from flwr.supernode.runtime import run_clientapp as runtime

    from privadmm.engines.flower.client import app

    for name in REPLACED:
        if not hasattr(runtime, name):
            sys.exit(
                f"this Flower, {flwr.__version__}, unpacks bundles in another way than privadmm knows: refused"
            )
        setattr(runtime, name, nothing)
    setattr(runtime, REPLACED[-1], lambda *_, **__: lambda *bundle: app)
    given = parsed()
    certificates = None if given.root_certificates is None else Path(given.root_certificates).read_bytes()
    runtime.run_clientapp(
        runtime_api_address=given.runtime_api_address,
        token=given.token,
        insecure=given.insecure,
        certificates=certificates,
        parent_pid=given.parent_pid,
        runtime_dependency_install=False,
    )


def nothing(*_: object, **__: object) -> None:
    """In place of unpacking a bundle."""


def parsed() -> argparse.Namespace:
    """What a node says to its ClientApp. An argument that is not known ends the process: nothing is guessed."""
    parser = argparse.ArgumentParser("flwr-clientapp")
    parser.add_argument("--runtime-api-address", required=True)
    parser.add_argument("--token", required=True)
    parser.add_argument("--insecure", action="store_true")
    parser.add_argument("--root-certificates")
    parser.add_argument("--parent-pid", type=int)
    return parser.parse_args()


def refuse() -> None:
    sys.exit("this node runs privadmm's ClientApp and nothing else")
