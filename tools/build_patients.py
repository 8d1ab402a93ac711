"""Make up the patients of examples/sample.csv, patients.csv and stays.csv: nobody's records, from a seed.

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
STAYS = ("age", "urgent", "ward", "hospital", "extra_days")
HOSPITALS = ("north", "south", "lakeside")


def patients(count: int, rng: random.Random) -> Iterator[tuple[object, ...]]:
    """Rows in which age, earlier visits and one ward make a readmission likelier."""
    for _ in range(count):
        age, visits = rng.randint(18, 99), min(20, int(rng.expovariate(0.4)))
        sex, ward, hospital = rng.choice(("female", "male")), rng.choice("abc"), rng.choice(HOSPITALS)
        risk = (age - 65) / 12 + 0.6 * (visits - 2) + 1.5 * (ward == "c")
        yield age, sex, ward, visits, hospital, "yes" if rng.random() < 1 / (1 + math.exp(-risk)) else "no"


def stays(count: int, rng: random.Random) -> Iterator[tuple[object, ...]]:
    """Rows with a number to predict: by how many days a patient stayed longer than was planned."""
    for _ in range(count):
        age, urgent = rng.randint(18, 99), rng.choice(("no", "yes"))
        ward, hospital = rng.choice("abc"), rng.choice(HOSPITALS)
        days = (age - 58) / 12 + (3 if urgent == "yes" else -3) + (ward == "c") + rng.gauss(0, 1.5)
        yield age, urgent, ward, hospital, f"{max(-10.0, min(10.0, days)):.1f}"


def files() -> dict[str, str]:
    """A sample to declare a schema from, and records to train on: with two classes, and with a number to predict."""
    rng, made = random.Random(0), {}
    for name, count in SIZES.items():
        text = StringIO(newline="")
        csv.writer(text, lineterminator="\n").writerows([COLUMNS, *patients(count, rng)])
        made[name] = text.getvalue()
    text = StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows([STAYS, *stays(3000, rng)])
    return made | {"stays.csv": text.getvalue()}


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if sys.argv[1:] else Path(__file__).parents[1] / "examples"
    for name, text in files().items():
        (folder / name).write_text(text, encoding="utf-8")
