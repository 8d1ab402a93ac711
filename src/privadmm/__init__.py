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
    from privadmm.algorithms.dp_admm import DPADMM
    from privadmm.algorithms.dp_fedsgd import DPFedSGD
    from privadmm.algorithms.dvp import DVP
    from privadmm.algorithms.first_order_consensus import FirstOrderConsensus
    from privadmm.algorithms.m_admm import MADMM
    from privadmm.algorithms.moments import Centred
    from privadmm.algorithms.mr_admm import MRADMM
    from privadmm.algorithms.pdml import PDML
    from privadmm.algorithms.pvp import PVP
    from privadmm.algorithms.r_admm import RADMM
    from privadmm.algorithms.sharing import Sharing
    from privadmm.data.columns import Columns, People
    from privadmm.data.readers import Records, read
    from privadmm.data.schema import Schema
    from privadmm.data.shards import Shards
    from privadmm.engine.block import cluster
    from privadmm.engine.job import Job, train, weights
    from privadmm.engine.public import Public
    from privadmm.errors import (
        BudgetWarning,
        CheckpointError,
        ConfigError,
        DataError,
        FitWarning,
        LedgerError,
        PooledWarning,
        PrivadmmError,
        RefusedError,
        ToleranceError,
    )
    from privadmm.estimators import ADMMClassifier, ADMMRegressor
    from privadmm.estimators.account import Account, account
    from privadmm.estimators.encoder import PrivatePipeline, SchemaEncoder, check_pipeline, make_private_pipeline
    from privadmm.optim.graphs import Graph
    from privadmm.optim.losses import Debiased, HalfLogistic, Hinge, HuberHinge, Logistic, Squared
    from privadmm.optim.regularizers import L1, L2, ElasticNet
    from privadmm.privacy.calibration import NoPrivacy, Target
    from privadmm.privacy.history import Start
    from privadmm.privacy.ledger import MemoryLedger
    from privadmm.privacy.mechanisms import Deployment, Simulation
    from privadmm.privacy.policy import Budget, Policy
    from privadmm.privacy.sqlite_ledger import SqliteLedger
    from privadmm.runs.model import Model, load

# Which module holds which public names.
_NAMES = {
    "algorithms.admm_graph": "ADMMGraph",
    "algorithms.admm_sharing": "ADMMSharing",
    "algorithms.admm_star": "ADMMStar",
    "algorithms.dp_admm": "DPADMM",
    "algorithms.dp_fedsgd": "DPFedSGD",
    "algorithms.dvp": "DVP",
    "algorithms.first_order_consensus": "FirstOrderConsensus",
    "algorithms.m_admm": "MADMM",
    "algorithms.moments": "Centred",
    "algorithms.mr_admm": "MRADMM",
    "algorithms.pdml": "PDML",
    "algorithms.pvp": "PVP",
    "algorithms.r_admm": "RADMM",
    "algorithms.sharing": "Sharing",
    "data.columns": "Columns People",
    "data.readers": "Records read",
    "data.schema": "Schema",
    "data.shards": "Shards",
    "engine.block": "cluster",
    "engine.job": "Job train weights",
    "engine.public": "Public",
    "errors": "BudgetWarning CheckpointError ConfigError DataError FitWarning LedgerError PooledWarning PrivadmmError RefusedError ToleranceError",  # noqa: E501
    "estimators": "ADMMClassifier ADMMRegressor",
    "estimators.account": "Account account",
    "estimators.encoder": "PrivatePipeline SchemaEncoder check_pipeline make_private_pipeline",
    "optim.graphs": "Graph",
    "optim.losses": "Debiased HalfLogistic Hinge HuberHinge Logistic Squared",
    "optim.regularizers": "L1 L2 ElasticNet",
    "privacy.calibration": "NoPrivacy Target",
    "privacy.history": "Start",
    "privacy.ledger": "MemoryLedger",
    "privacy.mechanisms": "Deployment Simulation",
    "privacy.policy": "Budget Policy",
    "privacy.sqlite_ledger": "SqliteLedger",
    "runs.model": "Model load",
}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [*sorted(_HOME), "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'privadmm' has no attribute {name!r}")
    return getattr(import_module(f"privadmm.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
