"""Recognises a file that was given by mistake in place of an invitation, a reply, or the keys of all parties.

People send these by mail, and take the wrong one. A file is recognised by its first bytes, or by its sections.
"""

import tomllib
from pathlib import Path
from typing import Any, Literal

from privadmm.errors import ConfigError

Kind = Literal["invitation", "replies"]
EXPECTED: dict[Kind, str] = {
    "invitation": "an invitation was expected: `privadmm federation init` makes them at the coordinator (`add` for one "
    "party more), in invitations/ of its directory",
    "replies": "a party's reply.toml, which `privadmm federation join` makes in its directory, or the coordinator's "
    "peers.toml, which `privadmm federation admit` makes, was expected",
}
BINARY = {
    b"\x89PNG": "a picture (PNG)",
    b"\xff\xd8\xff": "a picture (JPEG)",
    b"%PDF": "a PDF document",
    b"SQLite format 3": "a database, as ledgers are",
    b"PK\x03\x04": "an archive (zip, npz or a document)",
    b"PAR1": "a Parquet file",
    b"\x1f\x8b": "a compressed file (gzip)",
}
TEXT = {
    "-----BEGIN OPENSSH PRIVATE KEY": "A PRIVATE KEY, which never leaves its owner's directory: send it to nobody",
    "-----BEGIN PRIVATE KEY": "A PRIVATE KEY, which never leaves its owner's directory: send it to nobody",
    "-----BEGIN EC PRIVATE KEY": "A PRIVATE KEY, which never leaves its owner's directory: send it to nobody",
    "-----BEGIN CERTIFICATE": "a certificate",
    "ecdsa-sha2-": "a bare public key",
    "ssh-": "a bare public key",
    "{": "a JSON file",
    "<": "a web page, or XML",
}
HEAD = 1 << 20  # bytes that are read


def need_kind(path: Path, wanted: Kind) -> None:
    """Refuse a file that is recognised as something else; a file that is not recognised is left to its reader."""
    if not path.is_file():
        return
    with path.open("rb") as file:
        head = file.read(HEAD)
    description, kind = told(head)
    if description and kind != wanted:
        raise ConfigError(f"{path}: is {description}; {EXPECTED[wanted]}")


def told(head: bytes) -> tuple[str, Kind | None]:
    """What a file is, in words, and its kind if it is one of EXPECTED; no words if it is not recognised."""
    if not head.strip():
        return "empty", None
    for start, words in BINARY.items():
        if head.startswith(start):
            return words, None
    try:
        text = head.decode("utf-8-sig")
    except UnicodeDecodeError:
        return "no text", None
    for line, words in TEXT.items():
        if text.lstrip().startswith(line):
            return words, None
    try:
        return of_sections(tomllib.loads(text))
    except (ValueError, RecursionError):
        if "[" not in text:
            return "a text that is not TOML" + (", perhaps a table of records" if "," in text else ""), None
        return "", None  # a file that was cut or changed by hand: its reader names the line


def of_sections(raw: dict[str, Any]) -> tuple[str, Kind | None]:
    """What a TOML file is, by its sections."""
    party = raw.get("party")
    if isinstance(raw.get("invitation"), dict):
        return f"the invitation of party {raw['invitation'].get('party')}", "invitation"
    if isinstance(party, dict) and ("policy" in raw or "node" in raw):
        return "a party's party.toml, which stays with it", None
    if "authority" in raw:
        return "everybody's keys, a peers.toml", "replies"
    if party is not None:
        return "a party's reply", "replies"
    if "superlink" in raw:
        return "the coordinator's coordinator.toml", None
    if "algorithm" in raw:
        return "the config of a job", None
    names = ", ".join(f"[{name}]" for name, value in list(raw.items())[:4] if isinstance(value, dict))
    return ("a TOML file with " + names if names else "a TOML file without the sections that it needs"), None
