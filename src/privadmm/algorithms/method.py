"""The base of every algorithm: parameters that check themselves, declared needs, a plan made once, and defaults.

Methods that release one noisy query a round also share their plan, and the release of an argmin.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Gt

from privadmm.data.arrays import Floats
from privadmm.engine.party import Local
from privadmm.engine.public import Public
from privadmm.engine.sums import gradients, uneven
from privadmm.errors import ConfigError
from privadmm.params import Declared, Doc, When
from privadmm.privacy.accounting import Claim, Plan, shared
from privadmm.privacy.calibration import NoPrivacy, Target, fit
from privadmm.privacy.events import DiscreteGaussian, NotPrivate
from privadmm.privacy.release import Door, Released
from privadmm.privacy.sums import evened

Need = Callable[[str, Public], None]  # refuses public facts that the method of this name cannot use
# Parameters that several methods have.
Rho = Annotated[float, Gt(0), Doc("penalty of the augmented Lagrangian")]
Eta = Annotated[float, Gt(0), Doc("penalty on the difference of neighbours")]
Tolerance = Annotated[float, Gt(0), Doc("gradient norm to which every local problem is solved")]
NoiseLaw = Annotated[
    Literal["gaussian", "gamma"], Doc("certified noise: Gaussian, or pure with norm ~ Gamma; published is gamma")
]
Calibration = Annotated[
    Literal["certified", "published"], Doc("noise from [privacy] epsilon, or the paper's from round_epsilon")
]
RoundEpsilon = Annotated[
    float | None, Gt(0), When("calibration", "published", required=True), Doc("the paper's epsilon of one round")
]


class Method(Declared, ABC):
    """What an algorithm declares (`name`, `topology`, `needs`) and may override."""

    name: ClassVar[str]
    adjacencies: ClassVar[tuple[str, ...]] = ("replace-one", "label")  # of neighbours; none: not private
    needs: ClassVar[tuple[Need, ...]] = ()

    def plan(self, public: Public) -> Plan:
        """`planned`, made once for these public facts."""
        return public.once(self, lambda: shared(self.planned(public)))

    @abstractmethod
    def planned(self, public: Public) -> Plan:
        """Every event of the run."""

    def check(self, public: Public) -> None:
        for need in self.needs:
            need(self.name, public)

    def published(self, public: Public, delta: float) -> Claim | None:
        return None

    def condition(self, public: Public) -> float:
        return 1.0

    def advice(self, public: Public) -> str | None:
        return None


class Open(Method):
    """A method that is not private: everything leaves in the clear, and is charged as such."""

    adjacencies: ClassVar[tuple[str, ...]] = ()
    in_the_clear: ClassVar[NotPrivate]
    releases: ClassVar[tuple[int, int]] = (0, 1)  # the phase that releases, and how many releases a round has

    def planned(self, public: Public) -> Plan:
        phase, count = self.releases
        return {(t, phase): (public.everyone(self.in_the_clear),) * count for t in range(public.rounds)}


def solvable_loss(who: str, public: Public) -> None:
    """Need a loss whose argmin the solvers can certify."""
    if not math.isfinite(public.loss.smoothness):
        raise ConfigError(f"{who} solves an argmin and needs a smooth loss: use huber_hinge instead of hinge")
    if not public.loss.convex:
        raise ConfigError(
            f"{who} solves an argmin, and this loss is not convex once its labels are randomised: use the "
            "logistic loss, or a first-order method such as dp_admm"
        )


def bounded_loss(who: str, public: Public) -> None:
    """Need a declared bound on the loss's derivative if the method is private: noise and rounding rest on it."""
    bounded = math.isfinite(public.sensitivity) and math.isfinite(public.loss.lipschitz)
    if not bounded and not isinstance(public.privacy, NoPrivacy):
        raise ConfigError(f"{who} needs a loss with a bounded derivative; for the squared loss declare [loss] radius")


def smooth_regularizer(who: str, public: Public) -> None:
    """Need a regulariser with a gradient everywhere."""
    if not math.isfinite(public.regularizer.smoothness):
        raise ConfigError(f"{who} needs a smooth regulariser: use l2, or admm_star, pvp or dp_admm for l1")


# The needs of methods with noise in an objective, or on an argmin between neighbours.
NOISY_ARGMIN: tuple[Need, ...] = (solvable_loss, smooth_regularizer, bounded_loss)


def per_party(public: Public, name: str, each: tuple[float, ...] | None, common: float | None) -> Floats:
    """A parameter of every party: each party's own figure if they are given, else the common one."""
    if each is not None and len(each) != public.parties:
        raise ConfigError(f"{name} has {len(each)} figures for {public.parties} parties; give one for each")
    return np.full(public.parties, common) if each is None else np.array(each)


def need_simulation(public: Public, what: str) -> None:
    """Refuse to deploy noise that only simulations may draw."""
    if isinstance(public.privacy, Target) and public.privacy.kind is DiscreteGaussian:
        raise ConfigError(f'a deployment refuses {what}; set calibration = "certified", Gaussian noise, and epsilon')


def output_plan(public: Public, ratios: Floats | float | None = None) -> Plan:
    """Plan one Gaussian release a round. `ratios`, for all or one a party, hold at level 1; None: fit the target."""
    target = public.privacy
    if isinstance(target, NoPrivacy):
        return {(t, 0): (public.everyone(target.event),) for t in range(public.rounds)}
    own = np.broadcast_to(1.0 if ratios is None else ratios, public.parties).tolist()
    levels = target.levels(public.rounds)
    # Equal rounds share one object, and are calibrated once.
    shapes = {level: (tuple(target.event(level * ratio, public.parties) for ratio in own),) for level in set(levels)}
    plan = {(t, 0): shapes[level] for t, level in enumerate(levels)}
    fitted = fit(target, plan) if ratios is None else plan
    if not uneven(public, fitted[0, 0][0]):
        return fitted
    moves = gradients(public, 0).moves
    shared = {id(rows): tuple(evened(row, moves) for row in rows) for rows in fitted.values()}
    return {tick: shared[id(rows)] for tick, rows in fitted.items()}


def noisy_argmin(local: Local, release: Door, linear: Floats, k: Floats, anchor: Floats, tolerance: float) -> Released:
    """Release the argmin of the losses + <linear, x> + k/2 |x|^2, k > 0 public, with noise: docs/privacy.md#minimiser.

    The solver starts at the anchor: the last argmin is kept only with its noise. Between neighbours the gradient at any
    point moves by at most `local.moves`, hence the argmin by that over k. What the solver returns is within left/k of
    the argmin. So Delta = 2 C omega_i L/(m_i k) + 2 left/k when a record is replaced.
    """
    x = local.argmin(linear, k, anchor, anchor, tolerance)
    left = local.exactness(linear, k, tolerance).left
    return release.output(x, sensitivity=local.moved(left) / k)
