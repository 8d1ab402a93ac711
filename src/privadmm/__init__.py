"""privadmm: differentially private linear models by ADMM, over data that may not move.

The public names are loaded when they are first used, so that importing the package is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from privadmm.algorithms.admm_graph import ADMMGraph
    from privadmm.algorithms.admm_sharing import ADMMSharing
    from privadmm.algorithms.admm_star import ADMMStar
    from privadmm.algorithms.centred import Centred
    from privadmm.algorithms.dp_admm import DPADMM
    from privadmm.algorithms.dp_fedsgd import DPFedSGD
    from privadmm.algorithms.dvp import DVP
    from privadmm.algorithms.first_order_consensus import FirstOrderConsensus
    from privadmm.algorithms.m_admm import MADMM
    from privadmm.algorithms.mr_admm import MRADMM
    from privadmm.algorithms.pdml import PDML
    from privadmm.algorithms.pvp import PVP
    from privadmm.algorithms.r_admm import RADMM
    from privadmm.algorithms.sharing import Sharing
    from privadmm.data.columns import Columns, People
    from privadmm.data.readers import Records, read
    from privadmm.data.schema import Schema
    from privadmm.data.shards import Shards
    from privadmm.errors import (
        BudgetWarning,
        CheckpointError,
        ConfigError,
        DataError,
        LedgerError,
        PrivadmmError,
        RefusedError,
        ToleranceError,
    )
    from privadmm.estimators import ADMMClassifier, ADMMRegressor
    from privadmm.graphs import Graph
    from privadmm.job import Job, cluster, train, weights
    from privadmm.losses import Debiased, HalfLogistic, Hinge, HuberHinge, Logistic, Squared
    from privadmm.model import Model, load
    from privadmm.phases import Public
    from privadmm.privacy.calibration import NoPrivacy, Target
    from privadmm.privacy.durable import SqliteLedger
    from privadmm.privacy.history import Start
    from privadmm.privacy.ledger import Budget, MemoryLedger, Policy
    from privadmm.privacy.mechanisms import Deployment, Simulation
    from privadmm.regularizers import L1, L2, ElasticNet

_HOME = {
    "ADMMClassifier": "estimators",
    "ADMMGraph": "algorithms.admm_graph",
    "ADMMRegressor": "estimators",
    "ADMMSharing": "algorithms.admm_sharing",
    "ADMMStar": "algorithms.admm_star",
    "Budget": "privacy.ledger",
    "BudgetWarning": "errors",
    "Centred": "algorithms.centred",
    "CheckpointError": "errors",
    "Columns": "data.columns",
    "ConfigError": "errors",
    "DPADMM": "algorithms.dp_admm",
    "DPFedSGD": "algorithms.dp_fedsgd",
    "DVP": "algorithms.dvp",
    "DataError": "errors",
    "Debiased": "losses",
    "Deployment": "privacy.mechanisms",
    "ElasticNet": "regularizers",
    "FirstOrderConsensus": "algorithms.first_order_consensus",
    "Graph": "graphs",
    "HalfLogistic": "losses",
    "Hinge": "losses",
    "HuberHinge": "losses",
    "Job": "job",
    "L1": "regularizers",
    "L2": "regularizers",
    "LedgerError": "errors",
    "Logistic": "losses",
    "MADMM": "algorithms.m_admm",
    "MRADMM": "algorithms.mr_admm",
    "MemoryLedger": "privacy.ledger",
    "Model": "model",
    "NoPrivacy": "privacy.calibration",
    "PDML": "algorithms.pdml",
    "PVP": "algorithms.pvp",
    "People": "data.columns",
    "Policy": "privacy.ledger",
    "PrivadmmError": "errors",
    "Public": "phases",
    "RADMM": "algorithms.r_admm",
    "Records": "data.readers",
    "RefusedError": "errors",
    "Schema": "data.schema",
    "Shards": "data.shards",
    "Sharing": "algorithms.sharing",
    "Simulation": "privacy.mechanisms",
    "SqliteLedger": "privacy.durable",
    "Squared": "losses",
    "Start": "privacy.history",
    "Target": "privacy.calibration",
    "ToleranceError": "errors",
    "cluster": "job",
    "load": "model",
    "read": "data.readers",
    "train": "job",
    "weights": "job",
}

__all__ = [*_HOME, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'privadmm' has no attribute {name!r}")
    return getattr(import_module(f"privadmm.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
