"""ADMM sharing: gisette's files in every form, one tiny run of each kind, and a study that says what was not run."""

import bz2
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privadmm.errors import ConfigError, DataError
from privadmm.papers.framework import sets
from privadmm.papers.framework.bench import Setting
from privadmm.papers.framework.study import Check, Study
from privadmm.papers.sharing import paper as sharing
from privadmm.papers.sharing.runs import Level, Noisy, Where, admm, alone, load, noisy, sgd
from small_runs import ORIGINALS

FEW = Where("a9a", people=200)
needs_gisette = pytest.mark.skipif(
    sets.gisette_source(ORIGINALS) is None,
    reason="needs gisette or its surrogate: name its folder in PRIVADMM_DATA",
)


def tables(rows: int = 4) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.integers(0, 1000, (rows, 5000)) * (rng.random((rows, 5000)) < 0.01)
    return X, np.where(np.arange(rows) % 2, 1, -1)


def write_libsvm(path: Path, X: Any, y: Any) -> None:
    scaled = 2 * X / 999 - 1
    lines = [
        f"{label:+d} " + " ".join(f"{j + 1}:{value!r}" for j, value in enumerate(row.tolist()))
        for row, label in zip(scaled, y, strict=True)
    ]
    text = ("\n".join(lines) + "\n").encode()
    path.write_bytes(bz2.compress(text) if path.suffix == ".bz2" else text)


def write(folder: Path, form: str) -> None:
    X, y = tables()
    if form == "surrogate":
        np.savez(folder / "gisette_surrogate.npz", X_train=X, y_train=y, X_test=X[:2], y_test=y[:2])
    elif form == "uci":
        for name, rows in (("train", slice(None)), ("valid", slice(2))):
            np.savetxt(folder / f"gisette_{name}.data", X[rows], fmt="%d")
            np.savetxt(folder / f"gisette_{name}.labels", y[rows], fmt="%d")
    else:
        write_libsvm(folder / f"gisette_scale{form}", X, y)
        write_libsvm(folder / f"gisette_scale.t{form}", X[:2], y[:2])


@pytest.mark.parametrize("form", ["", ".bz2", "uci", "surrogate"])
def test_gisette_is_read_in_every_form(tmp_path: Path, form: str) -> None:
    write(tmp_path, form)
    train, test = sets.gisette(tmp_path)
    X, y = tables()
    assert np.allclose(train.X, 2 * X / 999 - 1, atol=1e-12)
    assert train.y.tolist() == y.tolist()
    assert np.array_equal(test.X, train.X[:2])
    assert test.y.tolist() == [-1, 1]


def test_the_real_one_goes_before_the_surrogate(tmp_path: Path) -> None:
    write(tmp_path, "surrogate")
    assert sets.gisette_source(tmp_path) == (sets.SURROGATE, ("gisette_surrogate.npz",))
    write(tmp_path, "uci")
    source = sets.gisette_source(tmp_path)
    assert source is not None
    assert source[0] == "gisette, as UCI has it"
    with pytest.raises(ConfigError, match="gisette_scale and gisette_scale"):
        sets.gisette(tmp_path / "elsewhere")


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    write(tmp_path, "uci")
    (tmp_path / "gisette_train.data").write_text("1 2 x\n")
    with pytest.raises(DataError, match=r"gisette_train\.data: is no table of numbers"):
        sets.gisette(tmp_path)
    (tmp_path / "gisette_train.data").write_text("1 2 3\n4 5 6\n")
    with pytest.raises(DataError, match=r"gisette_train\.data: has no 5000 columns"):
        sets.gisette(tmp_path)


def test_a9a_in_two_hands() -> None:
    data = load(FEW)
    assert data.train.widths == (66, 57)
    assert (data.train.dim, data.test.dim) == (200, 16281)
    norms = [np.sqrt(features.A.multiply(features.A).sum(axis=1)).max() for features in data.test.columns.features]
    assert norms == pytest.approx([1, np.sqrt(6 / 8)])  # nothing is clipped: eight ones, and six
    objective, loss, accuracy = data.measure(np.zeros(123))
    assert (objective, loss) == pytest.approx((np.log(2), np.log(2)))
    assert accuracy == 0


def test_sharing_comes_to_what_sklearn_finds_on_pooled_data() -> None:
    """sklearn leaves its intercept out of the penalty, and one-hot columns have one within them: nearly the same."""
    pooled = alone(FEW, None)
    found = admm(FEW, 0.1, "sharing", 60)
    assert found.shape == (60, 3)
    assert found[-1, 0] == pytest.approx(pooled[0], rel=0.02)
    assert found[-1, 0] < found[0, 0]
    assert pooled[0] < alone(FEW, 1)[0]


def test_an_epoch_of_gradient_steps_has_many_rounds() -> None:
    found = sgd(FEW, 3.0, 5, 3)
    assert found.shape == (3, 3)
    assert np.isfinite(found).all()
    assert found[-1, 0] < found[0, 0] < np.log(2)


def test_noise_levels_say_what_they_certify() -> None:
    published = noisy(FEW, Level("published", 1.0, 0.1), (1, 2), 2)
    assert published.values.shape == (2, 3, 2)
    assert published.claimed[0] is not None
    assert published.claimed[1] is not None
    assert published.claimed[0] < published.claimed[1]  # of two epochs more than of one
    assert published.per_person is None
    certified = noisy(FEW, Level("certified", 1.0, 0.1, 6.0, 10.0), (1, 2), 2)
    assert certified.claimed == (None, None)
    assert certified.per_party == pytest.approx(1.0)
    assert certified.per_person is not None
    assert 1 < certified.per_person < 2


def results(setting: Setting, good: bool = True) -> dict[Any, Any]:
    """As if run: sharing falls to 0.05, SGD to 0.3, one party alone has 0.3; or the other way round."""
    found: dict[Any, Any] = {}
    for task in sharing.tasks(setting):
        what = task.key[1]
        low, high = (0.05, 0.3) if good else (0.3, 0.05)
        fall = np.linspace(0.4, low, 10)[:, None] + np.zeros(3)
        if isinstance(what, Level):
            claimed = (what.epsilon, 3 * what.epsilon)
            found[task.key] = Noisy((1, 3), np.full((2, 3, 3), high + 1 / what.epsilon), claimed, 1.0, 1.5)
        elif what in ("pooled", "first"):
            found[task.key] = np.full(3, high)
        elif what == "printed":
            found[task.key] = fall + 10
        else:
            found[task.key] = fall if what == "sharing" else fall + high - low
    return found


def named(study: Study, words: str) -> Check:
    (found,) = [check for check in study.checks if words in check.name]
    return found


def test_without_gisette_the_rest_runs_and_the_notes_say_what_to_give() -> None:
    setting = Setting(quick=True)
    assert {task.key[0] for task in sharing.tasks(setting)} == {"a9a"}
    study = sharing.study(setting, results(setting))
    assert not any("gisette" in check.name for check in study.checks)
    assert any("were not run" in note and "gisette_scale" in note for note in study.notes)
    assert [figure.name for figure in study.figures] == ["figure-1", "figure-3", "forms"]


def test_the_surrogate_is_named_wherever_it_is_shown(tmp_path: Path) -> None:
    (tmp_path / "gisette_surrogate.npz").touch()
    setting = Setting(quick=True, data=tmp_path)
    study = sharing.study(setting, results(setting))
    assert len(study.figures) == 4
    shown = [check.name for check in study.checks] + [figure.caption for figure in study.figures]
    shown += [panel.title for figure in study.figures for panel in figure.panels]
    shown += [str(row[0]) for grid in study.grids for row in grid.rows]
    assert any(sets.SURROGATE in words for words in shown)
    assert all(sets.SURROGATE in words for words in shown if "gisette" in words)
    assert any("surrogate" in note for note in study.notes)


def test_what_does_not_hold_is_reported(tmp_path: Path) -> None:
    (tmp_path / "gisette_surrogate.npz").touch()
    setting = Setting(quick=True, data=tmp_path)
    right, wrong = (sharing.study(setting, results(setting, good)) for good in (True, False))
    for words in (
        "SGD is slower and ends higher",
        "a lower test loss than sklearn",
        "Figure 3(a), a9a: sharing beats",
    ):
        assert named(right, words).ok
        assert not named(wrong, words).ok
    assert named(right, "first trial, a9a").ok
    assert "at no level" in named(right, "Figure 3(a), a9a: with a certified epsilon").why


@needs_gisette
def test_a_tiny_run_on_gisette() -> None:
    found = admm(Where("gisette", ORIGINALS, 100), 0.1, "sharing", 3)
    assert found[-1, 2] > 0.7


def test_a_ruined_model_has_more_loss_and_less_accuracy() -> None:
    setting = Setting(quick=True)
    found = results(setting)
    # The accuracy is above that alone at the most noise: more of it was not run.
    assert named(sharing.study(setting, found), "too much noise").ok is None
    louder = {key: flat(value, 1.0 if key[1].epsilon == 10 else 0.9) for key, value in found.items() if is_noisy(value)}
    assert named(sharing.study(setting, found | louder), "too much noise").ok is False  # less loss under more noise
    for value in found.values():
        if isinstance(value, Noisy):
            value.values[:, 2] = 0.1
    assert named(sharing.study(setting, found), "too much noise").ok


def is_noisy(value: Any) -> bool:
    return isinstance(value, Noisy)


def flat(value: Noisy, loss: float) -> Noisy:
    return replace(value, values=np.full_like(value.values, loss))


MODERATE = "under noise with a claimed total up to 10"


@pytest.mark.parametrize(
    ("losses", "claimed", "ok"),
    [
        ({10.0: 0.32, 1.0: 0.39, 0.1: 2.2}, {10.0: 2.2e6, 1.0: 34.0, 0.1: 1.8}, False),
        ({10.0: 0.29, 1.0: 0.39, 0.1: 2.2}, {10.0: 2.2e6, 1.0: 34.0, 0.1: 1.8}, False),
        ({10.0: 0.29, 1.0: 0.28, 0.1: 2.2}, {10.0: 2.2e6, 1.0: 34.0, 0.1: 1.8}, False),
        ({10.0: 0.29, 1.0: 0.28, 0.1: 0.25}, {10.0: 2.2e6, 1.0: 34.0, 0.1: 1.8}, True),
        ({10.0: 0.29, 1.0: 0.28, 0.1: 0.25}, {10.0: 2.2e6, 1.0: 34.0, 0.1: 18.0}, None),
    ],
    ids=["nowhere", "two million alone", "34", "1.8", "not run"],
)
def test_moderate_noise_is_judged_at_every_level(
    losses: dict[float, float], claimed: dict[float, float], ok: bool | None
) -> None:
    """One party alone has 0.3; the weakest noise says nothing where the paper itself claims a total of two million."""
    setting = Setting()
    found = results(setting)
    for key, value in found.items():
        if is_noisy(value) and key[1].kind == "published":
            level = key[1].epsilon
            one = flat(value, losses[level])
            found[key] = replace(one, epochs=(3,), values=one.values[:1], claimed=(claimed[level],))
    check = named(sharing.study(setting, found), MODERATE)
    assert check.ok is ok
    for level in losses:
        assert f"{losses[level]:g} at {claimed[level]:.4g} (3 epochs)" in str(check.ours)


def test_a_certified_level_that_was_not_run_is_not_judged() -> None:
    setting = Setting()
    found = results(setting)
    name = "Figure 3(a), a9a: with a certified epsilon"
    assert named(sharing.study(setting, found), name).ok is False
    large = {key: replace(value, per_person=15.0) for key, value in found.items() if is_noisy(value)}
    assert named(sharing.study(setting, found | large), name).ok is None


def test_few_rounds_below_the_limit_do_not_show_that_privacy_is_confined() -> None:
    setting = Setting(quick=True)
    check = named(sharing.study(setting, results(setting)), "is confined")
    assert (check.ok, check.why.endswith("19 rounds were not run")) == (None, True)


def test_trials_and_certified_variants_are_ours() -> None:
    setting = Setting(quick=True)
    study = sharing.study(setting, results(setting))
    for words in ("first trial, a9a", "certified epsilon", "what pooled data give"):
        assert named(study, words).of == "ours"
    assert sum(check.of == "ours" for check in study.checks) == 3
    assert study.parameters[0].value == "a9a: the first 4000"
