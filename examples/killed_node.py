"""A federation of three whose node is killed: it goes on, and nothing is spent twice

Three parties train over a network: a coordinator and three nodes, each a process of its own, with TLS, keys, and a
ledger on each party's side. In the middle of the run the second node is killed, by `kill -9` and without a goodbye. The
run waits, the node is started again, the letter is sent again, and training goes on to its end.

What matters is what did not happen. No ledger paid twice for a round: a party that is asked again answers from its
ledger, byte for byte. And the transcript is the one that the same seed gives in a single process, bit for bit. The
picture is drawn from the parties' own logs. `privadmm federation rehearse CONFIG.toml` runs such a federation for your
own config; this one takes about two minutes, most of which the coordinator waits until it takes the dead node for dead.
It needs the extra "flower": pip install 'privadmm[flower]'.
"""

import argparse
import json
import os
import signal
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from privadmm.config.file import read
from privadmm.deploy.federation.setup.init import init
from privadmm.deploy.flower.registry import agree
from privadmm.privacy.verification import verify
from privadmm.runs import asking
from privadmm.runs.rehearsal import family, free_ports, processes
from privadmm.runs.run import run
from privadmm.runs.rundir import receipts_of
from privadmm.runs.style import finish, pictures, symbols

options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
options.add_argument("--out", type=Path, default=Path("runs/gallery"), help="where the picture goes")
options.add_argument("--quick", action="store_true", help="fewer rounds")
chosen = options.parse_args()
chosen.out.mkdir(parents=True, exist_ok=True)

ROUNDS, VICTIM = 6 if chosen.quick else 16, 1  # the second party's node
KILL_AFTER = ROUNDS // 2
NAMES = ("party 1", "party 2", "party 3")
CONFIG = f"""
data = {{ source = "embedded:adult", test_fraction = 0.2 }}
parties = {{ count = 3 }}
algorithm = {{ name = "dp_admm", rounds = {ROUNDS}, D_w = 30.0 }}
privacy = {{ epsilon = 1.0, delta = 1e-6 }}
run = {{ seed = 0 }}
"""

kept = tempfile.TemporaryDirectory()
place = Path(kept.name)
(place / "job.toml").write_text(CONFIG)
config = read(place / "job.toml")
made = init(config, place / "federation", "127.0.0.1", free_ports(4), rehearse=True)
killed: float | None = None

with processes(made, place / "logs") as running:  # all of them end with this block
    running.superlink(lambda status: None)
    agree(made.coordinator)
    running.nodes(lambda status: None)
    began = time.time()
    asking.start(made.coordinator, "runs/first")

    def watch(status: dict[str, Any]) -> None:
        """Kill the victim's node, once, when so many rounds are done."""
        global killed
        node = running.kept[1 + VICTIM].child
        if killed is None and node is not None and status.get("round", 0) >= KILL_AFTER:
            for pid in family(node.pid):  # the node, and what it started
                os.kill(pid, signal.SIGKILL)
            killed = time.time()
            print(f"killed the node of {NAMES[VICTIM]}, pid {node.pid}, after round {status['round']}", flush=True)

    status = running.followed(watch, time.monotonic())
assert killed is not None, "the run was over before the node was killed"

folder = made.coordinator.folder / "runs/first"
federated = json.loads((folder / "result.json").read_text())["transcript"]
in_process = run(config, place / "in-process").result["transcript"]
problems = [verify(party.ledger, receipts_of(folder, party.ledger)).problems for party in made.parties]
lines = [list(map(json.loads, (party.folder / "requests.log").read_text().splitlines())) for party in made.parties]
steps = [[line for line in log if line["kind"] == "step" and line["outcome"] == "answered"] for log in lines]
times = [[datetime.fromisoformat(line["at"]).timestamp() - began for line in log] for log in steps]
spent = [log[-1]["epsilon_spent"] for log in steps]
print(f"the run {status['state']}; transcript as in one process: {federated == in_process}")
print(f"ledgers verified: {not any(problems)}; epsilon spent: {', '.join(f'{value:.4f}' for value in spent)}")
kept.cleanup()
title = "A node is killed, the run goes on, and nothing is spent twice"
words = (
    f"Adult at three parties, dp_admm, {ROUNDS} rounds, epsilon = 1, on one machine: a process for each node, "
    "letters over TLS. From the parties' own logs. The transcript is that of one process: "
    f"{'yes' if federated == in_process else 'NO'}."
)
last = max(map(max, times))
for figure, theme in pictures(chosen.out / "killed_node", height=4.4, title=title, words=words, quick=chosen.quick):
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(1.15, 1))
    colors, dead = [theme.series(party) for party in range(3)], killed - began
    back = min((at for at in times[VICTIM] if at > dead + 1), default=last)
    for axes in (above, below):
        axes.axvline(dead, color=theme.verdicts["poor"], linewidth=1.3)
    above.barh(VICTIM, back - dead, left=dead, height=0.5, color=theme.zones["poor"])
    above.text((dead + back) / 2, VICTIM, "killed, and started again", ha="center", va="center",
               color=theme.verdicts["poor"], fontsize=8.5)  # fmt: skip
    above.text(dead, -0.75, " kill -9", color=theme.verdicts["poor"], fontweight="bold", va="center")
    for party, (log, color) in enumerate(zip(steps, colors, strict=True)):
        above.plot(times[party], [party] * len(log), "|", color=color, markersize=15, markeredgewidth=1.6)
        costs = [line["epsilon_spent"] for line in log]
        below.step([0, *times[party], last + 2], [0, *costs, costs[-1]], where="post", color=color, label=NAMES[party],
                   linewidth=3.6 - 1.1 * party)  # fmt: skip
    above.set_yticks(range(3), NAMES)
    above.set(ylim=(2.5, -1.1), xlim=(0, last + 3), title="rounds that each party answered")
    finish(above, legend=False)
    above.grid(axis="y", visible=False)
    below.axhline(1.0, color=theme.ink, linestyle="--", linewidth=1)
    below.text(1, 1.03, symbols("certified epsilon = 1"), fontsize=8.5)
    below.set(xlabel="seconds since the run was asked for", ylabel="epsilon in the ledger", ylim=(0, 1.2))
    finish(below, legend="lower right")
