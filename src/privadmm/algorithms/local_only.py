"""Every party on its own: the baseline that any federation has to beat. Not private: the models leave in the clear.

Party i solves its own regularised problem to the end, as if the others were not there:

    w_i = argmin C/m_i sum_n loss(a_n.w; y_n) + R(w)                                            (1)
    w = mean_i w_i                                                                              (2)

`State.model` keeps each party's own w_i, so that every party can be scored alone. The model handed out is the plain
mean (2), which no party would have by itself. One round says it all; further rounds say it again.
"""

from dataclasses import dataclass
from typing import ClassVar

from privadmm.algorithms.method import Need, Open, Tolerance, smooth_regularizer, solvable_loss
from privadmm.algorithms.star import OnStar, State
from privadmm.engine.mail import Mail
from privadmm.engine.party import Local
from privadmm.engine.phases import AtCoordinator, AtParties, Phase
from privadmm.engine.public import Public
from privadmm.errors import ConfigError
from privadmm.privacy.events import NotPrivate
from privadmm.privacy.release import Door, Released


@dataclass(frozen=True)
class LocalOnly(OnStar, Open):
    tolerance: Tolerance = 1e-9

    name: ClassVar[str] = "local_only"
    in_the_clear: ClassVar[NotPrivate] = NotPrivate("every party's own model leaves in the clear")
    needs: ClassVar[tuple[Need, ...]] = (solvable_loss, smooth_regularizer)

    @property
    def phases(self) -> tuple[Phase, ...]:
        return AtParties(self.solve), AtCoordinator(self.combine)  # (2)

    def solve(self, t: int, local: Local, s: State, inbox: Mail, release: Door) -> tuple[State, Released]:
        # `argmin` weighs losses by omega_i, which (1) does not have: the regulariser is weighed by omega_i, too.
        omega = local.public.scale(local.ids) / local.public.C
        k = omega * local.public.regularizer.strong_convexity
        x = local.argmin(local.zeros(), k, start=s.w, anchor=s.w, tolerance=self.tolerance)  # (1)
        w = release.output(x, sensitivity=local.moves / k)
        return State(w.value), w

    def condition(self, public: Public) -> float:
        omega = public.scale(public.ids) / public.C
        return public.condition(omega * public.regularizer.strong_convexity)

    def check(self, public: Public) -> None:
        super().check(public)
        if not public.regularizer.strong_convexity:
            raise ConfigError(
                f"{self.name} has no penalty but the regulariser's, and an argmin needs some: use l2 with a weight "
                "above 0"
            )
