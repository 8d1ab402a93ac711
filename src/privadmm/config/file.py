"""The config file, one TOML file for every command: read, checked across sections, identified by a digest.

sections.py declares the sections, and checks.py compares keys with one another. Algorithms declare their own keys in
the same way, so [algorithm] has the keys of the one that it names. Every path is relative to the file's folder.
"""

import dataclasses
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from privadmm.config import sections
from privadmm.config.checks import Complaints, check_curator, check_declared, check_sections
from privadmm.config.reader import Lines, Report, load, read_table
from privadmm.errors import ConfigError, did_you_mean, listed, nearest, show
from privadmm.params import BAD, At, Choice, Field, fields_of

Algorithms = Mapping[str, type[Any]]
SECTIONS: Mapping[str, type[Any]] = {
    "data": sections.DataTable,
    "parties": sections.PartiesTable,
    "graph": sections.GraphTable,
    "features": sections.FeaturesTable,
    "algorithm": sections.AlgorithmTable,
    "loss": sections.LossTable,
    "regularizer": sections.RegularizerTable,
    "privacy": sections.PrivacyTable,
    "evaluation": sections.EvaluationTable,
    "run": sections.RunTable,
}


@dataclass(frozen=True)
class Config:
    data: sections.DataTable
    parties: sections.PartiesTable
    graph: sections.GraphTable
    algorithm: sections.AlgorithmTable
    loss: sections.LossTable
    regularizer: sections.RegularizerTable
    features: sections.FeaturesTable
    privacy: sections.PrivacyTable | None
    evaluation: sections.EvaluationTable
    run: sections.RunTable
    path: Path
    text: str

    def resolve(self, name: str) -> Path:
        """A path that the file names, relative to the working directory."""
        return self.path.parent / name

    @property
    def randomises(self) -> bool:
        """Whether labels are randomised before anything is learnt from them."""
        return self.privacy is not None and self.privacy.label_epsilon is not None

    @property
    def holds_out(self) -> bool:
        """Whether rows are held out to measure by; a deployment measures nothing.

        A private evaluation holds records out itself, and a simulation measures by these.
        """
        return self.data.test_fraction > 0 and self.run.mode == "simulation" and not self.evaluates

    @property
    def evaluates(self) -> bool:
        """Whether the job has a private evaluation."""
        return self.evaluation.kind == "private"

    @cached_property
    def digest(self) -> str:
        """A digest of the config, without the places where the run and its records are kept or reached.

        Order of keys, comments, and defaults written out make no difference.
        """
        tables = {name: _keys(getattr(self, name)) for name in SECTIONS if name != "privacy"}
        tables["privacy"] = {} if self.privacy is None else _keys(self.privacy)
        tables["algorithm"] |= {"parameters": _keys(self.algorithm.parameters)}
        if self.evaluation == sections.EvaluationTable():
            del tables["evaluation"]  # a config that is older than this section keeps its digest
        for key in ("out", "scheduler", "timeout", "tls_ca", "tls_cert", "tls_key", "memory", "threads"):
            del tables["run"][key]
        # A config without these keys keeps the digest that it had before they existed.
        for section, key in (("run", "purpose"), ("run", "requester"), ("parties", "records")):
            if tables[section][key] is None:
                del tables[section][key]
        return hashlib.sha256(json.dumps(tables, sort_keys=True, allow_nan=False).encode()).hexdigest()


def _keys(table: Any) -> dict[str, Any]:
    return {name: getattr(table, name) for name in fields_of(type(table))}


def read(path: str | Path, algorithms: Algorithms | None = None, folder: Path | None = None) -> Config:
    """Read and check a config file; a ConfigError lists everything that is wrong with it, a line each.

    `folder` is where the paths in it start, if it is a copy that was moved.
    """
    path, algorithms = Path(path), known_algorithms(algorithms)
    text, raw = load(path)
    path = path if folder is None else folder / path.name
    report = Report(str(path), Lines(text))
    home = partial(_home, algorithms)
    _refuse_unknown_sections(raw, home, report)
    tables: dict[str, Any] = {}
    for name, kind in SECTIONS.items():
        section, before = raw.get(name, {}), len(report.problems)
        if name == "privacy" and name not in raw:
            table = None
        elif name == "algorithm":
            table = _read_algorithm(section, algorithms, report, home)
        else:
            section = _with_schema_file(section, path, report) if name == "data" else section
            values = read_table(fields_of(kind), section, (name,), report, home)
            table = BAD if values is None or len(report.problems) > before else kind(**values)
        tables[name] = table
    check_sections(tables, report)
    report.check()
    return Config(**tables, path=path, text=text)


def known_algorithms(algorithms: Algorithms | None) -> Algorithms:
    """The given algorithms; None: all of the package."""
    from privadmm.algorithms import ALGORITHMS

    return ALGORITHMS if algorithms is None else algorithms


def _home(algorithms: Algorithms, key: str) -> str:
    """The section where a key belongs, for errors about a key in another one; "" if there is none."""
    places = [f"[{section}]" for section, table in SECTIONS.items() if key in fields_of(table)]
    places += [f"[algorithm] name = {show(name)}" for name, method in algorithms.items() if key in fields_of(method)]
    return listed(places) if places else ""


def _refuse_unknown_sections(raw: Mapping[str, Any], home: Callable[[str], str], report: Report) -> None:
    allowed = ", ".join(f"[{name}]" for name in SECTIONS)
    for name in raw.keys() - SECTIONS.keys():
        if isinstance(raw[name], dict):
            report.add((name,), "unknown section", allowed, did_you_mean(name, SECTIONS, "[{}]".format))
        else:
            fix = f"it belongs to {where}" if (where := home(name)) else ""
            report.add((name,), "a key outside any section", allowed, fix)


def _with_schema_file(section: Any, path: Path, report: Report) -> Any:
    """[data] with its schema in place of the path to one, so that the digest covers what the file says."""
    if not isinstance(section, dict) or not isinstance(section.get("schema"), str):
        return section
    at, kind = ("data", "schema"), fields_of(sections.DataTable)["schema"].kind
    rest = {key: value for key, value in section.items() if key != "schema"}
    try:
        text, table = load(path.parent / section["schema"])
    except ConfigError as error:
        report.add(at, f"is {show(section['schema'])}, and {error}", kind.allowed())
        return rest
    inner = Report(str(path.parent / section["schema"]), Lines(text, root=at))
    good = kind.read(table, at, inner.wrong(kind)) is not BAD
    report.problems += inner.problems
    return section | {"schema": table} if good else rest


def _read_algorithm(raw: Any, algorithms: Algorithms, report: Report, home: Callable[[str], str]) -> Any:
    fields = algorithm_fields(algorithms)
    named = raw.get("name") if isinstance(raw, dict) else None
    algorithm = algorithms.get(named) if isinstance(named, str) else None
    own = fields_of(algorithm) if algorithm is not None else {}
    if algorithm is None and isinstance(raw, dict):
        # Without its name, an algorithm's own keys cannot be judged; only those meant for all of them can.
        every = [*fields, *(key for known in algorithms.values() for key in fields_of(known))]
        raw = {key: value for key, value in raw.items() if nearest(key, every) in fields}
    values = read_table({**fields, **own}, raw, ("algorithm",), report, home)
    if values is None or algorithm is None:
        return BAD
    try:
        parameters = algorithm(**{key: values[key] for key in own})
    except ConfigError as error:
        # A condition between the algorithm's own parameters; the message names them.
        keys = [key for key in re.findall(r"\w+", str(error)) if key in own and key in raw]
        others = {report.named(("algorithm", key), values[key]) for key in keys if key != keys[0]}
        report.add(("algorithm", *keys[:1]), str(error), fix=", ".join(sorted(others)))
        return BAD
    return sections.AlgorithmTable(**{key: values[key] for key in fields}, parameters=parameters)


def algorithm_fields(algorithms: Algorithms) -> dict[str, Field]:
    """The keys of [algorithm] that every algorithm has; `name` is one of these algorithms."""
    fields = dict(fields_of(sections.AlgorithmTable))
    fields["name"] = dataclasses.replace(fields["name"], kind=Choice(tuple(algorithms)))
    return fields


def _complaints(config: Config) -> Complaints:
    """Collect complaints about a config that options of the command line may have changed."""
    tables = {name: getattr(config, name) for name in SECTIONS}
    return Complaints(tables, Report(str(config.path), Lines(config.text)))


def check_seed(config: Config) -> None:
    """A simulation needs a seed, in the file or on the command line; a deployment refuses one."""
    run, to = config.run, _complaints(config)
    if run.mode == "simulation" and run.seed is None:
        to.missing("run", "seed", to.named("run", "mode"))
    if run.mode == "deployment" and run.seed is not None:
        to.clash("run", "seed", to.named("run", "mode"), "none in a deployment", "remove it")
    to.report.check()


def check_alone(config: Config) -> None:
    """Check a run without a federation, in which every party has its own process and ledger.

    A deployment names the ledger that its steward made, and one process deploys no secure sums.
    """
    to = _complaints(config)
    check_curator(config.privacy, config.run, config.data, to)
    if config.run.mode == "deployment" and config.run.ledger is None:
        to.missing("run", "ledger", to.named("run", "mode"))
    to.report.check()


def check_elsewhere(config: Config) -> None:
    """Refuse undeclared records that only workers read. Checked again, since an option may have changed the engine."""
    to = _complaints(config)
    check_declared(config.data, config.parties, config.run, to)
    to.report.check()


def override(
    config: Config,
    *,
    seed: int | None = None,
    engine: str | None = None,
    scheduler: str | None = None,
    out: str | Path | None = None,
    purpose: str | None = None,
    requester: str | None = None,
) -> Config:
    """Put the command line's options in place of the file's keys; `out` is relative to the working directory."""
    place = None if out is None else str(Path(out).absolute())
    options = {"seed": seed, "engine": engine, "scheduler": scheduler, "out": place}
    options |= {"purpose": purpose, "requester": requester}
    changes: dict[str, Any] = {key: value for key, value in options.items() if value is not None}
    kinds = {key: fields_of(sections.RunTable)[key].kind for key in changes}

    def wrong(at: At, what: str, fix: str = "", allowed: str = "") -> None:
        raise ConfigError(f"--{at[0]}: {what}; allowed: {kinds[at[0]].allowed()}")

    for key, value in changes.items():
        kinds[key].read(value, (key,), wrong)
    return dataclasses.replace(config, run=dataclasses.replace(config.run, **changes))
