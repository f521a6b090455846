"""All results as pages: one page per file of records, the frontiers as pictures, and one page that lists them."""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import get_args

from xcal._files import write_whole
from xcal.experiments.data import PathLike
from xcal.experiments.paper_comparison import PARTS, Comparison, compare
from xcal.experiments.penalty_comparison import PenaltyComparison, compare_penalties
from xcal.experiments.spec import Penalty, Variant
from xcal.experiments.spec_file import load_spec, table_names
from xcal.report.frontier_picture import OF, draw_frontier
from xcal.report.tables import as_csv, markdown

# The paper's tables with enough test rows to tell two penalties apart.
_LARGE = ("gamma-censored", "gamma-uncensored", "mnist-censored", "mnist-uncensored")


def write_pages(results: PathLike) -> list[Path]:
    """Write the pages and pictures of every file of records below `results`, and ``README.md``, which lists them.

    Returns
    -------
    list of Path
        What was written, the list last.
    """
    folder = Path(results)
    found = list(_with_records(folder))
    written = [page for comparison in found for page in _write_tables(comparison, folder)]
    penalties = []
    for table, variant, part in dict.fromkeys(
        (c.spec.table, c.variant, c.part) for c in found if c.spec.kind == "path"
    ):
        for of in OF:
            picture = folder / table / part / f"{variant}.{of}.png"
            written.append(draw_frontier(table, picture, of=of, variant=variant, results=folder, part=part))
        if part:
            continue  # a part shows that everything works; penalties are compared on the paper's data
        ours = (compare_penalties(table, variant=variant, penalty=p, results=folder) for p in ("ours", "annealed"))
        penalties += [comparison for comparison in ours if comparison.levels]
    index = folder / "README.md"
    lines = [*_scores(found), *(_penalties(penalties) if penalties else [])]
    write_whole(index, ("\n".join(lines) + "\n").encode())
    return [*written, index]


def _with_records(folder: Path) -> Iterator[Comparison]:
    for table in table_names():
        penalties = get_args(Penalty) if load_spec(table).kind == "path" else ("paper",)
        parts = PARTS if load_spec(table).data.name == "mimic" else ("",)
        for variant, penalty, part in product(get_args(Variant), penalties, parts):
            comparison = compare(table, variant=variant, penalty=penalty, results=folder, part=part)
            if comparison.records:
                yield comparison


def _write_tables(comparison: Comparison, folder: Path) -> Iterator[Path]:
    for ending, make in (("md", markdown), ("csv", as_csv)):
        page = folder / comparison.spec.table / comparison.part / f"{comparison.variant}.{comparison.penalty}.{ending}"
        write_whole(page, make(comparison).encode())
        yield page


def _scores(found: list[Comparison]) -> list[str]:
    lines = [
        "# Results",
        "",
        "Made by `xcal results-page` from the records in this folder. A score is the share of cells that match the "
        "paper's value or are better; cells without a record are counted separately.",
        "",
        "| table | variant | penalty | score | cells compared | cells missing | runs |",
        "|---|---|---|---|---|---|---|",
    ]
    for c in found:
        place = f"{c.spec.table}/{c.part}" if c.part else c.spec.table
        link = f"[{c.spec.title}{f' ({c.part})' if c.part else ''}]({place}/{c.variant}.{c.penalty}.md)"
        lines.append(
            f"| {link} | {c.variant} | {c.penalty} | {c.score:.2f} | {len(c.compared)} | {c.n_missing} "
            f"| {len(c.records)} |"
        )
    return lines


def _penalties(found: list[PenaltyComparison]) -> list[str]:
    lines = [
        "",
        "## Our penalty against the paper's",
        "",
        "At each level of D-calibration that the paper's penalty reaches: is the lowest NLL of our penalty lower, "
        "and its highest concordance higher, everything else equal? Matched or better: NLL not higher by "
        "more than .05, concordance not lower by more than .02.",
        "",
        "| table | variant | penalty | levels | both | lower NLL | higher concordance | matched or better |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for c in found:
        values = (c.share, c.share_nll, c.share_concordance, c.share_matched)
        shares = " | ".join(f"{value:.0%}" for value in values)
        lines.append(f"| {c.table} | {c.variant} | {c.penalty} | {len(c.levels)} | {shares} |")
    large = [c for c in found if c.table in _LARGE and (c.variant, c.penalty) == ("as-published", "ours")]
    levels = [level for c in large for level in c.levels]
    if levels:
        both, matched = (sum(getattr(level, name) for level in levels) for name in ("both", "matched"))
        share = f"both at {both} of {len(levels)} levels, {both / len(levels):.0%}"
        lines += ["", f"Gamma and MNIST tables together, as published: {share}; matched or better at {matched}."]
    return lines
