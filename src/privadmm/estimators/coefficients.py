"""Coefficients of a fitted model by column, and how much the privacy noise alone makes them vary."""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from privadmm.data.arrays import Floats
from privadmm.errors import ConfigError, visible
from privadmm.params import check_whole
from privadmm.runs.model import Model
from privadmm.runs.refits import coefficients

MOST_CELLS = 50_000_000  # of invented rows
NOT_LINEAR = (
    "rows are divided by their length after centring and scaling, so the score is not linear: signs and relative sizes "
    "count, and a coefficient is what a unit of its column adds to the score before that division"
)


@dataclass(frozen=True)
class Coefficients:
    """Coefficients as a table: a column for each feature; a row for each class, or one row for two classes."""

    names: tuple[str, ...]
    values: Floats  # (k, d)
    intercept: Floats  # (k,)
    linear: bool  # decision_function(X) = X @ values.T + intercept for rows within the bound
    noise: Floats | None = None  # (k, d), their standard deviation over draws of the noise
    classes: tuple[str, ...] = ()  # with more than two, the class of each row

    def as_dict(self) -> dict[str, Any]:
        noise = None if self.noise is None else self.noise.tolist()
        facts = {"names": list(self.names), "values": self.values.tolist(), "intercept": self.intercept.tolist()}
        return {**facts, "linear": self.linear, "noise": noise, "classes": list(self.classes)}

    def __repr__(self) -> str:
        names = [visible(name) for name in self.names]
        width = max(map(len, names))
        lines = list[str]()
        for number, row in enumerate(self.values):
            lines += [f"{visible(self.classes[number])} against the rest"] if self.classes else []
            for j in np.argsort(-np.abs(row))[:20]:
                spread = "" if self.noise is None else f"  +- {1.96 * self.noise[number, j]:.3g}"
                lines.append(f"{names[j]:<{width}}  {row[j]:>10.4g}{spread}")
        hidden = len(self.names) - 20
        lines += [f"and {hidden} smaller ones"] if hidden > 0 else []
        if self.noise is not None:
            lines.append("+- covers 95 % of what the noise alone does, as estimated on invented rows")
        return "\n".join([*lines, *([] if self.linear else [NOT_LINEAR])])


def named(models: Sequence[Model], names: Sequence[str] | None = None) -> Coefficients:
    """Coefficients for columns in their own units.

    If the method released moments, they belong to the score before rows are normalised.
    """
    frame = models[0].frame
    columns = frame.names if names is None else tuple(map(str, names))
    if len(columns) != len(frame.names):
        raise ConfigError(f"names has {len(columns)} names, and the model {len(frame.names)} columns")
    if (linear := coefficients(models)) is not None:
        return Coefficients(columns, *linear, linear=True)
    d, scale = len(columns), math.sqrt(1 - frame.intercept**2) / frame.row_bound
    values, constants = [], []
    for model in models:
        assert model.features is not None
        seen, w = model.features, model.weights
        values.append(math.sqrt(1 - seen.b**2) * scale * (seen.A * w[:-1])[:d])
        constants.append(seen.b * w[-1])
    return Coefficients(columns, np.array(values), np.array(constants), linear=False)


def noise_of(fitted: Any, draws: int) -> Floats:
    """Estimate the standard deviation of the coefficients over the noise alone, (k, d), from public facts.

    Rows are invented: as many as each party has, with the mean and spread that were released or, if none were, in all
    directions and of all lengths within the bound. The released model labels them. The same job is then trained on
    them `draws` times, each time with other noise. Nothing private is read, so it costs nothing. It is an estimate,
    since the true rows are not like these.
    """
    check_whole(draws=draws)
    if draws < 2:
        raise ConfigError(f"draws must be 2 or more, to see how they differ, not {draws!r}")
    public, frame = fitted.jobs_[0].public, fitted.models_[0].frame
    vertical = bool(frame.groups)
    n, d = int(public.dim if vertical else public.sizes.sum()), len(frame.names)
    if n * d > MOST_CELLS:
        raise ConfigError(f"{n} invented rows of {d} columns are too many to train on again: leave out draws")
    rng = np.random.default_rng(fitted.random_state)
    map = fitted.models_[0].features
    centre, spread = (0.0, 1 / math.sqrt(d)) if map is None else (map.M[:d], 1 / map.A[:d])
    X = frame.row_bound * (centre + spread * rng.normal(size=(n, d)))
    X *= rng.uniform(size=(n, 1)) if map is None else 1.0
    groups = None if vertical else np.repeat(np.arange(public.parties), public.sizes)
    y, fits = fitted._invented(X, rng), []
    for number in range(draws):
        params = fitted.get_params(deep=False)
        twin = type(fitted)(**{**params, "ledger": None, "warm_start": False, "random_state": 2**32 + number})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            twin.fit(X, y, groups)
        fits.append(named(twin.models_).values)
    return np.asarray(np.std(fits, axis=0, ddof=1))
