"""Rooms import downwards only, and a heavy library is imported by those who may."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import privadmm

PACKAGE = Path(privadmm.__file__).parent
# From the lowest layer to the highest: a room may import from itself and from layers earlier in this list.
LAYERS = (
    ("errors",),
    ("params",),
    ("data",),
    ("optim",),
    ("privacy",),
    ("engine",),
    ("algorithms",),
    ("config",),
    ("deploy",),
    ("runs",),
    ("papers", "estimators"),
    ("cli",),
    ("__init__", "__main__"),
)
# Imports that go upwards and are to go away: "importer -> imported". This list only shrinks.
DEBTS: set[str] = set()
# Which modules may import a library that is slow to load, or that not everybody has.
OWNERS = {
    "sklearn": {
        *(
            "estimators.fitting",
            "estimators.classifier",
            "estimators.regressor",
            "estimators.encoder",
            "estimators.export",
        ),
        *("papers.sharing.runs", "papers.bench.workloads.pooled"),
    },
    "matplotlib": {"runs.style", "papers.framework.drawing"},
    "networkx": set[str](),
    "opendp": {"privacy.mechanisms"},
    "pyarrow": {"data.readers"},
    "flwr": {
        *("deploy.flower.client", "deploy.flower.control", "deploy.flower.post", "deploy.flower.pinned"),
        "deploy.flower.registry",
        "runs.flower_app",
    },
    "dask": {"deploy.dask_client"},
    "distributed": {"deploy.dask_client"},
    "cryptography": {
        *("privacy.masks", "deploy.federation.keys", "deploy.federation.signing"),
        "deploy.dask_client",
    },
    "threadpoolctl": {"engine.loop", "deploy.remote_block"},
    "dp_accounting": set[str](),
    "pandas": set[str](),
}
ROOMS_OF = {"typer": "cli", "click": "cli"}  # which whole rooms may import


def named(path: Path, package: Path) -> str:
    parts = path.relative_to(package).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


def imports(path: Path) -> Iterator[str]:
    """Every module or name that a file imports, wherever in it, with the module that it comes from."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: relative imports hide the room"
            yield from (f"{node.module}.{name.name}" for name in node.names)


def edges(package: Path) -> set[tuple[str, str]]:
    """Which module imports which, both without the package's name; other libraries by their own."""
    modules = {named(path, package): path for path in package.rglob("*.py")}
    found = set()
    for module, path in modules.items():
        for name in imports(path):
            if not name.startswith("privadmm"):
                found.add((module, name))
                continue
            inner = name.removeprefix("privadmm").lstrip(".")
            while inner and inner not in modules:
                inner = inner.rpartition(".")[0]
            found.add((module, inner or "__init__"))
    return {(importer, imported) for importer, imported in found if importer != imported}


def layer(module: str) -> int | None:
    """The number of a module's layer; None: another library."""
    room = module.partition(".")[0]
    return next((number for number, rooms in enumerate(LAYERS) if room in rooms), None)


def upward(found: set[tuple[str, str]]) -> set[str]:
    """Imports from a layer into a higher one. The package's own names (its version) are everybody's."""
    wrong = set()
    for importer, imported in found:
        here, there = layer(importer), layer(imported)
        if here is not None and there is not None and imported != "__init__" and there > here:
            wrong.add(f"{importer} -> {imported}")
    return wrong


@cache
def ours() -> set[tuple[str, str]]:
    return edges(PACKAGE)


def test_rooms_import_downwards_only() -> None:
    assert upward(ours()) - DEBTS == set()


def test_a_debt_that_was_paid_is_struck_off() -> None:
    assert DEBTS - upward(ours()) == set()


def test_every_module_has_a_room() -> None:
    modules = {named(path, PACKAGE) for path in PACKAGE.rglob("*.py")}
    assert {module for module in modules if layer(module) is None} == set()


@pytest.mark.parametrize("library", [*OWNERS, *ROOMS_OF])
def test_a_heavy_library_is_imported_by_those_who_may(library: str) -> None:
    users = {importer for importer, imported in ours() if imported.partition(".")[0] == library}
    if library in OWNERS:
        assert users == OWNERS[library]
    else:
        assert users
        assert all(user == ROOMS_OF[library] or user.startswith(f"{ROOMS_OF[library]}.") for user in users)


def test_a_planted_upward_import_is_seen(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "estimators.py").write_text("import privadmm.data.shards\n")
    (tmp_path / "data" / "shards.py").write_text("def late():\n    from privadmm.estimators import X\n")
    assert upward(edges(tmp_path)) == {"data.shards -> estimators"}
