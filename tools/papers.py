"""Put what `privadmm reproduce` found into the papers' pages, so that every figure in them is the command's.

    privadmm reproduce all --out DIRECTORY
    python tools/papers.py DIRECTORY

DIRECTORY holds the results of one paper, or a folder of them for each. Tables go between the two markers of
docs/papers/PAPER.md; images stay where they are. A quick run is refused.
"""

import json
import sys
from pathlib import Path

BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
PAGES = Path(__file__).parents[1] / "docs" / "papers"


def studies(directory: Path) -> list[Path]:
    """The folders with results, here or one below."""
    places = (directory / "study.json", *sorted(directory.glob("*/study.json")))
    found = [path.parent for path in places if path.is_file()]
    if not found:
        sys.exit(
            f"{directory}: no study.json here or one folder below; run privadmm reproduce --out {directory}"
        )
    return found


def without_images(results: str) -> str:
    """Leave out the title, images, and headings that have nothing else below them."""
    parts = [part for part in results.strip().split("\n\n") if not part.startswith(("![", "# "))]
    bare = [
        part.startswith("#") and (number + 1 == len(parts) or parts[number + 1].startswith(("#", "- ")))
        for number, part in enumerate(parts)
    ]
    return "\n\n".join(part for part, alone in zip(parts, bare, strict=True) if not alone)


def filled(page: str, results: str, name: str) -> str:
    """The page with these results between its markers."""
    if page.count(BEGIN) != 1 or page.count(END) != 1 or page.index(END) < page.index(BEGIN):
        sys.exit(f"{name}: needs {BEGIN} and then {END}, once each")
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n\n{without_images(results)}\n\n{END}{rest.split(END)[1]}"


def main(directory: Path) -> None:
    for folder in studies(directory):
        study = json.loads((folder / "study.json").read_text(encoding="utf-8"))
        if study["quick"]:
            sys.exit(f"{folder}: a quick run; the pages show whole ones. Run it without --quick")
        path = PAGES / f"{study['paper']}.md"
        if not path.is_file():
            sys.exit(f"{path}: there is no such page; write it, with {BEGIN} and {END}")
        results = (folder / "results.md").read_text(encoding="utf-8")
        path.write_text(filled(path.read_text(encoding="utf-8"), results, path.name), encoding="utf-8")
        print(f"{path.relative_to(PAGES.parents[1])}: {study['tally']}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: python {sys.argv[0]} DIRECTORY")
    main(Path(sys.argv[1]))
