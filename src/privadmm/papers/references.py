"""Who wrote the papers, where and when they appeared, and how many of their claims hold in the last full run.

Titles, authors, venues and years are those printed on the papers or in library records. A publisher's DOI is given only
where it was seen: printed on the paper (dvp) or in a catalogue (mr-admm). Others have their preprint's DOI, which arXiv
makes from its number.
"""

import json
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Literal

from privadmm.papers import PAPERS

VERDICTS = "verdicts.json"  # written by tools/papers.py from a full run


@dataclass(frozen=True)
class Reference:
    """A paper, as a bibliography has it."""

    key: str  # of BibTeX
    title: str
    authors: tuple[str, ...]
    year: int
    kind: Literal["article", "inproceedings"]
    venue: str
    volume: str = ""
    pages: str = ""
    published: str = ""  # the publisher's DOI
    arxiv: str = ""
    note: str = ""

    @property
    def doi(self) -> str:
        """The publisher's DOI, or else the preprint's."""
        return self.published or f"10.48550/arXiv.{self.arxiv}"

    @property
    def link(self) -> str:
        return f"https://doi.org/{self.doi}"

    @property
    def names(self) -> str:
        """The authors' last names."""
        return ", ".join(author.rsplit(" ", 1)[-1] for author in self.authors)

    @property
    def cited(self) -> str:
        """The paper in a line of text."""
        place = self.venue + (f" {self.volume}" if self.volume else "") + (f":{self.pages}" if self.pages else "")
        return f"{', '.join(self.authors)}: {self.title}. {place}, {self.year}. doi:{self.doi}"

    @property
    def bibtex(self) -> str:
        """The paper as an entry of a BibTeX file."""
        where = "journal" if self.kind == "article" else "booktitle"
        pairs = {
            "title": f"{{{self.title}}}",  # in two braces, which keep its capitals
            "author": " and ".join(self.authors),
            "year": str(self.year),
            where: self.venue,
            "volume": self.volume,
            "pages": self.pages.replace("-", "--"),
            "doi": self.doi,
            **({"eprint": self.arxiv, "archiveprefix": "arXiv"} if self.arxiv else {}),
            "note": self.note,
        }
        lines = "".join(f"  {name} = {{{value}}},\n" for name, value in pairs.items() if value)
        return f"@{self.kind}{{{self.key},\n{lines}}}\n"

    @property
    def record(self) -> dict[str, Any]:
        return {
            **{"title": self.title, "authors": list(self.authors), "year": self.year, "venue": self.venue},
            **{"doi": self.doi, "arxiv": self.arxiv or None, "link": self.link, "bibtex": self.bibtex},
        }


FORENSICS = "IEEE Transactions on Information Forensics and Security"
REFERENCES = {
    "dvp": Reference(
        key="zhang2016dual",
        title="A Dual Perturbation Approach for Differential Private ADMM-Based Distributed Empirical Risk "
        "Minimization",
        authors=("Tao Zhang", "Quanyan Zhu"),
        year=2016,
        kind="inproceedings",
        venue="Proceedings of the 2016 ACM Workshop on Artificial Intelligence and Security (AISec)",
        published="10.1145/2996758.2996762",
    ),
    "mr-admm": Reference(
        key="zhang2020recycled",
        title="Recycled ADMM: Improving the Privacy and Accuracy of Distributed Algorithms",
        authors=("Xueru Zhang", "Mohammad Mahdi Khalili", "Mingyan Liu"),
        year=2020,
        kind="article",
        venue=FORENSICS,
        volume="15",
        published="10.1109/TIFS.2019.2947867",
    ),
    "dp-admm": Reference(
        key="huang2020dpadmm",
        title="DP-ADMM: ADMM-based Distributed Learning with Differential Privacy",
        authors=("Zonghao Huang", "Rui Hu", "Yuanxiong Guo", "Eric Chan-Tin", "Yanmin Gong"),
        year=2020,
        kind="article",
        venue=FORENSICS,
        volume="15",
        pages="1002-1012",
        arxiv="1808.10101",
        note="Reproduced from an earlier version on arXiv, by Huang, Hu, Chan-Tin and Gong",
    ),
    "pdml": Reference(
        key="wang2020privacy",
        title="Privacy-preserving Distributed Machine Learning via Local Randomization and ADMM Perturbation",
        authors=("Xin Wang", "Hideaki Ishii", "Linkang Du", "Peng Cheng", "Jiming Chen"),
        year=2020,
        kind="article",
        venue="arXiv preprint",
        arxiv="1908.01059",
    ),
    "sharing": Reference(
        key="hu2020learning",
        title="Learning Privately over Distributed Features: An ADMM Sharing Approach",
        authors=("Yaochen Hu", "Peng Liu", "Keshi Ge", "Linglong Kong", "Bei Jiang", "Di Niu"),
        year=2020,
        kind="inproceedings",
        venue="34th Conference on Neural Information Processing Systems (NeurIPS 2020)",
        arxiv="1907.07735",
        note="Venue as the Kent Academic Repository has it, record 76239",
    ),
}


def verdicts() -> dict[str, Any]:
    """How many claims hold, by paper and by whose claim it is, in the last full run."""
    content: dict[str, Any] = json.loads(files(__package__).joinpath(VERDICTS).read_text(encoding="utf-8"))
    return content


def listed() -> dict[str, Any]:
    """Every paper: where it appeared, and how many of its claims hold."""
    counts = verdicts()
    papers = {name: {**REFERENCES[name].record, "verdicts": counts[name]} for name in PAPERS}
    total = {
        word: sum(counts[name]["paper"][word] for name in PAPERS) for word in ("held", "failed", "unjudged", "claims")
    }
    return {"papers": papers, "total": total}


def bibliography() -> str:
    """All papers as a BibTeX file."""
    return "\n".join(REFERENCES[name].bibtex for name in PAPERS)
