"""The workloads, a file for each kind. Their order is that of the table."""

from functools import cache

from privadmm.papers.bench.workload import Workload


@cache
def everything() -> dict[str, Workload]:
    """All workloads by name."""
    from privadmm.papers.bench.workloads import commands, dp_admm, gradient, ledger, pooled, replicas, rounds, sharing

    found = [
        *(gradient.adult, gradient.many, dp_admm.many, dp_admm.sweep, dp_admm.reproduced, dp_admm.secure_noise),
        *(replicas.dense, replicas.sparse, sharing.a9a, sharing.wide),
        *(*rounds.LOGISTIC, *rounds.OTHERS, *pooled.FITS, pooled.dask_glm, pooled.private),
        *(commands.account, *commands.TRAINED, ledger.disk, ledger.checkpointed, ledger.npz),
    ]
    return {one.name: one for one in found}
