"""First-order consensus: noisy gradients, and free consensus on them. With moments in front, the recommended method.

Linearised consensus ADMM (penalty 1/eta, duals that sum to zero) is gradient descent on the consensus of the released
gradients. Public: n records at N parties, mu_i of party i's (epsilon, delta), d features, T rounds, and

    unit = sqrt(sum_i (w_i/(m_i mu_i))^2)      the noise of an averaged release of unit sensitivity, w_i = m_i/n  (1)
           sqrt(N/(N - t)) max_i w_i/(m_i mu_i)     in a secure sum that tolerates t who collude (privacy/sums.py)
    eta = min(2.5/(1 + 20 unit sqrt(d))/unit, 300 T) / T     or as step_sizes.py has it for a number to predict  (2)

Round t, with W = V = 0 at first:

    party i releases  g_i = C omega_i/m_i sum_n loss'(W.a_n) a_n + N(0, sigma_i^2 I)                           (3)
    consensus         g = mean_i g_i + R'(W)                    exact, or by gossip between neighbours         (4)
    V = beta V - eta (1-beta) g,   W = W + V                                                                   (5)

The model is the mean of the last 40 % of the W's. A round's noise follows from what its gradient weighs in that mean,
and parties count in (4) by their records or, with weights = "noise", less where noise drowns these (noise_weights.py).
It does best on centred and scaled features (moments.py) with the half-logistic loss, whose gradients are half as long.

Privacy (docs/privacy.md#first-order). Records lie in the unit ball, so (3) moves by at most 2 L C omega_i/m_i: Gaussian
releases only, mu^2 = sum of 1/z^2 exactly, and no need of smoothness or of an exact solver. (4), (5) and the model read
released values, and whatever W a hostile relay sends, the bound holds.
"""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt, Le, Lt

from privadmm.algorithms.method import Need, bounded_loss, smooth_regularizer
from privadmm.algorithms.noise_weights import NoiseWeighted
from privadmm.algorithms.step_sizes import Step, for_classes, for_numbers
from privadmm.data.arrays import Floats, Ints
from privadmm.engine.mail import Mail
from privadmm.engine.party import Local
from privadmm.engine.phases import AtCoordinator, AtParties, Phase, Topology
from privadmm.engine.public import Public
from privadmm.engine.sums import gradients
from privadmm.errors import ConfigError
from privadmm.optim.graphs import chebyshev, flood, gossip_residual
from privadmm.optim.losses import Squared
from privadmm.params import Doc
from privadmm.privacy.calibration import NoPrivacy
from privadmm.privacy.release import Door, Released, Sealed


@dataclass(frozen=True)
class State:
    W: Floats  # as received

    @property
    def model(self) -> Floats:
        return self.W


@dataclass(frozen=True)
class Memory:
    """The views of all parties, (..., N, d), which are equal unless consensus is by gossip."""

    ids: Ints  # of those present
    W: Floats
    V: Floats
    mean: Floats  # of the last W's


@dataclass(frozen=True)
class FirstOrderConsensus(NoiseWeighted):
    beta: Annotated[float, Ge(0), Lt(1), Doc("momentum")] = 0.8
    step: Annotated[Step, Doc('eta; from public facts if left out, for two classes; "numbers": for a number')] = None
    average: Annotated[float, Gt(0), Le(1), Doc("share of the rounds, the last ones, that the model averages")] = 0.4
    gossip: Annotated[int, Ge(0), Doc("gossip steps a round between neighbours; 0 is the exact mean")] = 0
    schedule: Annotated[
        Literal["weight", "even"],
        Doc("noise by what a round weighs in the model, or alike; [privacy] decay and profile overrule it"),
    ] = "weight"
    weights: Annotated[
        Literal["records", "noise"],
        Doc("parties count by their records, or less where noise drowns these; for parties that are alike"),
    ] = "records"

    name: ClassVar[str] = "first_order_consensus"
    needs: ClassVar[tuple[Need, ...]] = (bounded_loss, smooth_regularizer)
    topology: ClassVar[Topology] = "relay"

    @property
    def phases(self) -> tuple[Phase, ...]:
        return AtParties(self.slope, sums=gradients), AtCoordinator(self.descend)

    def slope(self, t: int, local: Local, s: State, inbox: Mail, release: Door) -> tuple[State, Released | Sealed]:
        W = inbox.values[..., np.searchsorted(inbox.senders, local.ids), :]
        return State(W), release.summand(local.gradient(W), sensitivity=local.moved(local.summation))  # (3)

    def descend(self, t: int, public: Public, memory: Memory, inbox: Mail) -> tuple[Memory, Mail]:
        here, at = inbox.senders, np.searchsorted(memory.ids, inbox.senders)
        W, V, mean = (a[..., at, :] for a in (memory.W, memory.V, memory.mean))
        g = self.consensus(public, inbox) + public.regularizer.subgradient(W)  # (4)
        V = self.beta * V - self.eta(public) * (1 - self.beta) * g
        W = W + V  # (5)
        count = t + 1 - (public.rounds - self.averaged(public))
        mean = W if count <= 1 else mean + (W - mean) / count
        return Memory(here, W, V, mean), Mail(here, W)

    def consensus(self, public: Public, inbox: Mail) -> Floats:
        """The mean over the parties present, as each of them sees it."""
        here, values = inbox.senders, inbox.values
        if self.weights == "noise":
            values = values * public.once((self, "factors", here.tobytes()), lambda: self.factors(public, here))
        if not self.gossip:
            return flood(values)
        public.graph.need_reach(here)
        graph = public.once((self, here.tobytes()), lambda: public.graph.among(here))
        return chebyshev(graph, values, self.gossip)

    def eta(self, public: Public) -> float:
        if isinstance(self.step, float | int):
            return self.step
        return public.once((self, "eta"), lambda: self.recommended(public))

    def recommended(self, public: Public) -> float:
        unit = None if isinstance(public.privacy, NoPrivacy) else self.unit(public)
        return (for_numbers if self.step == "numbers" else for_classes)(public, unit, self.beta)

    def check(self, public: Public) -> None:
        super().check(public)
        if self.step == "numbers" and not isinstance(public.loss, Squared):
            raise ConfigError('step = "numbers" is for the squared loss: leave it out for two classes')
        if self.weights == "noise" and public.weighting != "records":
            raise ConfigError('weights = "noise" and weighting = "parties" both say how much a party counts: give one')
        if public.privacy.sum is not None and (self.gossip or self.weights == "noise"):
            raise ConfigError('a secure sum is the exact mean by records: set gossip = 0 and weights = "records"')
        if self.gossip and not len(public.graph.edges):
            raise ConfigError("gossip needs a graph with edges: set gossip = 0, or a [graph] kind other than star")

    def advice(self, public: Public) -> str | None:
        if not self.gossip or (left := gossip_residual(public.graph, self.gossip)) < 1e-6:
            return None
        return f"{self.gossip} gossip steps leave {left:.2g} of the parties' disagreement; more of them cost nothing"

    def init(self, public: Public, ids: Ints) -> State:
        return State(public.origin(len(ids)))

    def start(self, public: Public) -> tuple[Memory, Mail]:
        W = public.origin(public.parties)
        return Memory(public.ids, W, np.zeros_like(W), W), Mail(public.ids, W)

    def model(self, public: Public, memory: Any, mail: Mail) -> Floats:
        return np.asarray(memory.mean.sum(axis=-2) / len(memory.ids))
