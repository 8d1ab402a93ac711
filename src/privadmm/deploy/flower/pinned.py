"""Replaces Flower's commands that run apps: these run privadmm's own apps, and no code that comes with a run.

In Flower the code that runs beside a party's records, and at the coordinator, comes in a bundle from whoever may start
a run. These commands take messages as Flower's do, and never unpack or import a bundle. `privadmm federation node` and
`superlink` put them before Flower's on PATH, with a refusal for every other command that a run could ask for.
"""

import argparse
import os
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from types import ModuleType
from typing import Any

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before numpy: more threads than one change bits

from privadmm.deploy.federation.hub.supervisor import end_with_parent
from privadmm.deploy.federation.layout import CLIENT, COORDINATOR, FLOWER, Coordinator


def client() -> None:
    """Run a party's ClientApp."""
    runtime, options = client_runtime(), parsed()
    path = options.pop("root_certificates")
    certificates = None if path is None else Path(path).read_bytes()
    runtime.run_clientapp(**options, certificates=certificates, runtime_dependency_install=False)


def client_runtime() -> ModuleType:
    """Flower's module that runs a ClientApp, changed to run the party's own app instead of a run's."""
    known_flower()
    # Not through Flower's own command, which imports twice as much.
    runtime = import_module("flwr.supernode.runtime.run_clientapp")
    from privadmm.deploy.flower.client import app

    replaced(runtime, install_from_fab=nothing, get_project_dir=nothing)
    replaced(runtime, get_load_client_app_fn=lambda *_, **__: lambda *bundle: app)
    return runtime


def node() -> None:
    """Run a party's node."""
    from privadmm.deploy.flower.connection import hush, own_connection, tell_connection
    from privadmm.deploy.flower.stale_letters import end_unanswered, keep_in_step

    known_flower()
    main = import_module("flwr.supernode.start_client_internal")
    keep_in_step(main)
    end_unanswered(import_module("flwr.supernode.nodestate.in_memory_nodestate"))
    tell_connection(main, import_module("flwr.supernode.fleet_http_connection"), own_connection())
    hush()
    import_module("flwr.supernode.cli").flower_supernode()


def executor() -> None:
    """Run a node's SuperExec, which starts the ClientApps."""
    from privadmm.deploy.flower.connection import hush
    from privadmm.deploy.flower.forking import fork_for_letters

    hush()  # it starts beside the node, and tries until the node listens
    runtime = client_runtime()
    unopened("flwr.supercore.cli")
    end_with_parent()  # for the reason given in `server`
    module = import_module("flwr.supercore.superexec.executor.subprocess_executor")
    known = getattr(module, "SubprocessExecutor", None)
    if not all(hasattr(known, name) for name in ("launch", "reconcile")):
        sys.exit("this Flower starts apps in another way than privadmm knows: nothing was run")
    fork_for_letters(runtime, known, CLIENT)
    import_module("flwr.supercore.cli.flower_superexec").flower_superexec()


def coordinators_executor() -> None:
    """Run a coordinator's SuperExec, which starts the ServerApp."""
    from privadmm.deploy.flower.connection import hush

    known_flower()
    hush()  # it starts beside the SuperLink, and tries until that listens
    import_module("flwr.supercore.cli.flower_superexec").flower_superexec()


def server() -> None:
    """Run a coordinator's ServerApp, from its own directory: whoever starts a run may change its options only."""
    known_flower()
    end_with_parent()  # Flower looks for the parent's process id, which a dead parent may keep
    place = Coordinator(Path(os.environ[COORDINATOR]))
    command = import_module("flwr.superlink.cli.flwr_serverapp")
    runtime = import_module("flwr.superlink.runtime.run_serverapp")
    replaced(runtime, install_from_fab=nothing, get_project_dir=lambda *bundle: place.app)
    command.flwr_serverapp()


def known_flower() -> None:
    import flwr

    if not flwr.__version__.startswith(f"{FLOWER}."):
        sys.exit(f"privadmm pins Flower {FLOWER}, and {flwr.__version__} is installed: pip install 'privadmm[flower]'")


def replaced(runtime: ModuleType, **others: Callable[..., Any]) -> None:
    """Replace functions in a module of Flower's; the process ends if the module has no such function."""
    for name, other in others.items():
        if not hasattr(runtime, name):
            sys.exit("this Flower unpacks bundles in another way than privadmm knows: nothing was run")
        setattr(runtime, name, other)


def unopened(package: str) -> None:
    """Let modules of a Flower package be imported without the package's own imports, databases for example."""
    if package not in sys.modules and (spec := find_spec(package)) is not None:
        sys.modules[package] = module_from_spec(spec)


def nothing(*_: object, **__: object) -> None:
    """Do nothing, where Flower would unpack a bundle of code."""


def parsed() -> dict[str, Any]:
    """Parse the options that a node gives its ClientApp. An unknown option ends the process: nothing is guessed."""
    parser = argparse.ArgumentParser("flwr-clientapp")
    parser.add_argument("--runtime-api-address", required=True)
    parser.add_argument("--token", required=True)
    parser.add_argument("--insecure", action="store_true")
    parser.add_argument("--root-certificates")
    parser.add_argument("--parent-pid", type=int)
    return vars(parser.parse_args())


def refuse() -> None:
    sys.exit("this runs privadmm's own app and nothing else")
