"""Makes and checks the keys and certificates of a federation, and has both sides sign a hello with them."""

import hashlib
import ipaddress
from base64 import b64decode, b64encode
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from privadmm import __version__
from privadmm.data.arrays import digest
from privadmm.data.files import write_bytes
from privadmm.deploy.federation.letters import Hello
from privadmm.deploy.federation.protocol import Greeting, Letter
from privadmm.deploy.federation.signing import UNREADABLE, public, seal, sealed
from privadmm.errors import ConfigError, RefusedError

try:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
    from cryptography.x509.oid import NameOID
except ImportError as error:
    raise ConfigError(
        "certificates need the package cryptography, which is not installed: pip install 'privadmm[flower]'"
    ) from error

AUTHORITY = "privadmm federation"
DAYS = 365  # of a host's certificate
AUTHORITY_DAYS = 3650
SOON = 30  # days before its end from which a certificate is worth a note
ONE_WAY = ("encipher_only", "decipher_only")  # uses of a key
Key = ec.EllipticCurvePrivateKey


def make_key(path: Path, format: PrivateFormat = PrivateFormat.PKCS8) -> Key:
    """Make a private key in a file that its owner alone may read."""
    key = ec.generate_private_key(ec.SECP384R1())
    write_bytes(path, key.private_bytes(Encoding.PEM, format, NoEncryption()), private=True)
    return key


def make_node_key(folder: Path, name: str = "node-key") -> bytes:
    """Make a party's private key, in the format that Flower wants, and return the public one."""
    return public(make_key(folder / name, PrivateFormat.OpenSSH).public_key())


def make_authority(folder: Path, host: str) -> None:
    """Make an authority, ca.pem, and the certificate that it issues for this host, server.pem, with their keys."""
    folder.mkdir(exist_ok=True)
    authority = make_key(folder / "ca-key.pem")
    write_bytes(folder / "ca.pem", issue(AUTHORITY, authority.public_key(), authority, authority=True))
    make_server(folder, host)


def make_server(folder: Path, host: str) -> None:
    """Make a key and a certificate for this host, signed by the authority whose key is in the folder."""
    path = folder / "ca-key.pem"
    if not path.is_file():
        raise ConfigError(
            f"{path}: no such file, so no certificate can be signed here: have your authority issue one for {host}, "
            "127.0.0.1 and localhost, and put it there as server.pem, its key as server-key.pem"
        )
    authority: Any = serialization.load_pem_private_key(path.read_bytes(), None)
    server = make_key(folder / "server-key.pem")
    write_bytes(folder / "server.pem", issue(host, server.public_key(), authority))


def issue(name: str, key: Any, issuer: Key, authority: bool = False) -> bytes:
    """Certificate of a public key, signed by the authority's key: for a host, or for the authority itself."""
    now, days = datetime.now(UTC), AUTHORITY_DAYS if authority else DAYS
    usage = dict.fromkeys(("key_cert_sign", "crl_sign"), authority) | dict.fromkeys(("digital_signature",), True)
    others = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", *ONE_WAY)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, AUTHORITY)]))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(authority, 0 if authority else None), critical=True)
        .add_extension(x509.KeyUsage(**usage, **dict.fromkeys(others, False)), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.public_key()), critical=False)
    )
    if not authority:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternative_names(name)), critical=False)
    return builder.sign(issuer, hashes.SHA256()).public_bytes(Encoding.PEM)


def alternative_names(host: str) -> list[x509.GeneralName]:
    """The host, and loopback, where the coordinator's own processes reach the SuperLink."""
    here = (x509.IPAddress(ipaddress.ip_address(address)) for address in ("127.0.0.1", "::1"))
    loopback = [x509.DNSName("localhost"), *here]
    try:
        own: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        own = x509.DNSName(host)
    return loopback if own in loopback else [*loopback, own]


def fingerprint(key: bytes) -> str:
    """Fingerprint of a public key, as `ssh-keygen -lf` prints it."""
    blob = b64decode(key.split()[1])
    return "SHA256:" + b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def certificate_fingerprint(certificate: bytes) -> str:
    """Fingerprint of a certificate, as `openssl x509 -noout -fingerprint -sha256` prints it."""
    return only_certificate(certificate).fingerprint(hashes.SHA256()).hex(":").upper()


def only_certificate(content: bytes) -> x509.Certificate:
    """The only certificate in a PEM text; a second one, which nobody has compared, would be trusted by TLS, too."""
    certificates = x509.load_pem_x509_certificates(content)
    if len(certificates) != 1 or content.count(b"-----BEGIN") != 1:
        raise ValueError(f"{len(certificates)} certificates where there is to be one")
    return certificates[0]


def as_flower(path: Path) -> bytes:
    """A public key in the format in which a SuperLink keeps it."""
    key = serialization.load_ssh_public_key(path.read_bytes())
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def load(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def from_der(content: bytes) -> x509.Certificate:
    """Load a certificate in the format in which TLS shows it."""
    return x509.load_der_x509_certificate(content)


def check_node_key(path: Path) -> str:
    """Refuse a file that is no node's private key, or that others may read."""
    try:
        key = serialization.load_ssh_private_key(path.read_bytes(), None)
    except UNREADABLE:
        raise ConfigError(f"{path}: is no private key in OpenSSH's format") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfigError(f"{path}: is no key on an elliptic curve, which Flower asks for")
    if path.stat().st_mode & 0o077:
        raise ConfigError(f"{path}: may be read by others: chmod 600")
    return "there, and its owner's alone"


def check_public_key(path: Path) -> None:
    """Refuse a file that is no public key of a node."""
    need_public_key(path.read_bytes(), path)


def need_public_key(content: bytes, where: object) -> None:
    """Refuse bytes that are no node's public key; the error names `where` they are."""
    try:
        key = serialization.load_ssh_public_key(content)
    except UNREADABLE:
        raise ConfigError(f"{where}: is no public key in OpenSSH's format") from None
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise ConfigError(f"{where}: is no key on an elliptic curve")


def check_certificate(path: Path, ca: Path | None = None, key: Path | None = None, host: str | None = None) -> str:
    """Refuse a certificate whose dates, authority, key or host are wrong; returns how long it is valid, in words."""
    try:
        certificate, authority = load(path), None if ca is None else load(ca)
    except ValueError:
        raise ConfigError(f"{path}: is no certificate in PEM") from None
    if problem := issue_problem(certificate, authority, ca):
        raise ConfigError(f"{path}: {problem}")
    if key is not None:
        own: Any = serialization.load_pem_private_key(key.read_bytes(), None)
        if public(own.public_key()) != public(certificate.public_key()):
            raise ConfigError(f"{path}: is not of the key {key.name}")
        if key.stat().st_mode & 0o077:
            raise ConfigError(f"{key}: may be read by others: chmod 600")
    if host is not None and not is_for(certificate, host):
        named = [name for names in names_of(certificate) for name in names]
        raise ConfigError(f"{path}: is not for {host}, but for {', '.join(named) or 'no host'}")
    if (left := days_left(certificate)) < 1:
        raise ConfigError(f"{path}: has {24 * left:.0f} hours left, until {certificate.not_valid_after_utc:%F %R} UTC")
    return f"{path.name} is valid until {certificate.not_valid_after_utc:%Y-%m-%d}, {left:.0f} days"


def days_left(certificate: x509.Certificate) -> float:
    return (certificate.not_valid_after_utc - datetime.now(UTC)) / timedelta(days=1)


def ends_soon(path: Path) -> bool:
    """Whether a certificate has less than `SOON` days left."""
    return days_left(load(path)) < SOON


def issue_problem(certificate: x509.Certificate, authority: x509.Certificate | None, ca: Any) -> str | None:
    """What is wrong with a certificate's dates or signature; None if nothing. `ca` names the authority."""
    start, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if not start <= (now := datetime.now(UTC)) <= end:
        return f"is valid from {start:%F %R} to {end:%F %R} only, and by this machine's clock it is {now:%F %R} UTC"
    if authority is not None:
        try:
            certificate.verify_directly_issued_by(authority)
        except (InvalidSignature, *UNREADABLE):
            return f"was not signed by {ca}"
    return None


def is_for(certificate: x509.Certificate, host: str) -> bool:
    """Whether a certificate names this host by the rules of TLS: an address, a name, or *. and the rest of a name."""
    (names, addresses), host = names_of(certificate), host.strip("[]").casefold()
    try:
        return str(ipaddress.ip_address(host)) in addresses
    except ValueError:
        known = {name.casefold() for name in names}
        return host in known or f"*.{host.partition('.')[2]}" in known


def names_of(certificate: x509.Certificate) -> tuple[list[str], list[str]]:
    """The names, and the addresses, of the hosts that a certificate is for."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return [], []
    return names.get_values_for_type(x509.DNSName), list(map(str, names.get_values_for_type(x509.IPAddress)))


def sealed_by(certificate: Path, content: bytes, signature: str) -> bool:
    """Whether the holder of a certificate's key signed this content."""
    return sealed(public(load(certificate).public_key()), content, signature)


def greeting_of(ca: Path, coordinator: x509.Certificate, nonce: str, proposal: str) -> Greeting:
    """Make a greeting. It identifies the federation by its authority's certificate, the coordinator by its own."""
    key = public(coordinator.public_key()).decode()
    return Greeting(load(ca).fingerprint(hashes.SHA256()).hex(), key, nonce, digest(proposal.encode()))


@dataclass(frozen=True)
class Credentials:
    """A coordinator's certificates/, by which parties recognise its letters."""

    folder: Path

    def greeting(self, nonce: str, proposal: str) -> Greeting:
        return greeting_of(self.folder / "ca.pem", load(self.folder / "server.pem"), nonce, proposal)

    def hello(self, greeting: Greeting, proposal: str) -> Letter:
        """The signed letter that asks a node who it is."""
        return {
            "kind": "hello",
            "version": __version__,
            "text": proposal,
            "nonce": greeting.nonce,
            "certificate": (self.folder / "server.pem").read_text(encoding="ascii"),
            "signature": seal(self.folder / "server-key.pem", greeting.question()),
        }


def greeted(hello: Hello, ca: Path, host: str) -> Greeting:
    """The greeting in a hello; refused unless signed by the holder of a certificate for `host` from this authority."""
    try:
        certificate = x509.load_pem_x509_certificate(hello.certificate.encode())
    except ValueError:
        raise RefusedError("a hello has its coordinator's certificate, in PEM. Nothing was told") from None
    problem = issue_problem(certificate, load(ca), ca.name)
    if problem is None and not is_for(certificate, host):
        problem = f"is not for {host}"
    if problem is not None:
        raise RefusedError(f"the certificate of whoever says hello {problem}. Nothing was told")
    greeting = greeting_of(ca, certificate, hello.nonce, hello.text)
    if not sealed(greeting.coordinator.encode(), greeting.question(), hello.signature):
        raise RefusedError(
            f"the hello was not signed for this federation, that of {ca.name}, by the coordinator whose certificate it "
            "brings. Nothing was told"
        )
    return greeting
