"""The page and the picture of a measurement: docs/performance.md is what `privadmm bench --out` writes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from privadmm.data.files import write_text
from privadmm.papers.bench import shares
from privadmm.papers.bench.workload import duration, size
from privadmm.papers.bench.workloads import everything
from privadmm.papers.framework.pages import table
from privadmm.runs.palette import Theme
from privadmm.runs.style import finish, picture

MEMORY = ("peak", "over_data")  # goals that are not about time
COLUMNS = ("workload", "ours", "reference", "ratio", "goal", "met", "floor", "memory")
SHAPES = ("o", "s", "^", "D", "v")

INTRODUCTION = """# Performance

What `privadmm bench --out docs/performance.md` measured; `make bench` measures it again. Do not edit: change the
workloads in `src/privadmm/papers/bench/` and run it. Goals were set before the work on speed began.

"""
GROWN = ("of", "sizes", "CPU time", "exponent")
GROWTH = """## Growth

CPU time of a DP-ADMM training, three sizes of one thing at a time; the exponent fits on a log-log scale. 1 is in
proportion; below it, what does not grow still counts.

"""
MISSES = """## Goals that are missed

**Needed** is what our side cannot leave out if its answers are to stay the same to the last bit; each part was timed by
itself, in the same process. "At best" is the figure that there would be if it did nothing else: where that misses the
goal, too, no other arrangement of the same work meets it.

**Time** says where the time of our side goes: shares of one more call under Python's profiler, by function. What numpy,
BLAS or SQLite do counts for the function that called them; the profiler makes many short functions look longer.

"""
METHOD = """## How it is measured

- **Two sides, one answer.** Every workload has our side, and a reference as a competent user would write it. Before
  times count, a check compares what both reach (the same weights, the same objective, noise of the same size); sides
  that disagree make the command fail.
- **By turns.** Sides alternate within one process, one BLAS thread each, and the median counts. Times are CPU time,
  of all threads and children, unless a goal says "by the clock", and both sides have the same one core: `[run]
  threads` plays no part. What else the machine does disturbs both alike. A first call that is short is not counted,
  since caches were cold.
- **Goals of other references.** The goals of `sharing-...` were set beside programs that are not here: the paper's
  prototype, and a vectorised one with 53 bisections. The references here were written anew and are faster, so these
  ratios cannot be compared with their goals.
- **Settings that were looked for.** Of `pooled-...` and `dask-glm` both sides were tuned on this very problem: the
  references' solvers, tolerances and penalties, and our penalty, relaxation and tolerance, one to two dozen settings
  each; with C = 1750 the regulariser's weight was chosen after a smaller one had missed.
- **A process for each workload.** Memory is the most that the process held while our side first ran, with Python and
  its libraries (0.1 to 0.15 GB) and the data. Goals "x the data" subtract what it held before there were data. Of
  `npz-memory` it is memory of its own, looked at every few milliseconds: pages of files that are mapped belong to the
  system, which takes them back when it needs room.
- **The floor** is the least that any program has to do on this machine: each record read once a pass, at the rate at
  which a plain sum or a dot product reads, whichever is faster; multiplications and additions at the rate of a matrix
  product; a normal for each coordinate that needs one. These rates are measured in the same process. A distance of 3
  means three times that; it is no bound on what is possible where data fit into a cache.
- **No compiled code.** A loop over records compiled by numba 0.68, all of a gradient in one pass, took 4.7 ms on a
  table of Adult's size, and 2.0 ms if it may reorder sums; the blocks of numpy here took 2.5 ms. On sparse records it
  took 1.9 ms, and scipy's two products 0.73 ms. Normals by a compiled inverse took 9.6 ns, and scipy's 13.7 ns. Only a
  factor of 2 would be worth 200 MB more to install.
- **What was tried and left out.** On Adult's size, a row's product by BLAS takes 0.6 ms a pass where a dot product for
  each row takes 1.0 ms, but 3.1 ms and not 1.4 ms where records come from memory, as they do at a pass's first reading.
  Blocks of 0.5 to 4 MB were no faster than those of 2 MB: smaller ones are multiplied faster, and numpy's calls for
  their slopes take that again. Inverses by Cholesky's factor take half the time, 7 % of `replicas-dense`, but loading
  `scipy.linalg` adds 50 ms to every command that solves. Normals by a rational function in numpy take 9.2 ns and not
  14 ns where there are 16,384, and 40 ns where there are 1,024. Hessians at rounds 1, 3, 9, 27 save a tenth of the
  gradients and of the time where records are dense, and nothing where they are sparse. Tables of fewer than 32 columns,
  stored column by column, have their gradients in 0.6 of the time for four replicas and in 0.9 for one, but take 1.1
  times as long for 240: an eighth of `dp-admm-reproduce`, for a second layout that every engine would have to keep.
- **A part of the reference.** Where it would take minutes, it does a part of the work, and its time is scaled up. The
  text of the workload says so.
- With `--quick`, sizes are cut where it would take long, and such goals are not judged.

"""


def ratio(line: dict[str, Any]) -> str:
    return "-" if line["ratio"] is None else f"{line['ratio']:.3g}x"


def cells(line: dict[str, Any]) -> list[str]:
    """A row of the table."""
    goal, name = "-" if line["goal"] is None else line["goal"]["words"], line["name"]
    if why := line.get("skipped") or line.get("failed"):
        return [name, "skipped" if line.get("skipped") else "FAILED", why, "-", goal, "-", "-", "-"]
    of = f" a {line['unit']}" if line["unit"] else ""
    kind = "" if line["goal"] is None else line["goal"]["kind"]
    clock = "wall" if kind == "wall" else "cpu"
    theirs = "-" if line["reference"] is None else duration(line["reference"][clock])
    over = f" ({line['memory_over_data']:.2f}x the data)" if kind == "over_data" else ""
    floor = "-" if line["distance"] is None else f"{line['distance']:.3g}x"
    memory = size(line["ours"]["peak"]) + over
    return [name, duration(line["ours"][clock]) + of, theirs, ratio(line), goal, verdict(line), floor, memory]


def verdict(line: dict[str, Any]) -> str:
    if line.get("agree") is False:
        return "DISAGREE"
    if line["goal"] is None:
        return "-"
    return {True: "yes", False: "no", None: "not judged"}[line["met"]]


def reasons(result: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """For each missed goal: by how much it was missed, and where our time goes."""
    for line in result["lines"]:
        if line["met"] is False and not line.get("failed"):
            far = "" if line["distance"] is None else f"; {line['distance']:.3g}x the floor"
            time = "" if line["goal"]["kind"] in MEMORY else f". Time: {shares.words(line['shares'])}"
            yield line["name"], f"{line['margin']:.2f} of the goal{far}{limit(line)}{time}"


def limit(line: dict[str, Any]) -> str:
    """The needed parts of our side, and the best figure that they allow; empty if no part was timed."""
    if line["at_best"] is None:
        return ""
    of = f" a {line['unit']}" if line["unit"] else ""
    kind = line["goal"]["kind"]
    clock = "wall" if kind == "wall" else "cpu"
    parts = ", ".join(f"{part['what']} {duration(part[clock])}" for part in line["needed"])
    best = {"faster": "{:.3g}x", "slower": "{:.3g}x slower"}.get(kind, "").format(line["at_best"])
    return f". Needed{of}: {parts}; at best {best or duration(line['at_best'])}"


def facts(result: dict[str, Any]) -> str:
    """The machine, in a sentence."""
    machine = result["machine"]
    rates = ""
    if "bandwidth" in machine:
        rates = (
            f" One thread reads {machine['bandwidth'] / 1e9:.3g} GB/s in a sum or dot product, multiplies matrices at "
            f"{machine['gemm'] / 1e9:.3g} GFlop/s, and draws {machine['normals'] / 1e6:.3g} million normals a second."
        )
    versions = ", ".join(f"{name} {machine[name]}" for name in ("numpy", "scipy", "scikit-learn"))
    return f"{machine['processor']}, {machine['cores']} cores, Python {machine['python']}, {versions}.{rates}"


def grown(result: dict[str, Any]) -> list[list[str]]:
    """Rows of the table of growth."""
    return [
        [row["of"], ", ".join(map(str, row["sizes"])), ", ".join(map(duration, row["cpu"])), f"{row['exponent']:.2f}"]
        for row in result["growth"]
    ]


def markdown(result: dict[str, Any], picture: str) -> str:
    """The whole page."""
    parts = [INTRODUCTION]
    if result["quick"]:
        parts.append("**A quick run: sizes and repeats are cut.**\n\n")
    parts.append(f"{facts(result)}\n\n")
    if result["lines"]:
        parts.append(table(COLUMNS, [cells(line) for line in result["lines"]]) + "\n")
        parts.append(f"\n![Ratios over goals, and growth]({picture})\n\n")
        if missed := list(reasons(result)):
            parts.append(MISSES)
            parts += [f"- `{name}`: {why}\n" for name, why in missed]
            parts.append("\n")
    if result["growth"]:
        parts.append(GROWTH + table(GROWN, grown(result)) + "\n\n")
    parts.append(METHOD)
    parts.append("## The workloads\n\n")
    for workload in everything().values():
        against = "; ".join(f"{line.name}: {line.against}" for line in workload.lines)
        parts.append(f"**`{workload.name}`.** {workload.title}. Against {against}.\n{workload.fairness}\n\n")
    return "".join(parts).rstrip("\n") + "\n"


def save(result: dict[str, Any], page: Path) -> None:
    """Write the page, and its picture beside it."""
    picture = page.with_suffix(".svg")
    draw(result, picture)
    write_text(page, markdown(result, picture.name))


def draw(result: dict[str, Any], path: Path) -> None:
    """Draw how far each goal was met, on the left, and how times grow, on the right."""
    judged = [line for line in result["lines"] if line.get("margin") is not None and line["goal"] is not None]
    height, quick = max(4.0, 0.24 * len(judged) + 1.4), result["quick"]
    with picture(path.with_suffix(""), 11.0, height, mode=None, quick=quick, kinds=("svg",)) as (drawing, theme):
        left, right = drawing.subplots(1, 2, width_ratios=[3, 2])
        goals(left, judged, theme)
        curves(right, result["growth"], theme)


def goals(axes: Any, lines: list[dict[str, Any]], theme: Theme) -> None:
    for at, line in enumerate(reversed(lines)):
        met = line["margin"] >= 1
        color = theme.certified if met else theme.published
        axes.plot([1, line["margin"]], [at, at], color=color, linewidth=2)
        axes.plot(line["margin"], at, "o" if met else "X", color=color, markersize=7)
    axes.axvline(1, color=theme.muted, linewidth=1)
    axes.set_xscale("log")
    names = [f"{line['name']}  ({line['goal']['words']})" for line in reversed(lines)]
    axes.set_yticks(range(len(lines)), names, fontsize=7)
    axes.set_xlabel("times better than the goal (circle: met, cross: missed)")
    axes.set_title("Goals")
    finish(axes)


def curves(axes: Any, growth: list[dict[str, Any]], theme: Theme) -> None:
    for number, (curve, shape) in enumerate(zip(growth, SHAPES, strict=False)):
        x = [size / curve["sizes"][0] for size in curve["sizes"]]
        y = [seconds / curve["cpu"][0] for seconds in curve["cpu"]]
        label = f"{curve['of']}: exponent {curve['exponent']:.2f}"
        axes.plot(x, y, marker=shape, color=theme.series(number), label=label)
    axes.set(xscale="log", yscale="log", xlabel="size, over the smallest", ylabel="CPU time, over the smallest's")
    axes.set_title("How time grows")
    finish(axes)
