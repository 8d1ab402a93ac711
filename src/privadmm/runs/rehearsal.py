"""A whole federation on this machine: its files, a SuperLink, a node for each party, the run, and the same in process.

It reads the records that the config names and writes into one new directory. Ledgers are made there, so those of a
deployment are not touched.
"""

import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from privadmm.config.file import Config
from privadmm.deploy.federation.hub.supervisor import LEAVING, Process, free_ports, reachable
from privadmm.deploy.federation.layout import PROMPT, node, node_environment
from privadmm.deploy.federation.proposal import parties_of
from privadmm.deploy.federation.setup.init import Made, init
from privadmm.deploy.flower.registry import agree
from privadmm.errors import ClusterError
from privadmm.privacy.verification import verify
from privadmm.runs import asking
from privadmm.runs.run import free, run
from privadmm.runs.rundir import receipts_of

PATIENCE = 120.0  # seconds for the SuperLink or a node to come up
AT_ONCE = max(2, os.cpu_count() or 1)  # nodes that may be starting
BESIDE = 4  # nodes on a core that need not look for letters less often
LOOK = 0.2  # seconds between looks at what is not there yet
WEIGHING = 2.0  # seconds between looks at the memory of nodes
Show = Callable[[dict[str, Any]], None]


def rehearse(config: Config, out: Path | None, show: Show = lambda status: None) -> dict[str, Any]:
    """Run the config's job over real processes here, and the same in process if it can be compared.

    Returns what both took, and whether transcripts and ledgers are as they should be. All processes end with it.
    """
    place = out or free(Path("runs") / f"rehearsal-{config.path.stem}-{time.strftime('%Y%m%d-%H%M%S')}")
    began = time.monotonic()
    made = init(config, place / "federation", "127.0.0.1", free_ports(1 + parties_of(config)), rehearse=True)
    folder = made.coordinator.folder
    with processes(made, place / "logs") as running:
        running.superlink(show)
        agree(made.coordinator)
        running.nodes(show)
        up = time.monotonic() - began
        asking.start(made.coordinator, "runs/first")
        status = running.followed(show, began)
    result_file = folder / "runs/first/result.json"
    if status.get("state") != "finished":
        raise ClusterError(
            f"the rehearsal's run {status.get('state')}: {status.get('message') or status.get('error')}; all of it is "
            f"in {place}"
        )
    result = json.loads(result_file.read_text(encoding="utf-8"))
    ledgers = [
        verify(party.ledger, receipts_of(folder / "runs/first", party.ledger)).problems for party in made.parties
    ]
    same: bool | None = None
    if config.run.mode == "simulation":
        alone = replace(config, run=replace(config.run, ledger=None, engine="inprocess", out=None))
        same = run(alone, place / "in-process").result["transcript"] == result["transcript"]
    letters, repeats = counted(made)
    return {
        "good": same is not False and not any(ledgers),
        "parties": len(made.parties),
        "rounds": result["rounds"],
        "transcript": result["transcript"],
        "same_transcript": same,
        "ledgers_good": not any(ledgers),
        "nodes_seconds": round(up, 1),
        **running.figures,
        "letters": letters,
        "repeats": repeats,
        "seconds": round(time.monotonic() - began, 1),
        "out": str(place),
        "run": str(folder / "runs/first"),
    }


def counted(made: Made) -> tuple[int, int]:
    """How many letters the parties answered, and how many of them for another time."""
    letters = repeats = 0
    for party in made.parties:
        lines = (party.folder / "requests.log").read_text(encoding="utf-8").splitlines()
        asked = Counter(
            tuple(str(line.get(key)) for key in ("kind", "job", "round", "phase")) for line in map(json.loads, lines)
        )
        letters += asked.total()
        repeats += asked.total() - len(asked)
    return letters, repeats


@dataclass
class Running:
    """The processes of a rehearsal."""

    made: Made
    logs: Path
    kept: list[Process] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)

    def superlink(self, show: Show) -> None:
        """Start the SuperLink and wait until it listens."""
        place = self.made.coordinator
        words = [sys.executable, "-m", "privadmm", "federation", "superlink", str(place.folder)]
        self.kept.append(Process(words, os.environ, log=self.logs / "superlink.log"))
        deadline = time.monotonic() + PATIENCE
        show({"state": "starting", "at": "the SuperLink comes up", "out": "rehearsal"})
        while not reachable(*place.address):
            self.look()
            if time.monotonic() > deadline:
                raise ClusterError(f"the SuperLink did not come up within {PATIENCE:g} s: see {self.kept[0].log}")
            time.sleep(LOOK)

    def nodes(self, show: Show) -> None:
        """Start the nodes, a few at a time: if all load Flower at once, its requests run out of time on a few cores."""
        ports, deadline = list[int](), time.monotonic() + PATIENCE
        crowd = len(self.made.parties) / (BESIDE * (os.cpu_count() or 1))
        # Each node looks for letters all the time: where many share a core, that alone would keep it busy.
        calm = {name: f"{float(seconds) * max(1.0, crowd):.2f}" for name, seconds in PROMPT.items()}
        for number, party in enumerate(self.made.parties):
            environment = os.environ | node_environment(party) | calm
            self.kept.append(Process(node(party), environment, log=self.logs / f"{party.folder.name}.log"))
            self.look()
            ports.append(party.node.port)
            last = number + 1 == len(self.made.parties)
            while ports := [port for port in ports if not reachable("127.0.0.1", port)]:
                if len(ports) < (1 if last else AT_ONCE):
                    break
                show({"state": "starting", "at": f"{number + 1} nodes were started", "out": "rehearsal"})
                if time.monotonic() > deadline:
                    raise ClusterError(f"a node did not come up within {PATIENCE:g} s: see {self.logs}")
                self.look()
                time.sleep(LOOK)
            deadline = time.monotonic() + PATIENCE

    def look(self) -> None:
        """See to the processes; an error if one of them does not stay up."""
        for process in self.kept:
            if process.look() is not None:
                raise ClusterError(f"a process of the rehearsal ended: see {process.log}")

    def followed(self, show: Show, began: float) -> dict[str, Any]:
        """Follow the run to its end, and measure."""
        status: dict[str, Any] = {}
        times: dict[int, float] = {}
        memory, weighed = 0.0, 0.0
        for status in asking.follow(self.made.coordinator):
            self.look()
            show(status)
            now = time.monotonic()
            if status.get("rounds"):
                times.setdefault(status["round"], now)
            if now - weighed > WEIGHING:
                memory, weighed = max(memory, self.memory()), now
        first, last = min(times, default=0), max(times, default=0)
        self.figures = {
            "startup_seconds": round(times.get(first, time.monotonic()) - began, 1),
            "seconds_a_round": round((times[last] - times[first]) / (last - first), 2) if last > first else None,
            "memory_a_node_mb": round(memory, 1) if memory else None,
        }
        return status

    def memory(self) -> float:
        """Megabytes of the largest node with its processes: each page is counted once, shared ones in part."""
        nodes = [one.child.pid for one in self.kept[1:] if one.child is not None]
        return max((sum(megabytes(pid) for pid in family(node)) for node in nodes), default=0.0)

    def end(self) -> None:
        """End all processes, the nodes first, so that they can say goodbye; what they started ends with them."""
        started = [pid for one in self.kept if one.child is not None for pid in family(one.child.pid)]
        for group in (self.kept[1:], self.kept[:1]):
            for process in group:
                if process.child is not None:
                    process.child.terminate()
            for process in group:
                process.end(interrupted=False)
        deadline = time.monotonic() + LEAVING
        while (left := [pid for pid in started if lives(pid)]) and time.monotonic() < deadline:
            time.sleep(LOOK)
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def family(pid: int) -> list[int]:
    """A process and all that it started, as far as they run."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError):
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(path.parent.name))
    found = [pid]
    for one in found:  # which grows
        found += children.get(one, [])
    return found


def megabytes(pid: int) -> float:
    with suppress(OSError, StopIteration, ValueError):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return float(next(line for line in lines if line.startswith("Pss:")).split()[1]) / 1024
    return 0.0


def lives(pid: int) -> bool:
    """Whether a process runs; one that is dead and that nobody has waited for does not."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


@contextmanager
def processes(made: Made, logs: Path) -> Iterator[Running]:
    """A place for the processes of a rehearsal, which all end with it, however it ends."""
    logs.mkdir(parents=True, exist_ok=True)
    running = Running(made, logs)
    try:
        yield running
    finally:
        running.end()
