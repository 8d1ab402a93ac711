"""The accuracy that a budget can buy, from public facts: the formula, its two lines, and where the warning appears."""

import json
import math
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cases import ALGORITHMS, Case, named
from privadmm import ADMMClassifier, BudgetWarning
from privadmm.algorithms.first_order_consensus import FirstOrderConsensus
from privadmm.algorithms.moments import Centred
from privadmm.cli.views import advice as view
from privadmm.config import build
from privadmm.config import file as configs
from privadmm.data import adult
from privadmm.engine.job import Job
from privadmm.engine.public import Public
from privadmm.errors import ConfigError
from privadmm.optim import graphs
from privadmm.optim.losses import Debiased, HalfLogistic, Logistic, Squared
from privadmm.optim.regularizers import L2
from privadmm.privacy.calibration import NoPrivacy, Target, gdp_parameter
from privadmm.privacy.sums import SecureSum
from privadmm.runs import preview
from privadmm.runs.palette import LIGHT, Zone
from privadmm.runs.recommend import (
    CENTRED,
    SHARE,
    SIGNAL,
    THIN,
    TOO_SMALL,
    Facts,
    expected,
    frontier,
    recommend,
    warning,
)
from small_runs import CLEAR, PRIVATE, RECORDS, Place, rows, with_changes

EXAMPLES = Path(__file__).parents[2] / "examples"
DELTA = 1e-6


def facts(records: int, parties: int, epsilon: float = 0.5) -> Facts:
    return Facts(records, (epsilon,) * parties, DELTA)


def told(records: int, parties: int, epsilon: float = 0.5) -> Facts:
    """What `recommend` makes of these options: a fifth is held out, as `init` would."""
    return replace(facts(records, parties, epsilon), held_out=records // 5)


def job(records: int, parties: int, epsilon: float = 0.5, method: Any = None, **changes: Any) -> Job:
    each = np.full(parties, records // parties)
    public = Public(
        sizes=each,
        dim=20,
        rounds=41,
        graph=graphs.star(parties),
        loss=HalfLogistic(),
        regularizer=L2(0.0),
        privacy=Target(epsilon, DELTA),
    )
    return Job(method or Centred(FirstOrderConsensus()), replace(public, **changes))


# Training records at epsilon = 0.5, four fifths of each set; METHOD's measured accuracies are in docs/recommend.md.
SETS = {"adult": 40_000, "a9a": 39_074, "twonorm": 5_920, "ringnorm": 5_920, "waveform": 4_000}


@pytest.mark.parametrize("name", SETS)
def test_ten_parties_of_a_large_set_are_not_warned(name: str) -> None:
    found = recommend(facts(SETS[name], 10))
    assert found.warning is None
    assert found.expected.noise_to_signal < 0.5


@pytest.mark.parametrize(
    ("name", "verdict"),
    [("adult", "good"), ("a9a", "good"), ("twonorm", "thin"), ("ringnorm", "thin"), ("waveform", "thin")],
)
def test_a_hundred_parties_are_told_more_but_not_warned(name: str, verdict: str) -> None:
    found = recommend(facts(SETS[name], 100))
    assert (found.warning, found.expected.verdict) == (None, verdict)


@pytest.mark.parametrize("parties", [10, 100])
def test_german_is_warned(parties: int) -> None:
    found = recommend(facts(800, parties))
    assert found.expected.verdict == "too small"
    assert found.warning is not None
    assert all(word in found.warning for word in ("800 records", f"{parties} parties", "constant", "estimate"))


def test_the_formula_is_the_one_on_the_page() -> None:
    found = recommend(facts(1000, 5, 1.0))
    unit = math.sqrt(5) / (1000 * gdp_parameter(1.0, DELTA))
    assert found.facts.unit == pytest.approx(unit, rel=1e-12)
    assert found.expected.noise_to_signal == pytest.approx(2 * unit / math.sqrt(1 - SHARE) / SIGNAL**2, rel=1e-12)
    ratios = [one.noise_to_signal for _, one in found.methods]
    assert ratios[2] == pytest.approx(2 * ratios[1])
    assert ratios[3] == pytest.approx(math.sqrt(5) * ratios[0])
    assert ratios[4] == pytest.approx(ratios[0] / math.sqrt(5))


@pytest.mark.parametrize(("records", "parties", "epsilon"), [(800, 10, 0.5), (40_000, 10, 1.0), (5_000, 3, 0.1)])
def test_a_jobs_own_plan_gives_the_same_figure(records: int, parties: int, epsilon: float) -> None:
    """The forecast depends on the GDP parameter mu only, however the noise is spread over rounds."""
    records -= records % parties
    found = expected(job(records, parties, epsilon))
    assert found is not None
    wanted = recommend(facts(records, parties, epsilon)).expected.noise_to_signal
    assert found.noise_to_signal == pytest.approx(wanted, rel=1e-3)


@pytest.mark.parametrize("colluding", [None, 1, 8])
@pytest.mark.parametrize("budgets", [(0.5,) * 10, (0.2, *(0.5,) * 9)])
def test_a_secure_sum_has_a_curators_noise_but_for_those_who_collude(
    colluding: int | None, budgets: tuple[float, ...]
) -> None:
    """sqrt(N/(N - t)) times a curator's with the smallest of these budgets, from the facts and from a job's plan."""
    asked = SecureSum(colluding)
    t = asked.tolerated(10)
    found = recommend(Facts(5_000, budgets, DELTA, sum=asked)).expected.noise_to_signal
    curator = recommend(Facts(5_000, (min(budgets),), DELTA)).expected.noise_to_signal
    assert found == pytest.approx(curator * math.sqrt(10 / (10 - t)), rel=1e-9)
    privacy = Target(None, DELTA, party_epsilon=budgets, sum=asked)
    planned = expected(job(5_000, 10, privacy=privacy))
    assert planned is not None
    assert planned.noise_to_signal == pytest.approx(found, rel=1e-3)


def test_what_secure_sums_would_gain_is_said_where_there_are_none() -> None:
    """With three parties or more: of two, one may collude, and the other has all of the noise to add."""
    found = recommend(facts(800, 10)).table
    assert (found["sum"], found["colluding"]) == ("local", None)
    gain = found["with_secure_sum"]
    assert (gain["colluding"], gain["verdict"]) == (3, "thin")
    assert gain["times_less_noise"] == pytest.approx(math.sqrt(10 - 3), rel=1e-9)
    assert found["methods"][-1]["noise_to_signal"] == gain["noise_to_signal"]
    secure = recommend(replace(facts(800, 10), sum=SecureSum())).table
    assert (secure["sum"], secure["colluding"], secure["with_secure_sum"]) == ("secure", 3, None)
    assert secure["expected"]["noise_to_signal"] == gain["noise_to_signal"]
    assert secure["methods"][-1]["noise_to_signal"] == found["expected"]["noise_to_signal"]
    assert secure["warning"] is None
    for parties in (1, 2):
        assert recommend(facts(800, parties)).table["with_secure_sum"] is None
    with pytest.raises(ConfigError, match="two parties"):
        replace(facts(800, 1), sum=SecureSum())


def test_a_frontier_has_both_curves() -> None:
    found = frontier(facts(800, 10), (0.5, 1.0))
    for line in found["lines"]:
        less = line["noise_to_signal"] / line["with_secure_sum"]["noise_to_signal"]
        assert less == pytest.approx(math.sqrt(7), rel=1e-9)
    least = found["least_epsilon_with_secure_sum"]
    for verdict, line in (("not too small", TOO_SMALL), ("good", THIN)):
        there = recommend(replace(facts(800, 10, least[verdict]), sum=SecureSum())).expected.noise_to_signal
        assert there == pytest.approx(line, rel=1e-3)
        assert least[verdict] < found["least_epsilon"][verdict]
    alone = frontier(replace(facts(800, 10), sum=SecureSum()), (0.5,))
    assert "least_epsilon_with_secure_sum" not in alone
    assert alone["lines"][0]["noise_to_signal"] == found["lines"][0]["with_secure_sum"]["noise_to_signal"]
    assert "with_secure_sum" not in frontier(facts(800, 2), (0.5,))["lines"][0]


def test_losses_and_moments_count_as_derived() -> None:
    base = expected(job(5_000, 10))
    plain = expected(job(5_000, 10, method=FirstOrderConsensus()))
    logistic = expected(job(5_000, 10, method=FirstOrderConsensus(), loss=Logistic()))
    debiased = expected(job(5_000, 10, method=FirstOrderConsensus(), loss=Debiased(HalfLogistic(), 1.0)))
    assert None not in (base, plain, logistic, debiased)
    q = base.noise_to_signal
    assert plain.noise_to_signal == pytest.approx(q * CENTRED**2 * math.sqrt(1 - SHARE), rel=1e-3)
    assert logistic.noise_to_signal == pytest.approx(2 * plain.noise_to_signal, rel=1e-9)
    spread = (math.e + 1) / (math.e - 1)
    assert debiased.noise_to_signal == pytest.approx(spread * plain.noise_to_signal, rel=1e-9)


def test_nothing_is_said_where_the_formula_says_nothing() -> None:
    assert expected(job(5_000, 10, method=FirstOrderConsensus(), privacy=NoPrivacy())) is None
    assert expected(job(5_000, 10, method=FirstOrderConsensus(), loss=Squared(1.0, 1.0))) is None


@pytest.mark.parametrize("case", ALGORITHMS, ids=named)
def test_every_algorithm_is_judged_or_left_alone(case: Case) -> None:
    one = case.job()
    found = expected(one)
    assert found is None or found.noise_to_signal > 0
    assert found is None or one.private


def test_more_records_more_epsilon_and_fewer_parties_help() -> None:
    base = recommend(facts(2_000, 10)).expected.noise_to_signal
    assert recommend(facts(4_000, 10)).expected.noise_to_signal == pytest.approx(base / 2)
    assert recommend(facts(2_000, 40)).expected.noise_to_signal == pytest.approx(2 * base)
    assert recommend(facts(2_000, 10, 0.6)).expected.noise_to_signal < base
    assert recommend(facts(2_000, 10), signal=2 * SIGNAL).expected.noise_to_signal == pytest.approx(base / 4)


def test_what_the_warning_asks_for_is_enough() -> None:
    found = recommend(facts(800, 10))
    short = found.expected.noise_to_signal / THIN
    assert f"{math.ceil(800 * short)} records" in found.warning
    better = recommend(facts(math.ceil(800 * short), 10))
    assert better.expected.verdict == "good"
    assert better.expected.noise_to_signal == pytest.approx(THIN, rel=1e-3)
    least = frontier(facts(800, 10))["least_epsilon"]
    for verdict, line in (("not too small", TOO_SMALL), ("good", THIN)):
        there = recommend(facts(800, 10, least[verdict])).expected.noise_to_signal
        assert there == pytest.approx(line, rel=1e-3)


def test_bins_are_fine_where_noise_is_small() -> None:
    assert recommend(facts(40_000, 10)).encoding == "binned"
    assert recommend(facts(40_000, 100)).encoding == "binned"
    # A few thousand records: ten bins as long as parties share one noise, five where each has its own.
    alone, summed = facts(2_400, 10, 1.0), replace(facts(2_400, 10, 1.0), sum=SecureSum())
    assert (recommend(alone).encoding, recommend(summed).encoding) == ("coarse", "binned")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"records": 0}, "records"),
        ({"epsilons": ()}, "parties"),
        ({"epsilons": (0.0,)}, "epsilon"),
        ({"delta": 0.0}, "delta"),
        ({"records": 2, "epsilons": (1.0, 1.0, 1.0)}, "fewer than 3 parties"),
    ],
)
def test_facts_that_are_none_are_refused(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Facts(**{"records": 100, "epsilons": (1.0,), "delta": 1e-6, **wrong})
    with pytest.raises(ConfigError, match="signal"):
        recommend(facts(100, 1), signal=1.5)


def test_the_facts_of_an_example_are_those_of_its_data() -> None:
    config = configs.read(EXAMPLES / "first_order_consensus.toml")
    known, prepared = preview.facts(config), build.prepare(config)
    assert known.trained == prepared.train.sizes.sum()
    assert known.records == len(adult.load())
    assert known.dims["binned"] == prepared.train.dim
    a9a = replace(config, data=replace(config.data, source="embedded:a9a", encoding="minmax"))
    assert preview.facts(a9a).dims["minmax"] == len(adult.A9A_NAMES)
    assert preview.facts(a9a).trained == round(0.8 * len(adult.load("a9a")))


SMALL = {"parties": {"sizes": [80] * 10, "count": None}, "privacy": {"epsilon": 0.5, "delta": DELTA}}
ENOUGH = {"parties": {"sizes": [9_000] * 10, "count": None}, "privacy": {"epsilon": 0.5, "delta": DELTA}}
METHOD = {
    "algorithm": {"name": "first_order_consensus", "D_w": None, "rho": None, "rounds": 41},
    "loss": {"name": "half_logistic"},
    "regularizer": {"weight": 0.0},
    "features": {"moments": True},
}


@pytest.mark.parametrize("command", ["account", "plan"])
def test_account_and_plan_warn_of_declared_sizes(command: str, place: Place) -> None:
    words = ("--epsilon", 0.5, "--delta", DELTA) if command == "plan" else ()
    small = place.call(command, place.config(PRIVATE, **METHOD, **SMALL), *words, "--json")
    assert small.code == 0
    assert "too small" in small.object["expected"]["warning"]
    enough = place.call(command, place.config(PRIVATE, **METHOD, **ENOUGH), *words, "--json")
    assert (enough.object["expected"]["warning"], enough.object["expected"]["verdict"]) == (None, "good")
    shown = place.call(command, place.config(PRIVATE, **METHOD, **SMALL), *words).out
    assert "the budget is too small" in " ".join(shown.split())


def test_plan_takes_the_number_of_records(place: Place) -> None:
    config = place.config(PRIVATE, **METHOD)
    words = ("plan", config, "--epsilon", 0.5, "--delta", DELTA, "--json")
    assert "expected" not in place.call(*words).object
    few, many = (place.call(*words, "--records", count).object for count in (300, 90_000))
    assert few["expected"]["verdict"] == "too small"
    assert (many["expected"]["verdict"], many["recommended"]["encoding"]) == ("good", "binned")


def test_account_says_what_secure_sums_would_gain(place: Place) -> None:
    config = place.config(PRIVATE, **METHOD, **ENOUGH)
    found = place.call("account", config, "--json").object
    secure = with_changes(ENOUGH, {"privacy": {"sum": "secure"}})
    then = place.call("account", place.config(PRIVATE, "then.toml", **METHOD, **secure), "--json").object
    assert "with_secure_sum" not in then
    assert found["with_secure_sum"]["noise_to_signal"] == then["expected"]["noise_to_signal"]
    assert '[privacy] sum = "secure" would bring it to' in " ".join(place.call("account", config).out.split())
    dp = place.call("account", place.config(PRIVATE, "dp.toml", **ENOUGH), "--json").object
    assert "expected" in dp
    assert "with_secure_sum" not in dp  # dp_admm cannot


def test_recommend_knows_what_a_config_sums(place: Place) -> None:
    secure = with_changes(ENOUGH, {"privacy": {"sum": "secure", "colluding": 5}})
    config = place.config(PRIVATE, **METHOD, **secure)
    found = place.call("recommend", config, "--json").object
    assert (found["sum"], found["colluding"]) == ("secure", 5)
    assert "at most 5 of 10 parties collude" in " ".join(place.call("recommend", config).out.split())
    plan = place.call("plan", config, "--epsilon", 0.5, "--delta", DELTA, "--json").object
    assert plan["recommended"]["sum"] == "secure"
    plain = place.call("recommend", place.config(PRIVATE, "plain.toml", **METHOD, **ENOUGH))
    assert "times less noise" in " ".join(plain.out.split())


def test_train_warns_before_it_spends_and_writes_it_down(place: Place) -> None:
    said = place.train(place.config(), "--json")
    assert said.err.startswith("warning: the budget is too small")
    kept = json.loads((place.out / "result.json").read_text())["expected"]
    assert said.err == f"warning: {kept['warning']}\n"


def test_the_estimator_warns_in_our_own_category() -> None:
    X, y = rows(n=800, d=20)
    model = ADMMClassifier(classes=(0, 1), row_bound=5.0, epsilon=0.5, parties=10, random_state=0)
    with pytest.warns(BudgetWarning, match="the budget is too small"):
        model.fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.set_params(epsilon=2.9).fit(np.tile(X, (3, 1)), np.tile(y, 3))
        model.set_params(epsilon=0.5, parties=1).fit(*rows(n=6_000, d=5))


def test_the_estimator_warns_of_an_epsilon_that_promises_little() -> None:
    X, y = rows(n=800, d=20)
    with pytest.warns(BudgetWarning, match="weak promise"):
        ADMMClassifier(classes=(0, 1), row_bound=5.0, epsilon=5.0, parties=10, random_state=0).fit(X, y)


def test_several_classes_are_warned_of_once() -> None:
    X, y = rows(n=90)
    model = ADMMClassifier(classes=(0, 1, 2), row_bound=2.0, parties=3, random_state=0, rounds=5)
    with pytest.warns(BudgetWarning) as heard:
        model.fit(X, (y + np.arange(90)) % 3)
    assert len(heard) == 1


def test_what_is_missing_is_named_by_an_option_that_there_is(place: Place) -> None:
    for words, missing in (
        (("frontier",), {"--records", "--parties"}),
        (("frontier", "--records", 800), {"--parties"}),
        (("recommend", "--parties", 3), {"--records", "--epsilon"}),
    ):
        said = place.call(*words)
        assert said.code == 2
        assert {option for option in ("--records", "--parties", "--epsilon") if option in said.err} == missing
    config = place.config(CLEAR)
    assert "--delta" in (said := place.call("frontier", config, "--records", RECORDS).err)
    assert "--epsilon" not in said


@pytest.mark.parametrize(("records", "parties"), [(800, 10), (3000, 3), (40_000, 2)])
def test_the_strips_of_a_frontier_are_its_verdicts(records: int, parties: int) -> None:
    """Where the table says "too small", so does the picture, for both ways to add the noise."""
    from matplotlib.colors import to_hex
    from matplotlib.figure import Figure

    found = frontier(told(records, parties))
    names: dict[str, Zone] = {"good": "good", "thin": "thin", "too small": "poor"}
    drawn = [(found["least_epsilon"], [line["verdict"] for line in found["lines"]])]
    if "least_epsilon_with_secure_sum" in found:
        lines = [line["with_secure_sum"]["verdict"] for line in found["lines"]]
        drawn.append((found["least_epsilon_with_secure_sum"], lines))
    strips = Figure().subplots()
    view.verdicts(strips, [(least, False) for least, _ in drawn], (0.04, 12.0), LIGHT)
    for row, (_, verdicts) in enumerate(drawn):
        for line, verdict in zip(found["lines"], verdicts, strict=True):
            here = [
                to_hex(bar.get_facecolor())
                for bar in strips.patches
                if bar.get_y() < row < bar.get_y() + bar.get_height()
                and bar.get_x() <= line["epsilon"] < bar.get_x() + bar.get_width()
            ]
            assert here == [LIGHT.zones[names[verdict]]]


def test_the_commands_agree_with_the_functions(place: Place) -> None:
    given = ("--records", 800, "--parties", 10)
    found = place.call("recommend", *given, "--epsilon", 0.5, "--json").object
    summed = recommend(replace(told(800, 10), sum=SecureSum()))
    assert found == json.loads(json.dumps(summed.table))
    traced = place.call("frontier", *given, "--epsilons", "0.5,1", "--out", place.out, "--json").object
    assert traced == json.loads(json.dumps(frontier(told(800, 10), (0.5, 1.0))))
    assert json.loads((place.out / "frontier.json").read_text()) == traced
    assert (place.out / "frontier.png").read_bytes().startswith(b"\x89PNG")
    shown = " ".join(place.call("recommend", EXAMPLES / "first_order_consensus.toml").out.split())
    assert "45,222 records at 10 parties, 36,178 of them to train on" in shown
    assert "159 features" in shown
    assert "it is not their accuracy" in " ".join(place.call("frontier", *given).out.split())


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (("recommend",), "--records"),
        (("recommend", "--records", 10), "--parties"),
        (("recommend", "--records", 10, "--parties", 20, "--epsilon", 1), "fewer"),
        (("frontier", "--records", 100, "--parties", 2, "--epsilons", "a,b"), "--epsilons"),
        (("frontier", "--records", 100, "--parties", 2, "--epsilons", "0"), "epsilon"),
        (("recommend", EXAMPLES / "first_order_consensus.toml", "--parties", 3), "--parties"),
        (("recommend", EXAMPLES / "sharing.toml"), "hold records"),
    ],
)
def test_wrong_usage_is_2(words: Any, names: str, place: Place) -> None:
    said = place.call(*words, "--json")
    assert said.code == 2
    assert names in said.object["message"]


def test_a_config_without_records_says_what_to_give(place: Place) -> None:
    said = place.call("recommend", place.config(), "--json")
    assert said.code == 2
    assert "--records" in said.object["message"]
    assert warning(job(800, 10)) is not None


REGRESSION = {"loss": {"name": "squared", "label_bound": 1.0, "radius": 1.0}, "data": {"classes": None}}


@pytest.mark.parametrize("command", ["recommend", "frontier"])
def test_a_regression_is_not_covered_and_told_so(command: str, place: Place) -> None:
    config = place.config(PRIVATE, **{**METHOD, **ENOUGH, **REGRESSION})
    said = place.call(command, config, "--json")
    assert said.code == 2
    assert "do not cover regression" in said.object["message"]
    assert "`privadmm account`" in said.object["message"]
    shown = place.call("account", config, "--json").object
    assert "expected" not in shown
    assert "regression" in shown["not_expected"]


def test_account_says_why_there_is_no_outlook(place: Place) -> None:
    config = place.config(PRIVATE, **METHOD)
    assert "[parties] sizes" in place.call("account", config, "--json").object["not_expected"]
    assert "[parties] sizes is missing" in " ".join(place.call("account", config).out.split())
    known = place.call("account", place.config(PRIVATE, **METHOD, **ENOUGH), "--json").object
    assert "not_expected" not in known
    columns = place.call("account", EXAMPLES / "sharing.toml", "--json").object
    assert "hold columns" in columns["not_expected"]


@pytest.mark.parametrize(("parties", "sums"), [(2, "local"), (3, "secure"), (10, "secure")])
def test_recommend_judges_what_init_would_write_and_tells_of_own_noise(parties: int, sums: str, place: Place) -> None:
    source = place.path / "p.csv"
    source.write_text("age,ill\n" + "".join(f"{row % 60},{row % 2}\n" for row in range(99)))
    given = ("--records", 800, "--parties", parties, "--epsilon", 0.5)
    found = place.call("recommend", *given, "--json").object
    init = ("init", place.path / "c.toml", "--source", source, "--label", "ill", "--public")
    written = place.call(*init, *given, "--json").object["recommended"]
    assert (found["sum"], found["expected"], found["with_own_noise"]) == (
        *(sums, written["expected"]),
        written["with_own_noise"],
    )
    if sums == "secure":
        own = recommend(told(800, parties)).expected
        assert found["with_own_noise"]["noise_to_signal"] == pytest.approx(own.noise_to_signal)
        shown = " ".join(place.call("recommend", *given).out.split())
        assert f"own noise if each party added its own instead, {own.noise_to_signal:.2g} times" in shown


@pytest.mark.parametrize(("records", "verdict"), [(90_000, "good"), (3_000, "thin")])
def test_good_news_has_a_line_too(records: int, verdict: str, place: Place) -> None:
    shown = place.call("recommend", "--records", records, "--parties", 10, "--epsilon", 0.5).out
    assert any(line.split()[:2] == ["verdict", f"{verdict}:"] for line in shown.splitlines())
