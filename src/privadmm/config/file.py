"""One TOML file for every command: read, checked across sections, identified by a digest, described.

The sections are declared in sections.py, and `checks` compares keys with one another. Algorithms
declare their own keys in the same way, so [algorithm] has the keys of the one that it names. Every path in
the file is relative to the file's folder.
"""

import dataclasses
import hashlib
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from privadmm.config.checks import CROSS_CHECKS, check_declared, missing
from privadmm.config.docs import Section, as_json, as_markdown, as_text
from privadmm.config.reader import Lines, Report, load, read_table
from privadmm.config.sections import (
    AlgorithmTable,
    DataTable,
    FeaturesTable,
    GraphTable,
    LossTable,
    PartiesTable,
    PrivacyTable,
    RegularizerTable,
    RunTable,
)
from privadmm.errors import ConfigError
from privadmm.params import (
    BAD,
    At,
    Choice,
    Field,
    did_you_mean,
    fields_of,
    listed,
    nearest,
    show,
)

Algorithms = Mapping[str, type[Any]]
SECTIONS: Mapping[str, type[Any]] = {
    "data": DataTable,
    "parties": PartiesTable,
    "graph": GraphTable,
    "features": FeaturesTable,
    "algorithm": AlgorithmTable,
    "loss": LossTable,
    "regularizer": RegularizerTable,
    "privacy": PrivacyTable,
    "run": RunTable,
}
PAGE = """# The config file

One TOML file serves every command. Unknown sections and keys are errors, and so is a value outside what is
allowed; an error names the file, the line, the key, what is allowed, and the nearest valid name. Every path
is relative to the file's folder. `privadmm config --schema` prints this list, with `--json` as JSON Schema.

```toml
[data]
source = "embedded:adult"

[parties]
count = 10

[algorithm]
name = "dp_admm"
rounds = 50
D_w = 5.0

[privacy]
epsilon = 1.0
delta = 1e-5

[run]
seed = 0
```

"""


@dataclass(frozen=True)
class Config:
    data: DataTable
    parties: PartiesTable
    graph: GraphTable
    algorithm: AlgorithmTable
    loss: LossTable
    regularizer: RegularizerTable
    features: FeaturesTable
    privacy: PrivacyTable | None
    run: RunTable
    path: Path
    text: str

    def resolve(self, name: str) -> Path:
        """A path of the file, from here."""
        return self.path.parent / name

    @property
    def randomises(self) -> bool:
        """Whether labels are randomised before anything is learnt from them."""
        return self.privacy is not None and self.privacy.label_epsilon is not None

    @property
    def digest(self) -> str:
        """Of all that is said but where the run and its records are kept and reached.

        Whatever the order of keys, comments, defaults.
        """
        tables = {name: _keys(getattr(self, name)) for name in SECTIONS if name != "privacy"}
        tables["privacy"] = {} if self.privacy is None else _keys(self.privacy)
        tables["algorithm"] |= {"parameters": _keys(self.algorithm.parameters)}
        for key in ("out", "scheduler", "timeout", "tls_ca", "tls_cert", "tls_key", "memory"):
            del tables["run"][key]
        return hashlib.sha256(json.dumps(tables, sort_keys=True, allow_nan=False).encode()).hexdigest()


def _keys(table: Any) -> dict[str, Any]:
    return {name: getattr(table, name) for name in fields_of(type(table))}


def read(path: str | Path, algorithms: Algorithms | None = None) -> Config:
    """Read and check a config file; a ConfigError lists everything that is wrong with it, a line each."""
    path, algorithms = Path(path), _known(algorithms)
    text, raw = load(path)
    report = Report(str(path), Lines(text))
    owners = _owners(algorithms)
    _refuse_unknown_sections(raw, owners, report)
    tables: dict[str, Any] = {}
    for name, kind in SECTIONS.items():
        section, before = raw.get(name, {}), len(report.problems)
        if name == "privacy" and name not in raw:
            table = None
        elif name == "algorithm":
            table = _read_algorithm(section, algorithms, report, owners)
        else:
            section = _with_schema_file(section, path, report) if name == "data" else section
            values = read_table(fields_of(kind), section, (name,), report, owners)
            table = BAD if values is None or len(report.problems) > before else kind(**values)
        tables[name] = table
    for names, check in CROSS_CHECKS:
        if not any(tables[name] in (BAD, None) for name in names):
            check(*(tables[name] for name in names), report)
    report.check()
    return Config(**tables, path=path, text=text)


def _known(algorithms: Algorithms | None) -> Algorithms:
    if algorithms is not None:
        return algorithms
    from privadmm.algorithms import ALGORITHMS

    return ALGORITHMS


def _owners(algorithms: Algorithms) -> dict[str, str]:
    """Where each key belongs, for those who wrote it in another section."""
    places: dict[str, list[str]] = {}
    for section, table in SECTIONS.items():
        for key in fields_of(table):
            places.setdefault(key, []).append(f"[{section}]")
    for name, algorithm in algorithms.items():
        for key in fields_of(algorithm):
            places.setdefault(key, []).append(f"[algorithm] name = {show(name)}")
    return {key: listed(where) for key, where in places.items()}


def _refuse_unknown_sections(raw: Mapping[str, Any], owners: Mapping[str, str], report: Report) -> None:
    allowed = ", ".join(f"[{name}]" for name in SECTIONS)
    for name in raw.keys() - SECTIONS.keys():
        if isinstance(raw[name], dict):
            report.add((name,), "unknown section", allowed, did_you_mean(name, SECTIONS, "[{}]".format))
        else:
            fix = f"it belongs to {owners[name]}" if name in owners else ""
            report.add((name,), "a key outside any section", allowed, fix)


def _with_schema_file(section: Any, path: Path, report: Report) -> Any:
    """[data] with its schema in place of the path to one, so that the digest covers what the file says."""
    if not isinstance(section, dict) or not isinstance(section.get("schema"), str):
        return section
    at, kind = ("data", "schema"), fields_of(DataTable)["schema"].kind
    rest = {key: value for key, value in section.items() if key != "schema"}
    try:
        text, table = load(path.parent / section["schema"])
    except ConfigError as error:
        report.add(at, f"is {show(section['schema'])}, and {error}", kind.allowed())
        return rest
    inner = Report(str(path.parent / section["schema"]), Lines(text, root=at))
    good = kind.read(table, at, inner.wrong(kind.allowed())) is not BAD
    report.problems += inner.problems
    return section | {"schema": table} if good else rest


def _read_algorithm(raw: Any, algorithms: Algorithms, report: Report, owners: Mapping[str, str]) -> Any:
    fields = _shared_fields(algorithms)
    named = raw.get("name") if isinstance(raw, dict) else None
    algorithm = algorithms.get(named) if isinstance(named, str) else None
    own = fields_of(algorithm) if algorithm is not None else {}
    if algorithm is None and isinstance(raw, dict):
        # Without its name, an algorithm's own keys cannot be judged; only those meant for all of them can.
        every = [*fields, *(key for known in algorithms.values() for key in fields_of(known))]
        raw = {key: value for key, value in raw.items() if nearest(key, every) in fields}
    values = read_table({**fields, **own}, raw, ("algorithm",), report, owners)
    if values is None or algorithm is None:
        return BAD
    try:
        parameters = algorithm(**{key: values[key] for key in own})
    except ConfigError as error:
        # A condition of the algorithm's own on its parameters; the message names them.
        keys = [key for key in re.findall(r"\w+", str(error)) if key in own and key in raw]
        others = {report.named(("algorithm", key), values[key]) for key in keys if key != keys[0]}
        report.add(("algorithm", *keys[:1]), str(error), fix=", ".join(sorted(others)))
        return BAD
    return AlgorithmTable(**{key: values[key] for key in fields}, parameters=parameters)


def _shared_fields(algorithms: Algorithms) -> dict[str, Field]:
    fields = dict(fields_of(AlgorithmTable))
    fields["name"] = dataclasses.replace(fields["name"], kind=Choice(tuple(algorithms)))
    return fields


def check_seed(config: Config) -> None:
    """A simulation needs a seed and a deployment refuses one; for when the command line has had its say."""
    run, report = config.run, Report(str(config.path), Lines(config.text))
    mode = report.named(("run", "mode"), run.mode)
    if run.mode == "simulation" and run.seed is None:
        missing(("run", "seed"), RunTable, mode, report)
    if run.mode == "deployment" and run.seed is not None:
        report.add(("run", "seed"), f"is {run.seed} beside {mode}", "none in a deployment", "remove it")
    report.check()


def check_ledger(config: Config) -> None:
    """A deployment names the ledger that its steward made; in a federation each party names its own."""
    run, report = config.run, Report(str(config.path), Lines(config.text))
    if run.mode == "deployment" and run.ledger is None:
        missing(("run", "ledger"), RunTable, report.named(("run", "mode"), run.mode), report)
    report.check()


def check_elsewhere(config: Config) -> None:
    """Records that only workers read have to be declared; the command line may have named the engine."""
    report = Report(str(config.path), Lines(config.text))
    check_declared(config.data, config.parties, config.run, report)
    report.check()


def override(
    config: Config,
    *,
    seed: int | None = None,
    engine: str | None = None,
    scheduler: str | None = None,
    out: str | Path | None = None,
) -> Config:
    """With the command line's options in place of the file's keys; here `out` is relative to where we are."""
    given: dict[str, Any] = {
        "seed": seed,
        "engine": engine,
        "scheduler": scheduler,
        "out": None if out is None else str(Path(out).absolute()),
    }
    changes = {key: value for key, value in given.items() if value is not None}
    fields = fields_of(RunTable)
    for key, value in changes.items():

        def wrong(at: At, what: str, fix: str = "", allowed: str = "") -> None:
            raise ConfigError(f"--{at[0]}: {what}; allowed: {fields[at[0]].kind.allowed()}")

        fields[key].kind.read(value, (key,), wrong)
    return dataclasses.replace(config, run=dataclasses.replace(config.run, **changes))


def _sections(algorithms: Algorithms) -> list[Section]:
    found = []
    for name, table in SECTIONS.items():
        fields = _shared_fields(algorithms) if name == "algorithm" else fields_of(table)
        found.append(Section(f"[{name}]", _summary(table), fields))
        for known, algorithm in algorithms.items() if name == "algorithm" else ():
            found.append(Section(f"[algorithm] name = {show(known)}", _summary(algorithm), fields_of(algorithm)))
    return found


def _summary(table: type[Any]) -> str:
    """The first line of the class's docstring; of its module's, if a dataclass has only what Python wrote."""
    own = table.__doc__ or ""
    doc = sys.modules[table.__module__].__doc__ or "" if own.startswith(f"{table.__name__}(") else own
    return doc.split("\n")[0]


def schema_text(algorithms: Algorithms | None = None) -> str:
    """Every section and key, for people."""
    return as_text(_sections(_known(algorithms)))


def schema_markdown(algorithms: Algorithms | None = None) -> str:
    """The same as a page of documentation."""
    return PAGE + as_markdown(_sections(_known(algorithms)))


def schema_json(algorithms: Algorithms | None = None) -> dict[str, Any]:
    """A JSON Schema (draft 2020-12) of the file, for editors. Conditions across sections are not in it."""
    algorithms = _known(algorithms)
    properties = {name: as_json(fields_of(table), _summary(table)) for name, table in SECTIONS.items()}
    variants = []
    for name, algorithm in algorithms.items():
        variant = as_json({**_shared_fields(algorithms), **fields_of(algorithm)}, _summary(algorithm))
        variant["properties"]["name"] = {"const": name}
        variants.append(variant)
    properties["algorithm"] = {"oneOf": variants}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "privadmm config",
        "type": "object",
        "properties": properties,
        "required": ["data", "algorithm"],
        "additionalProperties": False,
    }
