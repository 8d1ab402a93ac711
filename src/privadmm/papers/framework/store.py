"""Results of tasks on disk, so that a run that was killed can be resumed.

A store belongs to one run: of this code, these libraries, these papers, settings and data. `Store.open` refuses to
resume a run with any other of these, so that results are not mixed. A result is written in one step, under the digest
of its task's function and arguments, with a checksum in front: half of a file, or the result of another task, is
computed again.
"""

import hashlib
import json
import pickle
import platform
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from io import BytesIO
from pathlib import Path
from typing import Any

from privadmm.data.files import write_bytes, write_json
from privadmm.errors import ConfigError
from privadmm.papers.framework.bench import Task

ABOUT, FOLDER = "run.json", "tasks"
LIBRARIES = ("numpy", "scipy", "scikit-learn")
# The functions that rebuild numpy's arrays and numbers. Besides them a file may name classes of the papers only.
NUMPY = {
    *(("numpy", "ndarray"), ("numpy", "dtype"), ("numpy._core.multiarray", "_reconstruct")),
    *(("numpy._core.multiarray", "scalar"), ("numpy._core.numeric", "_frombuffer")),
}
SUM = hashlib.sha256().digest_size


class Reader(pickle.Unpickler):
    """Reads results: a file can name the papers' own classes and numpy's arrays, and run nothing."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in NUMPY:
            return super().find_class(module, name)
        if module.startswith("privadmm.papers.") and "." not in name:
            kind = super().find_class(module, name)
            if isinstance(kind, type):
                return kind
        raise pickle.UnpicklingError(f"{module}.{name} is no part of a result")


@cache
def code() -> str:
    """Digest of all of the package's code: any change may change results."""
    import privadmm

    package, digest = Path(privadmm.__file__).parent, hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(f"{path.relative_to(package)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def data_digest(folder: Path | None) -> str | None:
    """Digest of the names, sizes and times of the files in the data folder; reading them all takes too long."""
    if folder is None or not folder.is_dir():
        return None
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    facts = [(str(path.relative_to(folder)), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def identity(papers: tuple[str, ...], quick: bool, data: Path | None) -> dict[str, Any]:
    """All that two runs must have in common for one to resume the other."""
    return {
        "papers": list(papers),
        "quick": quick,
        "data": data_digest(data),
        "code": code(),
        "python": platform.python_version(),
        **{library: version(library) for library in LIBRARIES},
    }


class Store:
    """The results of one run, in the folder `tasks` of its --out."""

    def __init__(self, out: Path) -> None:
        self.folder = out / FOLDER

    @classmethod
    def new(cls, out: Path, facts: Mapping[str, Any]) -> "Store":
        """Begin a run in an empty folder."""
        store = cls(out)
        store.folder.mkdir(parents=True, exist_ok=True)
        write_json(out / ABOUT, dict(facts))
        return store

    @classmethod
    def open(cls, out: Path, facts: Mapping[str, Any]) -> "Store":
        """Resume a run; refused if it was begun with other facts."""
        try:
            begun = json.loads((out / ABOUT).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"--resume: there is no run to go on with in {out} ({ABOUT}: {error}); leave out --resume, and name a "
                "new folder"
            ) from None
        other = [name for name in facts if begun.get(name) != facts[name]]
        if other:
            told = "; ".join(f"{name} was {begun.get(name)!r} and is {facts[name]!r}" for name in other)
            raise ConfigError(
                f"--resume: the run in {out} was begun otherwise: {told}. Results of two runs are not mixed: leave out "
                "--resume, and name a new folder"
            )
        return cls(out)

    def place(self, task: Task) -> Path:
        what = repr((task.key, task.run.__module__, task.run.__qualname__, task.arguments))
        if " at 0x" in what or "..." in what:
            raise ValueError(f"the arguments of a task have to show all that they are, unlike {what}")
        return self.folder / f"{hashlib.sha256(what.encode()).hexdigest()[:32]}.task"

    def get(self, task: Task) -> tuple[Any] | None:
        """The task's result in a tuple; None if there is no intact one."""
        try:
            content = self.place(task).read_bytes()
        except FileNotFoundError:
            return None
        body = content[SUM:]
        if hashlib.sha256(body).digest() != content[:SUM]:
            return None
        return (Reader(BytesIO(body)).load(),)

    def put(self, task: Task, result: Any) -> None:
        body = pickle.dumps(result, protocol=5)
        self.folder.mkdir(parents=True, exist_ok=True)
        write_bytes(self.place(task), hashlib.sha256(body).digest() + body)
