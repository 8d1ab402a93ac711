"""Whole commands, as somebody at a terminal waits for them."""

import atexit
import json
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from subprocess import run

import numpy as np

import privadmm
from privadmm.config import build
from privadmm.config.file import read
from privadmm.data.arrays import Floats
from privadmm.engine.block import cluster
from privadmm.engine.job import Job, train, weights
from privadmm.engine.loop import Progress
from privadmm.engine.phases import features
from privadmm.papers.bench.shares import Shares, of_command
from privadmm.papers.bench.workload import Agreement, Goal, Line, Part, Ready, Reference, Workload, workload
from privadmm.privacy.mechanisms import Simulation
from privadmm.runs import metrics, preview


def example(name: str) -> Path:
    """An example's config, in the repository that this package is installed from."""
    return Path(privadmm.__file__).parents[2] / "examples" / f"{name}.toml"


def no_example(name: str) -> Callable[[], str | None]:
    """Why there is no such example: a package that was installed from a wheel has none."""
    return lambda: None if example(name).is_file() else f"needs examples/{name}.toml, which only the repository has"


# The command, which says last how much memory its process held: what getrusage says of a child is also its parent's.
COMMAND = """
import sys
sys.argv[:] = sys.argv[1:]
try:
    from privadmm.cli import main
    main()
finally:
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    print(int(status["VmHWM"].split()[0]) * 1024, file=sys.stderr)
"""

# What a command loads of other people's, in the way in which it does.
IMPORTS = "from privadmm.cli import process; process.prepare(); import numpy, scipy.sparse, scipy.special"


def compiled() -> dict[str, str]:
    """An environment in which Python keeps compiled modules, in a folder of this process."""
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"PYTHONPYCACHEPREFIX": folder.name}


@workload(
    "account-mr-admm",
    Line("itself", "no reference", Goal("cpu", 0.1)),
    missing=no_example("mr_admm"),
)
def account(quick: bool) -> Ready:
    """Calibration of MR-ADMM, all that `privadmm account examples/mr_admm.toml` computes.

    Fair: every call asks for another epsilon, so that no cache has the answer. There is no reference; the check is
    that the certified total is the epsilon that was asked for, and not more.
    """
    config, numbers = read(example("mr_admm")), count()
    table = config.privacy
    assert table is not None

    def ours() -> Floats:
        epsilon = 1.0 + 1e-4 * next(numbers)
        asked = replace(config, privacy=replace(table, epsilon=epsilon))
        return np.array([preview.account(asked)["certified"]["epsilon"] / epsilon])

    def check(mine: Floats, theirs: Floats) -> Agreement:
        return Agreement(1 - mine[0] if mine[0] <= 1 else np.inf, 1e-3)

    return Ready(ours, {"itself": Reference(None, check)})


def trained(name: str) -> Workload:
    def make(quick: bool) -> Ready:
        peaks = list[int]()

        environment = compiled()

        def words(place: str) -> list[str]:
            return ["train", str(example(name)), "--out", str(Path(place) / "run"), "--json"]

        def ours() -> Floats:
            with tempfile.TemporaryDirectory() as place:
                command = [sys.executable, "-c", COMMAND, "privadmm", *words(place)]
                done = run(command, check=True, capture_output=True, text=True, env=environment)
                said = json.loads(done.stdout)
                peaks.append(int(done.stderr.split()[-1]))
                return np.array([said["accuracy_test"]])

        config = read(example(name))
        prepared = build.prepare(config)

        def alone() -> tuple[Job, Progress]:
            """The same training in this process, without files."""
            job = build.job(config, prepared.held.sizes, prepared.held.dim, columns=prepared.columns)
            return job, train(job, cluster(job, prepared.train, Simulation(config.run.seed or 0)))

        def check(mine: Floats, theirs: Floats) -> Agreement:
            """The command's model is as accurate as that of the same training in this process."""
            job, progress = alone()
            assert prepared.test is not None
            seen = metrics.through(prepared.test, features(progress.memory))
            accuracy = metrics.accuracy(seen, metrics.scores(seen, weights(job, progress)))
            return Agreement(abs(mine[0] - accuracy), 1e-12)

        def shares() -> Shares:
            with tempfile.TemporaryDirectory() as place:
                return of_command(["-m", "privadmm", *words(place)], environment)

        def imported() -> None:
            run([sys.executable, "-c", IMPORTS], check=True, env=environment)

        ours()  # writes the compiled modules
        needed = Part("importing typer, numpy and scipy", imported), Part("the training with a ledger in memory", alone)
        return Ready(ours, {"itself": Reference(None, check)}, peak=lambda: max(peaks), shares=shares, needed=needed)

    make.__doc__ = f"""The command `privadmm train examples/{name}.toml`, from start to end.

    Fair: a process of its own each time, with imports, data, ledger, run directory and pictures; CPU time is all of
    its threads' and children's. Modules were compiled by a start before, as they are from the second start on. There
    is no reference; the model is as accurate as the same training in this process.
    """
    line = Line("itself", "no reference", Goal("cpu", 0.8))
    return Workload(f"train-{name.replace('_', '-')}", make, (line,), missing=no_example(name))


TRAINED = tuple(trained(name) for name in ("dp_admm", "first_order_consensus", "dvp"))
