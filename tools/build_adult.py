"""Build src/privadmm/data/adult.npz from UCI's adult.data and adult.test (plain or .gz).

    python tools/build_adult.py DIRECTORY

Refuses to write unless every cell is a declared category, "?" or a whole number, and the rows are the
32,561 + 16,281 that UCI publishes.
"""

import gzip
import sys
from pathlib import Path
from typing import Any

import numpy as np

from privadmm.data.adult import CLASSES, MISSING, MISSING_CODE, SCHEMA, TRAIN_ROWS
from privadmm.data.schema import Category

TEST_ROWS = 16_281
TARGET = Path(__file__).parents[1] / "src" / "privadmm" / "data" / "adult.npz"


def rows(directory: Path, name: str) -> list[list[str]]:
    plain, zipped = directory / name, directory / f"{name}.gz"
    text = plain.read_text() if plain.exists() else gzip.decompress(zipped.read_bytes()).decode()
    # adult.test opens with a comment line, and both files end in a blank one.
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("|")]
    return [[cell.strip() for cell in line.split(",")] for line in lines]


def main(directory: Path) -> None:
    train, test = rows(directory, "adult.data"), rows(directory, "adult.test")
    if (len(train), len(test)) != (TRAIN_ROWS, TEST_ROWS):
        sys.exit(f"{directory}: {len(train)} + {len(test)} rows, expected {TRAIN_ROWS} + {TEST_ROWS}")
    *cells, incomes = (np.array(column) for column in zip(*train, *test, strict=True))
    arrays: dict[str, Any] = {}
    for (name, column), values in zip(SCHEMA.columns.items(), cells, strict=True):
        if isinstance(column, Category):
            code = column.codes(values)
            if ((code < 0) & (values != MISSING)).any():
                sys.exit(f"{directory}: column {name} has a category that the schema does not declare")
            arrays[name] = np.where(code < 0, MISSING_CODE, code).astype(np.uint8)
        else:
            number = values.astype(np.int64)
            arrays[name] = number.astype(np.min_scalar_type(number.max()))
    arrays[SCHEMA.label] = np.array([CLASSES.index(income.rstrip(".")) for income in incomes], dtype=np.uint8)
    np.savez_compressed(TARGET, **arrays)
    print(f"{TARGET.name}: {len(incomes)} rows, {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
