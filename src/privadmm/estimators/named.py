"""Make the parts of a job from arguments of an estimator, which may name them as a config file does.

All of these are accepted; anything else is refused with an error that says what is allowed:

algorithm="m_admm"      algorithm={"name": "dp_admm", "D_w": 30.0}      algorithm=DPADMM(D_w=30.0)
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from privadmm.engine.phases import Algorithm
from privadmm.errors import ConfigError, did_you_mean, listed, show
from privadmm.optim import graphs
from privadmm.optim.graphs import Graph
from privadmm.optim.losses import LOSSES, Loss, Squared
from privadmm.optim.regularizers import REGULARIZERS, Regularizer

CLASSIFIERS = {name: kind for name, kind in LOSSES.items() if kind is not Squared}
GRAPHS: dict[str, Callable[[int], Graph]] = {"star": graphs.star, "ring": graphs.ring, "complete": graphs.complete}


def algorithm_of(value: Any) -> Algorithm | None:
    """Make the algorithm that `value` names, or return the one that it is; None stands for the recommended one."""
    from privadmm.algorithms import ALGORITHMS

    return part(value, "algorithm", ALGORITHMS, ("phases", "topology", "adjacencies"))  # type: ignore[no-any-return]


def loss_of(value: Any) -> Loss | None:
    if value == "squared":
        raise ConfigError('loss = "squared" is a regression\'s: use ADMMRegressor(label_bound=...)')
    return part(value, "loss", CLASSIFIERS, ("lipschitz", "deriv", "classification"))  # type: ignore[no-any-return]


def regularizer_of(value: Any) -> Regularizer | None:
    return part(value, "regularizer", REGULARIZERS, ("l1", "l2", "subgradient"))  # type: ignore[no-any-return]


def graph_of(value: Any, parties: int) -> Graph:
    if value is None or isinstance(value, Graph):
        return value or graphs.star(parties)
    if isinstance(value, str) and value in GRAPHS:
        return GRAPHS[value](parties)
    near = did_you_mean(value, GRAPHS, show)
    raise ConfigError(
        f"graph must be {listed([show(name) for name in GRAPHS])} or a Graph, not {value!r}{near and f'; {near}'}"
    )


def part(value: Any, role: str, known: Mapping[str, Callable[..., Any]], has: tuple[str, ...]) -> Any:
    """Make the part that a name or a table names, or return `value` if it has the attributes `has` of such a part."""
    if value is None:
        return None
    if isinstance(value, Mapping):
        table = dict(value)
        return made(table.pop("name", None), table, role, known)
    if isinstance(value, str):
        return made(value, {}, role, known)
    if isinstance(value, type):
        raise ConfigError(f"{role} is the class {value.__name__}: make one of it, {role}={value.__name__}(...)")
    if not all(hasattr(value, name) for name in has):
        raise ConfigError(f"{role} must be one of {', '.join(known)}, or such an object, not {value!r}")
    return value


def made(name: Any, keys: Mapping[str, Any], role: str, known: Mapping[str, Callable[..., Any]]) -> Any:
    if not isinstance(name, str) or name not in known:
        near = did_you_mean(name, known, show)
        raise ConfigError(f"{role} is {name!r}: it must be one of {', '.join(known)}{near and f'; {near}'}")
    kind: Any = known[name]
    fields = {field.name: field for field in dataclasses.fields(kind) if field.init}
    for key in keys:
        if key not in fields:
            near = did_you_mean(key, fields)
            raise ConfigError(
                f"{role} {show(name)} has no parameter {key!r}: it has {', '.join(fields) or 'none'}"
                f"{near and f'; {near}'}"
            )
    missing = [
        key
        for key, field in fields.items()
        if key not in keys and field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]
    if missing:
        rest = "".join(f", {key!r}: ..." for key in missing)
        wanted = ", ".join(f"{key}=..." for key in missing)
        raise ConfigError(
            f"{role} {show(name)} needs {listed(missing, 'and')}, to be declared: {role}={{'name': {name!r}{rest}}}, "
            f"or {role}={kind.__name__}({wanted})"
        )
    return kind(**keys)
