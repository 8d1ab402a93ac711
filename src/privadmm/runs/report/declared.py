"""Tables of a run: what was declared before a record was read, and how a simulation's model did."""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from privadmm.config.data_source import UNIT
from privadmm.config.file import Config
from privadmm.data.dates import Date
from privadmm.data.kinds import Category
from privadmm.engine.job import Job
from privadmm.params import fields_of
from privadmm.runs.metrics import Row
from privadmm.runs.model import Model
from privadmm.runs.private_evaluation import told
from privadmm.runs.report.evaluation import FEWEST_BINS

# Keys of the config that bound what a record can do, or say how it is protected, by section. Places of files are no
# part of a report.
SHOWN = {
    "data": ("encoding", "rows", "row_bound", "intercept", "classes", "test_fraction", "on_bad"),
    "parties": ("split", "use", "leave"),
    "graph": ("kind",),
    "features": ("moments", "share", "constant", "nonnegative"),
    "algorithm": ("name", "rounds", "weighting"),
    "loss": ("name", "C", "width", "label_bound", "radius"),
    "regularizer": ("name", "weight", "l1_ratio"),
    "privacy": (
        *("epsilon", "delta", "party_epsilon", "decay", "budget", "adjacency", "sum", "colluding", "fewest"),
        "label_epsilon",
    ),
    "evaluation": ("kind", "held_out", "share", "bins", "range", "clip", "seed"),
    "run": ("mode", "seed"),
}
FIGURES = {
    "accuracy_train": ("accuracy on the training records", 100.0, " %"),
    "accuracy_test": ("accuracy on held-out records", 100.0, " %"),
    "majority_test": ("the same of always naming the larger class", 100.0, " %"),
    "objective": ("objective", 1.0, ""),
}


def declarations(
    config: Config | None, model: Model | None, job: Job | None, federation: bool = False, replaced: bool = False
) -> Iterator[tuple[str, str, str]]:
    """Everything declared: name, value, meaning. A value that the config does not have is marked as the default.

    The parties of a federation bring their own records: nothing was split, unless by columns. Of a run whose command
    `replaced` keys of the config by options, only these know the seed.
    """
    if config is not None:
        written = tomllib.loads(config.text)
        unused = {"features": not config.features.moments, "evaluation": not config.evaluates}
        unused["parties"] = federation and config.parties.split != "features"
        for section, keys in SHOWN.items():
            unknown = {"test_fraction": not config.holds_out, "seed": section == "run" and replaced}
            used = [key for key in keys if not unknown.get(key)]
            if not unused.get(section):
                yield from of_table(section, getattr(config, section), used, written)
        parameters = config.algorithm.parameters
        yield from of_table("algorithm", parameters, tuple(fields_of(type(parameters))), written)
    if job is not None and job.private and job.public.declared:
        longest, between = "how long one record's gradient can be", "how far it moves between neighbours"
        yield "derived: gradient of a record", f"{job.public.loss.lipschitz:.6g}", f"{longest}, rows having norm 1"
        yield "derived: sensitivity", f"{job.public.sensitivity:.6g}", between
    if model is not None:
        yield from columns(model)


def of_table(
    section: str, table: Any, keys: Sequence[str], written: Mapping[str, Any]
) -> Iterator[tuple[str, str, str]]:
    known = {} if table is None else fields_of(type(table))
    for key in keys:
        if key not in known or (value := getattr(table, key)) is None:
            continue
        when = known[key].when
        if when is None or getattr(table, when.key) == when.value:
            default = "" if key in written.get(section, {}) else " (by default)"
            yield f"[{section}] {key}", shown(value) + default, known[key].doc


def shown(value: Any) -> str:
    """A value as the config file has it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return ", ".join(shown(one) for one in value[:20]) + (", ..." if len(value) > 20 else "")
    return str(value)


def columns(model: Model) -> Iterator[tuple[str, str, str]]:
    """Declared ranges and categories of raw columns, where there is a schema."""
    frame = model.frame
    if all(bound == UNIT for bound in frame.bounds):
        yield "norm of rows", "1", "every row is scaled to it, before anything is computed"
    else:
        bounds = ", ".join(f"{bound:g}" for bound in frame.bounds)
        yield "norm to which rows are clipped", bounds, "a longer row is scaled down to it, before anything is computed"
    yield "features", str(len(frame.names)), "of a record, after encoding"
    for name, column in ({} if frame.schema is None else frame.schema.columns).items():
        if isinstance(column, Category):
            yield f"column {name}", shown(column.values), "categories; others count as declared"
        else:
            what = "dates" if isinstance(column, Date) else "a number"
            yield f"column {name}", f"{column.low} to {column.high}", f"{what}; beyond its range the nearest end"
    if frame.classes is not None:
        yield "classes", ", ".join(map(str, frame.classes)), "of the label; the model's score is high for the second"


def results(result: Mapping[str, Any] | None, rows: Sequence[Row]) -> Iterator[tuple[str, str]]:
    """Figures of a simulation's model on its records."""
    found: Mapping[str, Any] = result or {}
    for key, (name, factor, unit) in FIGURES.items():
        if (value := found.get(key)) is not None:
            yield name, f"{factor * value:.4g}{unit}"
    exact = found.get("evaluation") or {}
    for key, name in {"auc": "area under the ROC", "log_loss": "log loss", "brier": "Brier score", "r2": "R^2"}.items():
        if (value := exact.get(key)) is not None:
            yield f"{name} on {exact['on']}", f"{value:.4g}"
    if result is None and rows:
        yield "objective after the last measured round", f"{rows[-1].objective:.4g}"


def paid(result: Mapping[str, Any] | None) -> Iterator[tuple[str, str]]:
    """Figures of a private evaluation, which were paid for, each with what noise and chance may have changed in it."""
    found = (result or {}).get("private_evaluation") or {}
    names = {"auc": "area under the ROC", "log_loss": "log loss", "loss": "loss", "accuracy": "accuracy"}
    for key, name in (names | {"majority": "accuracy of always naming the larger class"}).items():
        if found.get(key) is not None:
            yield f"{name}, by the private evaluation", told(found, key, "±")
    bins = found.get("calibration") or ()
    for row in bins if len(bins) < FEWEST_BINS else ():  # those of a chart are in its own table
        who = f"of the second class where the model says {100 * row['predicted']:.1f} %, by the private evaluation"
        yield who, f"{100 * row['share']:.1f} % ± {100 * row['error']:.1f} in all"
