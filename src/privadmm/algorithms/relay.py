"""What methods share whose released messages all meet in one place, which then speaks to each party on its own."""

from typing import Any, ClassVar

from privadmm.features import Map
from privadmm.phases import Floats, Ints, Local, Public, Topology
from privadmm.privacy.accounting import Claim
from privadmm.privacy.mechanisms import Noise


class OnRelay:
    """The parts of an algorithm that every such method has alike."""

    topology: ClassVar[Topology] = "relay"
    raw_shows: ClassVar[bool] = False
    adjacencies: ClassVar[tuple[str, ...]] = ("replace-one", "label")

    def go_on(self, public: Public, here: Ints) -> None:
        """Consensus is over those who answer."""

    def anew(self, state: Any) -> Any:
        return state

    def keepsakes(self, local: Local, noise: Noise) -> dict[str, Floats]:
        return {}

    def features(self, public: Public, memory: Any) -> Map | None:
        return None

    def published(self, public: Public, delta: float) -> Claim | None:
        return None

    def advice(self, public: Public) -> str | None:
        return None
