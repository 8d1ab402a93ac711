"""One file per published method. Adding one adds its file and its line here."""

from privadmm.algorithms.admm_graph import ADMMGraph
from privadmm.algorithms.admm_star import ADMMStar
from privadmm.algorithms.dp_admm import DPADMM
from privadmm.algorithms.dvp import DVP
from privadmm.phases import Algorithm

ALGORITHMS: dict[str, type[Algorithm]] = {kind.name: kind for kind in (ADMMStar, ADMMGraph, DPADMM, DVP)}
