"""Makes the job of a deployment from a config that simulates, and lists the changes that a federation's job makes.

`privadmm init` writes a simulation, to be tried on one machine. A federation that protects people draws its noise from
the system and has no seed; the method stays as it was tried.
"""

from dataclasses import dataclass, replace
from typing import Any

from privadmm.config.file import SECTIONS, Config
from privadmm.params import fields_of

OWN = "each party reads the file that it names to `join`"
SPLIT = "nothing is split: each party holds its own records"
MEASURED = 'no record is held out to measure by; [evaluation] kind = "private" measures privately'
HERE = "of a run on one machine; a federation has its own"
EMBEDDED = "as the records that the config named have it"
WHY = {
    "[data] source": OWN,
    "[data] format": OWN,
    "[data] classes": EMBEDDED,
    "[data] row_bound": EMBEDDED,
    "[data] encoding": EMBEDDED,
    "[data] test_fraction": MEASURED,
    "[data] split_seed": MEASURED,
    "[parties] count": "it has to be known who is invited",
    "[parties] split": SPLIT,
    "[parties] seed": SPLIT,
    "[parties] files": OWN,
    "[parties] columns": OWN,
    "[parties] records": "each party declares how many it holds, when it joins",
    "[parties] leave": "parties that leave are simulated only",
    "[privacy] budget": "it is in the policy that each invitation proposes",
    "[run] mode": "noise is drawn from the system, and protects",
    "[run] seed": "whoever knows a seed can take the noise off again",
    "[run] ledger": "every party has its own",
}


@dataclass(frozen=True)
class Difference:
    """A key whose value in the job differs from the config's; None stands for a key that is left out."""

    key: str  # with its section
    before: Any
    after: Any
    why: str


def deployed(config: Config) -> Config:
    """The job as a deployment, with secure noise. A declared deployment is not touched: a seed in it stays an error."""
    if config.run.mode == "deployment":
        return config
    run = replace(config.run, mode="deployment", seed=None)
    return replace(config, run=run, parties=replace(config.parties, leave=None))


def differences(config: Config, job: Config) -> list[Difference]:
    """Every key of a config whose value in the job differs."""
    changed = []
    for section in SECTIONS:
        before, after = getattr(config, section), getattr(job, section)
        if before is None or after is None:  # [privacy] of a method that is not private
            continue
        for key, field in fields_of(type(before)).items():
            old, new = getattr(before, key), getattr(after, key)
            if old != new:
                name = f"[{section}] {key}"
                is_left_out = new == field.default
                changed.append(Difference(name, old, None if is_left_out else new, WHY.get(name, HERE)))
    return changed
