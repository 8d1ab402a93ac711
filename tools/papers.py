"""Run the papers' experiments again and put the tables into their pages, or compare a page with a run.

    python tools/papers.py [PAPER ...] [--data-dir DIRECTORY] [--results DIRECTORY] [--check]

Without --results it runs `privadmm reproduce` first, of all papers or of those named (all of them: about ten minutes on
two idle cores). --results takes what an earlier `privadmm reproduce --out DIRECTORY` left, of one paper or of several.
Tables go between the two markers of docs/papers/PAPER.md, counts of verdicts into src/privadmm/papers/verdicts.json
(which `privadmm papers` shows); images stay where they are. A quick run is refused.

--check writes nothing. It lists what a page says otherwise than the run, and then ends with exit code 1. Words and
verdicts have to be the same; figures may differ by a percent or two units of their last digit (of counted passes by a
tenth), because machines round differently and a solver may take other steps to the same end.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path

BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
PAGES = Path(__file__).parents[1] / "docs" / "papers"
COUNTS = Path(__file__).parents[1] / "src" / "privadmm" / "papers" / "verdicts.json"
NUMBER = re.compile(r"[-+]?\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?")
LAST = 2  # units of the last digit that is printed


@dataclass(frozen=True)
class Tolerance:
    """How far a figure may be off. Whole numbers have the relative one alone, so that small counts are exact."""

    relative: float
    absolute: float = 0.0

    def covers(self, page: str, run: str) -> bool:
        a, b = (float(one.replace(",", "")) for one in (page, run))
        slack = self.relative * max(abs(a), abs(b))
        if not (page.lstrip("+-").isdigit() and run.lstrip("+-").isdigit()):
            slack = max(slack, self.absolute, LAST * min(unit(page), unit(run)))
        return abs(a - b) <= slack * (1 + 1e-9)


USUAL = Tolerance(0.01)
# By how a heading or the name of a check begins.
SPECIAL = {
    "Table III:": Tolerance(0.1),  # passes over the records: a solver's steps
    "Table I:": Tolerance(0.002, 0.2),  # per cent of test records, of which a few may change sides
    "Table I, certified": Tolerance(0.002, 0.2),
    "Accuracy without privacy": Tolerance(0.002, 0.2),
}


def unit(number: str) -> float:
    """The last digit's: 0.01 of 2.27, 100 of 2.27e+04."""
    mantissa, _, exponent = number.partition("e")
    return 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))


def tolerance(heading: str, line: str) -> Tolerance:
    name = line.removeprefix("| ") if heading == "Checks" else heading
    return next((found for start, found in SPECIAL.items() if name.startswith(start)), USUAL)


def differences(page: str, run: str) -> Iterator[str]:
    """What these tables of a page say otherwise than those of a run."""
    old, new = (text.splitlines() for text in (page, run))
    shapes = [[NUMBER.sub("#", line) for line in lines] for lines in (old, new)]
    headings = [""]
    for line in old:
        headings.append(line.removeprefix("### ") if line.startswith("### ") else headings[-1])
    for same, a, b, c, d in SequenceMatcher(None, shapes[0], shapes[1], autojunk=False).get_opcodes():
        if same != "equal":
            yield "\n".join([*(f"- page: {line}" for line in old[a:b]), *(f"+ run:  {line}" for line in new[c:d])])
            continue
        for at, (ours, theirs) in enumerate(zip(old[a:b], new[c:d], strict=True), a):
            pairs = zip(NUMBER.findall(ours), NUMBER.findall(theirs), strict=True)
            allowed = tolerance(headings[at + 1], ours)
            if wrong := [f"{x} is now {y}" for x, y in pairs if not allowed.covers(x, y)]:
                yield f"{', '.join(wrong)}\n- page: {ours}\n+ run:  {theirs}"


def studies(directory: Path) -> list[Path]:
    """The folders with results, here or one below."""
    places = (directory / "study.json", *sorted(directory.glob("*/study.json")))
    folders = [path.parent for path in places if path.is_file()]
    if not folders:
        sys.exit(f"{directory}: no study.json here or one folder below; run privadmm reproduce --out {directory}")
    return folders


def without_images(results: str) -> str:
    """Leave out the title, images, and headings that have nothing else below them."""
    parts = [part for part in results.strip().split("\n\n") if not part.startswith(("![", "# "))]
    bare = [
        part.startswith("#") and (number + 1 == len(parts) or parts[number + 1].startswith(("#", "- ")))
        for number, part in enumerate(parts)
    ]
    return "\n\n".join(part for part, alone in zip(parts, bare, strict=True) if not alone)


def parted(page: str, name: str) -> tuple[str, str, str]:
    """What stands before, between and after the markers."""
    if page.count(BEGIN) != 1 or page.count(END) != 1 or page.index(END) < page.index(BEGIN):
        sys.exit(f"{name}: needs {BEGIN} and then {END}, once each")
    before, rest = page.split(BEGIN)
    between, after = rest.split(END)
    return before, between.strip(), after


def results_of(folder: Path) -> tuple[Path, str]:
    """The page of a study, and the tables that belong into it."""
    study = json.loads((folder / "study.json").read_text(encoding="utf-8"))
    if study["quick"]:
        sys.exit(f"{folder}: a quick run; the pages show whole ones. Run it without --quick")
    path = PAGES / f"{study['paper']}.md"
    if not path.is_file():
        sys.exit(f"{path}: there is no such page; write it, with {BEGIN} and {END}")
    return path, without_images((folder / "results.md").read_text(encoding="utf-8"))


def counted(folder: Path) -> dict[str, dict[str, int]]:
    """How many checks of a study have each verdict, by whose claim they are."""
    checks = json.loads((folder / "study.json").read_text(encoding="utf-8"))["checks"]
    found = {}
    for of in ("paper", "ours"):
        oks = [check["ok"] for check in checks if check["of"] == of]
        counts = {"held": oks.count(True), "failed": oks.count(False), "unjudged": oks.count(None)}
        found[of] = counts | {"claims": len(oks)}
    return found


def write(folder: Path) -> None:
    path, results = results_of(folder)
    before, _, after = parted(path.read_text(encoding="utf-8"), path.name)
    path.write_text(f"{before}{BEGIN}\n\n{results}\n\n{END}{after}", encoding="utf-8")
    counts = json.loads(COUNTS.read_text(encoding="utf-8")) | {path.stem: counted(folder)}
    COUNTS.write_text(json.dumps(counts, indent=1) + "\n", encoding="utf-8")
    print(f"{path.name}: {results.splitlines()[0]}")


def compare(folder: Path) -> list[str]:
    """What the page of a study says otherwise."""
    path, results = results_of(folder)
    between = parted(path.read_text(encoding="utf-8"), path.name)[1]
    return [f"{path.name}: {words}" for words in differences(between, results)]


def reproduce(papers: Sequence[str], out: Path, data: Path | None) -> None:
    """Run each paper into a folder of its name."""
    given = () if data is None else ("--data-dir", str(data))
    for paper in papers or ("all",):
        place = out if paper == "all" else out / paper
        command = (sys.executable, "-m", "privadmm", "reproduce", paper, "--out", str(place), *given)
        if code := subprocess.run(command, stdout=subprocess.DEVNULL).returncode:
            sys.exit(code)  # the command has said why


def main(words: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("papers", nargs="*", help="all of them if none is named")
    parser.add_argument("--data-dir", type=Path, help="where data sets are that are not embedded")
    parser.add_argument("--results", type=Path, help="take these results in place of a run")
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    asked = parser.parse_args(words)
    if asked.papers and asked.results is not None:
        parser.error("name papers to run, or --results of an earlier run, not both")
    with tempfile.TemporaryDirectory() as room:
        if asked.results is None:
            reproduce(asked.papers, Path(room), asked.data_dir)
        folders = studies(asked.results or Path(room))
        if not asked.check:
            for folder in folders:
                write(folder)
        elif stale := [words for folder in folders for words in compare(folder)]:
            sys.exit("\n\n".join(stale))


if __name__ == "__main__":
    main(sys.argv[1:])
