"""What noise cost on Adult: points of accuracy lost, by noise-to-signal. Adult's figures, and nobody else's data.

benchmarks/accuracy_lost.py trained the recommended method on the embedded records at many noises, and wrote FILE. At
one noise several ways to have it (parties, records, who adds it) lose different amounts: hence a mean, the least and
the most of them. Between measured noises the figures are interpolated, over the logarithm of the noise; beyond them the
last one stands, and `measured` is False.
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
    """Points of test accuracy that Adult lost at a noise: the mean of all ways to have it, the least, the most."""

    mean: float
    low: float
    high: float
    measured: bool = True  # False: the noise lies beyond all that were measured, and these are the nearest one's

    @property
    def table(self) -> dict[str, Any]:
        return {"mean": self.mean, "low": self.low, "high": self.high, "measured": self.measured}


@dataclass(frozen=True)
class Curve:
    """The measured noises, and what was lost at each."""

    signal: float  # for which noise-to-signal is meant
    noise_to_signal: tuple[float, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    majority: float  # points that always the more frequent class loses

    def at(self, noise_to_signal: float, signal: float) -> Lost:
        """What Adult lost at the same noise. `signal` is what this noise was divided by; Adult's loss is not."""
        ratio = noise_to_signal * (signal / self.signal) ** 2
        first, last = self.noise_to_signal[0], self.noise_to_signal[-1]
        place, places = np.log(np.clip(ratio, first, last)), np.log(self.noise_to_signal)
        mean, low, high = (float(np.interp(place, places, values)) for values in (self.mean, self.low, self.high))
        # A noise that is an end of the table up to rounding was measured.
        return Lost(mean, low, high, measured=first / (1 + 1e-9) <= ratio <= last * (1 + 1e-9))


@cache
def curve() -> Curve:
    """The curve that the package holds."""
    held = json.loads(files(__package__).joinpath(FILE).read_text(encoding="utf-8"))
    lines = held["lines"]
    columns = {name: tuple(line[name] for line in lines) for name in ("noise_to_signal", "mean", "low", "high")}
    return Curve(signal=held["signal"], majority=held["majority_loses"], **columns)
