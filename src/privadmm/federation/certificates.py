"""Certificates and keys of a federation, for a test: an authority of its own, the SuperLink's, a key for each node."""

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from privadmm.errors import ConfigError

try:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID
except ImportError as error:
    raise ConfigError(
        "certificates need the package cryptography, which is not installed: pip install 'privadmm[flower]'"
    ) from error

DAYS = 365
Key = ec.EllipticCurvePrivateKey


def private(path: Path, content: bytes) -> None:
    """A file that its owner alone may read."""
    path.touch(mode=0o600)
    path.write_bytes(content)


def fresh_key() -> Key:
    return ec.generate_private_key(ec.SECP384R1())


def pem(key: Key) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def openssh(key: Key) -> bytes:
    """As Flower wants the keys of nodes."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )


def public(key: Any) -> bytes:
    found: bytes = key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return found + b"\n"


def make_authority(folder: Path, host: str) -> None:
    """ca.pem, and server.pem for this host, with their keys."""
    folder.mkdir()
    authority, server = fresh_key(), fresh_key()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "privadmm federation, for a test")])
    ca = signed(name, name, authority.public_key(), authority, [x509.BasicConstraints(True, 0)])
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    extensions = [x509.BasicConstraints(False, None), x509.SubjectAlternativeName(named(host))]
    certificate = signed(subject, name, server.public_key(), authority, extensions)
    (folder / "ca.pem").write_bytes(ca)
    (folder / "server.pem").write_bytes(certificate)
    private(folder / "ca-key.pem", pem(authority))
    private(folder / "server-key.pem", pem(server))


def named(host: str) -> list[x509.GeneralName]:
    """The SuperLink's own processes reach it on loopback."""
    names: list[x509.GeneralName] = [
        x509.DNSName("localhost"),
        x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
    ]
    try:
        one: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        one = x509.DNSName(host)
    return names if one in names else [*names, one]


def signed(subject: Any, issuer: Any, public: Any, by: Key, extensions: list[Any]) -> bytes:
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=DAYS))
    )
    for extension in extensions:
        builder = builder.add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
    return builder.sign(by, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def make_node_key(folder: Path) -> bytes:
    """A party's private key; returns the public one."""
    key = fresh_key()
    private(folder / "node-key", openssh(key))
    return public(key.public_key())


def key_problem(path: Path, other: Path | None = None) -> str | None:
    """What is wrong with a node's key, if anything."""
    try:
        key: Any = serialization.load_ssh_private_key(path.read_bytes(), None)
    except (ValueError, TypeError):
        return "is no private key in OpenSSH's format"
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        return "is no key on an elliptic curve, which Flower asks for"
    if path.stat().st_mode & 0o077:
        return "may be read by others: chmod 600"
    if other is not None and other.is_file() and other.read_bytes() != public(key.public_key()):
        return f"is not the key of {other.name}"
    return None


def load(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def certificate_problem(
    path: Path, ca: Path | None = None, key: Path | None = None, host: str = ""
) -> str | None:
    """What is wrong with a certificate: dates, who signed it, whose key it is, for which host."""
    try:
        found = load(path)
        authority = None if ca is None else load(ca)
    except ValueError:
        return "is no certificate in PEM"
    now = datetime.now(UTC)
    if not found.not_valid_before_utc <= now <= found.not_valid_after_utc:
        return f"is valid from {found.not_valid_before_utc:%Y-%m-%d} to {found.not_valid_after_utc:%Y-%m-%d} only"
    if authority is not None:
        try:
            found.verify_directly_issued_by(authority)
        except (InvalidSignature, ValueError, TypeError):
            return f"was not signed by {ca}"
    if key is not None:
        own: Any = serialization.load_pem_private_key(key.read_bytes(), None)
        if public(own.public_key()) != public(found.public_key()):
            return f"is not of the key {key.name}"
    if host:
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        if named(host)[-1] not in names and host not in ("localhost", "127.0.0.1"):
            return f"is not for {host}"
    return None


def public_problem(path: Path) -> str | None:
    """What is wrong with a node's public key, if anything."""
    try:
        key: Any = serialization.load_ssh_public_key(path.read_bytes())
    except (ValueError, TypeError):
        return "is no public key in OpenSSH's format"
    return None if isinstance(key, ec.EllipticCurvePublicKey) else "is no key on an elliptic curve"


def seal(key: Path, content: bytes) -> str:
    """A signature of this content with a node's key."""
    own: Any = serialization.load_ssh_private_key(key.read_bytes(), None)
    found: bytes = own.sign(content, ec.ECDSA(hashes.SHA256()))
    return found.hex()


def sealed(public_key: Path, content: bytes, signature: str) -> bool:
    """Whether the holder of the private key signed this."""
    other: Any = serialization.load_ssh_public_key(public_key.read_bytes())
    try:
        other.verify(bytes.fromhex(signature), content, ec.ECDSA(hashes.SHA256()))
    except (InvalidSignature, ValueError):
        return False
    return True
