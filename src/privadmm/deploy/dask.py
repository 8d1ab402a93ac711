"""The Dask engine (extra `dask`): an actor for each block of parties, on workers inside one trust domain.

A worker reads its parties' records itself and keeps their ledger; between it and the driver go packed mail, and nothing
else through the scheduler than orders. A worker process that dies is started again by its nanny, its block is made
again from its order and its ledger, and the same request is asked again: it gets the bytes that were committed, or, if
none were, is answered for the first time. So a run that lost workers has the transcript of one that did not.

All blocks are asked in one visit to the client's thread, and bytes go as they are: Dask's own proxy of an actor pickles
every argument and changes threads for each call and each answer, which takes longer than a round's own work.

Everything here is a wait with an end: an answer, a worker's return, a connection. When it comes, the run ends with a
`ClusterError`, and what was released is in the ledgers.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from time import monotonic, sleep
from typing import Any, Literal

import numpy as np

from privadmm.data import arrays
from privadmm.data.arrays import Floats, Ints
from privadmm.deploy.dask_client import CONNECT, CancelledError, Future, KilledWorker, connected
from privadmm.deploy.remote_block import Order, Site
from privadmm.engine.mail import Mail, unpack_sent
from privadmm.engine.phases import at_parties, heard
from privadmm.errors import ClusterError, LedgerError
from privadmm.privacy.ledger import Statement
from privadmm.privacy.ledger_file import Receipt

logger = logging.getLogger(__name__)
Request = tuple["Block", str, tuple[Any, ...]]  # whom, which method of its site, with what
Answer = asyncio.Task[dict[str, Any]]
ATTEMPTS = 4  # how often one request is asked before its worker is given up
POLL = 0.25  # seconds between looks at whether a worker that has not answered is still there
GRACE = 5.0  # in which the scheduler notices that a worker is gone
LEAVING = 10.0  # for what is asked at the end, when a worker may be stuck


class Lost(Exception):  # noqa: N818  it never leaves this module
    """The worker that holds a block cannot be reached any more."""


Stage = Literal["placed", "opened", "begun"]
STAGES: dict[str, Stage] = {"open": "opened", "begin": "begun"}  # by the method that leads there
GONE: dict[str, Any] = {"status": "gone", "exception": Lost}


@dataclass
class Block:
    """A block as the driver knows it."""

    order: Order
    senders: Ints
    home: str  # the worker that it belongs to, under a name that outlives the process
    future: Future | None = None
    address: str = ""  # where its actor is, while there is one
    stage: Stage = "placed"  # that it has come to
    made: Stage = "placed"  # that its actor has come to, which may be another than before
    receipts: dict[int, list[Receipt]] = field(default_factory=dict)

    def __str__(self) -> str:
        first, last = self.order.parties[0], self.order.parties[-1]
        return f"the worker of {f'party {first}' if first == last else f'parties {first} to {last}'}"

    @property
    def there(self) -> bool:
        return self.future is not None and self.future.status == "finished"


class DaskCluster:
    """A cluster whose blocks are actors. Made with their ledgers open; `begin` sets the cost aside."""

    def __init__(self, orders: Sequence[Order], labels: Floats | None = None) -> None:
        """`labels` are those at the coordinator, where the parties have none."""
        config, job = orders[0].config, orders[0].job
        self.labels, self.timeout = labels, config.run.timeout
        self._leaving = False
        self._stack = ExitStack()
        try:
            self.client = self._stack.enter_context(connected(config, len(orders)))
            self.address = self.client.scheduler.address
            self.blocks = [
                Block(order, heard(job.algorithm, job.public, np.array(order.parties)), home)
                for order, home in zip(map(bare, orders), self._homes(len(orders)), strict=True)
            ]
            for block in self.blocks:
                with suppress(Lost):  # then asking finds it again
                    self._place(block)
            self._ask("open")
        except BaseException:
            self.close()
            raise

    def _homes(self, count: int) -> list[str]:
        """Workers in the order of their names, so that a block comes to the same one in every run."""
        try:
            self.client.wait_for_workers(count, timeout=self.timeout)
        except TimeoutError:
            found = len(self._workers())
            raise ClusterError(
                f"{found} of {count} workers came to {self.address} within {self.timeout:g} s: start more with "
                f"`dask worker {self.address}`, or set [run] workers = {max(found, 1)}"
            ) from None
        except OSError as error:
            self._scheduler_there()
            raise ClusterError(f"the connection to {self.address} broke ({error}): try again") from error
        known = sorted(self._workers().items(), key=lambda item: str(item[1]["name"]))
        return [home(info) for _, info in known[:count]]

    def _workers(self) -> dict[str, Any]:
        found = self.client.scheduler_info(n_workers=-1).get("workers", {})
        return {address: info for address, info in found.items() if info["status"] == "running"}

    def begin(self) -> "DaskCluster":
        """Set the plan's cost aside in every ledger, or refuse; then a block goes on from what its ledger holds."""
        if len({statement.policy for statement in self._ask("statement")}) > 1:
            raise LedgerError(
                f"{self.blocks[0].order.ledger.parent}: its ledgers have different policies; make all of them with "
                "the same, or name another directory. Nothing was released"
            )
        self._ask("begin")
        if self.labels is not None and self.blocks[0].order.job.public.label_epsilon is not None:
            (packed,) = self._ask("labels", blocks=self.blocks[:1])
            self.labels = np.array(arrays.unpack(packed)[0]["y"])
        return self

    def step(self, round: int, phase: int, inbox: Mail) -> Mail:
        asked = [(round, phase, inbox.only(block.senders).pack()) for block in self.blocks]
        answers = self._ask("step", asked)
        mails = []
        for block, (sent, head) in zip(self.blocks, answers, strict=True):
            like = at_parties(block.order.job.algorithm, phase).sends(block.order.job.public, round)
            mails.append(unpack_sent(sent, np.array(block.order.parties), like, str(block)))
            if head is not None:
                block.receipts.setdefault(round, []).append((block.order.job.id, round, phase, head))
        return Mail.join(mails)

    def receipts(self, round: int) -> list[tuple[str, int, int, str, int]]:
        return [(*seen, block.order.parties[0]) for block in self.blocks for seen in block.receipts.get(round, ())]

    def iterates(self, rounds: int) -> Floats | None:
        found = self._ask("iterates", [(rounds,)] * len(self.blocks))
        if any(one is None for one in found):
            return None
        blocks = [arrays.unpack(packed)[0] for packed in found]
        order = np.argsort(np.concatenate([block["ids"] for block in blocks]))
        rows: Floats = np.concatenate([block["x"] for block in blocks], axis=-2)
        return rows[..., order, :]

    def paid(self) -> list[int | None]:
        """How many rounds each block's ledger holds; None: not one release."""
        with self._short():
            return self._ask("paid")

    def statement(self) -> Statement:
        return Statement.join(self._ask("statement"))

    def give_up(self) -> None:
        with self._short():
            self._ask("give_up")

    @contextmanager
    def _short(self) -> Iterator[None]:
        """Of those who are there, and without much patience: whoever asks may be about to leave."""
        self._leaving = True
        try:
            yield
        finally:
            self._leaving = False

    def close(self) -> None:
        """Ledgers are closed where a worker still answers; workers of this run are ended, others let go."""
        with self._stack:
            blocks = [block for block in getattr(self, "blocks", ()) if block.there]
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
    ) -> list[Any]:
        """Of every block at once, unless some are named; the answers in the order of blocks."""
        asked = self.blocks if blocks is None else blocks
        given = arguments or [()] * len(asked)
        requests = [(block, method, args) for block, args in zip(asked, given, strict=True)]
        answers = self._sent(requests)
        return [self._settle(request, answer) for request, answer in zip(requests, answers, strict=True)]

    def _settle(self, request: Request, answer: Answer | None) -> Any:
        """What is answered; if the worker is lost, by the one that takes its place."""
        block, method, _ = request
        for _ in range(ATTEMPTS):
            try:
                if answer is None:
                    self._restore(block)
                    (answer,) = self._sent([request])
                found = self._wait(block, answer)
            except Lost:
                if self._leaving:
                    raise ClusterError(f"{block} is gone") from None
                answer = None
                continue
            if method in STAGES:
                block.stage = block.made = STAGES[method]
            return found
        raise ClusterError(
            f"{block} was lost {ATTEMPTS} times at one request: see what ends it (is there memory enough?)"
        )

    def _sent(self, requests: Sequence[Request]) -> list[Answer | None]:
        """The answers to be, after a moment in which most have come; None: there is nobody to ask."""
        self._scheduler_there()
        answers: list[Answer | None] = []

        async def send() -> None:
            answers.extend(
                asyncio.ensure_future(answered(self.client, *one)) if one[0].there else None for one in requests
            )
            await moment(answers)

        self._visit(send)
        return answers or [None] * len(requests)

    def _wait(self, block: Block, answer: Answer | None) -> Any:
        limit = min(self.timeout, LEAVING) if self._leaving else self.timeout
        deadline = monotonic() + limit
        while answer is not None and not answer.done():
            self._scheduler_there()
            if not block.there:
                raise Lost
            if monotonic() > deadline:
                raise ClusterError(
                    f"{block} has not answered for {limit:g} s: see whether it is at work, or raise [run] timeout"
                )
            self._visit(moment, [answer])
        found = GONE if answer is None or answer.cancelled() else answer.result()
        if found["status"] == "OK":
            return found["result"]
        raise found["exception"]

    def _visit(self, what: Callable[..., Any], *args: Any) -> None:
        """Have it run in the client's thread."""
        with suppress(TimeoutError):  # this process was held up
            self.client.sync(what, *args, callback_timeout=LEAVING)

    def _restore(self, block: Block) -> None:
        """Put the block where it belongs, in the stage it was in."""
        until = monotonic() + GRACE
        while block.there and monotonic() < until:
            self._scheduler_there()
            sleep(POLL / 10)
        if not block.there:  # otherwise the connection broke, and not the worker
            if block.future is not None:
                logger.warning("%s was lost; it goes on from its ledger when the worker is back", block)
            self._place(block)
        for method, stage in STAGES.items():
            if block.made != block.stage:
                self._wait(block, self._sent([(block, method, ())])[0])
                block.made = stage

    def _place(self, block: Block) -> None:
        address = self._address(block)
        seen = tuple(one for round in block.receipts.values() for one in round)
        order = replace(block.order, heads=(*block.order.heads, *seen))
        future = self.client.submit(Site, order, actor=True, workers=[address], allow_other_workers=False)
        try:
            with self.client.as_current():
                future.result(timeout=min(self.timeout, CONNECT))
        except ImportError as error:
            raise ClusterError(f"{block}, {address}, has not this privadmm installed ({error})") from error
        except (OSError, RuntimeError, CancelledError, KilledWorker) as error:
            raise Lost from error
        block.future, block.address, block.made = future, address, "placed"

    def _address(self, block: Block) -> str:
        """Where the block's worker is now; a nanny takes a moment to start another process."""
        deadline = monotonic() + self.timeout
        while monotonic() < deadline:
            self._scheduler_there()
            for address, info in self._workers().items():
                if home(info) == block.home:
                    return address
            sleep(POLL)
        raise ClusterError(
            f"{block} is gone and did not come back within {self.timeout:g} s: start it again, with its nanny"
        )

    def _scheduler_there(self) -> None:
        if self.client.status != "running":
            raise ClusterError(f"the scheduler at {self.address} is gone: start it and its workers again")


async def answered(client: Any, block: Block, method: str, args: tuple[Any, ...]) -> dict[str, Any]:
    """The site's answer, or what it raised; `GONE` where nobody is there to give one."""
    assert block.future is not None
    try:
        worker = client.rpc(block.address)
        found: dict[str, Any] = await worker.actor_execute(
            function=method, actor=block.future.key, args=args, kwargs={}
        )
    except (OSError, KeyError, RuntimeError):  # no connection; another process, that knows no such actor
        return GONE
    return found


async def moment(answers: Sequence[Answer | None]) -> None:
    """Until all have come, or not much longer."""
    awaited = [answer for answer in answers if answer is not None]
    if awaited:
        await asyncio.wait(awaited, timeout=POLL)


def bare(order: Order) -> Order:
    """The order without what was derived from it here, which its worker derives for itself."""
    return replace(order, job=replace(order.job, public=replace(order.job.public)))


def home(info: dict[str, Any]) -> str:
    """What stays of a worker when its process is another: the address of its nanny, or else its name."""
    return str(info.get("nanny") or info["name"])
