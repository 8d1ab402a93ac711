"""ADMM sharing (Hu, Liu, Ge, Kong, Jiang, Niu) over split features. Not private: scores and weights leave in the clear.

Party m holds columns D_m about the same N people, the coordinator their labels. C mean(loss) + R is C/N times

    sum_i loss(z_i) + lam/2 sum_m |x_m|^2,     z = sum_m D_m x_m,     lam = N weight/C

so lam is the regulariser's weight on the summed loss. Round t, with scores u_m = D_m x_m, S = sum_m u_m and dual y:

    z = argmin loss(z) - y.z + k/2 |S - z|^2,     y+ = y + k (S - z)                                       (8), (9)
    t_m = u_m + (y - 2 y+)/rho                                                                            (6a)
    x_m = argmin over |x| <= b of lam/2 |x|^2 + rho/2 |D_m x - t_m|^2                                     (6b)

`form = "printed"` is the paper's parallel update: k = rho, and (6a) is its z - sum_{j != m} u_j - y/rho. It diverges
where rho is small or parties are many. `form = "sharing"` has k = rho/M, and (6a) is u_m - mean(u) + z/M - y/rho: ADMM
on the equivalent sharing problem, which converges for every rho > 0 and any number M of parties.

Deviations. Every round begins at the labels: (8) before (6), so that the first scores are not those of zero weights.
An l1 part of R is added to (6b), which is then solved by an inner loop.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from annotated_types import Gt

from privadmm.algorithms.columns import OnColumns, State, broadcast, message, nothing, scores_of, silence
from privadmm.algorithms.method import Open, Rho
from privadmm.data.arrays import Floats
from privadmm.engine.mail import Mail
from privadmm.engine.party import Vertical
from privadmm.engine.phases import AtLabels, AtParties, Phase
from privadmm.engine.public import Public
from privadmm.errors import ConfigError
from privadmm.params import Doc
from privadmm.privacy.calibration import NoPrivacy
from privadmm.privacy.events import NotPrivate
from privadmm.privacy.release import Door, Released

LEAST = 1e-100  # rho for a party: for a smaller one `Loss.prox` is not known to end
SCORES_AND_WEIGHTS = NotPrivate("scores and weights leave the parties in the clear")


@dataclass(frozen=True)
class Memory:
    y: Floats  # (..., N), the dual: the coordinator's own, and a function of labels


@dataclass(frozen=True)
class ADMMSharing(OnColumns, Open):
    rho: Rho = 0.1
    form: Annotated[Literal["sharing", "printed"], Doc("the scaled sharing form, or the paper's parallel update")] = (
        "sharing"
    )
    ball: Annotated[float | None, Gt(0), Doc("bound on the norm of each party's weights; none if left out")] = None

    name: ClassVar[str] = "admm_sharing"
    in_the_clear: ClassVar[NotPrivate] = SCORES_AND_WEIGHTS
    releases: ClassVar[tuple[int, int]] = (1, 2)

    @property
    def phases(self) -> tuple[Phase, ...]:
        return AtLabels(self.reply), AtParties(self.update, self.message)

    def k(self, public: Public) -> float:
        """The weight of (8)'s quadratic term."""
        return self.rho / public.parties if self.form == "sharing" else self.rho

    def reply(self, t: int, public: Public, memory: Memory, inbox: Mail, labels: Floats) -> tuple[Memory, Mail]:
        k = self.k(public)
        v = scores_of(public, inbox) + memory.y / k
        y = k * (v - public.loss.prox(v, labels, k))  # (8), (9)
        return Memory(y), broadcast((memory.y - 2 * y) / self.rho)

    def update(self, t: int, local: Vertical, s: State, inbox: Mail, release: Door) -> tuple[State, Released]:
        public, rows, mu, l1 = local.public, s.u.shape[:-1], *self.weights(local.public)
        target = s.u + inbox.broadcast  # (6a)
        x, scores = local.fits(target, mu, self.ball, l1)  # (6b)
        moves = self.moves(local, target, mu)
        u, w = s.u, nothing(public, rows[-1])
        if isinstance(public.privacy, NoPrivacy) or t < public.rounds - 1:
            released = release.output(scores, sensitivity=moves[0])
            u = local.possible(released.value, self.ball)
        if self.hands_over(public, t):
            released = release.output(local.padded(x, rows), sensitivity=moves[1])
            w = released.value
        return State(u), released.map(lambda _: message(u, w))

    def hands_over(self, public: Public, t: int) -> bool:
        return isinstance(public.privacy, NoPrivacy) or t == public.rounds - 1

    def weights(self, public: Public) -> tuple[float, float]:
        """lam/rho, and the weight of an l1 part over rho, in the units of lam."""
        R, scale = public.regularizer, public.dim / (public.C * self.rho)
        return scale * R.strong_convexity, 0.0 if R.rest is None else scale * R.rest.weight

    def condition(self, public: Public) -> float:
        return 1 + public.dim / self.weights(public)[0]  # rows in the unit ball

    def moves(self, local: Vertical, target: Floats, mu: float) -> tuple[Floats, Floats]:
        """How far neighbours move scores and weights; not used where both leave in the clear."""
        return local.moves(target, mu, self.ball, None)

    def check(self, public: Public) -> None:
        if not self.k(public) >= LEAST:
            raise ConfigError(
                f"{self.name} needs a larger rho: over the parties it is {self.k(public):g}, below {LEAST:g}"
            )
        if not public.loss.convex:
            raise ConfigError(
                f"{self.name} minimises every person's loss, and this one is not convex once its labels are "
                "randomised: use the logistic loss"
            )
        if public.regularizer.strong_convexity == 0:
            raise ConfigError(
                f"{self.name} needs some l2: set [regularizer] weight above 0, and elastic_net in place of l1"
            )
        if public.regularizer.rest is not None and self.ball is not None:
            raise ConfigError(f"{self.name} keeps weights in a ball under l2 alone: leave out ball, or use l2")

    def start(self, public: Public) -> tuple[Memory, Mail]:
        return Memory(public.zeros(1)[..., 0, :]), silence(public)
