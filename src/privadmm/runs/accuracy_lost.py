"""Points of accuracy that noise cost on Adult, by noise-to-signal. Other data may lose more or less.

benchmarks/accuracy_lost.py trained the recommended method on the embedded records at many noise levels, and wrote FILE.
Settings with the same noise (other parties, records, or who adds it) lose different amounts, so each level has a mean,
a least and a most. Between measured levels the figures are interpolated over the logarithm of the noise; beyond them
the nearest level counts, and `measured` is False.
"""

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

FILE = "accuracy_lost.json"
COMMAND = "python benchmarks/accuracy_lost.py --run"


@dataclass(frozen=True)
class Lost:
    """Points of test accuracy that Adult lost at a noise level: mean, least and most over settings with that noise."""

    mean: float
    low: float
    high: float
    measured: bool = True  # False: the noise lies beyond all measured levels, and these are the figures of the nearest

    @property
    def table(self) -> dict[str, Any]:
        return {"mean": self.mean, "low": self.low, "high": self.high, "measured": self.measured}


@dataclass(frozen=True)
class Curve:
    """The measured noise levels, and the points lost at each."""

    signal: float  # the signal by which noise_to_signal is divided
    noise_to_signal: tuple[float, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    majority: float  # points lost by always naming the more frequent class

    def at(self, noise_to_signal: float, signal: float) -> Lost:
        """Look up what Adult lost at the same noise. `signal` is what this ratio was divided by; Adult has its own."""
        ratio = noise_to_signal * (signal / self.signal) ** 2
        first, last = self.noise_to_signal[0], self.noise_to_signal[-1]
        place, places = np.log(np.clip(ratio, first, last)), np.log(self.noise_to_signal)
        mean, low, high = (float(np.interp(place, places, values)) for values in (self.mean, self.low, self.high))
        # An end of the table counts as measured, also up to rounding.
        return Lost(mean, low, high, measured=first / (1 + 1e-9) <= ratio <= last * (1 + 1e-9))


@cache
def curve() -> Curve:
    """Read the curve that comes with the package."""
    held = json.loads(files(__package__).joinpath(FILE).read_text(encoding="utf-8"))
    lines = held["lines"]
    columns = {name: tuple(line[name] for line in lines) for name in ("noise_to_signal", "mean", "low", "high")}
    return Curve(signal=held["signal"], majority=held["majority_loses"], **columns)
