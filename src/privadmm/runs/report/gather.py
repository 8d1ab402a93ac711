"""From a path to a card: a run's directory, a ledger, or a folder of ledgers."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from privadmm.errors import ConfigError, DataError
from privadmm.runs.report import ledgers, runs
from privadmm.runs.report.card import Card
from privadmm.runs.rundir import RunDir

Overview = Callable[[Path], Mapping[str, Any]]  # what `privadmm ledger show` tells of a ledger, as data
DAMAGE = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)


def gather(path: Path, overview: Overview, config: Path | None = None) -> Card:
    """Find out what stands at the path and gather its facts. `config` is a run's original file."""
    try:
        return found_at(path, overview, config)
    except (ConfigError, DataError):  # which are ValueErrors, too
        raise
    except DAMAGE as error:
        raise DataError(
            f"{path}: a file there is damaged or of another version of privadmm ({type(error).__name__}); "
            "put it back as it was written"
        ) from error


def found_at(path: Path, overview: Overview, config: Path | None) -> Card:
    directory = RunDir(path)
    if path.is_dir() and (directory.job.exists() or directory.result.exists()):
        own = [directory.ledger] if directory.ledger.exists() else sorted(directory.ledgers.glob("*.sqlite"))
        # A finished run has its account as of its end; of another one only its own ledgers know.
        views = [] if directory.result.exists() else [overview(ledger) for ledger in own]
        return runs.card_of(path, views, config)
    if config is not None:
        raise ConfigError(f"{path}: is not the directory of a run, so --config says nothing; leave it out")
    if path.is_dir():
        files = ledgers.ledger_files(path)
        if not files:
            raise ConfigError(f"{path}: holds neither a run nor ledgers; name a run's directory, or a ledger")
        return ledgers.card_of(path, {str(file.relative_to(path)): overview(file) for file in files})
    if not path.exists():
        raise ConfigError(f"{path}: there is nothing there; name a run's directory, or a ledger")
    return ledgers.card_of(path, {path.name: overview(path)})
