"""Count the functions and files of privadmm that one record passes until it is released.

    python tools/tracing.py [--list] [--purposes]

In process: from reading the config file to the end of the first round's commit, and to the end of the whole run
(DP-ADMM on a csv file, three parties). Federation: while a party answers its second `step` letter. A function counts
once, however often it is called; comprehensions and lambdas do not count. --list prints their names, --purposes what
they are for: a function counts for the step of STEPS during which it was called first.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import privadmm

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))
PACKAGE = str(Path(privadmm.__file__).parent)
# What a function, and whatever it calls, is for; a step inside of another one counts by itself.
STEPS = {
    "config/file.py read": "read the config",
    "config/checks.py check_sections": "check the config",
    "config/file.py check_seed": "check the config",
    "config/file.py check_alone": "check the config",
    "runs/run.py run": "the run and its directory",
    "engine/block.py cluster": "open the block",
    "engine/loop.py drive": "the loop",
    "deploy/federation/desk/party_server.py answer": "the letter and its log",
    "deploy/federation/desk/records.py held": "the records, from the cache",
    "config/build.py prepare": "split and clip",
    "config/data_source.py records": "read the data",
    "config/build.py job": "build the job",
    "algorithms/method.py Method.plan": "plan and count",
    "privacy/accounting.py totals": "plan and count",
    "engine/job.py Job.budget": "plan and count",
    "engine/job.py Job.policy": "plan and count",
    "engine/job.py Job.epsilon_by_round": "plan and count",
    "privacy/chain.py Chain.__init__": "open the ledger",
    "deploy/remote_block.py open_ledger": "open the ledger",
    "engine/job.py Job.admit": "admit and set aside",
    "engine/job.py Job.reserve": "admit and set aside",
    "engine/worker.py Worker.answer": "one round",
    "privacy/release.py Door.output": "release",
    "privacy/mechanisms.py Simulation.gaussian": "noise",
    "privacy/sqlite_ledger.py SqliteLedger.permit": "ask the ledger",
    "privacy/sqlite_ledger.py SqliteLedger.commit": "commit",
    "privacy/chain.py Chain.transaction": "commit",
    "privacy/sqlite_ledger.py SqliteLedger.recall": "ask the ledger",
}


@dataclass
class Trace:
    """Functions that were called, in the order of their first call."""

    calls: dict[CodeType, int] = field(default_factory=dict)
    steps: dict[CodeType, str] = field(default_factory=dict)  # during which each was called first
    inside: list[tuple[CodeType, str]] = field(default_factory=list)  # the steps that have begun
    until: Callable[[CodeType], bool] = lambda code: False
    early: dict[CodeType, int] | None = None  # the calls before `until` returned for the first time

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE) and not code.co_name.startswith("<"):
            if (step := STEPS.get(f"{place(code)} {code.co_qualname}")) is not None:
                self.inside.append((code, step))
            self.calls[code] = self.calls.get(code, 0) + 1
            self.steps.setdefault(code, self.inside[-1][1] if self.inside else "anything else")
        elif event == "return":
            if self.inside and self.inside[-1][0] is code:
                self.inside.pop()
            if self.early is None and self.until(code):
                self.early = dict(self.calls)

    @contextmanager
    def on(self) -> Iterator[None]:
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(None)


def place(code: CodeType) -> str:
    return Path(code.co_filename).relative_to(PACKAGE).as_posix()


def told(what: str, trace: Trace, calls: dict[CodeType, int], options: argparse.Namespace) -> None:
    files = {code.co_filename for code in calls}
    print(f"{what}: {len(calls)} functions in {len(files)} files, {sum(calls.values())} calls")
    for code in calls if options.list else ():
        print(f"  {place(code)}:{code.co_firstlineno} {code.co_qualname} x{calls[code]} ({trace.steps[code]})")
    for step in dict.fromkeys(trace.steps[code] for code in calls) if options.purposes else ():
        found = [code for code in calls if trace.steps[code] == step]
        print(f"  {step}: {len(found)} functions in {len({code.co_filename for code in found})} files")


def in_process(folder: Path) -> Trace:
    from privadmm.config.file import read
    from privadmm.runs.run import run
    from small_runs import PRIVATE, rows, with_changes, write_config, write_csv

    write_csv(folder / "rows.csv", *rows())
    columns = {f"f{j}": [-3.0, 3.0] for j in range(3)}
    lines = "".join(f"{name} = {bounds}\n" for name, bounds in columns.items())
    (folder / "schema.toml").write_text(lines)
    data = {"source": "rows.csv", "label": "y", "schema": "schema.toml"}
    config = write_config(folder / "config.toml", with_changes(PRIVATE, {"data": data}))
    run(read(config), folder / "before")  # what is imported on first use is not part of the path
    trace = Trace(until=lambda code: code.co_qualname == "SqliteLedger.commit")
    with trace.on():
        run(read(config), folder / "out")
    return trace


def a_letter(folder: Path) -> Trace:
    from federations import Desks, federated
    from small_runs import PRIVATE

    trace, made = Trace(), federated(folder, PRIVATE)

    class Traced(Desks):
        def ask(self, party: int, letter: Any) -> Any:
            if party == 0 and letter["kind"] == "step" and letter["round"] == 1:
                with trace.on():
                    return super().ask(party, letter)
            return super().ask(party, letter)

    made.run(Traced(made.folders))
    return trace


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--purposes", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        whole = in_process(Path(name))
        assert whole.early is not None, "nothing was committed"
        told("in process, to the first release", whole, whole.early, options)
        told("in process, the whole run", whole, whole.calls, argparse.Namespace(list=False, purposes=options.purposes))
    with tempfile.TemporaryDirectory() as name:
        letter = a_letter(Path(name))
        told("a federation letter", letter, letter.calls, options)


if __name__ == "__main__":
    main()
