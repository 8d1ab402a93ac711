"""A node's SuperExec that answers each letter in a process of its own, as Flower's does, but imports nothing again.

Flower's starts Python for every message: a second of work before our first line runs. This one has already loaded what
answers a letter, and forks. It never reads a letter itself, so no process knows more than one.

A fork inherits the state of random generators, and must not draw what another fork draws. The parent has no such state:
secure noise comes from OpenDP, which it does not load, and keys from the system, which handles forks. Once OpenDP is
loaded here, or privadmm's files have changed, letters are answered by a new Python.

A process that answers must end with its node. Flower checks only whether the parent's process id is in use, and a dead
parent that nobody waits for keeps its id: such a process would live on until its requests give up, after a minute.
"""

import os
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import privadmm
from privadmm.deploy.federation.hub.supervisor import end_with_parent

# Modules that most letters need, loaded once for all.
ALREADY = (
    "privadmm.deploy.federation.keys",
    "privadmm.deploy.federation.signing",
    "scipy.sparse",
    "scipy.special",
    "threadpoolctl",
)
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT)


def fork_for_letters(runtime: ModuleType, executor: Any, client_app: str) -> None:
    """Make Flower's executor fork for ClientApps. `runtime` is Flower's module that runs a ClientApp."""
    anew: Callable[..., Any] = executor.launch
    accepted = import_module("flwr.supercore.superexec.executor.types").LaunchResult.accepted
    for name in ALREADY:
        import_module(name)
    loaded = stamp()

    def launch(self: Any, spec: Any) -> Any:
        if spec.task_type != client_app or stamp() != loaded or "opendp" in sys.modules:
            return anew(self, spec)  # a command on the node's own PATH, which is ours too, or a refusal
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        if os.fork() == 0:
            answer(runtime, spec, parent)
        return accepted()

    def reconcile(self: Any) -> None:
        with suppress(ChildProcessError):  # there is no child
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass

    executor.launch, executor.reconcile = launch, reconcile


def stamp() -> tuple[int, int]:
    """A stamp that changes when another privadmm is installed in place of this one."""
    with suppress(OSError):
        state = Path(privadmm.__file__).stat()
        return state.st_ino, state.st_mtime_ns
    return 0, 0


def answer(runtime: ModuleType, spec: Any, parent: int) -> NoReturn:
    """Answer the letter in the new process, and end it."""
    code = 1
    try:
        for number in SIGNALS:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        end_with_parent(parent)
        # The parent's exit handlers are not for this process.
        import_module("flwr.supercore.exit.exit_handler").registered_exit_handlers.clear()
        path = spec.root_certificates_path
        runtime.run_clientapp(
            runtime_api_address=spec.runtime_api_address,
            token=spec.token,
            insecure=spec.insecure,
            certificates=None if path is None else Path(path).read_bytes(),
            parent_pid=spec.parent_pid,
            runtime_dependency_install=False,
        )
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)  # skips what the parent would do at its own end
