"""An axis of a chart: it places numbers, and chooses those that are written beside it. All charts use it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

FAR = 1e150  # an axis shows numbers below this, a logarithmic one those above its inverse
MOST = 5  # steps between ends


@dataclass(frozen=True)
class Axis:
    """The map from the numbers between `low` and `high` to pixels between `start` and `end`."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    @classmethod
    def around(cls, values: Sequence[float], start: float, end: float, log: bool, zero: bool) -> "Axis":
        """Make an axis with a little room beyond these values."""
        low, high = (min(values), max(values)) if values else (0.0, 1.0)
        if log:
            room = (high / low) ** 0.05 if high > low else 2.0
            return cls(low / room, high * room, start, end, log)
        low = min(0.0, low) if zero else low
        size = max(abs(low), abs(high))
        # Numbers that agree in eight digits would have ticks that look alike.
        room = 0.05 * (high - low if high - low > 1e-8 * size else size)
        room = room if room > 1 / FAR else 1.0
        return cls(low if zero else low - room, high + room, start, end)

    @classmethod
    def rounded(
        cls, values: Sequence[float], start: float, end: float, log: bool = False, ends: bool = False
    ) -> "Axis":
        """Make an axis that ends at round numbers below and above all values, and begins at 0 if they come near it.

        With `ends` it ends at the largest value itself, beyond which there is nothing, such as the last round.
        """
        low, high = min(values), max(values)
        if log:
            least, most = math.floor(math.log10(low)), math.ceil(math.log10(high))
            return cls(10.0**least, 10.0 ** max(most, least + 1), start, end, log)
        if low >= 0 and low < 0.5 * high:
            low = 0.0
        if not high > low:
            high, low = high + (abs(high) or 1.0) / 2, low - (abs(low) or 1.0) / 2
        step = step_of(low, high)
        first, last = (float(f"{step * edge:.12g}") for edge in (math.floor(low / step), math.ceil(high / step)))
        return cls(first, high if ends else last, start, end)

    def at(self, value: float) -> float:
        low, high = (math.log10(self.low), math.log10(self.high)) if self.log else (self.low, self.high)
        share = ((math.log10(value) if self.log else value) - low) / (high - low)
        return self.start + share * (self.end - self.start)

    def ticks(self, most: int, whole: bool = False) -> list[float]:
        """About `most` round numbers along the axis; only whole ones with `whole`."""
        if self.log:
            first, last = math.ceil(math.log10(self.low)), math.floor(math.log10(self.high))
            if last - first >= 2:
                return [10.0**power for power in range(first, last + 1, -(-(last - first) // most))]
            marks = [m * 10.0**power for power in range(first - 1, last + 1) for m in (1, 2, 5)]
            marks = [value for value in marks if self.low <= value <= self.high]
            if len(marks) >= 2:
                return marks
        step = step_of(self.low, self.high, most)
        step = max(1.0, step) if whole else step
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        return [float(f"{number * step:.12g}") for number in range(first, last + 1)]


def step_of(low: float, high: float, most: int = MOST) -> float:
    """Smallest step, 1, 2 or 5 times a power of ten, of which at most `most` fit between `low` and `high`."""
    size = 10.0 ** math.floor(math.log10((high - low) / most))
    return next(size * factor for factor in (1, 2, 5, 10) if (high - low) / (size * factor) <= most)
