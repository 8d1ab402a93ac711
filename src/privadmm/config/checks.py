"""What must hold between keys of a config. Each complaint names both keys and their lines."""

from collections.abc import Callable

from privadmm.config.reader import Report
from privadmm.config.sections import (
    AlgorithmTable,
    DataTable,
    GraphTable,
    LossTable,
    PartiesTable,
    PrivacyTable,
    RunTable,
)
from privadmm.params import At, fields_of, show


def _check_source(data: DataTable, report: Report) -> None:
    source = report.named(("data", "source"), data.source)
    if data.rows == "unit" and data.row_bound is not None:
        rows = report.named(("data", "rows"), data.rows)
        report.add(("data", "row_bound"), f"does not go with {rows}", "for clipped rows only", "remove it")
    if data.encoding != "minmax" and data.schema is None and data.source != "embedded:adult":
        report.add(
            ("data", "encoding"),
            f"is {show(data.encoding)}, and [data] schema is missing",
            '"minmax" without schema',
        )
    if data.embedded:
        for key in ("format", "schema", "dim", "id"):
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
    if data.row_bound is None and data.rows == "clip":
        missing(("data", "row_bound"), DataTable, source, report)
    if data.on_bad == "default" and data.schema is None:
        report.add(("data", "on_bad"), 'is "default", and [data] schema is missing', '"refuse" without schema')
    if data.schema is not None and data.label in data.schema:
        label = report.named(("data", "label"), data.label)
        report.add(("data", "schema", str(data.label)), f"is {label}", "columns that a model may see", "remove it")


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
        report.add(("parties", "sizes"), f"has {len(parties.sizes)} items beside {count}", "as many as parties")
    if parties.columns is not None and parties.files is not None:
        files = report.named(("parties", "files"), parties.files)
        report.add(("parties", "columns"), f"is given beside {files}", "one of the two", "remove one")
    lengths = {key: getattr(parties, key) for key in ("columns", "files", "row_bounds")}
    for key, value in lengths.items():
        if value is not None and parties.known not in (None, len(value)) and parties.use == "all":
            first = report.named(("parties", parties.given), getattr(parties, parties.given))
            report.add(("parties", key), f"has {len(value)} items beside {first}", "as many as parties")


def _check_files(data: DataTable, parties: PartiesTable, report: Report) -> None:
    if parties.files is None:
        return
    files = report.named(("parties", "files"), parties.files)
    for key in ("id", "label"):
        if getattr(data, key) is None:
            missing(("data", key), DataTable, files, report)
    if data.embedded:
        report.add(("data", "source"), f"is {show(data.source)} beside {files}", "a file with ids and labels")


def _check_party_files(data: DataTable, parties: PartiesTable, report: Report) -> None:
    """Where every party has a file of its own there is nothing to split."""
    if not data.by_party:
        return
    source = report.named(("data", "source"), data.source)
    if parties.split == "features":
        allowed = '"even"; parties that hold columns have their files in [parties] files'
        report.add(("parties", "split"), f"is {show(parties.split)} beside {source}", allowed)
    elif parties.split != "even":
        problem = f"is {show(parties.split)} beside {source}, where every party's file is its own"
        report.add(("parties", "split"), problem, '"even", or no such key', "remove it")
    if parties.seed:
        report.add(("parties", "seed"), f"does not go with {source}", "for one file only", "remove it")


def read_by_workers(data: DataTable, run: RunTable) -> bool:
    """Nobody but the workers reads the records, not even to measure."""
    return data.by_party and run.engine == "dask" and run.mode == "deployment"


def check_declared(data: DataTable, parties: PartiesTable, run: RunTable, report: Report) -> None:
    """Then whoever starts the run has to know sizes and columns without them."""
    if not read_by_workers(data, run):
        return
    source = f"{report.named(('data', 'source'), data.source)}, which only workers read,"
    if parties.sizes is None:
        missing(("parties", "sizes"), PartiesTable, source, report)
    named = (data.format or format_of(data.source)) in ("csv", "parquet")
    if named and data.schema is None:
        missing(("data", "schema"), DataTable, source, report)
    if not named and data.dim is None:
        missing(("data", "dim"), DataTable, source, report)


def _check_memory(parties: PartiesTable, run: RunTable, report: Report) -> None:
    if run.memory is not None and parties.split == "features":
        split = report.named(("parties", "split"), parties.split)
        report.add(("run", "memory"), f"does not go with {split}", "for parties that hold records", "remove it")


def _check_edges(parties: PartiesTable, graph: GraphTable, report: Report) -> None:
    n = parties.known
    if graph.edges is not None and n is not None and not n - 1 <= graph.edges <= n * (n - 1) // 2:
        given = report.named(("parties", parties.given), getattr(parties, parties.given))
        report.add(("graph", "edges"), f"is {graph.edges} beside {given}", f"{n - 1} to {n * (n - 1) // 2}")


def _check_topology(algorithm: AlgorithmTable, graph: GraphTable, report: Report) -> None:
    needs = algorithm.parameters.topology
    if needs != "relay" and (needs == "star") != (graph.kind == "star"):
        name = report.named(("algorithm", "name"), algorithm.name)
        allowed = '"star"' if needs == "star" else '"ring", "complete" or "random"'
        report.add(("graph", "kind"), f"is {show(graph.kind)} beside {name}", allowed)


def _check_epsilon(privacy: PrivacyTable, algorithm: AlgorithmTable, report: Report) -> None:
    given = privacy.epsilon is not None or privacy.party_epsilon is not None
    if not given and getattr(algorithm.parameters, "calibration", "certified") == "certified":
        name = report.named(("algorithm", "name"), algorithm.name)
        missing(("privacy", "epsilon"), PrivacyTable, name, report)


def _check_labels(privacy: PrivacyTable, loss: LossTable, report: Report) -> None:
    if privacy.label_epsilon is not None and loss.name == "squared":
        name = report.named(("loss", "name"), loss.name)
        report.add(("privacy", "label_epsilon"), f"is given beside {name}", "for losses of two classes only")


def _check_split(run: RunTable, parties: PartiesTable, report: Report) -> None:
    if run.mode == "deployment" and parties.alpha is not None:
        mode = report.named(("run", "mode"), run.mode)
        problem = f"is {show(parties.split)} beside {mode}, where sizes must not follow from private labels"
        report.add(("parties", "split"), problem, '"even" or "column:NAME"')


def _check_tls(run: RunTable, report: Report) -> None:
    """All three files or none: neither side talks to one without a certificate."""
    keys = ("tls_ca", "tls_cert", "tls_key")
    given = [key for key in keys if getattr(run, key) is not None]
    tls = run.scheduler is not None and run.scheduler.startswith("tls:")
    if given or tls:
        beside = report.named(("run", given[0]), getattr(run, given[0])) if given else ""
        beside = beside or report.named(("run", "scheduler"), run.scheduler)
        for key in keys:
            if key not in given:
                missing(("run", key), RunTable, beside, report)
    if given and run.scheduler is not None and not tls:
        scheduler = report.named(("run", "scheduler"), run.scheduler)
        report.add(("run", given[0]), f"does not go with {scheduler}", "for a tls:// scheduler only")


def _check_workers(run: RunTable, parties: PartiesTable, report: Report) -> None:
    if run.engine == "dask" and parties.known is not None and run.workers > parties.known:
        known = report.named(("parties", parties.given), getattr(parties, parties.given))
        report.add(("run", "workers"), f"is {run.workers} beside {known}", f"1 to {parties.known}")


def _check_leave(parties: PartiesTable, algorithm: AlgorithmTable, run: RunTable, report: Report) -> None:
    at, leaving = ("parties", "leave"), parties.departures
    if not leaving:
        return
    known, rounds = parties.known, algorithm.rounds
    if run.mode == "deployment":
        report.add(at, f"is given beside {report.named(('run', 'mode'), run.mode)}", "for a simulation only")
    if parties.split == "features":
        split = report.named(("parties", "split"), parties.split)
        report.add(at, f"is given beside {split}, where every party's columns are needed", "no such key")
    if known is not None and max(leaving) >= known:
        given = report.named(("parties", parties.given), getattr(parties, parties.given))
        report.add(at, f"names party {max(leaving)} beside {given}", f"parties 0 to {known - 1}")
    elif len(leaving) == known:
        report.add(at, "names every party", "some of the parties, not all")
    if (last := max(leaving.values()) + 1) > rounds:
        given = report.named(("algorithm", "rounds"), rounds)
        report.add(at, f"names round {last} beside {given}", f"rounds 1 to {rounds}")


CROSS_CHECKS: tuple[tuple[tuple[str, ...], Callable[..., None]], ...] = (
    (("data",), _check_source),
    (("data", "loss"), _check_classes),
    (("parties",), _check_count),
    (("data", "parties"), _check_files),
    (("data", "parties"), _check_party_files),
    (("data", "parties", "run"), check_declared),
    (("parties", "run"), _check_memory),
    (("parties", "graph"), _check_edges),
    (("algorithm", "graph"), _check_topology),
    (("privacy", "algorithm"), _check_epsilon),
    (("privacy", "loss"), _check_labels),
    (("run", "parties"), _check_split),
    (("run",), _check_tls),
    (("run", "parties"), _check_workers),
    (("parties", "algorithm", "run"), _check_leave),
)
