"""Facts of a run's directory: what was asked, what came out, what it cost, and pictures of it.

Of a deployment only what was released and paid for, or was public before, is gathered. Figures of the model on records
are read in a simulation alone.
"""

import hashlib
import json
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from privadmm.config import build
from privadmm.config.file import Config, read
from privadmm.engine.guarantees import BARE, CLEAR
from privadmm.engine.job import Job
from privadmm.errors import ConfigError, DataError, PrivadmmError
from privadmm.runs import metrics, preview
from privadmm.runs.model import Model
from privadmm.runs.report import declared, ledgers, pictures, words
from privadmm.runs.report.card import Budget, Card, Holder, Person, Published, Request
from privadmm.runs.rundir import RunDir

Json = Mapping[str, Any]
MOVED = "files that the run's config names are not beside it; name the original config with --config"


def kept_config(directory: RunDir) -> Config | None:
    """The run's config, with the files that it names where they were or beside it; None if they are not there."""
    known = loaded(directory.job) or {}
    if isinstance(folder := known.get("folder"), str):
        with suppress(ConfigError, OSError):
            config = read(directory.config, folder=directory.path / folder)
            if config.digest == known.get("config"):  # the schema is still what it was
                return config
    with suppress(ConfigError, OSError):
        return read(directory.config)
    return None


@dataclass(frozen=True)
class Run:
    """The files of a run, as far as they are there."""

    directory: RunDir
    config: Config | None  # None: it names files that are not there
    result: dict[str, Any] | None  # None: the run is not finished

    @staticmethod
    def at(path: Path, original: Path | None) -> "Run":
        directory = RunDir(path)
        result = loaded(directory.result)
        known = None if result is None else result["mode"]
        if original is None:
            config = kept_config(directory)
        else:
            config = read(original)
            if config.text != directory.config.read_text(encoding="utf-8"):
                raise ConfigError(f"--config {original}: is not the config of this run, which is {directory.config}")
        if config is not None and known not in (None, config.run.mode):
            raise DataError(f"{directory.result}: says mode {known}, and {directory.config} {config.run.mode}")
        return Run(directory, config, result)

    @property
    def mode(self) -> str:
        """A run of which it is not known counts as a deployment: nothing is told of its records."""
        known = None if self.config is None else self.config.run.mode
        return str(known or (self.result or {}).get("mode") or "deployment")

    @property
    def simulation(self) -> bool:
        return self.mode == "simulation"

    @cached_property
    def job_json(self) -> Json:
        return loaded(self.directory.job) or {}

    @property
    def replaced(self) -> bool:
        """Whether the run was asked for with options in place of keys of its config; in a federation there are none."""
        known = None if self.members else self.job_json.get("config")
        return self.config is not None and known not in (None, self.config.digest)

    @cached_property
    def members(self) -> list[dict[str, Any]]:
        """What the parties of a federation told of themselves; empty elsewhere."""
        found: Any = loaded(self.directory.parties)
        return list(found or ())

    @cached_property
    def names(self) -> dict[int, str]:
        """What parties are called by their numbers: as members of a federation, or in the column of a simulation."""
        if self.members:
            return {int(party["party"]): str(party["name"]) for party in self.members if party.get("name")}
        return dict(enumerate((self.result or {}).get("party_names", ())))

    def called(self, party: int) -> str:
        return self.names.get(party, f"party {party}")

    @cached_property
    def export(self) -> Json:
        """ledger.json: what each party has spent."""
        return loaded(self.directory.ledger_export) or {}

    @cached_property
    def model(self) -> Model | None:
        return Model.load(self.directory.model) if self.directory.model.exists() else None

    @cached_property
    def rows(self) -> list[metrics.Row]:
        """Metrics by round, which only a simulation has."""
        there = self.simulation and self.directory.metrics.exists()
        return metrics.read(self.directory.metrics) if there else []

    @cached_property
    def shape(self) -> preview.Shape | None:
        """Public numbers of the job: as the parties told them, as the result kept them, or as the config has them."""
        if self.members:
            sizes = [int(party["records"]) for party in self.members]
            vertical = self.members[0]["people"] is not None
            columns = tuple(int(party["width"]) for party in self.members) if vertical else ()
            return preview.Shape(tuple(sizes), int(self.members[0]["dim"]), columns)
        if self.result is not None and (kept := self.result.get("shape")) is not None:
            return preview.Shape(tuple(kept["records"]), kept["dim"], tuple(kept.get("columns", ())))
        try:
            if self.config is None:
                return None
            # A declared number of records is for forecasts: nothing compares it with the records of the run.
            return preview.shape(replace(self.config, parties=replace(self.config.parties, records=None)))
        except (PrivadmmError, OSError):
            return None

    @cached_property
    def job(self) -> Job | None:
        """The job, made anew from public facts; None where these are not known."""
        if self.config is None or self.shape is None:
            return None
        try:
            return build.job(self.config, self.shape.sizes, self.shape.dim, columns=self.shape.columns)
        except PrivadmmError:
            return None

    def fact(self, name: str, otherwise: Any = None) -> Any:
        """A field of the result; of an unfinished run, what its job will come to."""
        if self.result is not None:
            return self.result.get(name, otherwise)
        try:
            return otherwise if self.job is None else getattr(self.job, name)
        except PrivadmmError:  # a fact that it needs is not declared
            return otherwise


def loaded(path: Path) -> dict[str, Any] | None:
    """The content of a JSON file; None if it is not there."""
    if not path.exists():
        return None
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: is damaged; put the file back as the run left it") from error


def card_of(path: Path, views: Sequence[Json], original: Path | None) -> Card:
    """The card of a run. `views` are of its own ledgers, where it is not finished."""
    run, views = Run.at(path, original), [ledgers.public(view) for view in views]
    adversaries = run.fact("adversaries") or {}
    charts, not_drawn = pictures.of(run)
    epsilon, delta = run.fact("epsilon"), run.fact("delta")
    sums = (run.result or {}).get("secure_sum") or run.fact("in_sums", {}).get("secure_sum")
    people = run.result if run.result is not None else run.fact("of_people", {})
    weak = words.weak(epsilon, adversaries, people)
    learnt = words.learners(adversaries, sums, people) if adversaries else []
    return Card(
        kind="run",
        subject=str(path),
        simulation=run.simulation,
        status=status(run, views),
        requests=(request(run, views),),
        holders=tuple(holders(run)),
        adjacency=adversaries.get("adjacency") if epsilon is not None else None,
        epsilon=epsilon,
        delta=delta,
        learners=tuple(learnt),
        budgets=tuple(budgets(run, views)),
        refusals=tuple(row for view in views for row in view["refusals"]) if refusals_known(views) else None,
        refusals_at=tuple(ledger_paths(run)),
        register_is_partial=any(view["register_is_partial"] for view in views),
        vertical=run.shape is not None and bool(run.shape.columns),
        person=in_all(run, epsilon, adversaries, people),
        epsilon_warning=weak,
        notices=(*([] if weak is None else [weak]), *notices(run, views)),
        jobs=tuple(ledgers.told(job) for view in views for job in view["jobs"]),
        results=(*declared.paid(run.result), *(declared.results(run.result, run.rows) if run.simulation else ())),
        charts=tuple(charts),
        not_drawn=tuple(not_drawn),
        declared=tuple(declared.declarations(run.config, run.model, run.job, bool(run.members), run.replaced)),
        not_protected=tuple(not_protected(run, adversaries)),
        published=published(run),
        hashes=tuple(hashes(run)),
        commands=tuple(commands(run)),
        versions=(*Card.versions, *((who, version) for who, version in versions(run))),
    )


def in_all(run: Run, epsilon: float | None, adversaries: Json, people: Json) -> Person | None:
    """What a person loses at all parties together, where `epsilon` is one party's part of it."""
    if epsilon is None or adversaries.get("adjacency") != "person":
        return None
    return Person(people.get("per_person"), len(holders(run)), all_parties=True)


def status(run: Run, views: Sequence[Json]) -> str:
    """Where the run stands."""
    if run.result is not None:
        gone = run.result.get("absent", ())
        left = f"; {len(gone)} of the parties left before the end" if gone else ""
        return f"finished: {run.result['algorithm']}, {metrics.amount(run.result['rounds'], 'round')}{left}"
    if run.directory.ended.exists():
        return "ended for good before its last round; there is no model"
    states = {job["state"] for view in views for job in view["jobs"]}
    if "failed" in states:
        return "failed: its job is over, what it cost is charged in full, and there is no model"
    return "not finished: it was interrupted, is under way, or ran away; there is no model. It can be resumed"


def request(run: Run, views: Sequence[Json]) -> Request:
    """What was asked, by whom and when; the run's own record first, then its ledgers'."""
    said = {} if run.config is None else {"purpose": run.config.run.purpose, "requester": run.config.run.requester}
    mine = [job for view in views for job in view["jobs"] if job["job"] == run.job_json.get("job")]
    own = [{**job, "began": job["admitted"]} | ({"ended": None} if job["state"] == "failed" else {}) for job in mine]
    places = [run.result or {}, run.job_json, said, *own]
    keys = ("purpose", "requester", "began", "ended")
    known = [next((place[key] for place in places if place.get(key) is not None), None) for key in keys]
    return Request(f"job {run.job_json.get('job', words.NOT_RECORDED)}", *known)


def refusals_known(views: Sequence[Json]) -> bool:
    return bool(views) and all(view["refusals"] is not None for view in views)


def holders(run: Run) -> list[Holder]:
    """The parties and their numbers of records, which are public."""
    if run.members:
        return [Holder(run.called(party["party"]), int(party["records"])) for party in run.members]
    sizes = None if run.shape is None else run.shape.sizes
    count = run.result["parties"] if run.result is not None else None if run.shape is None else run.shape.parties
    known = isinstance(sizes, tuple | list) and len(sizes) == count
    return [Holder(run.called(party), int(sizes[party]) if known and sizes else None) for party in range(count or 0)]


def budgets(run: Run, views: Sequence[Json]) -> list[Budget]:
    """What each party may spend and has spent; in a federation each ledger is with its party."""
    if views:
        return [row for view in views for row in ledgers.spending("", view)]
    allowed = (run.export.get("budget") or {}).get("epsilon")
    return [
        Budget(
            run.called(party["party"]),
            allowed,
            party["epsilon"],
            party["epsilon"],
            party.get("left"),
        )
        for party in run.export.get("parties", ())
    ]


def notices(run: Run, views: Sequence[Json]) -> list[str]:
    """Warnings that belong on the first screen."""
    lines = list((run.result or {}).get("notices", ()))
    if run.result is None and run.fact("epsilon") is not None:
        lines.append("The run is not finished: epsilon is what it will have cost if it does all its rounds.")
    if run.result is None and run.job is None:
        lines.append(f"What the run costs could not be found out: {MOVED}.")
    measured = run.simulation and not run.members  # in a federation nobody has the records to measure by
    if measured and run.result is not None and run.result.get("objective", 0.0) is None:
        lines.append("The model ran away: its objective is not finite. Use a larger penalty or a smaller step.")
    expected = (run.result or {}).get("expected") or {}
    if expected.get("warning"):
        lines.append(str(expected["warning"]))
    if (run.result or {}).get("delta_warning"):
        lines.append(str((run.result or {})["delta_warning"]))
    for row in (run.result or {}).get("absent", ()):
        why = f" ({row['why']})" if "why" in row else ""
        who = run.called(row["party"])
        lines.append(f"{who[:1].upper()}{who[1:]} gave no answer from round {row['from_round']} on{why}.")
    return [*lines, *ledgers.notices({Path(view["file"]).name: view for view in views}, True)]


def published(run: Run) -> Published | None:
    """What the method's paper claims for this noise, beside the certified figure."""
    try:
        claim = None if run.job is None else run.job.published
    except PrivadmmError:  # a fact that it needs is not declared
        return None
    if claim is None or run.config is None:
        return None
    rule = getattr(run.config.algorithm.parameters, "calibration", "certified")
    return Published(str(rule), claim.epsilon, claim.of_one_round, claim.caveat)


def not_protected(run: Run, adversaries: Json) -> list[str]:
    caveats = run.model.caveats if run.model is not None else run.fact("caveats", ())
    if run.model is None and run.members and run.job is not None:
        caveats = run.job.caveats_where(pinned=True)
    lines = [words.closed(str(line)) for line in caveats]
    own = adversaries.get("own_server", {})
    clear = [what for what, found in own.items() if found == CLEAR]
    if clear:
        lines.append(f"From the party's own server: {' and '.join(clear)}. It holds them in the clear.")
    bare = [what for what, found in adversaries.get("others", {}).items() if found == BARE]
    if bare:
        lines.append(f"From all others: {' and '.join(bare)}.")
    return [*lines, *words.NEVER_COVERED]


def hashes(run: Run) -> list[tuple[str, str]]:
    """Digests by which the run's files can be known again."""
    rows = [("job", str(run.job_json.get("job", ""))), ("config", str(run.job_json.get("config", "")))]
    if run.result is not None:
        rows.append(("transcript: all that was released", str(run.result.get("transcript", ""))))
    if run.export.get("head"):
        rows.append(("end of the ledger's hash chain", str(run.export["head"])))
    for file in (run.directory.model, run.directory.receipts, run.directory.config):
        if file.exists():
            rows.append((f"SHA-256 of {file.name}", hashlib.sha256(file.read_bytes()).hexdigest()))
    return [(what, digest) for what, digest in rows if digest]


def commands(run: Run) -> list[str]:
    """Commands that check the hashes."""
    place, files = run.directory, ["LEDGER"] if run.members else ledger_paths(run)  # LEDGER: each party's own
    sums = [["sha256sum", str(file)] for file in (place.model, place.receipts, place.config) if file.exists()]
    checks = [["privadmm", "ledger", "verify", file, "--against", str(place.path)] for file in files]
    return [shlex.join(line) for line in (*checks, *sums)]


def ledger_paths(run: Run) -> list[str]:
    """The ledgers that count the run; none of a federation, where each is with its party."""
    place, ledger = run.directory, str((run.result or {}).get("ledger", ""))
    if run.members:
        return []
    if run.result is None:
        return [str(path) for path in (place.ledger, *sorted(place.ledgers.glob("*.sqlite"))) if path.exists()]
    if ledger and not Path(ledger).is_dir():
        return [ledger]
    return [str(one) for one in sorted(Path(ledger).glob("*.sqlite"))]


def versions(run: Run) -> list[tuple[str, str]]:
    told = (run.result or {}).get("versions") or {}
    return [(str(who), str(version)) for who, version in told.items()]
