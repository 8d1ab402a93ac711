"""Public facts before any record is read: a fact that nobody declared may not be used.

`account` and every other command that says what a job will cost build the job that `train` builds, on the same public
facts. A fact that only the records tell (how many each party holds, how many features they have) is an `Undeclared`.
Using it raises an error that names the key to declare. So a figure that comes out did not depend on such a fact.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

from privadmm.config.file import Config
from privadmm.engine.public import Public
from privadmm.errors import ConfigError
from privadmm.params import check_positive, check_whole


class UndeclaredError(ConfigError):
    """A figure depends on a public fact that the config does not declare."""


class Undeclared:
    """Stands for a number, or a list of numbers, that only the records tell. It can be passed on, but not used."""

    def __init__(self, message: str) -> None:
        self._message = message

    def __repr__(self) -> str:
        return "<not declared>"

    def __add__(self, other: Any) -> "Undeclared":
        """One more than an undeclared number is not declared either."""
        return self

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise UndeclaredError(self._message)


# What Python answers for every object (equality, truth, text, an array of objects), and what numbers and lists can do.
# Any other operation is a TypeError.
_REFUSED = (
    *("eq", "ne", "lt", "le", "gt", "ge", "hash", "bool", "str", "format", "reduce_ex"),
    *("array", "array_ufunc", "array_function", "index", "int", "float"),
    *("len", "iter", "getitem", "contains", "getattr"),
    *("neg", "abs", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "floordiv", "rfloordiv"),
    *("mod", "rmod", "pow", "rpow", "matmul", "rmatmul"),
)
for _name in _REFUSED:
    setattr(Undeclared, f"__{_name}__", Undeclared._refuse)


class UndeclaredSizes(Undeclared):
    """How many records each party has, not declared; the number of parties is known."""

    def __init__(self, message: str, parties: int) -> None:
        super().__init__(message)
        self.parties = parties


class UndeclaredColumns(Undeclared):
    """How many columns each vertical party holds, not declared; it is known that there are some."""

    def __bool__(self) -> bool:
        return True


@dataclass(frozen=True)
class Outline(Public):
    """Public facts of which some are undeclared. The number of parties is known."""

    declared: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_positive(C=self.C)
        check_whole(rounds=self.rounds)

    @property
    def parties(self) -> int:
        return self.graph.n


def undeclared_sizes(config: Config, parties: int, otherwise: str = "") -> UndeclaredSizes:
    """Stands for these parties' numbers of records. `otherwise` is another way to give them."""
    return UndeclaredSizes(
        f"{config.path}: [parties] sizes is missing, and figures of this job depend on it: declare how many records "
        f"each of the {parties} parties has to train on, sizes = [...]{otherwise}",
        parties,
    )


def undeclared_dim(config: Config) -> Undeclared:
    """Stands for the number of features."""
    return Undeclared(
        f"{config.path}: [data] dim is missing, and figures of this job depend on it: declare how many features a "
        "record has, or a [data] schema"
    )


def undeclared_columns(config: Config) -> UndeclaredColumns:
    """Stands for the numbers of columns of vertical parties."""
    return UndeclaredColumns(
        f"{config.path}: how many columns each party holds is not declared, and figures of this job depend on it: "
        "declare [parties] columns, the number of each party's, with the parties' columns in one file"
    )
