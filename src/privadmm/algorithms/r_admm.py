"""R-ADMM, recycled ADMM (Zhang, Khalili, Liu): MR-ADMM with one penalty for all parties and rounds.

    eta_i(2k-1) = eta,   so that (14)-(17) of mr_admm.py are the paper's (10)-(13)

and with L = mu = 2 its conditions (i), (ii) are the paper's (iii), (iv).
"""

from dataclasses import dataclass, field
from typing import ClassVar

from privadmm.algorithms.mr_admm import MRADMM


@dataclass(frozen=True)
class RADMM(MRADMM):
    growth: float = field(default=1.0, init=False)
    party_eta: tuple[float, ...] | None = field(default=None, init=False)

    name: ClassVar[str] = "r_admm"
