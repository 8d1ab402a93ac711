"""Count how many of the papers' claims hold, from the checks on docs/papers, and put the table where it is shown.

    python tools/scoreboard.py [--check]

The table goes between the two markers of README.md and of docs/papers/index.md. --check writes nothing and ends with
exit code 1 where a table is not what the pages say.
"""

import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from privadmm.papers.framework.study import VERDICTS

ROOT = Path(__file__).parents[1]
PAPERS = ROOT / "docs" / "papers"
SHOWN = (ROOT / "README.md", PAPERS / "index.md")
BEGIN, END = "<!-- scoreboard: begin -->", "<!-- scoreboard: end -->"


def claims(page: str) -> Counter[str]:
    """Verdicts on what the paper itself claims, by the rows of a page's table of checks."""
    rows = [
        re.split(r" ?(?<!\\)\| ?", row) for row in page.split("### Checks", 1)[1].splitlines() if row.startswith("|")
    ]
    by, verdict = rows[0].index("claimed by"), rows[0].index("verdict")
    return Counter(row[verdict].strip("*") for row in rows[2:] if row[by] == "the paper")


def table(folder: str) -> str:
    """One line for each paper and one for all; links begin with this folder."""
    found = {}
    for path in sorted(PAPERS.glob("*.md")):
        text = path.read_text(encoding="utf-8")
        if "### Checks" in text:
            found[f"[{text.splitlines()[0].removeprefix('# ').split(':')[0]}]({folder}{path.name})"] = claims(text)
    found["all"] = sum(found.values(), Counter())
    lines = ["| paper | claims | " + " | ".join(VERDICTS.values()) + " |", "|---|---|" + "---|" * len(VERDICTS)]
    for name, verdicts in found.items():
        cells = (name, verdicts.total(), *(verdicts[word] for word in VERDICTS.values()))
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def with_table(path: Path) -> str:
    """The page with the table of now between its markers."""
    text = path.read_text(encoding="utf-8")
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        sys.exit(f"{path}: needs {BEGIN} and then {END}, once each")
    before, rest = text.split(BEGIN)
    folder = "" if path.parent == PAPERS else "docs/papers/"
    return f"{before}{BEGIN}\n\n{table(folder)}\n\n{END}{rest.split(END)[1]}"


def main(words: Sequence[str]) -> None:
    stale = [path for path in SHOWN if path.read_text(encoding="utf-8") != with_table(path)]
    if "--check" in words and stale:
        sys.exit(f"{', '.join(path.name for path in stale)}: not what docs/papers says; run python tools/scoreboard.py")
    for path in stale:
        path.write_text(with_table(path), encoding="utf-8")
    print(table("docs/papers/"))


if __name__ == "__main__":
    main(sys.argv[1:])
