"""`privadmm demo`: the embedded Adult data over ten parties, once privately and once not."""

import time
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from privadmm.config.file import read
from privadmm.runs.ending import Finished
from privadmm.runs.run import Bar, free, run


@dataclass(frozen=True)
class Pair:
    private: Finished
    reference: Finished


def demonstrate(out: Path | None = None, bar: Bar | None = None) -> Pair:
    """Train both models with the configs beside this file, into `out`/private and `out`/reference."""
    place = out or free(Path("runs") / f"demo-{time.strftime('%Y%m%d-%H%M%S')}")
    with resources.as_file(resources.files(__package__)) as folder:
        configs = {name: read(folder / f"{name}.toml") for name in ("reference", "private")}
    reference = run(configs["reference"], place / "reference", bar=bar)
    # The two minimise different functions (loss, regulariser): accuracies can be compared, objectives cannot.
    beside = {**reference.result, "objective": None}
    private = run(configs["private"], place / "private", bar=bar, reference=beside)
    return Pair(private, reference)
