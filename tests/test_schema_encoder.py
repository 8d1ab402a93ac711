"""`SchemaEncoder`: declared features from any table, nothing learnt from rows; and pipelines that are private whole."""

import copy
import pickle
import warnings
from datetime import date, datetime
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer, PolynomialFeatures, RobustScaler, StandardScaler

from privadmm import (
    ADMMClassifier,
    PrivatePipeline,
    Schema,
    SchemaEncoder,
    check_pipeline,
    make_private_pipeline,
    read,
)
from privadmm.errors import ConfigError, DataError, PooledWarning
from privadmm.estimators.pooled import pooled
from privadmm.runs.new_schema import declare

DECLARED: dict[str, Any] = {
    "age": {"range": [0, 100], "missing": True},
    "visits": {"range": [0, 40], "edges": "counts"},
    "ward": {"categories": ["a", "b"], "other": True, "missing": True},
    "admitted": {"date": "%Y-%m-%d", "range": ["2020-01-01", "2029-12-31"], "parts": ["month"]},
}
ROWS: list[dict[str, Any]] = [
    {"age": 50, "visits": 0, "ward": "a", "admitted": "2020-01-01", "note": "x"},
    {"age": None, "visits": 7, "ward": "zz", "admitted": "2029-12-31", "note": "y"},
    {"age": 25, "visits": 400, "ward": None, "admitted": "soon", "note": "z"},
]
TABLE = {name: [row[name] for row in ROWS] for name in ROWS[0]}
NAMES = [
    *("age", "age=(missing)"),
    *(f"visits={bin}" for bin in ("[0, 1)", "[1, 2)", "[2, 3)", "[3, 5)", "[5, 10)", "[10, 20)", "[20, 40]")),
    *("ward=a", "ward=b", "ward=(other)", "ward=(missing)"),
    *("admitted", *(f"admitted=month:{month}" for month in range(1, 13))),
]


def expected() -> np.ndarray:
    def unit(place: int, width: int) -> list[int]:
        return [int(j == place) for j in range(width)]

    return np.array(
        [
            [0.5, 0, *unit(0, 7), *unit(0, 4), 0, *unit(0, 12)],
            [0, 1, *unit(4, 7), *unit(2, 4), 1, *unit(11, 12)],
            [0.25, 0, *unit(6, 7), *unit(3, 4), 0, *unit(-1, 12)],
        ]
    )


def pandas_table() -> Any:
    return pytest.importorskip("pandas").DataFrame(TABLE)


def pandas_nullable() -> Any:
    pandas = pytest.importorskip("pandas")
    dates = pandas.to_datetime(pandas.Series(TABLE["admitted"]), errors="coerce")
    typed = {"age": "Int64", "ward": "string"}
    return pandas.DataFrame({**TABLE, "admitted": dates}).astype(typed)


def polars_table() -> Any:
    polars = pytest.importorskip("polars")
    dates = [date.fromisoformat(cell) if cell != "soon" else None for cell in TABLE["admitted"]]
    return polars.DataFrame({**TABLE, "admitted": dates})


def pyarrow_table() -> Any:
    return pytest.importorskip("pyarrow").table(TABLE)


def structured() -> Any:
    kinds = [("age", "f8"), ("visits", "i8"), ("ward", "U5"), ("admitted", "U10")]
    return np.array([(row["age"] or np.nan, row["visits"], row["ward"] or "", row["admitted"]) for row in ROWS], kinds)


def plain_array() -> Any:
    return np.array([[row[name] for name in DECLARED] for row in ROWS], dtype=object)


TABLES = (pandas_table, pandas_nullable, polars_table, pyarrow_table, structured, plain_array)


@pytest.mark.parametrize("make", [lambda: ROWS, lambda: TABLE, *TABLES])
def test_every_kind_of_table_is_encoded_alike(make: Any) -> None:
    X = make()
    encoder = SchemaEncoder(DECLARED)
    np.testing.assert_array_equal(encoder.transform(X), expected())  # not fitted: there is nothing to fit
    np.testing.assert_array_equal(encoder.fit(X).transform(X), expected())
    assert encoder.get_feature_names_out().tolist() == NAMES
    assert encoder.feature_names_in_.tolist() == list(DECLARED)
    assert (np.linalg.norm(expected(), axis=1) <= encoder.row_bound_).all()
    assert encoder.row_bound_ == pytest.approx(np.sqrt(5))


def test_cells_that_are_not_read_as_they_stand_are_counted() -> None:
    encoder = SchemaEncoder(ranges={"age": (0, 100)}, dates={"seen": {"date": "%Y", "range": ("2020", "2029")}})
    table = {"age": [120, None, 3, 4], "seen": ["2021", "21", "2030", "2022"]}
    expected = {"age": {"clipped": 1, "no_number": 1}, "seen": {"clipped": 1, "no_date": 1}}
    assert encoder.unread(table) == encoder.fit().unread(table) == expected
    assert encoder.unread({"age": [1], "seen": ["2021"]}) == {}


def test_fit_on_neighbouring_rows_gives_the_same_bytes() -> None:
    other = copy.deepcopy(ROWS)
    other[1] = {"age": 1e300, "visits": "x", "ward": float("nan"), "admitted": b"\xff", "note": None}
    one, two = (pickle.dumps(SchemaEncoder(DECLARED).fit(rows)) for rows in (ROWS, other))
    assert one == two == pickle.dumps(SchemaEncoder(DECLARED).fit())
    # Control: a scaler learns.
    ages = np.array([[50.0], [30.0]]), np.array([[50.0], [31.0]])
    assert len({pickle.dumps(StandardScaler().fit(X)) for X in ages}) == 2


def test_a_file_a_mapping_a_schema_and_keywords_declare_the_same(tmp_path: Any) -> None:
    path = tmp_path / "schema.toml"
    path.write_text(
        "age = { range = [0, 100], missing = true }\n"
        'visits = { range = [0, 40], edges = "counts" }\n'
        'ward = { categories = ["a", "b"], other = true, missing = true }\n'
        'admitted = { date = "%Y-%m-%d", range = ["2020-01-01", "2029-12-31"], parts = ["month"] }\n'
    )
    keywords = {
        "ranges": {name: DECLARED[name] for name in ("age", "visits")},
        "categories": {"ward": DECLARED["ward"]},
        "dates": {"admitted": DECLARED["admitted"]},
    }
    config = tmp_path / "config.toml"
    config.write_text("[data.schema]\n" + path.read_text() + '[algorithm]\nname = "x"\n')
    schema = Schema.from_table(DECLARED, label="y", classes=None, row_bound=1.0)
    for encoder in (
        SchemaEncoder(path),
        SchemaEncoder(str(path)),
        SchemaEncoder(config),
        SchemaEncoder(schema),
        SchemaEncoder(**keywords),
    ):
        np.testing.assert_array_equal(encoder.fit(ROWS).transform(ROWS), expected())
    fitted = SchemaEncoder(path).fit()
    path.write_text("age = [0, 1]\n")
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(fitted)).transform(ROWS), expected())
    assert clone(fitted).fit().get_feature_names_out().tolist() == ["age"]


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_output_is_a_data_frame_where_that_is_asked_for(library: str) -> None:
    pytest.importorskip(library)
    X = pandas_table().set_axis([7, 8, 9]) if library == "pandas" else polars_table()
    made = SchemaEncoder(DECLARED).set_output(transform=library).fit_transform(X)
    assert list(made.columns) == NAMES
    np.testing.assert_array_equal(made.to_numpy(), expected())
    if library == "pandas":
        assert made.index.tolist() == [7, 8, 9]


def test_a_column_transformer_and_a_pipeline_take_it() -> None:
    X = pandas_table()
    numbers = SchemaEncoder(ranges={"age": DECLARED["age"]})
    both = ColumnTransformer([("numbers", numbers, ["age"]), ("words", SchemaEncoder(DECLARED), list(DECLARED))])
    made = both.fit_transform(X)
    np.testing.assert_array_equal(made, np.concatenate([expected()[:, :2], expected()], axis=1))
    assert both.get_feature_names_out()[:2].tolist() == ["numbers__age", "numbers__age=(missing)"]


def people(n: int = 300) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    age = rng.uniform(0, 100, n)
    missing = rng.uniform(size=n) < 0.2
    cells = [np.where(missing, np.nan, age).tolist(), rng.choice(["a", "b"], n).tolist()]
    return np.array(cells, dtype=object).T, np.where(age > 50, "yes", "no")


def model() -> ADMMClassifier:
    return ADMMClassifier(classes=("no", "yes"), row_bound=2.0, parties=3, epsilon=5.0, random_state=0)


def test_a_private_pipeline_trains_and_searches() -> None:
    X, y = people()
    encoder = SchemaEncoder(ranges={"age": {"range": [0, 100], "missing": True}}, categories={"ward": ["a", "b"]})
    pipeline = make_private_pipeline(encoder, model())
    assert pipeline.fit(X, y).score(X, y) > 0.6
    assert pipeline[:-1].get_feature_names_out().tolist() == ["age", "age=(missing)", "ward=a", "ward=b"]
    assert isinstance(clone(pipeline), PrivatePipeline)
    assert len(cross_val_score(pipeline, X, y, cv=2)) == 2


ENCODER = SchemaEncoder(DECLARED)


@pytest.mark.parametrize(
    ("front", "named"),
    [
        ([StandardScaler()], "standardscaler"),
        ([ENCODER, StandardScaler()], "standardscaler"),
        ([SimpleImputer(), ENCODER], "simpleimputer"),
        ([FunctionTransformer(lambda X: X - X.mean(0))], "functiontransformer"),
        ([make_pipeline(ENCODER, StandardScaler())], "pipeline__standardscaler"),
        ([ColumnTransformer([("c", StandardScaler(), ["age"])])], "columntransformer__c"),
        ([ColumnTransformer([("c", ENCODER, ["age"])], remainder=SimpleImputer())], "columntransformer__remainder"),
        ([ColumnTransformer([("c", ENCODER, make_column_selector())])], "columntransformer"),
        ([FeatureUnion([("e", ENCODER), ("s", StandardScaler())])], "featureunion__s"),
        ([type("Mine", (SchemaEncoder,), {})(DECLARED)], "mine"),
    ],
)
def test_a_step_that_may_learn_from_rows_is_named_and_refused(front: list[Any], named: str) -> None:
    plain = make_pipeline(*front, model())
    (problem,) = check_pipeline(plain)
    assert f"step {named!r}" in problem
    with pytest.raises(ConfigError, match=named):
        make_private_pipeline(*front, model()).fit(ROWS, ["no", "yes", "no"])
    if "columntransformer'" not in problem:
        assert check_pipeline(plain, public=[named]) == []


def test_fixed_maps_are_let_through_and_other_last_steps_are_not() -> None:
    assert check_pipeline(make_pipeline(ENCODER, PolynomialFeatures(), Normalizer(), model())) == []
    assert check_pipeline(Pipeline([("e", ENCODER), ("p", "passthrough"), ("m", model())])) == []
    with pytest.raises(ConfigError, match="LogisticRegression"):
        make_private_pipeline(ENCODER, LogisticRegression()).fit(ROWS, ["no", "yes", "no"])
    with pytest.raises(ConfigError, match="takes a scikit-learn Pipeline"):
        check_pipeline(model())


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({}, "nothing is declared"),
        ({"schema": 3}, "schema is a TOML file"),
        ({"schema": "nowhere.toml"}, "nowhere.toml: no such file"),
        ({"schema": DECLARED, "ranges": {"age": [0, 1]}}, "'age' is declared twice"),
        ({"ranges": {"age": ["a"]}}, "ranges: column 'age' declares no range"),
        ({"ranges": [0, 1]}, "ranges is a mapping"),
        ({"schema": DECLARED, "encoding": "bins"}, "encoding must be"),
        ({"schema": DECLARED, "on_bad": "skip"}, "on_bad must be"),
        ({"schema": DECLARED, "extra": "drop"}, "extra must be"),
    ],
)
def test_a_wrong_declaration_is_a_sentence(arguments: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        SchemaEncoder(**arguments).fit()


@pytest.mark.parametrize(
    ("X", "why"),
    [
        ({"Age": [1], "visits": [1], "ward": ["a"], "admitted": [""]}, r"no column 'age'.*did you mean 'Age'"),
        (np.ones((2, 3)), "4 declared columns in their order"),
        ("age", "X is a str"),
        ([[1, 2, 3, 4]], "X is a list"),
        (7, "X is a int"),
    ],
)
def test_a_wrong_table_is_a_sentence(X: Any, why: str) -> None:
    with pytest.raises(DataError, match=why):
        SchemaEncoder(DECLARED).transform(X)


def test_extra_columns_and_bad_cells_may_be_refused() -> None:
    with pytest.raises(DataError, match="'note'"):
        SchemaEncoder(DECLARED, extra="refuse").fit(TABLE)
    with pytest.raises(DataError, match=r"'admitted': 1 of 3 rows hold no date.*row 3") as caught:
        SchemaEncoder(DECLARED, on_bad="refuse").transform(ROWS)
    assert "soon" not in str(caught.value)


@pytest.mark.filterwarnings("ignore::privadmm.errors.FitWarning")  # rows as they are here are longer than the bound
@pytest.mark.parametrize("scaler", [StandardScaler(), RobustScaler()])
def test_an_estimator_warns_of_rows_that_give_a_scaler_away(scaler: Any) -> None:
    rng = np.random.default_rng(1)
    X, y = rng.normal(3, 2, (60, 2)), np.array(["no", "yes"] * 30)
    with pytest.warns(PooledWarning, match="SchemaEncoder"):
        make_pipeline(scaler, model()).fit(X, y)
    # Controls: rows as they are, rows scaled by public constants, a part of the scaled rows, sparse rows, a constant.
    scaled = scaler.fit_transform(X)
    for other in (X, (X - 3) / 2, scaled[:-1], np.ones((60, 2)), X[:5], SchemaEncoder(DECLARED).transform(ROWS * 9)):
        assert pooled(other) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error", PooledWarning)
        model().fit(X, y)


def test_columns_of_parquet_are_read_as_dates(tmp_path: Any) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    days = [date(2020, 1, 1), None, date(2029, 12, 31)]
    stamps = pyarrow.array([datetime(2020, 1, 1), None, datetime(2029, 12, 31)], pyarrow.timestamp("us", tz="UTC"))
    for number, column in enumerate([pyarrow.array(days), stamps, pyarrow.array(["2020-01-01", "", "2029-12-31"])]):
        path = tmp_path / f"{number}.parquet"
        parquet.write_table(pyarrow.table({"admitted": column, "y": ["no", "yes", "no"]}), path)
        schema = Schema.from_table(
            {"admitted": DECLARED["admitted"] | {"missing": True}}, label="y", classes=("no", "yes"), row_bound=1.0
        )
        X = read(path, schema=schema).X
        assert X[:, 0].tolist() == [0, 0, 1]
        assert X[:, -1].tolist() == [0, 1, 0]
        proposed = declare(path, "y").columns["admitted"]
        assert (proposed.format, proposed.missing) == ("%Y-%m-%d", True)  # type: ignore[union-attr]
