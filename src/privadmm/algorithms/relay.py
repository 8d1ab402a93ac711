"""Methods whose released messages all meet in one place, which then speaks to each party on its own."""

from typing import ClassVar

from privadmm.algorithms.method import Method
from privadmm.engine.phases import Topology


class OnRelay(Method):
    topology: ClassVar[Topology] = "relay"
