"""What must hold between keys of a config. Each complaint names both keys and their lines."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import signature
from typing import Any

from privadmm.config.reader import Report
from privadmm.config.sections import (
    PARTY,
    AlgorithmTable,
    DataTable,
    EvaluationTable,
    GraphTable,
    LossTable,
    PartiesTable,
    PrivacyTable,
    RunTable,
)
from privadmm.errors import ConfigError, show
from privadmm.params import BAD, fields_of


@dataclass(frozen=True)
class Complaints:
    """Adds complaints about keys of these sections to a report."""

    tables: Mapping[str, Any]  # by section
    report: Report

    def add(self, section: str, key: str, what: str, allowed: str, fix: str = "") -> None:
        self.report.add((section, key), what, allowed, fix)

    def misfit(self, section: str, key: str, other: str, allowed: str) -> None:
        """Complain about a key that does not go with another one."""
        self.add(section, key, f"does not go with {other}", allowed, "remove it")

    def clash(self, section: str, key: str, other: str, allowed: str, fix: str = "") -> None:
        """Complain about a value that is not allowed beside another key's value."""
        self.add(section, key, f"is {show(getattr(self.tables[section], key))} beside {other}", allowed, fix)

    def missing(self, section: str, key: str, beside: str, instead: str = "") -> None:
        allowed = fields_of(type(self.tables[section]))[key].kind.allowed()
        self.add(section, key, f"missing beside {beside}", allowed, f"add {key} = ...{instead}")

    def named(self, section: str, key: str) -> str:
        """A key with its value and line."""
        return self.report.named((section, key), getattr(self.tables[section], key))


def _check_source(data: DataTable, to: Complaints) -> None:
    if data.rows == "unit" and data.row_bound is not None:
        to.misfit("data", "row_bound", to.named("data", "rows"), "for clipped rows only")
    if data.encoding != "minmax" and data.schema is None and data.source != "embedded:adult":
        problem = f"is {show(data.encoding)}, and [data] schema is missing"
        to.add("data", "encoding", problem, '"minmax" without schema')
    if data.embedded:
        for key in ("format", "schema", "dim", "id"):
            if getattr(data, key) is not None:
                to.misfit("data", key, to.named("data", "source"), "a key of files only")
        return
    kind = format_of(data)
    if kind is None:
        instead = ", or name a file, by an ending that tells its format"
        to.missing("data", "format", to.named("data", "source"), instead)
    if kind in ("npz", "libsvm") and data.schema is not None:
        to.misfit("data", "schema", to.named("data", "source"), "for csv and parquet only")
    for key, needed in (
        ("label", kind in ("csv", "parquet")),
        ("dim", kind == "libsvm"),
        ("row_bound", data.rows == "clip"),
    ):
        if needed and getattr(data, key) is None:
            to.missing("data", key, to.named("data", "source"))
    if data.on_bad == "default" and data.schema is None:
        to.add("data", "on_bad", 'is "default", and [data] schema is missing', '"refuse" without schema')
    if data.schema is not None and data.label in data.schema:
        problem = f"is {to.named('data', 'label')}"
        to.report.add(("data", "schema", str(data.label)), problem, "columns that a model may see", "remove it")


def format_of(data: DataTable) -> str | None:
    """The declared format, or else the format that readers know by the extension; None: unknown."""
    from privadmm.data.readers import EXTENSIONS

    by_extension = (kind for kind, ends in EXTENSIONS.items() if data.source.lower().endswith(ends))
    return data.format or next(by_extension, None)


def _check_classes(data: DataTable, loss: LossTable, to: Complaints) -> None:
    if not data.embedded and data.classes is None and loss.name != "squared":
        to.missing("data", "classes", to.named("loss", "name"))


def _check_radius(loss: LossTable, to: Complaints) -> None:
    if loss.radius is not None and loss.label_bound is not None and loss.radius < loss.label_bound:
        allowed = "at least label_bound, or labels between them draw predictions away without end"
        to.clash("loss", "radius", to.named("loss", "label_bound"), allowed, "raise radius")


def _check_count(parties: PartiesTable, to: Complaints) -> None:
    if parties.known is None and parties.column is None:
        to.missing("parties", "count", to.named("parties", "split"))
    if parties.count is not None and parties.sizes is not None and parties.count != len(parties.sizes):
        problem = f"has {len(parties.sizes)} items beside {to.named('parties', 'count')}"
        to.add("parties", "sizes", problem, "as many as parties")
    if parties.columns is not None and parties.files is not None:
        to.add("parties", "columns", f"is given beside {to.named('parties', 'files')}", "one of the two", "remove one")
    for key in ("columns", "files", "row_bounds"):
        value = getattr(parties, key)
        if value is not None and parties.known not in (None, len(value)) and parties.use == "all":
            problem = f"has {len(value)} items beside {to.named('parties', parties.given)}"
            to.add("parties", key, problem, "as many as parties")


def _check_records(data: DataTable, parties: PartiesTable, to: Complaints) -> None:
    """Compare the declared number of all records with other keys that imply how many there are."""
    if (records := parties.records) is None:
        return
    if data.embedded:
        to.misfit("parties", "records", to.named("data", "source"), "for files only: embedded records are counted")
    if parties.sizes is not None:
        trained = max(parties.sizes) if parties.split == "features" else sum(parties.sizes)
        if trained > records:
            to.clash("parties", "records", to.named("parties", "sizes"), f"an integer >= {trained}")
    elif parties.split != "features" and parties.known is not None and records < parties.known:
        to.clash("parties", "records", to.named("parties", parties.given), f"an integer >= {parties.known}")


def _check_files(data: DataTable, parties: PartiesTable, to: Complaints) -> None:
    """Parties' own files: of columns, which are aligned; or of records, with nothing to split."""
    if parties.files is not None:
        files = to.named("parties", "files")
        for key in ("id", "label"):
            if getattr(data, key) is None:
                to.missing("data", key, files)
        if data.embedded:
            to.clash("data", "source", files, "a file with ids and labels")
    if not data.by_party:
        return
    source = to.named("data", "source")
    if parties.split == "features":
        allowed = '"even"; parties that hold columns have their files in [parties] files'
        to.clash("parties", "split", source, allowed)
    elif parties.split != "even":
        own = f"{source}, where every party's file is its own"
        to.clash("parties", "split", own, '"even", or no such key', "remove it")
    if parties.seed:
        to.misfit("parties", "seed", source, "for one file only")


def read_by_workers(data: DataTable, run: RunTable) -> bool:
    """Whether the workers alone read the records: nobody else does, not even to measure."""
    return data.by_party and run.engine == "dask" and run.mode == "deployment"


def check_declared(data: DataTable, parties: PartiesTable, run: RunTable, to: Complaints) -> None:
    """Require declared sizes and columns if only workers read records: whoever starts the run reads none."""
    if not read_by_workers(data, run):
        return
    source = f"{to.named('data', 'source')}, which only workers read,"
    if parties.sizes is None:
        to.missing("parties", "sizes", source)
    key = "schema" if format_of(data) in ("csv", "parquet") else "dim"
    if getattr(data, key) is None:
        to.missing("data", key, source)


def _check_edges(parties: PartiesTable, graph: GraphTable, to: Complaints) -> None:
    n = parties.known
    if graph.edges is not None and n is not None and not n - 1 <= graph.edges <= n * (n - 1) // 2:
        to.clash("graph", "edges", to.named("parties", parties.given), f"{n - 1} to {n * (n - 1) // 2}")


def _check_topology(algorithm: AlgorithmTable, graph: GraphTable, to: Complaints) -> None:
    needs = algorithm.parameters.topology
    if needs != "relay" and (needs == "star") != (graph.kind == "star"):
        allowed = '"star"' if needs == "star" else '"ring", "complete" or "random"'
        to.clash("graph", "kind", to.named("algorithm", "name"), allowed)


def _check_epsilon(privacy: PrivacyTable, algorithm: AlgorithmTable, to: Complaints) -> None:
    certified = getattr(algorithm.parameters, "calibration", "certified") == "certified"
    if certified and privacy.epsilon is None and privacy.party_epsilon is None:
        to.missing("privacy", "epsilon", to.named("algorithm", "name"))


def _check_sum(privacy: PrivacyTable, algorithm: AlgorithmTable, parties: PartiesTable, to: Complaints) -> None:
    """What a secure sum asks of the method, and of the number of parties."""
    if privacy.sum != "secure":
        return
    from privadmm.engine.sums import unsummable
    from privadmm.privacy.sums import SecureSum

    if (why := unsummable(algorithm.parameters)) is not None:
        fix = "use first_order_consensus or dp_fedsgd, or remove it"
        to.clash("privacy", "sum", f"{to.named('algorithm', 'name')}, which cannot sum securely: {why}", '"local"', fix)
    elif parties.known is not None:
        try:
            SecureSum(privacy.colluding, privacy.fewest).check(parties.known)
        except ConfigError as error:
            key = next((key for key in ("colluding", "fewest") if str(error).startswith(key)), "sum")
            to.report.add(("privacy", key), str(error), fix=to.named("parties", parties.given))


def _check_labels(privacy: PrivacyTable, loss: LossTable, to: Complaints) -> None:
    if privacy.label_epsilon is not None and loss.name == "squared":
        allowed = "for losses of two classes only"
        to.add("privacy", "label_epsilon", f"is given beside {to.named('loss', 'name')}", allowed)


def check_curator(privacy: PrivacyTable | None, run: RunTable, data: DataTable, to: Complaints) -> None:
    """Refuse to deploy a secure sum where one process reads all records: that process could read every message."""
    from privadmm.engine.block import CURATOR

    if privacy is None or (privacy.sum, run.mode) != ("secure", "deployment"):
        return
    if run.engine == "inprocess" or run.workers == 1:
        to.clash("privacy", "sum", f"{to.named('run', 'mode')} in one process", '"local" there', CURATOR)
    elif not data.by_party:
        problem = f"{to.named('privacy', 'sum')}: whoever starts the run would read everybody's records"
        to.clash("data", "source", problem, f"a path with {PARTY}, which is read by a party's worker alone")


def _check_run(run: RunTable, parties: PartiesTable, to: Complaints) -> None:
    for key in ("memory", "threads"):
        if getattr(run, key) is not None and parties.split == "features":
            to.misfit("run", key, to.named("parties", "split"), "for parties that hold records")
    if run.mode == "deployment" and parties.alpha is not None:
        mode = f"{to.named('run', 'mode')}, where sizes must not follow from private labels"
        to.clash("parties", "split", mode, '"even" or "column:NAME"')
    if run.engine == "dask" and parties.known is not None and run.workers > parties.known:
        to.clash("run", "workers", to.named("parties", parties.given), f"1 to {parties.known}")


def _check_tls(run: RunTable, to: Complaints) -> None:
    """Require all three files of TLS or none: neither side talks to the other without a certificate."""
    keys = ("tls_ca", "tls_cert", "tls_key")
    given = [key for key in keys if getattr(run, key) is not None]
    tls = run.scheduler is not None and run.scheduler.startswith("tls:")
    if given or tls:
        beside = to.named("run", given[0] if given else "scheduler")
        for key in keys:
            if key not in given:
                to.missing("run", key, beside)
    if given and run.scheduler is not None and not tls:
        to.add("run", given[0], f"does not go with {to.named('run', 'scheduler')}", "for a tls:// scheduler only")


def _check_evaluation(
    evaluation: EvaluationTable, parties: PartiesTable, privacy: PrivacyTable, loss: LossTable, to: Complaints
) -> None:
    """What a private evaluation has a proof for; the job checks it again."""
    if evaluation.kind != "private":
        return
    if evaluation.bins % 2:
        to.add("evaluation", "bins", f"is {evaluation.bins}", "an even number, half of them on each side of 0")
    for other, bad in (
        (("parties", "split"), parties.split == "features"),
        (("loss", "name"), loss.name == "squared"),
        (("privacy", "label_epsilon"), privacy.label_epsilon is not None),
        (("privacy", "delta"), privacy.delta == 0),
        (("privacy", "adjacency"), privacy.adjacency != "replace-one"),
    ):
        if bad:
            why = f"{to.named(*other)}, for which a private evaluation has no proof"
            to.clash("evaluation", "kind", why, '"none"', "remove [evaluation]")


def _check_leave(
    parties: PartiesTable, algorithm: AlgorithmTable, evaluation: EvaluationTable, run: RunTable, to: Complaints
) -> None:
    if not (leaving := parties.departures):
        return

    def add(problem: str, allowed: str) -> None:
        to.add("parties", "leave", problem, allowed)

    known, last = parties.known, max(leaving.values()) + 1
    rounds = algorithm.rounds + (2 if evaluation.kind == "private" else 0)  # Evaluated.releases
    if run.mode == "deployment":
        add(f"is given beside {to.named('run', 'mode')}", "for a simulation only")
    if parties.split == "features":
        split = to.named("parties", "split")
        add(f"is given beside {split}, where every party's columns are needed", "no such key")
    if known is not None and max(leaving) >= known:
        add(f"names party {max(leaving)} beside {to.named('parties', parties.given)}", f"parties 0 to {known - 1}")
    elif len(leaving) == known:
        add("names every party", "some of the parties, not all")
    if last > rounds:
        add(f"names round {last} beside {to.named('algorithm', 'rounds')}", f"rounds 1 to {rounds}")


# A check takes, by name, the sections that it compares, and `to`, which collects its complaints.
CHECKS: tuple[Callable[..., None], ...] = (
    *(_check_source, _check_classes, _check_radius, _check_count, _check_records),
    *(_check_files, check_declared),
    *(_check_edges, _check_topology, _check_epsilon, _check_labels, _check_sum, _check_run, _check_tls, _check_leave),
    _check_evaluation,
)


def check_sections(tables: Mapping[str, Any], report: Report) -> None:
    """Run every check whose sections are there and could be read."""
    for check in CHECKS:
        compared = [tables[name] for name in signature(check).parameters if name != "to"]
        if not any(table in (BAD, None) for table in compared):
            check(*compared, Complaints(tables, report))
