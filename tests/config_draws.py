"""Configs drawn from the declared fields: every algorithm with its own keys, every section, and odd values."""

from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from privadmm.algorithms import ALGORITHMS
from privadmm.config.file import SECTIONS
from privadmm.params import HUGE, TINY, Checked, Choice, ListOf, OneOf, Scalar, fields_of
from small_runs import PARTIES, PRIVATE, TRAINED, Tables, write_npz

ROWS, COLUMNS = 24, 4
PARTY_COUNTS, ROUNDS = (2, 3, 5, 1), (3, 2, 1)
VERTICAL = {"sharing", "admm_sharing", "fdml_sgd"}
SUMMED = {"first_order_consensus", "dp_fedsgd"}  # those that secure sums are for

USUAL = (1.0, 0.1, 0.5, 2.0, 0.01, 10.0)
ODD = (1e-3, 1e-6, 1e-12, 100.0, 1e5, 1e12)
EXTREME = (1e-30, TINY, 1e30, HUGE, 0.0, 1 - 2**-53, 1 + 2**-52, 1e300, 5e-324)
COUNTS = (1, 2, 3, 0, 5, 17)
LOSSES = ("logistic",) * 3 + ("half_logistic",) * 2 + ("huber_hinge", "squared", "hinge")
FILES = ("data.npz", "data.npz", "zeros.npz", "one_label.npz", "huge.npz")
PENALTIES = ("l2",) * 5 + ("elastic_net", "l1")
# A deployment has no ledger here and cannot train; its cost is still counted, with other noise.
MODES = ({"seed": 1},) * 7 + ({"mode": "deployment", "ledger": "party.sqlite"},)
# Set for every config; other engines have their own tests.
BASIC = ("name", "rounds", "count", "source", "mode", "engine", "scheduler")
# The keys that set the noise of a paper's own calibration.
KNOBS = {name: ("round_epsilon",) for name in ("dp_admm", "pvp")} | {
    "sharing": ("round_epsilon", "b1"),
    "pdml": ("V",),
}


def within(kind: Any, value: float) -> bool:
    return all(limit.holds(value, limit.value) for limit in getattr(kind, "limits", ()))


def value_of(draw: Any, kind: Any, wild: bool, lengths: tuple[int, ...]) -> Any:
    """Draw a value of this kind within its limits; `lengths` are those that a list may have."""
    inner = kind.kind if isinstance(kind, Checked) else kind
    if isinstance(inner, Choice):
        return draw(st.sampled_from(inner.values))
    if isinstance(inner, OneOf):
        return value_of(draw, draw(st.sampled_from(inner.kinds)), wild, lengths)
    if isinstance(inner, ListOf):
        length = draw(st.sampled_from(lengths)) if inner.length is None else inner.length
        return [value_of(draw, inner.item, wild and at == 0, lengths) for at in range(length)]
    assert isinstance(inner, Scalar), inner
    if inner.python is bool:
        return draw(st.booleans())
    if inner.python is int:
        return draw(st.sampled_from([count for count in COUNTS if within(kind, count)]))
    choices = (*ODD, *EXTREME) if wild else USUAL
    return draw(st.sampled_from([number for number in choices if within(kind, number)] or [0.5]))


# Good values that no declaration tells: names of files and columns, and values that fit together.
DATA: dict[str, Any] = {
    "classes": st.sampled_from([[0, 1], [1, 0]]),
    "row_bound": st.sampled_from([2.0, 0.5, 1e-12, HUGE]),
    "format": st.sampled_from(["npz", "csv"]),
    "label": st.just("y"),
    "schema": st.just({"a": [0.0, 1.0]}),
    "dim": st.sampled_from([COLUMNS, 1]),
    "id": st.just("site"),
    "test_fraction": st.sampled_from([0.2, 0.0, 0.5, 0.96, 1e-9]),
}
RUN: dict[str, Any] = {
    "seed": st.integers(0, 3),
    "out": st.just("elsewhere"),
    "memory": st.sampled_from([1, 1000, "2GB"]),
    "threads": st.sampled_from([1, 2, 10**9]),
    "ledger": st.sampled_from(["party.sqlite", "none/party.sqlite"]),
}


def is_number(kind: Any) -> bool:
    inner = kind.kind if isinstance(kind, Checked) else kind
    return inner == Scalar(float) or (isinstance(inner, ListOf) and is_number(inner.item))


def special(section: str, parties: int) -> dict[str, Any]:
    some = st.lists(st.integers(0, 5), min_size=1, max_size=2, unique=True)
    return {
        "data": DATA,
        "parties": {
            "count": st.just(parties),
            "split": st.sampled_from(["even", "dirichlet:0.5", "dirichlet:1e-9", "column:site", "features"]),
            "columns": st.sampled_from([[COLUMNS], [1, 1, 2], [1, 3], [["x1"], ["x2", "x3"]]]),
            "files": st.just(["data.npz"]),
            "leave": some.flatmap(lambda who: st.sampled_from([[f"{one}@{t}" for one in who] for t in (1, 2, 3)])),
        },
        "graph": {
            "kind": st.sampled_from(["ring", "complete", "star", "random"]),
            "edges": st.integers(0, 10),
        },
        "privacy": {"delta": st.sampled_from([1e-5, 0.1, 0.0, TINY, 1 - 2**-53])},
        "run": RUN,
    }.get(section, {})


def base(draw: Any, name: str, parties: int, rounds: int) -> dict[str, dict[str, Any]]:
    """Tables that nearly always work with this algorithm."""
    kind = ALGORITHMS[name]
    found: dict[str, dict[str, Any]] = {
        "data": {"source": draw(st.sampled_from(FILES)), "classes": [0, 1], "row_bound": 2.0},
        "parties": {"count": parties, **({"split": "features"} if name in VERTICAL else {})},
        "graph": {"kind": draw(st.sampled_from(["ring", "complete"])) if kind.topology == "graph" else "star"},
        "algorithm": {"name": name, "rounds": rounds},
        "loss": {"name": draw(st.sampled_from(LOSSES))},
        "regularizer": {"name": draw(st.sampled_from(PENALTIES))},
        "run": draw(st.sampled_from(MODES)).copy(),
    }
    if kind.adjacencies:
        found["privacy"] = {"epsilon": 1.0, "delta": 1e-5}
    if name in SUMMED and parties > 1:
        found["privacy"] |= draw(st.sampled_from([{"sum": "secure"}, {}]))
    if name == "sharing":
        adjacency, bound = draw(st.sampled_from([("person", "ball"), ("column", "column_bound")]))
        found["privacy"]["adjacency"], found["algorithm"][bound] = adjacency, 1.0
    if found["loss"]["name"] == "squared":
        found["loss"] |= {"label_bound": 1.0, "radius": 2.0}
    return found


@st.composite
def tables(draw: Any) -> dict[str, dict[str, Any]]:
    """Draw a config: what its algorithm needs, any other keys, and some extreme values."""
    name = draw(st.sampled_from(sorted(ALGORITHMS)))
    parties, rounds = draw(st.sampled_from(PARTY_COUNTS)), draw(st.sampled_from(ROUNDS))
    found = base(draw, name, parties, rounds)
    declared = {section: dict(fields_of(table)) for section, table in SECTIONS.items()}
    declared["algorithm"] |= fields_of(ALGORITHMS[name])
    every = {(section, key): field for section, keys in declared.items() for key, field in keys.items()}
    numbers = [at for at, field in every.items() if is_number(field.kind) and at[0] not in ("run", "parties")]
    needed = [("algorithm", key) for key, field in declared["algorithm"].items() if field.required and key not in BASIC]
    few, some = draw(st.sampled_from((0, 1, 2))), draw(st.sampled_from((0, 1, 2, 4)))
    wild = draw(st.sets(st.sampled_from(numbers), min_size=few, max_size=few))
    more = draw(st.sets(st.sampled_from([at for at in every if at[1] not in BASIC]), min_size=some, max_size=some))
    for section, key in [*needed, *sorted(more), *sorted(wild)]:
        when = every[section, key].when
        if when is not None and found.get(section, {}).get(when.key) != when.value:
            continue
        if section == "privacy" and "privacy" not in found and draw(st.integers(0, 3)):
            continue  # else nearly all would be refused: their method gives no epsilon
        known = special(section, parties).get(key)
        lengths = (rounds,) if key == "profile" else (parties, parties, parties, 2)
        found.setdefault(section, {})[key] = (
            value_of(draw, every[section, key].kind, (section, key) in wild, lengths) if known is None else draw(known)
        )
    return coherent(found)


def coherent(found: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Add the keys that drawn keys need beside them, which a random config would nearly always miss."""
    own, parties = found["algorithm"], found["parties"]
    knobs = KNOBS.get(own["name"], ("alpha",))
    if own.get("calibration", "certified") == "certified":
        found["algorithm"] = {key: value for key, value in own.items() if key not in (*knobs, "party_alpha")}
    else:
        own |= {key: own.get(key, 0.5) for key in knobs if "party_alpha" not in own}
        found.get("privacy", {}).pop("epsilon", None)
    if found["graph"]["kind"] == "random":
        found["graph"].setdefault("edges", max(1, parties.get("count", 2) - 1))
    if parties.get("split", "").startswith("column"):
        parties.pop("count", None)
    if own["name"] in VERTICAL:
        parties["count"] = min(parties.get("count", 1), COLUMNS)
    return found


def write_sources(folder: Path) -> Path:
    """Write the files that drawn configs name."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, COLUMNS))
    y, site = (X[:, 0] > 0).astype(int), np.where(np.arange(ROWS) % 3 == 0, "b", "a")
    write_npz(folder / "data.npz", X, y, site=site)
    write_npz(folder / "zeros.npz", 0 * X, y, site=site)
    write_npz(folder / "one_label.npz", X, np.ones_like(y), site=site)
    write_npz(folder / "huge.npz", 1e200 * X, y, site=site)
    return folder


def config_of(name: str, own: dict[str, Any], adjacency: str | None) -> Tables:
    kind, vertical = ALGORITHMS[name], name in VERTICAL
    found: Tables = {
        "data": {**PRIVATE["data"], "dim": 3},
        "parties": {"count": PARTIES, "sizes": [TRAINED if vertical else TRAINED // PARTIES] * PARTIES},
        "graph": {"kind": "ring" if kind.topology == "graph" else "star"},
        "algorithm": {"name": name, "rounds": 4, **own},
        "regularizer": {"weight": 0.1},
        "run": {"seed": 1},
    }
    if vertical:
        found["parties"]["split"] = "features"
    if adjacency is not None:
        certified = own.get("calibration", "certified") == "certified"
        found["privacy"] = {"delta": 1e-5, "adjacency": adjacency} | ({"epsilon": 3.0} if certified else {})
    if name == "sharing":
        found["algorithm"]["ball" if adjacency == "person" else "column_bound"] = 2.0
    if own.get("calibration") == "box":  # which diverges, as printed
        found["algorithm"] |= {"negative_phi": True, "rounds": 1}
    return found
