"""`privadmm demo`: the embedded Adult data over ten parties, with secure sums, with local noise, and with none."""

import time
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from privadmm.config.file import read
from privadmm.runs import plots
from privadmm.runs.ending import Finished
from privadmm.runs.run import Bar, free, run

WORDS = {
    "reference": "without privacy",
    "secure": "secure sums",
    "local": "each party with noise of its own",
}


@dataclass(frozen=True)
class Demo:
    """Three runs on the same records."""

    place: Path
    reference: Finished  # without privacy
    secure: Finished  # each party adds a share of the noise, and only sums are read
    local: Finished  # each party adds all of the noise that protects it

    @property
    def runs(self) -> dict[str, Finished]:
        return {"reference": self.reference, "secure": self.secure, "local": self.local}

    @property
    def figure(self) -> Path:
        return self.place / "demo.svg"


def demonstrate(out: Path | None = None, bar: Bar | None = None) -> Demo:
    """Train the three models with the configs beside this file, each into a folder of `out`, and draw them."""
    place = out or free(Path("runs") / f"demo-{time.strftime('%Y%m%d-%H%M%S')}")
    with resources.as_file(resources.files(__package__)) as folder:
        configs = {name: read(folder / f"{name}.toml") for name in ("reference", "secure", "local")}
    reference = run(configs["reference"], place / "reference", bar=bar)
    # They minimise different functions (loss, regulariser): accuracies can be compared, objectives cannot.
    beside = {**reference.result, "objective": None}
    private = {name: run(configs[name], place / name, bar=bar, reference=beside) for name in ("secure", "local")}
    made = Demo(place, reference, **private)
    lines = {WORDS[name]: (done.rows, done.result) for name, done in made.runs.items()}
    plots.side_by_side(lines, "Adult census income, 10 parties that share no record", made.figure)
    return made
