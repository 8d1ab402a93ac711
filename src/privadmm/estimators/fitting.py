"""Base of the scikit-learn estimators: they make the same jobs as a config file does.

Everything that a guarantee rests on is an argument. Nothing is read off the data: not the classes, not the
norm bound. `fit` simulates the parties in this process, so its noise comes from `random_state`.
"""

import hashlib
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from privadmm.algorithms.first_order_consensus import FirstOrderConsensus
from privadmm.algorithms.moments import Centred
from privadmm.data import splits
from privadmm.data.arrays import Floats, Ints
from privadmm.data.columns import People
from privadmm.data.frame import Frame
from privadmm.data.misread import clipped_warning, longer
from privadmm.data.shards import Shards
from privadmm.engine.block import cluster
from privadmm.engine.job import Job, train
from privadmm.engine.phases import Algorithm
from privadmm.engine.public import Public
from privadmm.errors import BudgetWarning, ConfigError, DataError, FitWarning, PooledWarning, RefusedError
from privadmm.estimators import coefficients as by_column
from privadmm.estimators import plots
from privadmm.estimators.account import Account, Series, account_of, person
from privadmm.estimators.looks import summary
from privadmm.estimators.named import algorithm_of, graph_of, loss_of, regularizer_of
from privadmm.estimators.pooled import pooled
from privadmm.optim.graphs import Graph
from privadmm.optim.losses import Debiased, HalfLogistic, Logistic, Loss
from privadmm.optim.regularizers import L2, Regularizer
from privadmm.params import HUGE, TINY, check_nonnegative, check_positive, check_whole
from privadmm.privacy.accounting import together as of_a_person
from privadmm.privacy.calibration import NoPrivacy, Target, epsilons
from privadmm.privacy.history import STARTED_UNPROTECTED, Start
from privadmm.privacy.mechanisms import Simulation
from privadmm.privacy.sums import SecureSum
from privadmm.runs.ending import model_of
from privadmm.runs.model import Model
from privadmm.runs.recommend import warnings_of
from privadmm.runs.refits import NO_START, Fit, coefficients, cost, starts_of


class ADMMEstimator(BaseEstimator):  # type: ignore[misc]
    """Base of classifier and regressor: parties, budget, jobs, and a linear model of clipped rows."""

    row_bound: float | None
    epsilon: float | None
    delta: float | None
    party_epsilon: Sequence[float] | None
    adjacency: str
    secure_sum: bool
    colluding: int | None
    fewest: int | None
    label_epsilon: float | None = None
    parties: int
    algorithm: Algorithm | str | Mapping[str, Any] | None
    rounds: int | None
    loss: Loss | str | Mapping[str, Any] | None = None
    regularizer: Regularizer | str | Mapping[str, Any] | None
    intercept: float
    graph: Graph | str | None
    warm_start: bool
    random_state: int | None
    columns: Sequence[int] | None = None
    ledger: str | Path | Account | None
    _step: ClassVar[Literal["numbers"] | None] = None  # of the recommended method

    def _keep(self, arguments: dict[str, Any]) -> None:
        """Set each argument of a constructor as the attribute of that name, as scikit-learn expects."""
        self.__dict__.update({name: value for name, value in arguments.items() if name != "self"})

    def __sklearn_clone__(self) -> Any:
        """Clone as scikit-learn does, and let the clones' fits be counted together."""
        copy = super().__sklearn_clone__()
        copy._series = self.__dict__.setdefault("_series", Series())
        return copy

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _scores(self, X: Any) -> list[Floats]:
        """Score of every row by each model: a.w, with rows a that are clipped and scaled as in training."""
        check_is_fitted(self, "models_")
        X = self._numbers(X, reset=False)
        return [model.scores(X) for model in self.models_]

    def _fit(self, X: Any, targets: list[Floats], classes: tuple[Any, Any] | None, groups: Any) -> None:
        """Train one job for each target, all under one budget, each with noise of its own."""
        row_bound, seed = self._declared()
        frame = Frame(row_bound, float(self.intercept), self._names(), classes)
        if self.epsilon is not None and (problem := pooled(X)) is not None:
            warnings.warn(problem, PooledWarning, stacklevel=3)
        rows, all_rows = list[Any](), np.arange(X.shape[0])
        if X.shape[0] != len(targets[0]):
            raise DataError(f"X has {X.shape[0]} rows and y has {len(targets[0])}")
        if self.columns is None:
            owner, names = self._owners(X.shape[0], groups, seed)
            rows = splits.gather(X, owner, len(names))
        elif groups is not None:
            raise ConfigError("groups name the parties of rows, and with columns every party has all rows")
        else:
            held = splits.by_columns(X.shape[1], self.columns)
            frame = frame.split([part.tolist() for part in held], clipped=self.adjacency != "column")
            names = tuple(str(party) for party in range(len(held)))
        q = None if frame.clipped else getattr(algorithm_of(self.algorithm), "column_bound", None)
        starts = starts_of(self, frame, len(targets)) if self.warm_start else []
        fit = Fit(names, groups is None, starts[0].past if starts else ())
        models, kept = list[Model](), list[plots.Rounds]()
        entry, turn = tuple[str, ...](), len(fit.before)
        try:
            for number, target in enumerate(targets):
                data: Shards | People = frame.shards(X, target, rows) if rows else frame.people(X, target, all_rows, q)
                widths = data.widths if isinstance(data, People) else ()
                start = starts[number] if starts else None
                job = self._job(data.sizes, data.dim, len(targets), start, widths)
                if number == 0:
                    later_job = behind(job) if isinstance(job.algorithm, Centred) else job
                    jobs = [job, *[later_job] * (len(targets) - 1)]
                    spends = fit.foreseen(jobs)
                    warn_clipped(X, frame)
                    for problem in warnings_of(job, spends):
                        warnings.warn(problem, BudgetWarning, stacklevel=3)
                    entry, turn = self._count(fit, jobs, frame)
                map = models[0].features if models else None
                if map is not None and isinstance(data, Shards):
                    data, job = data.mapped([map] * len(data.ids), data.dim + 1), behind(fit.jobs[0])
                blocks = cluster(job, data, Simulation(stream(seed, number, turn)))
                fit.begin(job, blocks.workers[0].ledger)
                model_then = partial(model_of, job, frame=frame, mode=Simulation.mode, map=map)
                kept.append(plots.Rounds(model_then, job.public.rounds, len(frame.columns)))
                models.append(model_then(train(job, blocks, [kept[-1]])))
            self.history_ = fit.finished(models)
            self.counted_ = (*(getattr(self, "counted_", ()) if fit.before else ()), *entry)
        except BaseException:
            if fit.jobs:  # no model is handed out, but what was released stays spent
                self.history_ = (*getattr(self, "history_", ()), fit.broken())
                self.counted_ = (*getattr(self, "counted_", ()), *entry)
            raise
        self._publish(fit, models)
        self.path_ = plots.by_round(kept)

    def _count(self, fit: Fit, jobs: list[Job], frame: Frame) -> tuple[tuple[str, ...], int]:
        """Charge the whole fit, a job for each class, or refuse it. Without a ledger, warn if clones are fitted too.

        Returns the ledger's entry, and the number of fits before this one that its noise must be independent of.
        """
        job, account = jobs[0], account_of(self.ledger)
        if account is None:
            series = self.__dict__.get("_series")
            if series is not None and job.private and job.delta is not None:
                problem = series.count(person(jobs), job.delta)
                if problem is not None:
                    warnings.warn(problem, BudgetWarning, stacklevel=4)
            return (), len(fit.before)
        counted = getattr(self, "counted_", ()) if fit.before else ()
        if fit.before and (len(counted) != len(fit.before) or not set(counted) <= set(account.entries())):
            raise RefusedError(
                "the warm start descends from fits that this ledger has not counted. Nothing was fitted: give the "
                "ledger from the first fit on, or start afresh with warm_start=False"
            )
        entry, number = account.charge(job, person(jobs), frame.bounds)
        if (problem := account.weak_promise()) is not None:
            warnings.warn(problem, BudgetWarning, stacklevel=4)
        return (entry,), number

    def _publish(self, fit: Fit, models: list[Model]) -> None:
        """Set the fitted attributes, and remove those of an earlier fit that this one does not have."""
        for name in ("coef_", "intercept_", "epsilon_person_", "model_", "ledger_"):
            self.__dict__.pop(name, None)
        self.epsilon_ = total = cost(self.history_)
        self.private_ = math.isfinite(total)
        if self.epsilon is not None and not all(past.private for past in fit.before):
            warnings.warn(STARTED_UNPROTECTED, BudgetWarning, stacklevel=4)
        self.delta_ = fit.delta if self.private_ else None
        # Epsilon covers the models of all classes together, so each of them carries the total.
        shown = total if self.private_ else None
        self.models_ = [replace(model, epsilon=shown, delta=self.delta_) for model in models]
        self.ledgers_ = fit.exports(total)
        if len(models) == 1:
            self.model_, self.ledger_ = self.models_[0], self.ledgers_[0]
        if (linear := coefficients(models)) is not None:
            self.coef_, self.intercept_ = linear
        if models[0].frame.groups:
            spent = [ledger.spent(party) for ledger in fit.ledgers for party in ledger.ids]
            whole = self.private_ and self.adjacency == "person"
            self.epsilon_person_ = of_a_person(spent, fit.delta or 0.0) if whole else math.inf
        self.parties_, self.jobs_ = fit.parties, tuple(fit.jobs)
        self.n_iter_ = fit.jobs[0].public.rounds

    def _declared(self) -> tuple[float, int]:
        """Check that arguments are declared, and their types. Returns the row bound and the seed."""
        if self.row_bound is None:
            raise ConfigError("declare row_bound, the l2 norm that rows are clipped to; reading it off X is a release")
        if self.random_state is None:
            raise ConfigError("fit is a simulation and needs a seed: random_state=0, say")
        seed = self.random_state
        if isinstance(seed, bool) or not isinstance(seed, Integral) or not 0 <= seed < 2**64:
            raise ConfigError(f"random_state is the seed of a simulation, a whole number from 0 on, not {seed!r}")
        check_positive(row_bound=self.row_bound)
        if not TINY <= self.row_bound <= HUGE:
            raise ConfigError(f"row_bound must lie between {TINY:g} and {HUGE:g}, not {self.row_bound:g}")
        check_nonnegative(intercept=self.intercept)
        if self.label_epsilon is not None:
            check_positive(label_epsilon=self.label_epsilon)
        SecureSum(self.colluding, self.fewest)  # checks both, also without secure_sum
        for name in ("warm_start", "secure_sum"):
            if not isinstance(value := getattr(self, name), bool | np.bool_):
                raise ConfigError(f"{name} must be True or False, not {value!r}")
        columns: Any = self.columns
        if columns is not None and (isinstance(columns, str) or not all(map(whole, np.atleast_1d(columns)))):
            raise ConfigError(f"columns is how many columns each party holds, (2, 3), say, and not {columns!r}")
        account_of(self.ledger)
        return float(self.row_bound), Simulation(int(seed)).seed

    def _numbers(self, X: Any, y: Any = "no_validation", **how: Any) -> Any:
        """Check X with scikit-learn; for words and missing cells the error says what to do with them."""
        with sentence_for_words():
            return validate_data(self, X, y, accept_sparse="csr", dtype=np.float64, **how)

    def _owners(self, rows: int, groups: ArrayLike | None, seed: int) -> tuple[Ints, tuple[str, ...]]:
        """Assign each row to a party. Returns the party of each row, and the parties' names."""
        if groups is None:
            check_whole(parties=self.parties)
            return splits.even(rows, self.parties, seed), tuple(str(party) for party in range(self.parties))
        owners = np.asarray(groups)
        if owners.shape != (rows,):
            raise DataError(f"groups must name the party of each of the {rows} rows, not be {owners.shape}")
        return splits.by_column(owners)

    def _job(self, sizes: Ints, dim: int, copies: int, start: Start | None, columns: tuple[int, ...] = ()) -> Job:
        named = algorithm_of(self.algorithm)
        algorithm = named or Centred(FirstOrderConsensus(step=self._step))
        if self.warm_start and isinstance(algorithm, Centred):  # also at the first fit, before it is charged
            raise ConfigError(NO_START)
        privacy: Target | NoPrivacy = NoPrivacy("no epsilon was asked for")
        shares = epsilons(self.party_epsilon)
        asked = self.epsilon is not None or bool(shares)
        if asked and self.delta is None:
            raise ConfigError("epsilon means little without delta: give both, or epsilon=None for no privacy")
        if self.secure_sum and not asked:
            raise ConfigError("secure_sum=True shares the noise of an epsilon: give one, or leave out secure_sum")
        if self.delta is not None and (asked or algorithm.adjacencies):
            related: Any = self.adjacency  # checked by Target
            summed = SecureSum(self.colluding, self.fewest) if self.secure_sum else None
            privacy = Target(
                self.epsilon, self.delta, adjacency=related, party_epsilon=shares, copies=copies, sum=summed
            )
        public = Public(
            sizes=sizes,
            dim=dim,
            rounds=(41 if named is None else 200) if self.rounds is None else self.rounds,
            graph=graph_of(self.graph, len(sizes)),
            loss=self._loss(),
            regularizer=regularizer_of(self.regularizer) or L2(0.0 if named is None else 1e-6),
            privacy=privacy,
            start=start,
            columns=columns,
        )
        allowance = max(shares) if shares else self.epsilon
        return Job(algorithm, public, allowance if isinstance(privacy, Target) else None)

    def _loss(self) -> Loss:
        loss = self._plain_loss()
        return loss if self.label_epsilon is None else Debiased(loss, self.label_epsilon)

    def _plain_loss(self) -> Loss:
        return loss_of(self.loss) or (HalfLogistic() if self.algorithm is None else Logistic())

    def coefficients(self, names: Sequence[str] | None = None, draws: int | None = None) -> by_column.Coefficients:
        """Coefficients by column, in the columns' own units; `print` shows the largest first.

        names   names of the columns if X had none: pipeline[:-1].get_feature_names_out(), say
        draws   how often to draw the noise, 20 say, to estimate how much it alone makes each coefficient vary: the job
                is trained as often on invented rows that the released model labels. That costs time, and no epsilon
        """
        check_is_fitted(self, "models_")
        columns = by_column.named(self.models_, names)
        if len(self.models_) > 1:
            columns = replace(columns, classes=tuple(map(str, self.classes_)))
        return columns if draws is None else replace(columns, noise=by_column.noise_of(self, draws))

    def plot_convergence(self, X: Any = None, y: Any = None, *, ax: Any = None) -> Any:
        """Draw by round the distance from the last weights or, with X and y, the score. Returns matplotlib's Axes."""
        check_is_fitted(self, "models_")
        return plots.convergence(self, X, y, ax)

    def plot_privacy(self, *, ax: Any = None) -> Any:
        """Draw epsilon by round and, with a ledger, what all fits have cost and may cost. Returns matplotlib's Axes."""
        check_is_fitted(self, "models_")
        return plots.privacy(self, ax)

    def plot_coefficients(self, names: Sequence[str] | None = None, draws: int | None = 20, *, ax: Any = None) -> Any:
        """Draw the largest coefficients; whiskers hold 95 % of what the noise alone does. Returns matplotlib's Axes."""
        return plots.bars(self.coefficients(names, draws if getattr(self, "private_", False) else None), ax)

    def to_sklearn(self) -> Any:
        """Make a plain LogisticRegression or LinearRegression of scikit-learn, which works without privadmm.

        If the method released moments, a StandardScaler and a Normalizer stand before it. Scores are the same for rows
        within row_bound; longer rows are not clipped. These objects do not say what was spent: keep the file of
        model_.save(...) beside them.
        """
        check_is_fitted(self, "models_")
        from privadmm.estimators.export import plain

        return plain(self.models_, getattr(self, "classes_", None), self._plain_loss())

    def to_onnx(self, path: str | Path) -> None:
        """Write the model as an ONNX file, which other languages and servers run; needs privadmm[onnx].

        Its input is X as `fit` takes it, in double precision. It clips rows as the estimator does. Its outputs are
        `scores` and, for a classifier, `label` and (if there is a predict_proba) `probabilities`. A SchemaEncoder
        before the estimator is not in the file: encode raw rows first. The file's metadata state the guarantee.
        """
        check_is_fitted(self, "models_")
        from privadmm.runs.onnx_file import save

        save(path, self.models_, getattr(self, "classes_", None))

    def _html_repr(self) -> str:
        """Show a table of the guarantee above scikit-learn's own display of the parameters."""
        picture: str = super()._html_repr()
        if not hasattr(self, "models_"):
            return picture
        return f"{summary(self)}{picture}"

    def _names(self) -> tuple[str, ...]:
        if hasattr(self, "feature_names_in_"):
            return tuple(map(str, self.feature_names_in_))
        return tuple(f"x{j + 1}" for j in range(self.n_features_in_))


@contextmanager
def sentence_for_words() -> Iterator[None]:
    """Replace errors of scikit-learn on words or missing cells among numbers by errors that say what to do."""
    try:
        yield
    except ValueError as error:
        if str(error).startswith("Expected 2D array"):  # scikit-learn would print the values, which are private
            raise DataError(
                "X must be a table of rows and columns, (n, d), and is none. Reshape your data: X.reshape(-1, 1) has "
                "one column, X.reshape(1, -1) one row"
            ) from None
        if "X contains" in str(error):
            raise DataError(
                f"X has cells without a finite number ({str(error).splitlines()[0]}): declare what they become, with "
                "SchemaEncoder, say. An imputer that is fitted on private rows is a release that no epsilon covers"
            ) from None
        if "could not convert string" not in str(error):
            raise
        raise DataError(
            "X or the target holds words where numbers belong: encode columns of words by declared categories, with "
            "SchemaEncoder, say"
        ) from error


def numbers(y: Any) -> Floats:
    with sentence_for_words():
        return np.asarray(y, dtype=np.float64)


def whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def warn_clipped(X: Any, frame: Frame) -> None:
    """Warn if nearly all rows are clipped; only a simulation may look."""
    problem = None if frame.groups else clipped_warning(longer(X, frame.row_bound), X.shape[0], frame.row_bound)
    if problem is not None:
        warnings.warn(problem, FitWarning, stacklevel=4)


def stream(seed: int, number: int, fits: int) -> int:
    """Derive a seed for each job of a fit. With the same noise in two classes or fits, their difference has none."""
    if number == fits == 0:
        return seed
    return int.from_bytes(hashlib.sha256(f"{seed}/{number}/{fits}".encode()).digest()[:8], "little")


def behind(first: Job) -> Job:
    """Make the job of a further class, which uses the moments of the first: they do not depend on labels."""
    assert isinstance(first.algorithm, Centred)
    return Job(first.algorithm.method, first.algorithm.inside(first.public), first.allowance)
