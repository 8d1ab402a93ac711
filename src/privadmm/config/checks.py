"""What must hold between keys of a config. Each complaint names both keys and their lines."""

from collections.abc import Callable

from privadmm.config.tables import (
    AlgorithmTable,
    DataTable,
    GraphTable,
    LossTable,
    PartiesTable,
    PrivacyTable,
    RunTable,
)
from privadmm.toml.fields import At, fields_of, show
from privadmm.toml.reader import Report


def _check_source(data: DataTable, report: Report) -> None:
    source = report.named(("data", "source"), data.source)
    if data.embedded:
        for key in ("format", "schema", "dim"):
            if getattr(data, key) is not None:
                report.add(("data", key), f"does not go with {source}", "a key of files only", "remove it")
        return
    kind = data.format or format_of(data.source)
    if kind is None:
        missing(("data", "format"), DataTable, source, report)
    if kind in ("csv", "parquet") and data.label is None:
        missing(("data", "label"), DataTable, source, report)
    if kind == "libsvm" and data.dim is None:
        missing(("data", "dim"), DataTable, source, report)
    if kind in ("npz", "libsvm") and data.schema is not None:
        report.add(("data", "schema"), f"does not go with {source}", "for csv and parquet only", "remove it")
    if data.row_bound is None:
        missing(("data", "row_bound"), DataTable, source, report)
    if data.on_bad == "default" and data.schema is None:
        report.add(
            ("data", "on_bad"), 'is "default", and [data] schema is missing', '"refuse" without schema'
        )
    if data.schema is not None and data.label in data.schema:
        label = report.named(("data", "label"), data.label)
        report.add(
            ("data", "schema", str(data.label)), f"is {label}", "columns that a model may see", "remove it"
        )


def format_of(source: str) -> str | None:
    """By the extension, as the readers have it."""
    from privadmm.data.readers import EXTENSIONS

    return next((kind for kind, ends in EXTENSIONS.items() if source.lower().endswith(ends)), None)


def missing(at: At, table: type, beside: str, report: Report) -> None:
    report.add(at, f"missing beside {beside}", fields_of(table)[at[-1]].kind.allowed(), f"add {at[-1]} = ...")


def _check_classes(data: DataTable, loss: LossTable, report: Report) -> None:
    if not data.embedded and data.classes is None and loss.name != "squared":
        missing(("data", "classes"), DataTable, report.named(("loss", "name"), loss.name), report)


def _check_count(parties: PartiesTable, report: Report) -> None:
    if parties.known is None and parties.column is None:
        missing(("parties", "count"), PartiesTable, report.named(("parties", "split"), parties.split), report)
    if parties.count is not None and parties.sizes is not None and parties.count != len(parties.sizes):
        count = report.named(("parties", "count"), parties.count)
        report.add(
            ("parties", "sizes"), f"has {len(parties.sizes)} items beside {count}", "as many as parties"
        )


def _check_edges(parties: PartiesTable, graph: GraphTable, report: Report) -> None:
    n = parties.known
    if graph.edges is not None and n is not None and not n - 1 <= graph.edges <= n * (n - 1) // 2:
        key = "count" if parties.sizes is None else "sizes"
        given = report.named(("parties", key), parties.count if parties.sizes is None else parties.sizes)
        report.add(("graph", "edges"), f"is {graph.edges} beside {given}", f"{n - 1} to {n * (n - 1) // 2}")


def _check_topology(algorithm: AlgorithmTable, graph: GraphTable, report: Report) -> None:
    needs = algorithm.parameters.topology
    if (needs == "star") != (graph.kind == "star"):
        name = report.named(("algorithm", "name"), algorithm.name)
        allowed = '"star"' if needs == "star" else '"ring", "complete" or "random"'
        report.add(("graph", "kind"), f"is {show(graph.kind)} beside {name}", allowed)


def _check_epsilon(privacy: PrivacyTable, algorithm: AlgorithmTable, report: Report) -> None:
    given = privacy.epsilon is not None or privacy.party_epsilon is not None
    if not given and getattr(algorithm.parameters, "calibration", "certified") == "certified":
        name = report.named(("algorithm", "name"), algorithm.name)
        missing(("privacy", "epsilon"), PrivacyTable, name, report)


def _check_ledger(run: RunTable, report: Report) -> None:
    if run.mode == "deployment" and run.ledger is None:
        missing(("run", "ledger"), RunTable, report.named(("run", "mode"), run.mode), report)


def _check_split(run: RunTable, parties: PartiesTable, report: Report) -> None:
    if run.mode == "deployment" and parties.alpha is not None:
        mode = report.named(("run", "mode"), run.mode)
        problem = f"is {show(parties.split)} beside {mode}, where sizes must not follow from private labels"
        report.add(("parties", "split"), problem, '"even" or "column:NAME"')


CROSS_CHECKS: tuple[tuple[tuple[str, ...], Callable[..., None]], ...] = (
    (("data",), _check_source),
    (("data", "loss"), _check_classes),
    (("parties",), _check_count),
    (("parties", "graph"), _check_edges),
    (("algorithm", "graph"), _check_topology),
    (("privacy", "algorithm"), _check_epsilon),
    (("run",), _check_ledger),
    (("run", "parties"), _check_split),
)
