"""How long a round takes and what it carries, for parties that no machine here can hold: a model of the network.

A round of a phase at the parties, seen from the hub (whoever drives; on a graph it relays what neighbours say):

    the hub sends to every node one after another   handling + down/hub each
    a node receives                                  latency + down/bandwidth, then waits for its next look: poll
    it starts a process, works, answers              start + work + up/bandwidth + latency
    the hub takes answers in the order they come     up/hub + handling each, and it looks every `look` seconds
    the round ends when the last one is taken

A node is a party, or a block of parties on one worker. With `spread` > 0 every node's latency and work is multiplied by
a factor exp(spread z), z ~ N(0, 1), of its own: the slowest of many is what everybody waits for. On a graph whose
neighbours talk to each other directly there is no hub: a node sends its message to each neighbour and waits for theirs.

Bytes are exact (`arrays.size`); times are as good as the constants that are given, which benchmarks/scale_model.py
measures for the engines at hand.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from privadmm.data import arrays
from privadmm.data.arrays import Floats
from privadmm.engine.phases import Algorithm, inbox_width, message_width
from privadmm.engine.public import Public
from privadmm.errors import ConfigError
from privadmm.params import check_positive, check_whole

MOST = 10_000_000
Kind = Literal["star", "graph", "peers", "sharing"]


@dataclass(frozen=True)
class Network:
    """Of wires: seconds one way, bytes a second of a node and of the hub, and how unequal nodes are."""

    latency: float = 0.02
    bandwidth: float = 12.5e6
    hub: float = 125e6
    spread: float = 0.0

    def __post_init__(self) -> None:
        check_positive(bandwidth=self.bandwidth, hub=self.hub)
        for name in ("latency", "spread"):
            if not 0 <= getattr(self, name) < np.inf:
                raise ConfigError(f"{name} must be 0 or more and finite, not {getattr(self, name)!r}")


@dataclass(frozen=True)
class Engine:
    """Of software, in seconds: what the hub spends on a message, how often nodes and hub look, how a node starts."""

    handling: float = 0.0
    poll: float = 0.0
    look: float = 0.0
    start: float = 0.0
    frame: int = 0  # bytes around every message
    cores: float = math.inf  # that all nodes share, where they are processes of one machine

    def turn(self, nodes: int) -> float:
        """How many times longer a node starts and works because others do on the same cores."""
        return max(1.0, nodes / self.cores)


# Measured on loopback, two cores, by benchmarks/scale_model.py: see docs/scale.md.
ENGINES = {
    "ideal": Engine(),
    "dask": Engine(handling=5e-4, start=1.5e-3),
    "flower": Engine(handling=0.05, poll=3.0, start=3.0, look=0.2),
}


@dataclass(frozen=True)
class Traffic:
    """One phase of one round. `rows` are the senders that a node hears, `width` the numbers of each."""

    kind: Kind
    nodes: int
    down: Floats  # bytes to each node
    up: Floats  # bytes from each node
    neighbours: Floats  # to how many others a node speaks where there is no hub

    @property
    def total(self) -> float:
        """Bytes on all wires."""
        if self.kind == "peers":
            return float((self.up * self.neighbours).sum())
        return float(self.down.sum() + self.up.sum())

    @property
    def at_hub(self) -> float:
        return 0.0 if self.kind == "peers" else self.total


def mail_bytes(rows: int, width: int) -> int:
    """Of packed mail from so many senders."""
    return arrays.size([("senders", "<i8", (rows,)), ("values", "<f8", (rows, width))])


def traffic(
    kind: Kind,
    nodes: int,
    up: int,
    down: int,
    degree: float = 0.0,
    block: int = 1,
    frame: int = 0,
) -> Traffic:
    """Of nodes with `block` parties each, whose messages have `up` numbers and which hear `down` from each sender."""
    check_whole(nodes=nodes, up=up, down=down, block=block)
    heard = round(degree) if kind in ("graph", "peers") else 1
    if kind in ("graph", "peers") and not 0 < degree <= nodes * block - 1:
        raise ConfigError(f"a graph of {nodes * block} parties has no degree {degree:g}")
    sent = mail_bytes(block, up) + frame
    to = heard * sent if kind == "peers" else mail_bytes(min(heard * block, nodes * block), down) + frame
    ones = np.ones(nodes)
    return Traffic(kind, nodes, to * ones, sent * ones, heard * ones)


def one_round(traffic: Traffic, network: Network, engine: Engine, work: float, rng: np.random.Generator) -> float:
    """Seconds."""
    slow = np.exp(network.spread * rng.standard_normal((2, traffic.nodes)))
    latency, busy = network.latency * slow[0], (engine.start + work * slow[1]) * engine.turn(traffic.nodes)
    if traffic.kind == "peers":
        # All send at once, each over a wire of its own that carries both ways; the slowest is waited for.
        sending = traffic.neighbours * (engine.handling + traffic.up / network.bandwidth)
        return float(np.max(busy + sending + latency))
    sent = np.cumsum(engine.handling + traffic.down / network.hub)
    received = sent + latency + traffic.down / network.bandwidth
    noticed = next_look(received, engine.poll, rng.random(traffic.nodes))
    answered = noticed + busy + traffic.up / network.bandwidth + latency
    return queue_end(next_look(answered, engine.look, 0.0), engine.handling + traffic.up / network.hub)


def next_look(times: Floats, every: float, phase: Floats | float) -> Floats:
    """When each is noticed by somebody who looks at (phase + k) every."""
    if every == 0:
        return times
    return np.asarray((np.ceil(times / every - phase) + phase) * every)


def queue_end(arrivals: Floats, service: Floats) -> float:
    """When the last is done if one is served after another: max over k of arrival_k + the service from k on."""
    order = np.argsort(arrivals, kind="stable")
    left = np.cumsum(service[order][::-1])[::-1]
    return float(np.max(arrivals[order] + left))


def simulate(
    traffic: Traffic, network: Network, engine: Engine, work: float, rounds: int = 20, seed: int = 0
) -> dict[str, Any]:
    """Mean and extremes over rounds with latencies of their own, and the bytes of one."""
    rng = np.random.default_rng(seed)
    seen = [one_round(traffic, network, engine, work, rng) for _ in range(rounds)]
    return {
        "kind": traffic.kind,
        "nodes": traffic.nodes,
        "seconds": float(np.mean(seen)),
        "fastest": float(np.min(seen)),
        "slowest": float(np.max(seen)),
        "bytes": traffic.total,
        "bytes_at_hub": traffic.at_hub,
        "bytes_of_node": float(
            np.max(traffic.up * (traffic.neighbours if traffic.kind == "peers" else 1) + traffic.down)
        ),
    }


def of_method(
    algorithm: Algorithm,
    public: Public,
    features: int,
    counts: Sequence[int],
    network: Network,
    engine: str,
    work: float,
) -> dict[str, Any]:
    """Rounds of this algorithm with so many parties in place of its own; a graph keeps its mean degree."""
    made = ENGINES[engine]
    kinds: tuple[Kind, ...] = ("star",)
    if public.columns:
        kinds = ("sharing",)
    elif algorithm.topology != "star":
        kinds = ("graph", "peers") if algorithm.topology == "graph" else ("graph",)
    degree = float(public.graph.degrees.mean())
    lines = []
    for count in counts:
        check_whole(parties=count)
        if count > MOST:
            raise ConfigError(f"parties = {count}: the model goes up to {MOST:,}; beyond that, read on along the line")
        if count < 2 and kinds != ("star",):
            raise ConfigError(f"parties = {count}: {algorithm.name} needs two or more")
        up, down = message_width(algorithm, public), inbox_width(algorithm, public)
        if public.columns:
            up, down = public.dim + -(-features // count), public.dim
        for kind in kinds:
            heard = min(degree, count - 1) if algorithm.topology == "graph" else 1.0
            load = traffic(kind, count, up, down, heard, frame=made.frame)
            lines.append(simulate(load, network, made, work))
    return {
        "algorithm": algorithm.name,
        "engine": engine,
        "network": asdict(network),
        "work": work,
        "numbers_sent": message_width(algorithm, public),
        "lines": lines,
    }
