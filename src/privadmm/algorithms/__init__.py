"""One file per published method. Adding one adds its file and its line here."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from privadmm.engine.phases import Algorithm

# The class of each algorithm; its module has the algorithm's name.
CLASSES = {
    "admm_star": "ADMMStar",
    "admm_graph": "ADMMGraph",
    "dp_admm": "DPADMM",
    "dvp": "DVP",
    "m_admm": "MADMM",
    "r_admm": "RADMM",
    "mr_admm": "MRADMM",
    "pvp": "PVP",
    "pdml": "PDML",
    "dp_fedsgd": "DPFedSGD",
    "local_only": "LocalOnly",
    "first_order_consensus": "FirstOrderConsensus",
    "admm_sharing": "ADMMSharing",
    "sharing": "Sharing",
    "fdml_sgd": "FDMLSGD",
}


class ByName(Mapping[str, type["Algorithm"]]):
    """The algorithms, each loaded when it is asked for: a run needs one of them."""

    def __getitem__(self, name: str) -> type["Algorithm"]:
        kind = CLASSES[name]  # before anything is imported: names come from files
        algorithm: type[Algorithm] = getattr(import_module(f"privadmm.algorithms.{name}"), kind)
        return algorithm

    def __contains__(self, name: object) -> bool:
        return name in CLASSES

    def __iter__(self) -> Iterator[str]:
        return iter(CLASSES)

    def __len__(self) -> int:
        return len(CLASSES)


ALGORITHMS = ByName()
