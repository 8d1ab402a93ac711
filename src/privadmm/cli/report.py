"""`privadmm report`: a page for a privacy officer, and its machine-readable twin."""

import json
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from privadmm.cli.output import AsJson, emit
from privadmm.errors import ConfigError


def report(
    subject: Annotated[
        Path, Argument(metavar="RUN|LEDGER", help="a run's directory, a ledger, or a folder of ledgers")
    ],
    out: Annotated[Path | None, Option(metavar="FILE.html", help="where the page goes, FILE.json beside it")] = None,
    config: Annotated[
        Path | None, Option(metavar="CONFIG.toml", help="a run's original config, if it names files beside itself")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write one page that says whose records were used, what was promised about them, and what that cost."""
    from privadmm.cli.views import report as view
    from privadmm.cli.views import steward
    from privadmm.data.files import write_json, write_text
    from privadmm.runs.report.card import subject_of
    from privadmm.runs.report.gather import gather
    from privadmm.runs.report.page import render

    if out is None and not as_json:
        out = Path(f"{subject.resolve().name.removesuffix('.sqlite') or 'privadmm'}-report.html")
        for file in filter(Path.exists, (out, out.with_suffix(".json"))):
            if (other := subject_of(file)) is None or other.resolve() != subject.resolve():
                whose = "no report" if other is None else f"the report of {other}"
                raise ConfigError(
                    f"{file}: is {whose}, and stays; say --out FILE.html, where the page of {subject} goes"
                )
    if out is not None and out.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"--out {out}: the report is a page; name a file that ends in .html")
    if out is not None and not out.resolve().parent.is_dir():
        raise ConfigError(f"--out {out}: there is no folder {out.parent}; make it, or name another file")
    card = gather(subject, steward.overview, config)
    written = {}
    if out is not None:
        twin = out.with_suffix(".json")
        write_text(out, render(card))
        write_json(twin, card.as_dict)
        written = {"page": str(out), "twin": str(twin)}
    emit(json.dumps({**card.as_dict, **written}) if as_json else view.told(card, written))
