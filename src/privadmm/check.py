"""Fail closed, at construction, in one line: `check.positive(rho=rho, row_bound=row_bound)`."""

import math
import numbers

from privadmm.errors import ConfigError

# Records may be sparse, but every feature has a name and a weight, and a number in each message of each party.
MOST_FEATURES = 5_000_000


def number(**values: object) -> None:
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            raise ConfigError(f"{name} must be a number, not {value!r}")


def whole(**values: object) -> None:
    """1, 2, 3, ..."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
            raise ConfigError(f"{name} must be a whole number, 1 or above, not {value!r}")


def positive(**values: float) -> None:
    number(**values)
    for name, value in values.items():
        if not (math.isfinite(value) and value > 0):
            raise ConfigError(f"{name} must be a finite number above 0, not {value!r}")


def nonnegative(**values: float) -> None:
    number(**values)
    for name, value in values.items():
        if not (math.isfinite(value) and value >= 0):
            raise ConfigError(f"{name} must be a finite number, 0 or above, not {value!r}")


def probability(**values: float) -> None:
    """Strictly between 0 and 1, and not so small that floating point has no digits left for it."""
    number(**values)
    for name, value in values.items():
        if not 1e-300 <= value < 1:
            raise ConfigError(f"{name} must lie between 1e-300 and 1, not {value!r}")


def ratio(**values: float) -> None:
    """Above 0, and within what can be squared."""
    number(**values)
    for name, value in values.items():
        if not 1e-100 <= value <= 1e100:
            raise ConfigError(f"{name} must lie between 1e-100 and 1e100, not {value!r}")
