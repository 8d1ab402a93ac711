"""The table that a notebook shows above a fitted estimator."""

from typing import Any

from privadmm.estimators.account import account_of
from privadmm.privacy.accounting import printed
from privadmm.runs.metrics import amount
from privadmm.runs.model import SIMULATED
from privadmm.runs.report.safe import safe


def summary(fitted: Any) -> str:
    """Write the table in HTML: epsilon, method, parties, mode, and what the guarantee leaves out."""
    model, job = fitted.models_[0], fitted.jobs_[0]
    promise = "NOT PRIVATE: no epsilon covers this model"
    if fitted.private_:
        figures = f"epsilon = {printed(fitted.epsilon_)} at delta = {printed(fitted.delta_, '.6g')}{model.condition}"
        promise = f"{figures}, {job.public.privacy.adjacency} neighbours"
    rows = {
        "privacy": promise,
        "method": f"{model.algorithm}, {job.public.rounds} rounds",
        "parties": f"{len(fitted.parties_)}: {', '.join(fitted.parties_[:5])}{', ...' * (len(fitted.parties_) > 5)}",
        "mode": SIMULATED,
    }
    if (account := account_of(fitted.ledger)) is not None:
        total = account.total()
        spent = f"epsilon = {printed(total.epsilon)} of {total.budget:g} in {amount(total.fits, 'fit')}"
        rows["ledger"] = f"{spent}, at delta = {printed(total.delta, '.6g')}"
    rows |= {f"note {number}": words for number, words in enumerate(model.caveats, start=1)}
    cells = "".join(
        f'<tr><th scope="row" style="text-align:left">{safe(name)}</th>'
        f'<td style="text-align:left">{safe(words)}</td></tr>'
        for name, words in rows.items()
    )
    return f"<table><caption>{safe(type(fitted).__name__)}</caption>{cells}</table>"
