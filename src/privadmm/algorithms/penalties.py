"""What M-ADMM, R-ADMM and MR-ADMM share: penalties that are a party's own and may grow, and noise in the objective.

Party i holds O_i(f) = C omega_i/B_i sum_n loss(x_n.f; y_n) + R(f) and hears its V_i neighbours. In round t

    eta_i(t) = eta_i growth^t,   k_i(t) = curvature of R + 2 eta_i(t) V_i,   w_i(t) = C omega_i c/(B_i k_i(t)),

k_i being the curvature that is not data's. For the papers' rho/N read R's weight, for C/B_i read C omega_i/B_i.

Certified (docs/privacy.md#objective-gaussian). Noise b in units of summed gradients hides a move of Delta = 2 L:
exp(-zeta |b|) costs Delta zeta + ln(1 + w), N(0, s^2 I) a Renyi curve. Where the w of all rounds alone would cost half
of the target, noise buys little; what no noise can reach is refused, with the penalty that mends it.

Published. The papers draw eps with density exp(-alpha |eps|) and add h eps.f to the objective, so that
b = B_i h/(C omega_i) eps and zeta = alpha C omega_i/(B_i h). Their totals rest on -ln(1 - w) < 1.4 w, hence on

    2 c < min_i B_i/(C omega_i) k_i(1)

and on |loss'| <= 1; where either fails they claim nothing.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt

from privadmm.algorithms.graph import OnGraph, degrees, objective_plan
from privadmm.algorithms.method import NOISY_ARGMIN, Need, NoiseLaw, Tolerance, need_simulation, per_party
from privadmm.data.arrays import Floats
from privadmm.engine.public import Public
from privadmm.errors import ConfigError, RefusedError
from privadmm.params import SOME, Doc, When
from privadmm.privacy.accounting import Claim, Plan
from privadmm.privacy.calibration import Target, widest


@dataclass(frozen=True)
class Penalised(OnGraph, ABC):
    eta: Annotated[float, Gt(0), Doc("penalty on the difference of neighbours, in the first round")] = 0.01
    growth: Annotated[float, Ge(1), Doc("the penalty of a round over that of the round before")] = 1.0
    party_eta: Annotated[
        tuple[Annotated[float, Gt(0)], ...] | None, SOME, Doc("instead of eta, one for each party")
    ] = None
    tolerance: Tolerance = 1e-9
    law: NoiseLaw = "gaussian"
    calibration: Annotated[
        Literal["certified", "published"], Doc("noise from [privacy] epsilon, or the paper's from alpha")
    ] = "certified"
    alpha: Annotated[
        float | None,
        Gt(0),
        When("calibration", "published", required=True),
        Doc("the paper's noise of a round, of density exp(-alpha |eps|)"),
    ] = None

    name: ClassVar[str]
    needs: ClassVar[tuple[Need, ...]] = NOISY_ARGMIN
    caveat: ClassVar[str]

    @abstractmethod
    def lever(self, public: Public, t: int) -> Floats:
        """h of every party: the paper's eps enters the objective as h eps.f."""

    @abstractmethod
    def claimed(self, public: Public, t: int, alpha: float) -> Floats:
        """What the paper says that round t costs each party."""

    def penalties(self, public: Public, t: int) -> Floats:
        """eta_i(t) of every party."""
        return per_party(public, "party_eta", self.party_eta, self.eta) * self.growth**t

    def curvature(self, public: Public, t: int) -> Floats:
        """k_i(t) of every party."""
        return public.regularizer.strong_convexity + 2 * self.penalties(public, t) * degrees(public)[:, 0]

    def condition(self, public: Public) -> float:
        return public.condition(self.curvature(public, 0))  # penalties do not fall

    def noise(self, public: Public, t: int) -> float:
        """alpha of round t, which is smaller where noise is louder."""
        assert self.alpha is not None
        assert isinstance(public.privacy, Target)
        return self.alpha / public.privacy.levels(public.rounds)[t]

    def planned(self, public: Public) -> Plan:
        weight = public.scale(public.ids)[:, 0] / public.sizes
        certified = self.calibration == "certified"
        try:
            return objective_plan(
                public,
                k=lambda t: self.curvature(public, t),
                law=self.law if certified else "gamma",
                zeta=None if certified else lambda t: self.noise(public, t) * weight / self.lever(public, t),
            )
        except RefusedError as error:
            assert isinstance(public.privacy, Target)
            raise RefusedError(f"{error}{self.too_flat(public, public.privacy)}") from error

    def published(self, public: Public, delta: float) -> Claim | None:
        if self.calibration == "certified":
            return None
        if public.loss.lipschitz > 1:
            return Claim(None, "the paper takes |loss'| <= 1, which this loss does not keep")
        room = float(np.min(public.sizes / public.scale(public.ids)[:, 0] * self.curvature(public, 0)))
        if not 2 * public.loss.smoothness < room:
            return Claim(
                None,
                f"the paper's 1.4 needs 2 c = {2 * public.loss.smoothness:g} below {room:.3g}, the least of "
                "B_i/C (rho/N + 2 eta_i V_i): raise eta",
            )
        rounds = [self.claimed(public, t, self.noise(public, t)) for t in range(public.rounds)]
        return Claim(float(np.max(np.sum(rounds, axis=0))), self.caveat)

    def check(self, public: Public) -> None:
        super().check(public)
        if self.calibration == "published" or self.law == "gamma":
            need_simulation(public, "gamma noise")
        if public.parties < 2:
            raise ConfigError(
                f"{self.name} needs two parties or more; where a column tells how many there are, "
                "declare [parties] sizes"
            )
        _ = self.penalties(public, 0)  # refuses party_eta unless it has one figure for each party
        if public.rounds * math.log(self.growth) > 50:
            raise ConfigError(
                f"growth = {self.growth:g} over {public.rounds} rounds stops every move; bring it nearer to 1"
            )

    def too_flat(self, public: Public, target: Target) -> str:
        """A sentence with the penalty at which the w of the flattest party would cost half of its epsilon; or ""."""
        bend = public.scale(public.ids)[:, 0] / public.sizes * public.curvature
        costs = [target.of(party, public.parties) for party in public.ids.tolist()]
        caps = np.array([widest(cost, target.delta, self.law, public.rounds) for cost in costs])
        party = int(np.argmax(bend / caps / self.curvature(public, 0)))
        needed = bend[party] / caps[party] - public.regularizer.strong_convexity
        eta = needed / (2 * public.graph.degrees[party])
        if eta <= self.penalties(public, 0)[party] or caps[party] < 1e-11:  # more curvature would not help
            return ""
        return (
            f". The penalty is too small for party {party}, whose records number {public.sizes[party]}: set eta to "
            f"{eta:.3g} or more, or declare [parties] sizes if that is not their number"
        )

    def apart(self) -> str | None:
        """A sentence on what unequal penalties change in the limit; None where they are equal."""
        if len(set(self.party_eta or ())) < 2:
            return None
        return "with unequal party_eta the limit minimises the parties' objectives weighted by 1/party_eta, not alike"
