"""A model of the network: how long a round takes and how many bytes it carries, for any number of parties.

A phase at the parties, seen from the hub (the coordinator; on a graph it relays what neighbours send):

    the hub sends to every node one after another   handling + down (carry + 1/hub) each
    a node receives                                  latency + down/bandwidth, then waits for its next look: poll
    it starts a process, works, answers              start + work + (up + down) carry + up/bandwidth + latency
    the hub takes answers in the order they come     handling + up (carry + 1/hub) each; it looks every `look` seconds
    the round ends when the last one is taken

A node is a party, or a worker with a block of parties, which works as long as all of them together. Where nodes are
processes that share cores, each takes as many times longer to start and to work as there are nodes to a core. With
`spread` > 0 every node's latency and work is multiplied by a factor exp(spread z), z ~ N(0, 1), of its own: the slowest
of many is what everybody waits for. On a graph whose neighbours talk to each other directly there is no hub: a node
sends its message to each neighbour and waits for theirs.

In a secure sum a node also masks its message towards each other one, and once exchanges a key with each:

    masks, a round     (nodes - 1) (MASK + numbers STREAM), and EXCHANGE where every message has a process of its own
    keys, once         (nodes - 1) (EXCHANGE + verify), from a roster of all keys that every node receives

Bytes are exact (`arrays.size`); times are as good as the constants that are given, which benchmarks/scale_model.py
measures for the engines at hand.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from privadmm.data import arrays
from privadmm.data.arrays import Floats
from privadmm.engine.phases import Algorithm, inbox_width, message_width
from privadmm.engine.public import Public
from privadmm.errors import ConfigError
from privadmm.params import check_nonnegative, check_positive, check_whole
from privadmm.privacy.masks import KEY, Entry, Roster

MOST = 10_000_000
Kind = Literal["star", "graph", "peers", "sharing"]


@dataclass(frozen=True)
class Network:
    """Wires: seconds one way, bytes a second of a node and of the hub, and how unequal nodes are."""

    latency: float = 0.02
    bandwidth: float = 12.5e6
    hub: float = 125e6
    spread: float = 0.0

    def __post_init__(self) -> None:
        check_positive(bandwidth=self.bandwidth, hub=self.hub)
        check_nonnegative(latency=self.latency, spread=self.spread)


@dataclass(frozen=True)
class Engine:
    """Software, in seconds: what the hub spends on a message, how often nodes and hub look, how a node starts."""

    handling: float = 0.0
    poll: float = 0.0
    look: float = 0.0
    start: float = 0.0
    carry: float = 0.0  # a byte, at either end: to pack, encrypt and copy it
    frame: int = 0  # bytes around every message
    cores: float = math.inf  # that all nodes share, where they are processes of one machine
    forgets: bool = False  # a node derives the keys of a secure sum again for every message
    verify: float = 0.0  # to check who signed a key of a secure sum, where somebody does
    signature: int = 0  # its characters


# Measured on loopback, two cores, by benchmarks/scale_model.py and benchmarks/secure_sums.py: see docs/scale.md.
ENGINES = {
    "ideal": Engine(),
    "dask": Engine(handling=5e-4, start=1.5e-3, carry=2e-8),
    "flower": Engine(handling=0.05, poll=3.0, start=0.4, look=0.2, forgets=True, verify=5e-4, signature=206),
}
MASK, STREAM = 9e-6, 2.5e-9  # seconds for another node: to begin a mask, and for each number in it
EXCHANGE = 6e-5  # seconds to derive the key that two nodes share


@dataclass(frozen=True)
class Traffic:
    """One phase of one round."""

    kind: Kind
    nodes: int
    down: int  # bytes to each node
    up: int  # bytes from each node
    neighbours: int  # to how many others a node speaks where there is no hub

    @property
    def sent(self) -> int:
        """Bytes that a node puts on wires."""
        return self.up * (self.neighbours if self.kind == "peers" else 1)

    @property
    def total(self) -> int:
        """Bytes on all wires."""
        return self.nodes * (self.sent if self.kind == "peers" else self.down + self.up)

    @property
    def at_hub(self) -> int:
        return 0 if self.kind == "peers" else self.total


def mail_bytes(rows: int, width: int, sealed: bool = False) -> int:
    """Size of packed mail from this many senders; sealed, it has one row of words for all of them."""
    if sealed:
        return arrays.size([("senders", "<i8", (rows,)), ("values", "<u8", (1, width))])
    return arrays.size([("senders", "<i8", (rows,)), ("values", "<f8", (rows, width))])


def traffic(
    kind: Kind,
    nodes: int,
    up: int,
    down: int,
    degree: float = 0.0,
    block: int = 1,
    frame: int = 0,
    sealed: bool = False,
) -> Traffic:
    """Traffic of nodes with `block` parties each, which send `up` numbers and hear `down` from each sender.

    A block hears the coordinator once, and of a graph at most as many neighbours as its parties have together.
    """
    check_whole(nodes=nodes, up=up, down=down, block=block)
    heard = round(degree) if kind in ("graph", "peers") else 1
    if kind in ("graph", "peers") and not 0 < degree <= nodes * block - 1:
        raise ConfigError(f"a graph of {nodes * block} parties has no degree {degree:g}")
    sent = mail_bytes(block, up, sealed) + frame
    rows = min(heard * block, nodes * block) if kind == "graph" else 1
    to = heard * sent if kind == "peers" else mail_bytes(rows, down) + frame
    return Traffic(kind, nodes, to, sent, heard)


def one_round(traffic: Traffic, network: Network, engine: Engine, work: float, rng: np.random.Generator) -> float:
    """Seconds that a round takes."""
    slow = np.exp(network.spread * rng.standard_normal((2, traffic.nodes)))
    crowd = max(1.0, traffic.nodes / engine.cores)  # how many times longer a node takes because it shares the cores
    carried = engine.carry * (traffic.sent + traffic.down)
    latency, busy = network.latency * slow[0], (engine.start + carried + work * slow[1]) * crowd
    if traffic.kind == "peers":
        # All send at once, each over a wire of its own that carries both ways; the slowest is waited for.
        sending = traffic.neighbours * (engine.handling + traffic.up / network.bandwidth)
        return float(np.max(busy + sending + latency))
    byte = engine.carry + 1 / network.hub
    sent = np.cumsum(np.full(traffic.nodes, engine.handling + traffic.down * byte))
    received = sent + latency + traffic.down / network.bandwidth
    noticed = next_look(received, engine.poll, rng.random(traffic.nodes))
    answered = next_look(noticed + busy + traffic.up / network.bandwidth + latency, engine.look, 0.0)
    return queue_end(answered, np.full(traffic.nodes, engine.handling + traffic.up * byte))


def next_look(times: Floats, every: float, phase: Floats | float) -> Floats:
    """When each is noticed by somebody who looks at the times (phase + k) every, k = 0, 1, ..."""
    return times if every == 0 else np.asarray((np.ceil(times / every - phase) + phase) * every)


def queue_end(arrivals: Floats, service: Floats) -> float:
    """When the last of a queue is served: the maximum over k of arrival_k + the service from k on."""
    order = np.argsort(arrivals, kind="stable")
    left = np.cumsum(service[order][::-1])[::-1]
    return float(np.max(arrivals[order] + left))


def simulate(
    traffic: Traffic, network: Network, engine: Engine, work: float, rounds: int = 20, seed: int = 0
) -> dict[str, Any]:
    """Mean and extremes over rounds, each with its own latencies, and the bytes of a round."""
    rng = np.random.default_rng(seed)
    seen = [one_round(traffic, network, engine, work, rng) for _ in range(rounds)]
    return {
        "kind": traffic.kind,
        "nodes": traffic.nodes,
        "seconds": float(np.mean(seen)),
        "fastest": float(np.min(seen)),
        "slowest": float(np.max(seen)),
        "bytes": float(traffic.total),
        "bytes_at_hub": float(traffic.at_hub),
        "bytes_of_node": float(traffic.sent + traffic.down),
    }


@dataclass(frozen=True)
class Sealing:
    """What a secure sum adds for each of its nodes."""

    masks: float  # seconds a round
    keys: float  # seconds, once
    roster: int  # bytes to each node, once


def sealing(nodes: int, numbers: int, engine: Engine) -> Sealing:
    """What it adds for a node of one party, whose message has this many numbers."""
    others = nodes - 1
    masks = others * (MASK + numbers * STREAM + (EXCHANGE if engine.forgets else 0.0))
    keys = others * (EXCHANGE + engine.verify)
    return Sealing(masks, keys, roster_bytes(nodes, engine.signature))


def roster_bytes(parties: int, signature: int) -> int:
    """Size of a packed roster. Entries differ in length by the digits of their numbers only."""
    one, two = (len(Roster((Entry((0,), bytes(KEY), "0" * signature),) * count).pack()) for count in (1, 2))
    digits: int = sum(parties - 10**k for k in range(1, len(str(parties))))
    return one + (parties - 1) * (two - one) + digits


def of_method(
    algorithm: Algorithm,
    public: Public,
    features: int,
    counts: Sequence[int],
    network: Network,
    engine: str,
    work: float,
    workers: int | None = None,
    cores: int | None = None,
) -> dict[str, Any]:
    """Simulate rounds of this algorithm with other numbers of parties; a graph keeps its mean degree.

    Parties are nodes, or in blocks on this many `workers`; nodes have a machine each, or all of them share `cores`.
    """
    software, sealed = ENGINES[engine], public.privacy.sum is not None
    software = software if cores is None else replace(software, cores=float(cores))
    kinds: tuple[Kind, ...] = ("sharing",) if public.columns else ("star",)
    if not public.columns and algorithm.topology != "star":
        kinds = ("graph", "peers") if algorithm.topology == "graph" and workers is None else ("graph",)
    degree = float(public.graph.degrees.mean())
    lines = []
    for count in counts:
        check_whole(parties=count)
        if count > MOST:
            raise ConfigError(f"parties = {count}: the model goes up to {MOST:,}; beyond that, read on along the line")
        if count < 2 and (kinds != ("star",) or sealed):
            raise ConfigError(f"parties = {count}: {algorithm.name} needs two or more")
        up, down = message_width(algorithm, public), inbox_width(algorithm, public)
        if public.columns:
            up, down = public.dim + -(-features // count), public.dim
        if workers is not None and workers > count:
            raise ConfigError(f"workers = {workers}: there are {count} parties; name no more workers than parties")
        nodes = count if workers is None else workers
        block = -(-count // nodes)
        added = sealing(nodes, up, software) if sealed else None
        for kind in kinds:
            heard = min(degree, count - 1) if algorithm.topology == "graph" else 1.0
            load = traffic(kind, nodes, up, down, heard, block, software.frame, sealed)
            busy = work * block + (0.0 if added is None else added.masks)
            line = {"parties": count, **simulate(load, network, software, busy)}
            lines.append(line if added is None else line | asdict(added))
    return {
        "algorithm": algorithm.name,
        "engine": engine,
        "workers": workers,
        "cores": cores,
        "network": asdict(network),
        "work": work,
        "secure_sum": sealed,
        "numbers_sent": message_width(algorithm, public),
        "lines": lines,
    }
