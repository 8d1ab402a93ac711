"""`privadmm examples`, `schema`, `init`, `config`, `predict`: from records to a config, from a model to predictions."""

import csv
import json
from pathlib import Path
from typing import Annotated, Any

import click
from typer import Argument, Option

from privadmm.cli.output import AsJson, emit, say
from privadmm.errors import ConfigError

Label = Annotated[str, Option(help="the column to predict")]
Most = Annotated[int, Option(min=2, help="categories that a column may have and still be one-hot")]
Drop = Annotated[list[str] | None, Option(help="leave this column out (may be repeated)")]


def examples(
    out: Annotated[Path, Argument(metavar="DIR", help="the folder to write them into")] = Path("examples"),
    as_json: AsJson = False,
) -> None:
    """Write the examples: a config of every method, scripts, and made-up patients.csv to try them on."""
    from privadmm.cli.views import data as view
    from privadmm.runs.examples import write as write_examples

    names = write_examples(out)
    emit(json.dumps({"out": str(out), "files": names}) if as_json else view.examples(names, out))


def schema(
    file: Annotated[Path, Argument(metavar="FILE", help="csv or parquet, public or made up")],
    label: Label,
    public: Annotated[
        bool, Option("--public", help="I state that FILE is public or made up; without this nothing is read")
    ] = False,
    drop: Drop = None,
    most: Most = 50,
    out: Annotated[Path | None, Option(help="the schema to write; printed if left out")] = None,
    as_json: AsJson = False,
) -> None:
    """Declare a schema, ranges and categories, from a file that is public or made up. Never from private records."""
    from privadmm.cli.views import data as view
    from privadmm.runs.new_schema import declare, need_public, schema_file

    need_public(file, public)
    refuse_existing(out)
    declared = declare(file, label, drop=drop or (), most=most)
    text = schema_file(declared)
    if out is not None:
        write(out, text)
    if as_json:
        emit(json.dumps({**declared.table, "out": None if out is None else str(out)}))
        return
    for note in declared.notes:
        say(f"{note.column}: {note.text}")
    emit(text if out is None else view.schema(declared, out))


def init(
    config: Annotated[Path, Argument(metavar="CONFIG.toml", help="the config to write")],
    source: Annotated[Path, Option(help="the records to train on, csv or parquet")],
    label: Label,
    records: Annotated[
        int | None,
        Option(min=1, help="how many all parties hold together, held-out ones too; counted in a public source"),
    ] = None,
    parties: Annotated[int | None, Option(min=1, help="how many to deal rows out to; 10 if left out")] = None,
    party_column: Annotated[
        str | None, Option(help="column that says whose a row is, no feature; with --schema one that it declares")
    ] = None,
    epsilon: Annotated[float, Option(help="what each party may lose in all")] = 1.0,
    delta: Annotated[float, Option(help="with what probability it may be more")] = 1e-6,
    schema: Annotated[Path | None, Option(help="a schema file; without one --source has to be --public")] = None,
    classes: Annotated[str | None, Option(help="the label's two values, negative first: no,yes; with --schema")] = None,
    public: Annotated[
        bool, Option("--public", help="I state that --source is public or made up; without this it is not read")
    ] = False,
    drop: Drop = None,
    most: Most = 50,
    as_json: AsJson = False,
) -> None:
    """Write a config with the recommended method for these facts; it trains as it stands, and says why each line."""
    from privadmm.cli.views import data as view
    from privadmm.runs.new_config import Start, start

    refuse_existing(config)
    asked = Start(config, source, label, records, parties, party_column, epsilon, delta, schema)
    made = start(asked, None if classes is None else pair_of(classes), public=public, drop=drop or (), most=most)
    write(config, made.text)
    if as_json:
        emit(json.dumps({"config": str(config), **made.table}))
        return
    for note in made.notes:
        say(f"{note.column}: {note.text}")
    emit(view.init(made, config))


def pair_of(classes: str) -> tuple[str, str]:
    """Parse --classes, two values written as a line of a csv file."""
    try:
        ((negative, positive),) = csv.reader([classes], skipinitialspace=True)
        if negative.strip() and positive.strip():
            return negative.strip(), positive.strip()
    except (ValueError, csv.Error):
        pass
    raise click.UsageError(
        f"--classes takes two values, negative first, as no,yes, not {classes!r}; one with a comma in it stands in "
        "double quotes, as '\"no, never\",yes'"
    )


def predict(
    model: Annotated[Path, Argument(metavar="RUNDIR", help="a run directory, or its model.json")],
    file: Annotated[Path, Argument(metavar="FILE", help="csv or parquet with the schema's columns, raw")],
    out: Annotated[Path | None, Option(help="the csv to write; printed if left out")] = None,
    keep: Annotated[list[str] | None, Option(help="copy this column to the predictions (may be repeated)")] = None,
    extra: Annotated[str, Option(help="columns that the model does not know: ignore or refuse")] = "ignore",
    as_json: AsJson = False,
) -> None:
    """Predict for raw rows with a trained model, encoded as it was declared for training. Costs no budget."""
    from privadmm.cli.views import data as view
    from privadmm.data.encoder import as_csv
    from privadmm.data.misread import amiss
    from privadmm.runs.model import Model, notices

    refuse_existing(out)
    fitted = Model.load(model)
    rows = fitted.read(file, keep=keep or (), extra=extra)  # type: ignore[arg-type]
    scores, predicted = fitted.scores(rows.X), fitted.predict(rows.X)
    text = as_csv(rows, scores, None if fitted.frame.classes is None else predicted, fitted.frame.label)
    if out is not None:
        write(out, text)
    told = [*notices(fitted.epsilon is not None, fitted.mode), *fitted.caveats]
    if as_json:
        place = None if out is None else str(out)
        result: dict[str, Any] = {"rows": len(rows.X), "notices": told, "unread": rows.unread}
        result |= {"ignored": list(rows.ignored), "out": place}
        if out is None:
            result |= {"scores": scores.tolist(), "predictions": predicted.tolist()}
        emit(json.dumps(result))
        return
    for line in (*told, *view.ignored(rows.ignored), *amiss(rows.unread, len(rows.X))):
        say(line)
    emit(text if out is None else view.predictions(fitted, predicted, out))


def export(
    model: Annotated[Path, Argument(metavar="RUNDIR", help="a run directory, or its model.json")],
    file: Annotated[Path, Argument(metavar="FILE.onnx", help="the ONNX file to write")],
    as_json: AsJson = False,
) -> None:
    """Write a trained model as ONNX, for other languages and servers. Costs no budget. Needs privadmm\\[onnx]."""
    from privadmm.cli.views import data as view
    from privadmm.runs.model import Model, notices

    if file.suffix != ".onnx":
        raise ConfigError(f"{file}: what is written is ONNX; name a file that ends in .onnx")
    refuse_existing(file)
    fitted = Model.load(model)
    fitted.to_onnx(file)
    told = [*notices(fitted.epsilon is not None, fitted.mode), *fitted.caveats]
    if as_json:
        emit(json.dumps({"out": str(file), "columns": list(fitted.frame.names), "notices": told}))
        return
    for line in told:
        say(line)
    emit(view.exported(fitted, file))


def config(
    schema: Annotated[bool, Option("--schema", help="every section and key that a config may have")] = False,
    as_json: AsJson = False,
) -> None:
    """Print the schema of the config file (with --json, as JSON Schema)."""
    from privadmm.config.docs import schema_json, schema_text

    if not schema:
        raise click.UsageError("say what to print: --schema")
    emit(json.dumps(schema_json()) if as_json else schema_text())


def refuse_existing(path: Path | None) -> None:
    """Refuse to overwrite a file, before anything is read."""
    if path is not None and path.exists():
        raise ConfigError(f"{path}: exists already; name another file, or remove this one")


def write(path: Path, text: str) -> None:
    from privadmm.data.files import write_text

    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, text)
