"""Certificates and keys of a federation: made for a test, looked at, and used to sign a hello on both sides."""

import ipaddress
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

from privadmm.data.arrays import digest
from privadmm.deploy.federation.protocol import Greeting, Letter, text
from privadmm.errors import ConfigError, RefusedError

try:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
    from cryptography.x509.oid import NameOID
except ImportError as error:
    raise ConfigError(
        "certificates need the package cryptography, which is not installed: pip install 'privadmm[flower]'"
    ) from error

DAYS = 365
NONCE = re.compile("[0-9a-f]{32}")
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


def certificate_problem(path: Path, ca: Path | None = None, key: Path | None = None, host: str = "") -> str | None:
    """What is wrong with a certificate: dates, who signed it, whose key it is, for which host."""
    try:
        found = load(path)
        authority = None if ca is None else load(ca)
    except ValueError:
        return "is no certificate in PEM"
    if problem := issue_problem(found, authority, ca):
        return problem
    if key is not None:
        own: Any = serialization.load_pem_private_key(key.read_bytes(), None)
        if public(own.public_key()) != public(found.public_key()):
            return f"is not of the key {key.name}"
    return None if not host or is_for(found, host) else f"is not for {host}"


def is_for(found: x509.Certificate, host: str) -> bool:
    """Whether a certificate names this host, as TLS has it: an address, a name, or *. before the rest of one."""
    try:
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return False
    host = host.strip("[]")
    try:
        return ipaddress.ip_address(host) in names.get_values_for_type(x509.IPAddress)
    except ValueError:
        host = host.casefold()
        known = {name.casefold() for name in names.get_values_for_type(x509.DNSName)}
        return host in known or f"*.{host.partition('.')[2]}" in known


def issue_problem(found: x509.Certificate, authority: x509.Certificate | None, ca: Any) -> str | None:
    """What is wrong with a certificate's dates, or with who signed it; `ca` names the authority."""
    now = datetime.now(UTC)
    if not found.not_valid_before_utc <= now <= found.not_valid_after_utc:
        return f"is valid from {found.not_valid_before_utc:%Y-%m-%d} to {found.not_valid_after_utc:%Y-%m-%d} only"
    if authority is not None:
        try:
            found.verify_directly_issued_by(authority)
        except (InvalidSignature, ValueError, TypeError):
            return f"was not signed by {ca}"
    return None


def public_problem(path: Path) -> str | None:
    """What is wrong with a node's public key, if anything."""
    try:
        key: Any = serialization.load_ssh_public_key(path.read_bytes())
    except (ValueError, TypeError):
        return "is no public key in OpenSSH's format"
    return None if isinstance(key, ec.EllipticCurvePublicKey) else "is no key on an elliptic curve"


def seal(key: Path, content: bytes) -> str:
    """Sign the content with the private key in this file (OpenSSH's format, or PEM)."""
    raw = key.read_bytes()
    ssh = b"BEGIN OPENSSH" in raw
    try:
        own: Any = (
            serialization.load_ssh_private_key(raw, None) if ssh else serialization.load_pem_private_key(raw, None)
        )
    except (ValueError, TypeError):
        raise ConfigError(f"{key}: is no private key in PEM or OpenSSH's format") from None
    signature: bytes = own.sign(content, *scheme(own, key))
    return signature.hex()


def sealed(public_key: bytes, content: bytes, signature: str) -> bool:
    """Whether the holder of the private key signed this."""
    try:
        other: Any = serialization.load_ssh_public_key(public_key)
        other.verify(bytes.fromhex(signature), content, *scheme(other, "the public key"))
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def scheme(key: Any, name: Any) -> tuple[Any, ...]:
    """How a key of this kind signs."""
    if isinstance(key, ec.EllipticCurvePrivateKey | ec.EllipticCurvePublicKey):
        return (ec.ECDSA(hashes.SHA256()),)
    if isinstance(key, rsa.RSAPrivateKey | rsa.RSAPublicKey):
        return padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.DIGEST_LENGTH), hashes.SHA256()
    raise ConfigError(f"{name}: is of a kind that cannot sign here; use a key on an elliptic curve, or RSA")


def identity(ca: Path) -> str:
    """A federation's identity: the digest of its authority's certificate, which every member has."""
    return load(ca).fingerprint(hashes.SHA256()).hex()


@dataclass(frozen=True)
class Credentials:
    """What a coordinator's certificates/ holds: by these its parties know it, whatever carries its letters."""

    folder: Path

    @cached_property
    def certificate(self) -> str:
        return (self.folder / "server.pem").read_text(encoding="ascii")

    def greeting(self, nonce: str, proposal: str) -> Greeting:
        key = public(load(self.folder / "server.pem").public_key()).decode()
        return Greeting(identity(self.folder / "ca.pem"), key, nonce, digest(proposal.encode()))

    def hello(self, greeting: Greeting, proposal: str) -> Letter:
        """The letter that asks, signed."""
        return {
            "kind": "hello",
            "text": proposal,
            "nonce": greeting.nonce,
            "certificate": self.certificate,
            "signature": seal(self.folder / "server-key.pem", greeting.question()),
        }


def greeted(letter: Letter, ca: Path, host: str) -> Greeting:
    """Who asks, by a hello letter; refused unless it was signed by the one whom the authority in `ca` calls `host`."""
    try:
        found = x509.load_pem_x509_certificate(text(letter, "certificate").encode())
        asked = text(letter, "signature")
        nonce = text(letter, "nonce")
    except ValueError:
        raise RefusedError("a hello has a nonce, and its coordinator's certificate and signature") from None
    problem = issue_problem(found, load(ca), ca.name) or (None if is_for(found, host) else f"is not for {host}")
    if problem is not None:
        raise RefusedError(f"the certificate of whoever says hello {problem}. Nothing was told")
    key = public(found.public_key())
    greeting = Greeting(identity(ca), key.decode(), nonce, digest(text(letter, "text").encode()))
    if not NONCE.fullmatch(nonce) or not sealed(key, greeting.question(), asked):
        raise RefusedError(
            f"the hello was not signed for this federation, that of {ca.name}, by the coordinator whose certificate it "
            "brings. Nothing was told"
        )
    return greeting
