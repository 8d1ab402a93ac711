"""Opens the engine that a config names: its ledgers are open, and nothing is set aside until `begin`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from privadmm.config.build import Prepared
from privadmm.data.columns import People
from privadmm.data.shards import Shards
from privadmm.deploy.remote_block import Order, open_ledger
from privadmm.engine.block import cluster
from privadmm.engine.job import Job
from privadmm.engine.loop import Parties
from privadmm.engine.sums import largest_block
from privadmm.errors import ConfigError
from privadmm.privacy.ledger import Statement
from privadmm.privacy.ledger_file import Receipt
from privadmm.privacy.mechanisms import Noise
from privadmm.privacy.sqlite_ledger import SqliteLedger


class Engine(Protocol):
    """What a run asks of an engine before its first round and after its last."""

    def begin(self) -> Parties:
        """Set the plan's cost aside in every ledger, or refuse."""
        ...

    def paid(self) -> list[int | None]:
        """How many rounds of the job each ledger holds; None if it holds no release."""
        ...

    def statement(self) -> Statement:
        """What the ledgers state about the job, once it has ended."""
        ...

    def give_up(self) -> None:
        """Close the job in every ledger: what it set aside and did not spend is free again, and its keys are erased.

        Called for a job that released nothing, and for one that has ended: parties that left have not spent all.
        """
        ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class InProcessEngine:
    """All parties as one block in this process."""

    job: Job
    shards: Shards | People
    noise: Noise
    ledger: SqliteLedger

    def begin(self) -> Parties:
        return cluster(self.job, self.shards, self.noise, self.ledger)

    def paid(self) -> list[int | None]:
        latest = self.ledger.latest(self.job.id)
        return [None if latest is None else latest[0].round + 1]

    def statement(self) -> Statement:
        return Statement.of(self.ledger, self.job.id)

    def give_up(self) -> None:
        self.ledger.close_job(self.job.id)

    def close(self) -> None:
        self.ledger.close()


def opened(order: Order, prepared: Prepared, noise: Noise, heads: Sequence[tuple[Receipt, int]]) -> Engine:
    """Open the engine for an order of all parties. Each receipt in `heads` comes with the first party of its block."""
    if order.config.run.engine == "inprocess":
        order = replace(order, heads=tuple(seen for seen, _ in heads))
        ledger = open_ledger(order, noise.mode, prepared.frame.bounds)
        return InProcessEngine(order.job, prepared.train, noise, ledger)
    from privadmm.deploy.dask import DaskCluster

    labels = prepared.held.y if isinstance(prepared.held, People) else None
    return DaskCluster(orders(order, heads), labels)


def check_blocks(order: Order, size: int) -> None:
    """Refuse workers that would each know the noise of more parties than a secure sum tolerates to collude."""
    public = order.job.public
    if public.privacy.sum is not None and size > (most := largest_block(public)):
        raise ConfigError(
            f"{order.config.path}: [run] workers = {order.config.run.workers} gives one worker {size} parties, whose "
            f"noise it knows, and the secure sum tolerates {most} that collude: set workers = "
            f"{-(-public.parties // most)}, or raise [privacy] colluding"
        )


def orders(order: Order, heads: Sequence[tuple[Receipt, int]] = ()) -> list[Order]:
    """Split an order into blocks of neighbouring parties, as even as can be; `order.ledger` is a folder of ledgers."""
    count, config = order.config.run.workers, order.config
    if count > len(order.parties):
        raise ConfigError(
            f"{config.path}: [run] workers = {count}, and there are {len(order.parties)} parties; set fewer workers"
        )
    check_blocks(order, -(-len(order.parties) // count))
    # A worker has a working directory of its own.
    order = replace(order, config=replace(config, path=config.path.absolute()))
    folder, blocks = Path(order.ledger).absolute(), []
    for number, part in enumerate(np.array_split(np.array(order.parties), count)):
        parties = tuple(part.tolist())
        mine = tuple(seen for seen, first in heads if first == parties[0])
        # Numbered, so that a run with another number of workers meets the same ledgers and is refused.
        ledger = folder / f"block-{number}.sqlite"
        blocks.append(replace(order, parties=parties, ledger=ledger, heads=mine))
    return blocks
