"""Write and check a register to give away: the ledgers' jobs, refusals and decisions as JSON and CSV, signed.

    NAME.json    {"content": ..., "csv": digest of NAME.csv, "key": public key, "signature": ...}
    NAME.csv     the same for people, a line for each job, refusal and decision

A party's node key signs the content and the digest of the table, so neither can be changed unnoticed. The register
says no more than the page of a report: that a step failed, and neither which step nor when.
"""

import csv
import hashlib
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from privadmm import __version__
from privadmm.data.files import write_text
from privadmm.errors import ConfigError, DataError, LedgerError
from privadmm.privacy.ledger_file import row_with, utc_now
from privadmm.runs.report.ledgers import failed, public, told
from privadmm.runs.report.safe import visible

Json = Mapping[str, Any]
VERSION = 1
LARGEST = 1 << 28  # bytes of a register that is read
COLUMNS = (
    *("ledger", "party", "what", "state", "job", "purpose", "requester", "algorithm", "config"),
    *("admitted", "began", "ended", "times", "why", "epsilon_spent", "epsilon_set_aside"),
)
# Characters that make a spreadsheet compute, at the start of a cell or behind anything it may take for a separator.
FORMULA = re.compile(r"""(^|[;,\t"'])(\s*)(?=[=+\-@|%\uff1d\uff0b\uff0d\uff20])""")


FIELDS = {"content", "csv", "key", "signature"}


def content_of(views: Mapping[str, Json], made: str | None = None) -> dict[str, Any]:
    """Make the content of a register; `views` are the ledgers by name, each as `ledger show --json` prints it."""
    ledgers = [{"ledger": name, **ledger_of(view)} for name, view in views.items()]
    return {"register": VERSION, "made": made or utc_now(), "privadmm": __version__, "ledgers": ledgers}


def ledger_of(view: Json) -> dict[str, Any]:
    """Make the entry of one ledger. If a step failed, figures of spending are left out: they tell which step it was."""
    view = public(view)
    hidden = dict.fromkeys(("epsilon_spent", "epsilon_set_aside", "epsilon_left", "releases"))
    keys = ("party", "epsilon_budget", *hidden)
    parties = [{key: party[key] for key in keys} | (hidden if failed(view) else {}) for party in view["parties"]]
    facts = {key: view[key] for key in ("name", "mode", "adjacency", "policy", "head", "register_is_partial")}
    jobs = [told(job) for job in view["jobs"]]
    return {**facts, "parties": parties, "jobs": jobs, "refusals": view["refusals"], "decisions": view["decisions"]}


def table_of(content: Json) -> str:
    """Write the register as CSV. Spreadsheets take no cell for a formula, and no cell hides or reverses text."""
    file = io.StringIO()
    table = csv.writer(file, lineterminator="\n")
    table.writerow(COLUMNS)
    table.writerows([cell(row.get(column)) for column in COLUMNS] for row in _lines(content))
    return file.getvalue()


def _lines(content: Json) -> Iterator[dict[str, Any]]:
    for ledger in content["ledgers"]:
        of = {"ledger": ledger["ledger"], "party": ledger["name"]}
        for job in ledger["jobs"]:
            yield {**job, **of, "what": "job"}
        for refusal in ledger["refusals"] or ():
            times = {"began": refusal["first"], "ended": refusal["last"]}
            yield {**refusal, **of, "what": "refused", "state": refusal["kind"], **times}
        for decision in ledger["decisions"]:
            yield {**decision, **of, "what": "decision", "state": decision["what"], "began": decision["at"]}


def cell(value: object) -> str:
    """Write a value as the text of a CSV cell, with an apostrophe before what may be a formula."""
    if value is None:
        return ""
    text = visible(value)
    return FORMULA.sub(r"\1'\2", text) if isinstance(value, str) else text


def signable(content: Json, table: str, key: str) -> bytes:
    """Bytes that the party's key signs: everything in the file except the signature."""
    signed = ["privadmm register, version 1", content, table, key]
    return json.dumps(signed, sort_keys=True, allow_nan=False).encode()


def digest(table: str) -> str:
    return hashlib.sha256(table.encode()).hexdigest()


def write(out: Path, content: Json, key: Path | None) -> dict[str, Any]:
    """Write the register and, beside it, its table; signed if there is a key."""
    table = table_of(content)
    signed: dict[str, Any] = {"content": content, "csv": digest(table)}
    if key is not None:
        from privadmm.deploy.federation.signing import public_of, seal

        signed["key"] = public_of(key).decode().strip()
        signed["signature"] = seal(key, signable(content, signed["csv"], signed["key"]))
    write_text(out.with_suffix(".csv"), table)
    write_text(out, written(signed))
    return signed


def written(signed: Json) -> str:
    return json.dumps(signed, indent=1, allow_nan=False) + "\n"


def is_register(path: Path) -> bool:
    """Tell by the first byte whether a file is a register and not a ledger."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(1) == b"{"


def check(path: Path, key: Path | None, ledgers: Sequence[Path] = ()) -> dict[str, Any]:
    """Check a register. Returns its facts, its signer and a list of problems.

    `key` is the public key that must have signed it, if given. Of each of `ledgers` it must contain a row.
    """
    signed = loaded(path)
    content, problems = signed["content"], list[str]()
    table = path.with_suffix(".csv")
    there = table.is_file()
    if there and digest(table.read_text(encoding="utf-8")) != signed["csv"]:
        problems.append(f"{table.name} is not the table that was written with it")
    if digest(table_of(content)) != signed["csv"]:
        problems.append("its table and its content do not say the same")
    signer, signature = signed.get("key"), signed.get("signature")
    if key is not None and (not isinstance(signer, str) or not same_key(key, signer)):
        problems.append(f"it is not signed by the key in {key}" if signer else "it is not signed")
    if signer is not None:
        from privadmm.deploy.federation.signing import sealed

        if not sealed(str(signer).encode(), signable(content, signed["csv"], str(signer)), str(signature)):
            problems.append("its signature does not fit: it was changed since, or another key signed it")
    for ledger in ledgers:
        heads = [entry["head"] for entry in content["ledgers"]]
        if all(row_with(ledger, head) is None for head in heads):
            problems.append(f"{ledger} has none of the rows with which its ledgers end")
    names = [entry["name"] or entry["ledger"] for entry in content["ledgers"]]
    return {
        "file": str(path),
        "ok": not problems,
        "signed": signer is not None,
        "believed": key is not None,
        "fingerprint": None if signer is None else fingerprint_of(str(signer)),
        "made": content["made"],
        "ledgers": names,
        "jobs": sum(len(entry["jobs"]) for entry in content["ledgers"]),
        "table": str(table) if there else None,
        "problems": problems,
    }


def loaded(path: Path) -> dict[str, Any]:
    """Read the file of a register, and refuse one that is not exactly as `write` writes it."""
    if path.stat().st_size > LARGEST:
        raise DataError(f"{path}: is larger than {LARGEST:,} bytes, and no register")
    try:
        text = path.read_text(encoding="utf-8")
        signed: dict[str, Any] = json.loads(text)
        if signed["content"]["register"] != VERSION:
            raise DataError(f"{path}: is a register of another version of privadmm")
        _ = signed["csv"], signed["content"]["made"], table_of(signed["content"])
        # A person who reads the file must see what was signed: no other field, and none twice.
        if text != written(signed) or not set(signed) <= FIELDS:
            raise DataError(f"{path}: is not as it was written; `privadmm ledger register` writes one")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path}: is no register, or damaged; `privadmm ledger register` writes one") from error
    return signed


def same_key(path: Path, signer: str) -> bool:
    """Tell whether a public key file in OpenSSH's format holds this key; comments do not count."""
    try:
        return path.read_text(encoding="utf-8").split()[:2] == signer.split()[:2]
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--key {path}: cannot be read; name a public key, as ssh-keygen writes it") from error


def fingerprint_of(signer: str) -> str | None:
    from privadmm.deploy.federation.keys import fingerprint

    try:
        return fingerprint(signer.encode())
    except (ValueError, IndexError, ConfigError):
        return None


def key_of(place: Path) -> Path:
    """Find the key to sign with: `place` is a key file, or a party's directory, which has a node key."""
    if not place.is_dir():
        if not place.is_file():
            raise ConfigError(f"--sign {place}: there is no such file; name a party's directory, or its node key")
        return place
    from privadmm.deploy.federation.party import FILE, read

    if not (place / FILE).is_file():
        raise LedgerError(f"--sign {place}: is no party's directory; name one with {FILE} in it, or a key")
    return place / read(place).node.key
