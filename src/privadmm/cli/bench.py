"""`privadmm bench`: speed beside references, with goals."""

import json
from pathlib import Path
from typing import Annotated

import click
from typer import Argument, Exit, Option

from privadmm.cli.output import AsJson, bar, emit


def bench(
    names: Annotated[list[str] | None, Argument(metavar="[NAME]...", help="workloads; all if none is named")] = None,
    quick: Annotated[bool, Option("--quick", help="smaller sizes, fewer repeats; most goals are not judged")] = False,
    strict: Annotated[bool, Option("--strict", help="end with exit code 1 if a goal is missed")] = False,
    listed: Annotated[bool, Option("--list", help="say what there is to measure, and measure nothing")] = False,
    out: Annotated[Path | None, Option(help="a page to write, FILE.md; a picture goes beside it")] = None,
    as_json: AsJson = False,
) -> None:
    """Measure speed beside references that reach the same, and say which goals are met. Needs an idle machine."""
    from privadmm.cli.views import bench as view
    from privadmm.papers.bench import page, running

    if out is not None and out.suffix != ".md":
        raise click.UsageError(f"--out {out}: is to be a page, FILE.md; the picture goes beside it as FILE.svg")
    chosen = running.chosen(names or [])
    if listed:
        emit(json.dumps({"workloads": view.catalogue(chosen)}) if as_json else view.listed(chosen))
        return
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
    with bar() as update:
        result = running.run(chosen, quick, update)
    if out is not None:
        page.save(result, out)
    failed, missed = running.failures(result), running.missed(result)
    whole = result | {"failures": failed, "missed": missed, "out": None if out is None else str(out)}
    emit(json.dumps(whole) if as_json else view.shown(whole), "" if out is None else f"the result is in {out}")
    if failed or (strict and missed):
        raise Exit(1)
