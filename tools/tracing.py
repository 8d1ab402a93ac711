"""Count the functions and files of privadmm that one record passes until it is released.

    python tools/tracing.py [--list]

In process: from the call of `run` to the end of the first round's commit, and to the end of the whole run (DP-ADMM on a
csv file, three parties). Federation: while a party answers its second `step` letter. A function counts once, however
often it is called; comprehensions and lambdas do not count. --list prints their names.
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


@dataclass
class Trace:
    """Functions that were called, in the order of their first call."""

    calls: dict[CodeType, int] = field(default_factory=dict)
    until: Callable[[CodeType], bool] = lambda code: False
    early: dict[CodeType, int] | None = None  # the calls before `until` returned for the first time

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE) and not code.co_name.startswith("<"):
            self.calls[code] = self.calls.get(code, 0) + 1
        elif event == "return" and self.early is None and self.until(code):
            self.early = dict(self.calls)

    @contextmanager
    def on(self) -> Iterator[None]:
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(None)


def told(what: str, calls: dict[CodeType, int], listed: bool) -> None:
    files = {code.co_filename for code in calls}
    print(f"{what}: {len(calls)} functions in {len(files)} files, {sum(calls.values())} calls")
    for code in calls if listed else ():
        place = Path(code.co_filename).relative_to(PACKAGE)
        print(f"  {place}:{code.co_firstlineno} {code.co_qualname} x{calls[code]}")


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
    listed = parser.parse_args().list
    with tempfile.TemporaryDirectory() as name:
        whole = in_process(Path(name))
        assert whole.early is not None, "nothing was committed"
        told("in process, to the first release", whole.early, listed)
        told("in process, the whole run", whole.calls, False)
    with tempfile.TemporaryDirectory() as name:
        told("a federation letter", a_letter(Path(name)).calls, listed)


if __name__ == "__main__":
    main()
