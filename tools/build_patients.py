"""Make up the patients of examples/sample.csv and examples/patients.csv: nobody's records, from a seed.

python tools/build_patients.py [FOLDER]     # examples, if left out
"""

import csv
import math
import random
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

COLUMNS = ("age", "sex", "ward", "visits", "hospital", "readmitted")
SIZES = {"sample.csv": 200, "patients.csv": 3000}
HOSPITALS = ("north", "south", "lakeside")


def patients(count: int, rng: random.Random) -> Iterator[tuple[object, ...]]:
    """Rows in which age, earlier visits and one ward make a readmission likelier."""
    for _ in range(count):
        age, visits = rng.randint(18, 99), min(20, int(rng.expovariate(0.4)))
        sex, ward, hospital = rng.choice(("female", "male")), rng.choice("abc"), rng.choice(HOSPITALS)
        risk = (age - 65) / 12 + 0.6 * (visits - 2) + 1.5 * (ward == "c")
        yield age, sex, ward, visits, hospital, "yes" if rng.random() < 1 / (1 + math.exp(-risk)) else "no"


def files() -> dict[str, str]:
    """The two files: a sample to declare a schema from, and the records to train on."""
    rng, made = random.Random(0), {}
    for name, count in SIZES.items():
        text = StringIO(newline="")
        csv.writer(text, lineterminator="\n").writerows([COLUMNS, *patients(count, rng)])
        made[name] = text.getvalue()
    return made


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if sys.argv[1:] else Path(__file__).parents[1] / "examples"
    for name, text in files().items():
        (folder / name).write_text(text, encoding="utf-8")
