"""Why a scheduler cannot be reached, as far as it can be found out from here."""

import socket
import ssl
from urllib.parse import urlsplit


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
