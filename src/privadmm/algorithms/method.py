"""What most methods have alike, whoever talks to whom: the parts of an algorithm that say "nothing of that here"."""

from typing import Any, ClassVar

from privadmm.data.arrays import Floats, Ints
from privadmm.data.moments_map import Map
from privadmm.engine.party import Local
from privadmm.engine.public import Public
from privadmm.privacy.accounting import Claim
from privadmm.privacy.mechanisms import Noise


class Method:
    raw_shows: ClassVar[bool] = False
    adjacencies: ClassVar[tuple[str, ...]] = ("replace-one", "label")

    def width(self, public: Public) -> int:
        return public.dim

    def sends(self, public: Public) -> int:
        return public.dim

    def message(self, public: Public, t: int) -> Floats:
        return public.zeros(1, self.sends(public))

    def keepsakes(self, local: Local, noise: Noise) -> dict[str, Floats]:
        return {}

    def go_on(self, public: Public, here: Ints) -> None:
        """The mean is over those who answer."""

    def anew(self, state: Any) -> Any:
        """As it is: a mean over those present brings their duals into balance within a round."""
        return state

    def shares(self, public: Public, here: Ints, even: Floats) -> Floats:
        """How much each of these parties counts in a mean of what they released, a column that sums to 1: by omega_i.

        `even` is the number of records, as a column, at which a party's noise is as large as its sampling error.
        """
        return public.omega(here) / len(here)

    def features(self, public: Public, memory: Any) -> Map | None:
        return None

    def published(self, public: Public, delta: float) -> Claim | None:
        return None

    def condition(self, public: Public) -> float:
        return 1.0

    def advice(self, public: Public) -> str | None:
        return None
