"""A client of a Dask scheduler: of the one that a config names, or of one on this machine, with workers of its own."""

import logging
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import NoReturn
from urllib.parse import urlsplit

from privadmm.config.file import Config
from privadmm.errors import ClusterError, ConfigError

try:
    import cryptography  # noqa: F401  distributed needs it for the certificates of workers on this machine
    import dask.config
    from distributed import (
        CancelledError,
        Client,
        Future,
        KilledWorker,
        Nanny,
        Scheduler,
        Security,
        SpecCluster,
    )
except ImportError as error:
    raise ConfigError("the engine dask needs Dask, which is not installed: pip install 'privadmm[dask]'") from error

__all__ = ["CONNECT", "CancelledError", "Future", "KilledWorker", "connected"]

CONNECT = 30.0
SETTINGS = {
    "distributed.worker.profile.enabled": False,  # statistics of what workers do cost them time
    "distributed.worker.http.routes": [],  # no pages
    "distributed.scheduler.http.routes": [],
}
# Ctrl-C in a terminal reaches every process; this one ends the workers when it has asked them how far they are.
DEAF = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)"


@contextmanager
def quiet(name: str) -> Iterator[None]:
    """Without what this logger says of a lost scheduler: it is told by its name, and not by a traceback."""
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


def on_this_machine(count: int) -> SpecCluster:
    """A scheduler in this process and so many worker processes, on loopback, with certificates of their own.

    As a LocalCluster, but for its pages: even switched off, those of workers would listen on every interface.
    """
    shared = {
        "host": "127.0.0.1",
        "protocol": "tls://",
        "security": Security.temporary(),
        "dashboard": False,
        "dashboard_address": "127.0.0.1:0",
    }
    worker = {"nthreads": 1, "memory_limit": None, "preload": [DEAF], "silence_logs": logging.CRITICAL}
    return SpecCluster(
        scheduler={"cls": Scheduler, "options": {**shared, "port": 0}},
        workers={name: {"cls": Nanny, "options": {**shared, **worker}} for name in range(count)},
        security=shared["security"],
        silence_logs=logging.CRITICAL,
    )


@contextmanager
def connected(config: Config, count: int) -> Iterator[Client]:
    """A client of the scheduler that the config names, or of one with so many workers on this machine."""
    with ExitStack() as stack:
        stack.enter_context(dask.config.set(SETTINGS))
        stack.enter_context(quiet("distributed.client"))
        options = {"direct_to_workers": True, "set_as_default": False}
        try:
            if config.run.scheduler is None:
                local = stack.enter_context(on_this_machine(count))
                client = stack.enter_context(Client(local, **options))
            else:
                patience = min(config.run.timeout, CONNECT)
                secured = security(config)
                client = stack.enter_context(
                    Client(config.run.scheduler, security=secured, timeout=patience, **options)
                )
        except ssl.SSLError as error:
            unusable(config, error)
        except (OSError, RuntimeError) as error:
            if config.run.scheduler is not None:
                raise ClusterError(unreached(config.run.scheduler, error)) from error
            raise ClusterError(f"the workers could not be started ({error})") from error
        yield client


def security(config: Config) -> Security:
    """Certificates on both sides of a tls:// address; plain text nowhere but on this machine."""
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
    made = Security(
        require_encryption=True,
        tls_ca_file=files["tls_ca"],
        tls_client_cert=files["tls_cert"],
        tls_client_key=files["tls_key"],
    )
    try:
        made.get_connection_args("client")
    except ssl.SSLError as error:
        unusable(config, error)
    return made


def unusable(config: Config, error: Exception) -> NoReturn:
    raise ConfigError(
        f"{config.path}: [run] tls_ca, tls_cert and tls_key cannot be used together ({error}): they must be PEM files, "
        "and the key that of the certificate"
    ) from error


def unreached(address: str, error: Exception) -> str:
    """What is wrong, and the fix; `error` is what a client of it met."""
    where = urlsplit(address)
    secret = speaks_tls(str(where.hostname), where.port or 8786)
    if secret is None:
        return f"nothing answers at {address}: start `dask scheduler` there, or correct [run] scheduler"
    if secret and where.scheme == "tcp":
        return (
            f"the scheduler at {address} speaks TLS and refuses plain text: name it "
            f"tls://{where.netloc} and set tls_ca, tls_cert and tls_key"
        )
    if not secret and where.scheme == "tls":
        return (
            f"the scheduler at {address} speaks plain text, and nothing was sent to it: start it with "
            "--tls-ca-file, --tls-cert and --tls-key"
        )
    if where.scheme == "tls":
        return (
            f"the scheduler at {address} and this run do not accept each other's certificates: both must be signed by "
            f"the authority in [run] tls_ca ({reason(error)})"
        )
    return f"the scheduler at {address} cannot be talked to ({reason(error)})"


def reason(error: BaseException) -> str:
    """The innermost cause, in which libraries put what happened."""
    while (deeper := error.__cause__ or error.__context__) is not None:
        error = deeper
    return str(error) or type(error).__name__


def speaks_tls(host: str, port: int) -> bool | None:
    """Whether a TLS handshake gets an answer there; None if nobody listens. No certificate is shown or believed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection((host, port), timeout=3) as plain:
            try:
                with context.wrap_socket(plain):
                    return True
            except (ssl.SSLError, OSError):
                return False
    except OSError:
        return None
