"""One file per published method. Adding one adds its file and its line here."""

from privadmm.algorithms.admm_graph import ADMMGraph
from privadmm.algorithms.admm_sharing import ADMMSharing
from privadmm.algorithms.admm_star import ADMMStar
from privadmm.algorithms.dp_admm import DPADMM
from privadmm.algorithms.dp_fedsgd import DPFedSGD
from privadmm.algorithms.dvp import DVP
from privadmm.algorithms.fdml_sgd import FDMLSGD
from privadmm.algorithms.first_order_consensus import FirstOrderConsensus
from privadmm.algorithms.local_only import LocalOnly
from privadmm.algorithms.m_admm import MADMM
from privadmm.algorithms.mr_admm import MRADMM
from privadmm.algorithms.pdml import PDML
from privadmm.algorithms.pvp import PVP
from privadmm.algorithms.r_admm import RADMM
from privadmm.algorithms.sharing import Sharing
from privadmm.engine.phases import Algorithm

ALGORITHMS: dict[str, type[Algorithm]] = {
    kind.name: kind
    for kind in (
        ADMMStar,
        ADMMGraph,
        DPADMM,
        DVP,
        MADMM,
        RADMM,
        MRADMM,
        PVP,
        PDML,
        DPFedSGD,
        LocalOnly,
        FirstOrderConsensus,
        ADMMSharing,
        Sharing,
        FDMLSGD,
    )
}
