"""Digest what training computes, to see that a change of the code changed no bit of it.

    python tools/digests.py --against REVISION     both revisions on this machine, one after the other
    python tools/digests.py --write FILE           this revision's digests, as JSON
    python tools/digests.py --check FILE           compare this revision with that file

Digested are the transcript and the weights of every config in examples/, of three of them on Dask workers and in a
federation of three parties, and every number of the five papers' quick reproductions (timings left out; skipped where
their data are missing). Another processor may round differently: a file holds on the kind of machine that wrote it.

Where a digest differs, what was digested is kept and its folder printed: a study or a run as JSON, of both revisions
with --against. A file holds digests alone: with --check, run again and compare the two that were kept.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DATA = Path(os.environ.get("PRIVADMM_DATA") or ROOT.parent / "shared" / "data")
PAPERS = ("dvp", "mr-admm", "dp-admm", "pdml", "sharing")
ELSEWHERE = ("dp_admm", "mr_admm", "sharing")  # examples that are trained on other engines too
FEDERATION = """
import json, sys
from pathlib import Path
from federations import federated
from small_runs import PRIVATE, with_changes

plain = {"D_w": None, "rho": None}
columns = {
    "parties": {"count": 3, "split": "features"},
    "algorithm": {"name": "sharing", "ball": 5.0, "rho": 0.3, "D_w": None},
    "privacy": {"adjacency": "person"},
}
jobs = {
    "dp_admm": {},
    "dvp": {"algorithm": {**plain, "name": "dvp", "eta": 0.5}, "graph": {"kind": "ring"}},
    "mr_admm": {"algorithm": {**plain, "name": "mr_admm", "eta": 0.5, "gamma": 0.5}, "graph": {"kind": "ring"}},
    "first_order_consensus": {"algorithm": {**plain, "name": "first_order_consensus"}},
    "moments": {"features": {"moments": True}},
    "randomised labels": {"privacy": {"label_epsilon": 1.0}},
    "a party leaves": {"parties": {"leave": ["1@2"]}},
    "sharing": columns,
}
for name, changes in jobs.items():
    folder = Path(sys.argv[1]) / name
    folder.mkdir()
    result = federated(folder, with_changes(PRIVATE, changes)).run()
    print(json.dumps([name, result["transcript"]]))
"""


def digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def timeless(content: Any) -> Any:
    """The same JSON without what a clock said."""
    if isinstance(content, dict):
        return {key: timeless(value) for key, value in content.items() if "seconds" not in key}
    return [timeless(value) for value in content] if isinstance(content, list) else content


def call(tree: Path, *words: str) -> str:
    """Run Python with the package and the test helpers of this tree, and return what it printed."""
    paths = [str(tree / "src"), str(tree / "tests")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)[:200]} failed:\n{done.stderr[-3000:]}")
    return done.stdout


def trained(tree: Path, config: Path, out: Path) -> Any:
    call(tree, "-m", "privadmm", "train", str(config), "--out", str(out))
    return {name: json.loads((out / f"{name}.json").read_text()) for name in ("result", "model")}


def on_dask(config: Path, folder: Path) -> Path:
    """The config with two Dask workers and its first four rounds."""
    lines = [line for line in config.read_text().splitlines() if not line.startswith("moments_")]
    text = "\n".join("rounds = 4" if line.startswith("rounds") else line for line in lines)
    engine = 'engine = "dask"\nworkers = 2'
    text = text.replace("[run]", f"[run]\n{engine}") if "[run]" in text else f"{text}\n\n[run]\n{engine}\n"
    copy = folder / f"dask-{config.name}"
    copy.write_text(text)
    return copy


def computed(tree: Path) -> dict[str, Any]:
    """What a tree computes, by name, without what a clock said."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for config in sorted((tree / "examples").glob("*.toml")):
            found[f"example {config.stem}"] = trained(tree, config, folder / config.stem)
        for stem in ELSEWHERE:
            config = on_dask(tree / "examples" / f"{stem}.toml", folder)
            found[f"dask {stem}"] = trained(tree, config, folder / config.stem)
        (folder / "federations").mkdir()
        for line in call(tree, "-c", FEDERATION, str(folder / "federations")).splitlines():
            job, transcript = json.loads(line)
            found[f"federation {job}"] = {"result": {"transcript": transcript}}
        if DATA.is_dir():
            words = ("reproduce", "all", "--quick", "--data-dir", str(DATA), "--out", str(folder / "papers"))
            call(tree, "-m", "privadmm", *words)
            for paper in PAPERS:
                found[f"paper {paper}"] = {"study": json.loads((folder / "papers" / paper / "study.json").read_text())}
    return {name: timeless(content) for name, content in found.items()}


def digests(found: dict[str, Any]) -> dict[str, dict[str, str]]:
    """The digests of what `computed` found: of a study's numbers, or of a run's transcript and weights."""
    parts: dict[str, dict[str, str]] = {}
    for name, content in found.items():
        if "study" in content:
            parts[name] = {"numbers": digest(content["study"])}
        else:
            parts[name] = {"transcript": content["result"]["transcript"]}
            parts[name] |= {"weights": digest(content["model"]["weights"])} if "model" in content else {}
    return parts


def compare(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Print every difference, and return the names."""
    changed = [name for name in sorted(before | after) if before.get(name) != after.get(name)]
    for name in changed:
        print(f"{name}: {before.get(name, 'missing')} became {after.get(name, 'missing')}")
    print(f"{len(before | after) - len(changed)} of {len(before | after)} digests are the same")
    return changed


def keep(found: dict[str, Any], names: Sequence[str], folder: Path, side: str) -> None:
    """Write what these digests are of, a file each, for a diff to read."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in set(names) & set(found):
        path = folder / f"{name.replace(' ', '-')}.{side}.json"
        path.write_text(json.dumps(found[name], indent=1, sort_keys=True) + "\n")


def at_revision(revision: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        tree = Path(name) / "tree"
        git = ("git", "-C", str(ROOT), "worktree")
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), revision], check=True)
        try:
            return computed(tree)
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    way = parser.add_mutually_exclusive_group(required=True)
    way.add_argument("--against", metavar="REVISION")
    way.add_argument("--write", metavar="FILE", type=Path)
    way.add_argument("--check", metavar="FILE", type=Path)
    parser.add_argument("--keep", metavar="FOLDER", type=Path, help="for what differs; default a new temporary one")
    asked = parser.parse_args(words)
    earlier = at_revision(asked.against) if asked.against else {}
    now = computed(ROOT)
    if asked.write is not None:
        asked.write.write_text(json.dumps(digests(now), indent=1) + "\n")
        return 0
    changed = compare(digests(earlier) if asked.against else json.loads(asked.check.read_text()), digests(now))
    if changed:
        folder = asked.keep or Path(tempfile.mkdtemp(prefix="privadmm-digests-"))
        keep(earlier, changed, folder, "before")
        keep(now, changed, folder, f"now-{os.getpid()}")
        print(f"what differs is kept in {folder}")
    return int(bool(changed))


if __name__ == "__main__":
    sys.exit(main())
