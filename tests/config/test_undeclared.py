"""Public facts that were not declared: they can be passed on, and whatever uses one asks for it."""

import copy
import math
import operator
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cases import ALGORITHMS, CASES, Case, named
from config_draws import config_of
from privadmm.algorithms.evaluated import Evaluated
from privadmm.config import build
from privadmm.config import file as configs
from privadmm.config.undeclared import (
    Outline,
    Undeclared,
    UndeclaredColumns,
    UndeclaredError,
    UndeclaredSizes,
    undeclared_dim,
    undeclared_sizes,
)
from privadmm.engine.job import Job
from privadmm.engine.public import Public
from privadmm.errors import ConfigError, PrivadmmError
from privadmm.runs.charges import charges
from privadmm.runs.preview import foreseen, with_records
from small_runs import CLEAR, PRIVATE, RECORDS, TRAINED, Place, Tables, with_changes, write_config

A = np.arange(1.0, 4.0)
BINARY = [
    *(operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow),
    *(operator.matmul, operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge),
]
USES: dict[str, Any] = {
    **{f"x {one.__name__} 2": lambda x, one=one: one(x, 2) for one in BINARY},
    **{f"2 {one.__name__} x": lambda x, one=one: one(2, x) for one in BINARY},
    **{f"array {one.__name__} x": lambda x, one=one: one(A, x) for one in [operator.add, *BINARY]},
    **{f"x {one.__name__} array": lambda x, one=one: one(x, A) for one in BINARY},
    "1 + x": lambda x: 1 + x,
    "x + 1, used": lambda x: np.zeros(x + 1),
    "x[0]": lambda x: x[0],
    "x[:, None]": lambda x: x[A.astype(int), None],
    "len": len,
    "iter": list,
    "max": max,
    "sum": sum,
    "in": lambda x: 1 in x,
    "bool": bool,
    "or": lambda x: x or 1,
    "hash": hash,
    "in a set": lambda x: {x},
    "int": int,
    "float": float,
    "abs": abs,
    "neg": operator.neg,
    "index": operator.index,
    "range": lambda x: range(x),
    "list times x": lambda x: [1] * x,
    "str": str,
    "format": lambda x: f"{x}",
    "format with digits": lambda x: f"{x:.3g}",
    "sqrt": math.sqrt,
    "asarray": np.asarray,
    "asarray of ints": lambda x: np.asarray(x, dtype=np.int64),
    "array of a list": lambda x: np.array([x]),
    "np.min": np.min,
    "np.sqrt": np.sqrt,
    "np.full": lambda x: np.full(3, x),
    "np.zeros": lambda x: np.zeros((2, x)),
    "np.broadcast_to": lambda x: np.broadcast_to(x, 3),
    "method": lambda x: x.sum(),
    "attribute": lambda x: x.ndim,
    "tolist": lambda x: x.tolist(),
    "copy": copy.deepcopy,
    "pickle": pickle.dumps,
}


@pytest.mark.parametrize("use", USES.values(), ids=USES.keys())
def test_no_use_goes_unnoticed(use: Any) -> None:
    for unknown in (Undeclared("declare it"), UndeclaredSizes("declare it", 3)):
        with pytest.raises(UndeclaredError, match="declare it"):
            use(unknown)


def test_that_there_are_columns_is_known() -> None:
    columns = UndeclaredColumns("declare them")
    assert bool(columns)
    for use in (len, list, max, lambda x: x[0]):
        with pytest.raises(UndeclaredError):
            use(columns)


def outline(public: Public) -> Public:
    """The same facts without sizes and dimension."""
    facts = {name: getattr(public, name) for name in ("rounds", "graph", "loss", "regularizer", "privacy")}
    known = Outline(
        sizes=UndeclaredSizes("declare sizes", public.parties),  # type: ignore[arg-type]
        dim=Undeclared("declare dim"),  # type: ignore[arg-type]
        C=public.C,
        weighting=public.weighting,
        **facts,
    )
    return known


@pytest.mark.parametrize("case", ALGORITHMS, ids=named)
def test_a_plan_without_sizes_is_the_plan_with_any(case: Case) -> None:
    """For every case: without sizes there is no plan, or the plan is the same for very different sizes."""
    try:
        without = Job(case.algorithm, outline(case.public()), id="case")
        plan = without.plan
    except UndeclaredError:
        assert case.algorithm.name != "dp_admm"  # output noise by epsilon alone needs none
        return
    few = (4, 1, 1, 1, 1) if isinstance(case.algorithm, Evaluated) else (1, 1, 1, 1, 1)  # one is held out at least
    for sizes in ((7, 12, 7, 5, 12), few, (100_000, 3, 50, 7, 1)):
        assert Job(case.algorithm, case.public(sizes=sizes), id="case").plan == plan


def test_what_is_derived_from_an_outline_is_one() -> None:
    case = CASES["dp_admm"]
    changed = replace(outline(case.public()), rounds=2)
    assert (type(changed), changed.parties, changed.rounds) == (Outline, 5, 2)
    with pytest.raises(UndeclaredError):
        changed.scale(changed.ids)


def peeking(public: Public) -> float:
    return float(np.sum(public.sizes))


def test_an_algorithm_that_starts_to_look_at_sizes_is_asked_for_them(
    monkeypatch: pytest.MonkeyPatch, place: Place
) -> None:
    """There is no list of methods that need sizes: the plan of dp_admm needs none until it reads one."""
    from privadmm.algorithms.dp_admm import DPADMM

    config, planned = configs.read(place.config()), DPADMM.planned
    assert foreseen(config).epsilon is not None

    def changed(self: Any, public: Public) -> Any:
        return planned(self, public) if peeking(public) else {}

    monkeypatch.setattr(DPADMM, "planned", changed)
    with pytest.raises(UndeclaredError, match=r"config.toml: \[parties\] sizes is missing"):
        foreseen(config)
    assert foreseen(with_records(config, RECORDS)).epsilon is not None


def test_the_messages_name_the_key_and_the_fix(place: Place) -> None:
    config = configs.read(place.config())
    for unknown, key in (
        (undeclared_sizes(config, 3), "[parties] sizes"),
        (undeclared_dim(config), "[data] dim"),
    ):
        with pytest.raises(UndeclaredError) as caught:
            bool(unknown)
        assert str(caught.value).startswith(f"{config.path}: {key} is missing")
        assert "declare" in str(caught.value)


SHARING = config_of("sharing", {}, "person")


@pytest.mark.parametrize(
    ("parties", "columns"),
    [
        ({"count": 2, "sizes": None}, (2, 1)),
        ({"count": None, "columns": [1, 2], "sizes": None}, (1, 2)),
        ({"count": None, "columns": [["x3"], ["x1", "x2"]], "sizes": None}, None),
        ({"count": None, "sizes": [TRAINED] * 3}, (1, 1, 1)),
        ({"count": 3, "sizes": [TRAINED] * 3, "use": "first"}, (1,)),
    ],
    ids=["even", "numbers", "names", "by sizes", "first"],
)
def test_columns_are_known_where_the_config_tells(parties: Any, columns: Any, place: Place) -> None:
    content = with_changes(SHARING, {"parties": parties})
    config = configs.read(write_config(place.path / "config.toml", content))
    job = foreseen(with_records(config, RECORDS))
    held = build.prepare(config)
    assert (tuple(job.public.sizes), job.public.dim) == (tuple(held.held.sizes), held.held.dim)
    if columns is None:
        assert isinstance(job.public.columns, UndeclaredColumns)
    else:
        assert job.public.columns == held.columns == columns


def test_people_are_as_many_at_every_party(place: Place) -> None:
    content: Tables = with_changes(SHARING, {"parties": {"sizes": [48, 47, 48]}})
    said = place.call("account", write_config(place.path / "config.toml", content))
    assert (said.code, "[parties] sizes" in said.err) == (2, True)


def test_how_many_share_the_columns_is_asked_for(place: Place) -> None:
    content = with_changes(SHARING, {"parties": {"count": None, "sizes": None, "use": "first"}})
    path = write_config(place.path / "config.toml", content)
    for said in (place.train(path), place.call("account", path, "--records", RECORDS)):
        assert (said.code, "[parties] count" in said.err) == (2, True)


def scaled(place: Place, *words: Any, **changes: Any) -> dict[str, Any]:
    said = place.call("scale", place.config(**changes), "--parties", 4, *words, "--json")
    assert said.code == 0, said.err
    return said.object


DVP = {"algorithm": {"name": "dvp", "D_w": None, "rho": None}, "graph": {"kind": "ring"}}


def test_messages_are_as_wide_whatever_the_sizes(place: Place) -> None:
    """`scale` reports no privacy cost and makes no plan."""
    for moments in ({}, {"features": {"moments": True}}):
        found = scaled(place, "--dim", 3, **DVP, **moments)
        assert found["lines"] == scaled(place, "--dim", 3, **DVP, **moments, parties={"sizes": [16] * 3})["lines"]
    assert scaled(place, data={"dim": 3, "intercept": 0.2})["numbers_sent"] == 4
    said = place.call("scale", place.config(**DVP))
    assert (said.code, "--dim" in said.err) == (2, True)


def test_a_method_without_noise_needs_no_sizes(place: Place) -> None:
    said = place.call("account", place.config(CLEAR), "--json")
    assert (said.code, said.object["private"]) == (0, False)


def test_charges_are_in_the_order_of_the_ledger(place: Place) -> None:
    job = foreseen(with_records(configs.read(place.config(PRIVATE)), RECORDS))
    assert [party["party"] for party in charges(job, job.leave)] == [0, 1, 2]


def test_an_outline_is_checked_as_far_as_it_is_known() -> None:
    case = CASES["dp_admm"]
    with pytest.raises(ConfigError, match="rounds"):
        replace(outline(case.public()), rounds=0)


def test_a_federation_that_declares_nothing(place: Place) -> None:
    from privadmm.deploy.federation.proposal import expected

    config = configs.read(place.config(data={"dim": 3}))
    job = expected(config)
    assert (type(job.public), job.public.parties, job.public.dim) == (Outline, 3, 3)
    with pytest.raises(PrivadmmError, match=r"\[parties\] sizes"):
        expected(configs.read(place.config(**DVP)))
    known = expected(configs.read(place.config(**DVP, data={"dim": 3}, parties={"sizes": [16, 17, 18]})))
    assert (type(known.public), known.public.sizes.tolist()) == (Public, [16, 17, 18])


def test_files_are_not_read(place: Place, tmp_path: Path) -> None:
    (tmp_path / "data.npz").unlink()
    assert place.call("account", place.config(), "--records", RECORDS).code == 0
