"""A client of a Dask scheduler: the one that a config names, or a new one on this machine with its own workers."""

import logging
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from time import monotonic, sleep
from typing import Any
from urllib.parse import urlsplit

from privadmm.config.file import Config
from privadmm.errors import ClusterError, ConfigError

try:
    import cryptography  # noqa: F401  distributed needs it for the certificates of workers on this machine
    import dask.config
    from distributed import CancelledError, Client, Future, KilledWorker, Nanny, Scheduler, Security, SpecCluster
except ImportError as error:
    raise ConfigError("the engine dask needs Dask, which is not installed: pip install 'privadmm[dask]'") from error

__all__ = ["CONNECT", "CancelledError", "Future", "KilledWorker", "connected"]

CONNECT = 30.0  # seconds that a connection may take
ABSENT = 3.0  # seconds without a connection after which no scheduler is believed to listen
POLL = 0.25  # seconds between two tries to reach it
PORT = 8786  # where a scheduler listens, if its address does not say
PROBE = 3.0  # seconds for the handshake that explains a failed connection
SETTINGS = {
    "distributed.worker.profile.enabled": False,  # statistics of what workers do cost them time
    "distributed.worker.http.routes": [],  # no pages
    "distributed.scheduler.http.routes": [],
}
# Ctrl-C in a terminal reaches every process. Workers ignore it: the driver first asks how far they are.
IGNORE_INTERRUPT = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)"


def on_this_machine(count: int) -> SpecCluster:
    """A scheduler in this process and this many worker processes, on loopback, with certificates of their own.

    Not a LocalCluster: the pages of its workers would listen on every interface even when switched off.
    """
    shared = {
        "host": "127.0.0.1",
        "protocol": "tls://",
        "security": Security.temporary(),
        "dashboard": False,
        "dashboard_address": "127.0.0.1:0",
    }
    worker = {"nthreads": 1, "memory_limit": None, "preload": [IGNORE_INTERRUPT], "silence_logs": logging.CRITICAL}
    return SpecCluster(
        scheduler={"cls": Scheduler, "options": {**shared, "port": 0}},
        workers={name: {"cls": Nanny, "options": {**shared, **worker}} for name in range(count)},
        security=shared["security"],
        silence_logs=logging.CRITICAL,
    )


@contextmanager
def connected(config: Config, count: int) -> Iterator[Client]:
    """Connect to the scheduler that the config names, or to a new one with this many workers on this machine."""
    logger, address = logging.getLogger("distributed.client"), config.run.scheduler
    options: dict[str, Any] = {"direct_to_workers": True, "set_as_default": False}
    with ExitStack() as stack:
        stack.enter_context(dask.config.set(SETTINGS))
        stack.callback(logger.setLevel, logger.level)
        logger.setLevel(logging.CRITICAL)  # a lost scheduler becomes a ClusterError, not a traceback
        try:
            if address is None:
                local = stack.enter_context(on_this_machine(count))
                client = stack.enter_context(Client(local, **options))
            else:
                secured, limit = security(config), min(config.run.timeout, CONNECT)
                options |= {"security": secured, "timeout": limit}
                check_answers(address, secured, limit)
                client = stack.enter_context(Client(address, **options))
        except ssl.SSLError as error:
            raise ConfigError(
                f"{config.path}: [run] tls_ca, tls_cert and tls_key cannot be used together ({error}): they must be "
                "PEM files, and the key that of the certificate"
            ) from error
        except (OSError, RuntimeError) as error:
            if address is not None:
                raise ClusterError(unreached(address, error)) from error
            raise ClusterError(f"the workers could not be started ({error})") from error
        yield client


def security(config: Config) -> Security:
    """Load the certificates for a tls:// scheduler, or raise an SSLError; tcp:// is plain text on this machine."""
    run = config.run
    if urlsplit(run.scheduler).scheme == "tcp":
        return Security(require_encryption=False)
    files = {}
    for key in ("tls_ca", "tls_cert", "tls_key"):
        name = getattr(run, key)
        if name is None:
            raise ConfigError(
                f"{config.path}: [run] {key} is missing beside scheduler = {run.scheduler!r}: a tls:// scheduler "
                "needs tls_ca, tls_cert and tls_key"
            )
        path = config.resolve(name)
        if not path.is_file():
            raise ConfigError(f"{config.path}: [run] {key}: there is no file {path}")
        files[key] = str(path)
    secured = Security(
        require_encryption=True,
        tls_ca_file=files["tls_ca"],
        tls_client_cert=files["tls_cert"],
        tls_client_key=files["tls_key"],
    )
    secured.get_connection_args("client")
    return secured


def check_answers(address: str, secured: Security, limit: float) -> None:
    """Check that a scheduler answers at this address: Dask itself would wait for very long."""
    with reached(address) as plain:
        plain.settimeout(limit)
        try:
            if context := secured.get_connection_args("client").get("ssl_context"):
                context.wrap_socket(plain).close()
            else:
                plain.recv(1)  # in plain text a scheduler speaks first
        except TimeoutError as error:
            raise ClusterError(unreached(address, error)) from error
        except OSError:  # the client meets the same error, and learns more
            pass


def reached(address: str) -> socket.socket:
    """Connect to a scheduler, which may be starting just now."""
    where, deadline = urlsplit(address), monotonic() + ABSENT
    while True:
        try:
            left = max(deadline - monotonic(), POLL)
            return socket.create_connection((str(where.hostname), where.port or PORT), timeout=left)
        except OSError as error:
            if monotonic() + POLL > deadline:
                raise ClusterError(
                    f"nothing answers at {address} ({error.strerror or error}): start `dask scheduler` there, or "
                    "correct [run] scheduler (--scheduler)"
                ) from error
            sleep(POLL)


def unreached(address: str, error: Exception) -> str:
    """Say why a client cannot talk to the scheduler, and the fix; `error` is what the client raised."""
    where = urlsplit(address)
    encrypted = speaks_tls(str(where.hostname), where.port or PORT)
    match encrypted, where.scheme:
        case None, _:
            return f"whoever listens at {address} does not answer: see whether the scheduler there is stopped or stuck"
        case True, "tcp":
            return (
                f"the scheduler at {address} speaks TLS and refuses plain text: name it "
                f"tls://{where.netloc} and set tls_ca, tls_cert and tls_key"
            )
        case False, "tls":
            return (
                f"the scheduler at {address} speaks plain text, and nothing was sent to it: start it with "
                "--tls-ca-file, --tls-cert and --tls-key"
            )
    cause: BaseException = error
    while (deeper := cause.__cause__ or cause.__context__) is not None:
        cause = deeper  # the innermost error says what happened
    why = str(cause) or type(cause).__name__
    if encrypted:
        return (
            f"the scheduler at {address} and this run do not accept each other's certificates: both must be signed by "
            f"the authority in [run] tls_ca ({why})"
        )
    return f"the scheduler at {address} cannot be talked to ({why})"


def speaks_tls(host: str, port: int) -> bool | None:
    """Whether a TLS handshake gets an answer; None if nothing answers at all. No certificate is shown or trusted."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection((host, port), timeout=PROBE) as plain:
            context.wrap_socket(plain).close()
    except (TimeoutError, ConnectionRefusedError):
        return None
    except OSError:  # of which SSLError is one
        return False
    return True
