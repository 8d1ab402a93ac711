"""The Dask engine (extra `dask`): an actor for each block of parties, on workers inside one trust domain.

A worker reads its parties' records itself and keeps their ledger. Between worker and driver goes packed mail; through
the scheduler go only orders. When a worker process dies, its nanny starts it again, its block is rebuilt from its order
and its ledger, and the request is repeated: it gets the bytes that were committed or, if there are none, is answered
for the first time. So a run that lost workers has the transcript of one that did not.

All blocks are asked at once, and bytes go as they are: Dask's own proxy of an actor pickles every argument and changes
threads for each call and each answer, which takes longer than a round's own work.

Every wait has a limit: for an answer, a worker's return, a connection. After it the run ends with a `ClusterError`;
what was released is in the ledgers.
"""

import asyncio
import concurrent.futures
import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pkgutil import resolve_name
from time import monotonic, sleep
from typing import Any

import numpy as np

from privadmm import __version__
from privadmm.data import arrays
from privadmm.data.arrays import Floats, Ints
from privadmm.deploy.dask_client import CONNECT, CancelledError, Future, KilledWorker, connected
from privadmm.deploy.remote_block import Order, Site
from privadmm.engine.mail import Mail, unpack_sent
from privadmm.engine.phases import at_parties, heard
from privadmm.errors import ClusterError, LedgerError
from privadmm.privacy.ledger import Statement
from privadmm.privacy.ledger_file import Receipt
from privadmm.privacy.masks import Entry, Roster

logger = logging.getLogger(__name__)
Request = tuple["Block", str, tuple[Any, ...]]  # a block, the method of its site, the arguments
Answer = concurrent.futures.Future[dict[str, Any]]
ATTEMPTS = 4  # how often one request is asked before its worker is given up
POLL = 0.25  # seconds between looks at whether a worker that has not answered is still there
GRACE = 5.0  # seconds in which the scheduler notices that a worker is gone
LEAVING = 10.0  # seconds for what is asked at the end, when a worker may be stuck
STAGES = ("open", "begin")  # methods that a site must be asked for, in this order, before anything else


class Lost(Exception):  # noqa: N818  it never leaves this module
    """The worker that holds a block cannot be reached any more."""


GONE: dict[str, Any] = {"status": "gone", "exception": Lost}


@dataclass
class Block:
    """The driver's record of a block."""

    order: Order
    senders: Ints
    home: str  # the worker that it belongs to, by a name that outlives the worker's process
    future: Future | None = None
    address: str = ""  # of its actor
    stage: int = 0  # how many of STAGES the block has passed
    made: int = 0  # how many of STAGES its present actor has passed
    receipts: dict[int, list[Receipt]] = field(default_factory=dict)

    def __str__(self) -> str:
        first, last = self.order.parties[0], self.order.parties[-1]
        return f"the worker of {f'party {first}' if first == last else f'parties {first} to {last}'}"

    @property
    def there(self) -> bool:
        return self.future is not None and self.future.status == "finished"


class DaskCluster:
    """A cluster whose blocks are actors. The constructor opens their ledgers; `begin` sets the cost aside."""

    def __init__(self, orders: Sequence[Order], labels: Floats | None = None) -> None:
        """`labels` are the coordinator's, where the parties have none."""
        config, job = orders[0].config, orders[0].job
        self.labels, self.timeout = labels, config.run.timeout
        self.blocks: list[Block] = []
        self._stack = ExitStack()
        try:
            self.client = self._stack.enter_context(connected(config, len(orders)))
            self.address = self.client.scheduler.address
            for order, home in zip(orders, self._homes(len(orders)), strict=True):
                # A copy without cached values: the worker derives them itself.
                order = replace(order, job=replace(order.job, public=replace(order.job.public)))
                self.blocks.append(Block(order, heard(job.algorithm, job.public, np.array(order.parties)), home))
            for block in self.blocks:
                with suppress(Lost):  # `_ask` then places it again
                    self._place(block)
            self._ask("open")
        except BaseException:
            self.close()
            raise

    def _homes(self, count: int) -> list[str]:
        """Workers in the order of their names, so that a block has the same worker in every run."""
        try:
            if (here := len(self._workers())) < count:
                logger.warning("%d of %d workers are at %s; the others are waited for", here, count, self.address)
            self.client.wait_for_workers(count, timeout=self.timeout)
        except TimeoutError:
            here = len(self._workers())
            raise ClusterError(
                f"{here} of {count} workers came to {self.address} within {self.timeout:g} s: start more with "
                f"`dask worker {self.address}`, or set [run] workers = {max(here, 1)}"
            ) from None
        except OSError as error:
            self._check_scheduler()
            raise ClusterError(f"the connection to {self.address} broke ({error}): try again") from error
        workers = sorted(self._workers().items(), key=lambda item: str(item[1]["name"]))
        return [home(address, info) for address, info in workers[:count]]

    def _workers(self) -> dict[str, Any]:
        """Dask's facts about each running worker, by address."""
        workers = self.client.scheduler_info(n_workers=-1).get("workers", {})
        return {address: info for address, info in workers.items() if info["status"] == "running"}

    def begin(self) -> "DaskCluster":
        """Set the plan's cost aside in every ledger, or refuse; then each block goes on from what its ledger holds."""
        if len({statement.policy for statement in self._ask("statement")}) > 1:
            raise LedgerError(
                f"{self.blocks[0].order.ledger.parent}: its ledgers have different policies; make all of them with "
                "the same, or name another directory. Nothing was released"
            )
        self._ask("begin")
        if self.blocks[0].order.job.sums is not None and len(self.blocks) > 1:
            # A block that is lost later finds its key and the roster beside its ledger: neither is a stage.
            roster = Roster.of(Entry.unpack(entry) for entry in self._ask("introduce"))
            self._ask("accept", [(roster.pack(),)] * len(self.blocks))
        if self.labels is not None and self.blocks[0].order.job.public.label_epsilon is not None:
            (packed,) = self._ask("labels", blocks=self.blocks[:1])
            self.labels = np.array(arrays.unpack(packed)[0]["y"])
        return self

    def step(self, round: int, phase: int, inbox: Mail) -> Mail:
        answers = self._ask("step", [(round, phase, inbox.only(block.senders).pack()) for block in self.blocks])
        mails = []
        for block, (sent, head) in zip(self.blocks, answers, strict=True):
            job = block.order.job
            like = at_parties(job.algorithm, phase).message(job.public, round)
            mails.append(unpack_sent(sent, np.array(block.order.parties), like, str(block)))
            if head is not None:
                block.receipts.setdefault(round, []).append((job.id, round, phase, head))
        return Mail.join(mails)

    def receipts(self, round: int) -> list[tuple[str, int, int, str, int]]:
        return [(*head, block.order.parties[0]) for block in self.blocks for head in block.receipts.get(round, ())]

    def iterates(self, rounds: int) -> Floats | None:
        packed = self._ask("iterates", [(rounds,)] * len(self.blocks))
        if None in packed:
            return None
        blocks = [arrays.unpack(block)[0] for block in packed]
        order = np.argsort(np.concatenate([block["ids"] for block in blocks]))
        rows: Floats = np.concatenate([block["x"] for block in blocks], axis=-2)
        return rows[..., order, :]

    def paid(self) -> list[int | None]:
        """How many rounds each block's ledger holds; None if it holds no release."""
        return self._ask("paid", leaving=True)

    def statement(self) -> Statement:
        return Statement.join(self._ask("statement"))

    def give_up(self) -> None:
        self._ask("give_up", leaving=True)

    def close(self) -> None:
        """Close the ledgers whose workers still answer; end the workers of this run, and disconnect from others."""
        with self._stack:
            blocks = [block for block in self.blocks if block.there]
            with suppress(ClusterError):
                if blocks:
                    self._sent([(block, "close", ()) for block in blocks])
            for block in blocks:
                block.future = None

    def _ask(
        self,
        method: str,
        arguments: Sequence[tuple[Any, ...]] | None = None,
        blocks: Sequence[Block] | None = None,
        leaving: bool = False,
    ) -> list[Any]:
        """Ask all blocks, or those given, at once; returns their answers in the same order.

        With `leaving` the caller may be about to end: it waits less, and does not ask again when a worker is lost.
        """
        asked = self.blocks if blocks is None else blocks
        requests = [(block, method, args) for block, args in zip(asked, arguments or [()] * len(asked), strict=True)]
        answers = self._sent(requests)
        return [self._settle(request, answer, leaving) for request, answer in zip(requests, answers, strict=True)]

    def _settle(self, request: Request, answer: Answer | None, leaving: bool) -> Any:
        """Return the result of a request; if the worker is lost, ask the one that takes its place."""
        block, method, _ = request
        for _ in range(ATTEMPTS):
            try:
                if answer is None:
                    self._restore(block, leaving)
                    (answer,) = self._sent([request])
                result = self._wait(block, answer, leaving)
            except Lost:
                if leaving:
                    raise ClusterError(f"{block} is gone") from None
                answer = None
                continue
            if method in STAGES:
                block.stage = block.made = STAGES.index(method) + 1
            return result
        raise ClusterError(
            f"{block} was lost {ATTEMPTS} times at one request: see what ends it (is there memory enough?)"
        )

    def _sent(self, requests: Sequence[Request]) -> list[Answer | None]:
        """Send requests, and wait a moment, in which most are answered; None for a block without an actor."""
        self._check_scheduler()
        loop = self.client.loop.asyncio_loop
        answers = [
            asyncio.run_coroutine_threadsafe(answered(self.client, *request), loop) if request[0].there else None
            for request in requests
        ]
        concurrent.futures.wait([answer for answer in answers if answer is not None], timeout=POLL)
        return answers

    def _wait(self, block: Block, answer: Answer | None, leaving: bool = False) -> Any:
        """Wait for the result of an answer, or raise the error that it brings."""
        limit = min(self.timeout, LEAVING) if leaving else self.timeout
        deadline = monotonic() + limit
        while answer is not None and not answer.done():
            self._check_scheduler()
            if not block.there:
                raise Lost
            if monotonic() > deadline:
                raise ClusterError(
                    f"{block} has not answered for {limit:g} s: see whether it is at work, or raise [run] timeout"
                )
            concurrent.futures.wait([answer], timeout=POLL)
        outcome = GONE if answer is None or answer.cancelled() else answer.result()
        if outcome["status"] == "OK":
            return outcome["result"]
        raise outcome["exception"]

    def _restore(self, block: Block, leaving: bool) -> None:
        """Place the block on its worker again, if that was lost, and bring it to the stage that it had passed."""
        until = monotonic() + GRACE
        while block.there and monotonic() < until:
            self._check_scheduler()
            sleep(POLL / 10)
        if not block.there:  # else only the connection broke
            if block.future is not None:
                logger.warning("%s was lost; it goes on from its ledger when %s is back", block, block.home)
            self._place(block)
        for method in STAGES[block.made : block.stage]:
            self._wait(block, self._sent([(block, method, ())])[0], leaving)
            block.made += 1

    def _place(self, block: Block) -> None:
        """Make the block's actor on its worker."""
        address = self._address(block)
        self._check_version(block, address)
        heads = (head for heads in block.receipts.values() for head in heads)
        order = replace(block.order, heads=(*block.order.heads, *heads))
        block.future, _ = self._made(block, address, Site, order, actor=True)
        block.address, block.made = address, 0

    def _check_version(self, block: Block, address: str) -> None:
        """Refuse a worker with another version of privadmm, before it is given an order."""
        _, version = self._made(block, address, resolve_name, "privadmm:__version__", pure=False)
        if version != __version__:
            raise ClusterError(
                f"{block}, {block.home} at {address}, has privadmm {version} and this run has {__version__}: install "
                "the same version at both"
            )

    def _made(
        self, block: Block, address: str, make: Callable[..., Any], *args: Any, **options: Any
    ) -> tuple[Future, Any]:
        """Make an object on a worker; returns its future and the object."""
        future = self.client.submit(make, *args, workers=[address], allow_other_workers=False, **options)
        try:
            with self.client.as_current():
                return future, future.result(timeout=min(self.timeout, CONNECT))
        except (ImportError, AttributeError) as error:
            raise ClusterError(
                f"{block}, {block.home} at {address}, has not privadmm {__version__} installed ({error})"
            ) from error
        except (OSError, RuntimeError, CancelledError, KilledWorker) as error:
            raise Lost from error

    def _address(self, block: Block) -> str:
        """The present address of the block's worker; a nanny takes a moment to start another process."""
        deadline = monotonic() + self.timeout
        while monotonic() < deadline:
            self._check_scheduler()
            for address, info in self._workers().items():
                if home(address, info) == block.home:
                    return address
            sleep(POLL)
        raise ClusterError(
            f"{block} is gone and {block.home} did not come back within {self.timeout:g} s: start it again"
        )

    def _check_scheduler(self) -> None:
        if self.client.status != "running":
            raise ClusterError(f"the scheduler at {self.address} is gone: start it and its workers again")


async def answered(client: Any, block: Block, method: str, args: tuple[Any, ...]) -> dict[str, Any]:
    """The site's answer, or the error that it raised; `GONE` if the actor cannot be reached."""
    assert block.future is not None
    try:
        worker = client.rpc(block.address)
        answer: dict[str, Any] = await worker.actor_execute(
            function=method, actor=block.future.key, args=args, kwargs={}
        )
    except (OSError, KeyError, RuntimeError):  # no connection, or a new process that has no such actor
        return GONE
    return answer


def home(address: str, info: dict[str, Any]) -> str:
    """Identify a worker by what stays when it is replaced: its name, or, if it was given none, its nanny's address.

    Dask takes one worker of a name at a time, and names a worker without a name by its address.
    """
    if info["name"] == address:
        return f"the worker of the nanny at {info['nanny']}" if info.get("nanny") else f"the worker at {address}"
    return f"worker {info['name']}"
