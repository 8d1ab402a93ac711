"""Signatures with a node's or a coordinator's key, without certificates: the letter of a round needs none."""

from pathlib import Path
from typing import Any

from privadmm.errors import ConfigError

try:
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
except ImportError as error:
    raise ConfigError(
        "signatures need the package cryptography, which is not installed: pip install 'privadmm[flower]'"
    ) from error

UNREADABLE = (ValueError, TypeError, UnsupportedAlgorithm)  # what `cryptography` raises for bytes that are no key


def seal(key: Path, content: bytes) -> str:
    """Sign the content with the private key in this file (OpenSSH's format, or PEM)."""
    own = private(key)
    signature: bytes = own.sign(content, *scheme(own, key))
    return signature.hex()


def private(path: Path) -> Any:
    """Load the private key in a file, in OpenSSH's format or PEM."""
    raw = path.read_bytes()
    load_key = serialization.load_ssh_private_key if b"BEGIN OPENSSH" in raw else serialization.load_pem_private_key
    try:
        return load_key(raw, None)
    except UNREADABLE:
        raise ConfigError(f"{path}: is no private key in PEM or OpenSSH's format") from None


def public(key: Any) -> bytes:
    """A public key in OpenSSH's format, as one line."""
    line: bytes = key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return line + b"\n"


def public_of(path: Path) -> bytes:
    """The public key of the private one in a file."""
    return public(private(path).public_key())


def sealed(public_key: bytes, content: bytes, signature: str) -> bool:
    """Whether the holder of the private key signed this content."""
    try:
        key: Any = serialization.load_ssh_public_key(public_key)
        key.verify(bytes.fromhex(signature), content, *scheme(key, "the public key"))
    except (InvalidSignature, *UNREADABLE):
        return False
    return True


def scheme(key: Any, name: Any) -> tuple[Any, ...]:
    """The arguments with which a key of this kind signs and verifies; `name` is for the error."""
    if isinstance(key, ec.EllipticCurvePrivateKey | ec.EllipticCurvePublicKey):
        try:
            # The same content then has the same signature: a repeated letter gets the same bytes.
            return (ec.ECDSA(hashes.SHA256(), deterministic_signing=True),)
        except UnsupportedAlgorithm:  # an OpenSSL before 3.2
            return (ec.ECDSA(hashes.SHA256()),)
    if isinstance(key, rsa.RSAPrivateKey | rsa.RSAPublicKey):
        return padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.DIGEST_LENGTH), hashes.SHA256()
    raise ConfigError(
        f"{name}: is of a kind that cannot sign here (Ed25519, say); use ECDSA on a P curve, or RSA: "
        "ssh-keygen -t ecdsa -b 384 -N '' -f KEY"
    )
