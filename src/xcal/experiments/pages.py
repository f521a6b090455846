"""All results as pages: one for each file of records, the frontiers as pictures, and one page that lists them."""

from collections.abc import Iterator
from pathlib import Path
from typing import get_args

from xcal.experiments.comparison import Comparison, compare
from xcal.experiments.data import PathLike
from xcal.experiments.frontier import OF, draw_frontier
from xcal.experiments.headline import Headline, headline
from xcal.experiments.render import as_csv, markdown
from xcal.experiments.spec import Penalty, Variant, load_spec, table_names

# Tables with test rows enough to tell two penalties apart, as the paper has them.
_LARGE = ("gamma-censored", "gamma-uncensored", "mnist-censored", "mnist-uncensored")


def write_pages(results: PathLike) -> list[Path]:
    """Render every file of records below `results`, beside itself, and ``README.md`` as the list of them.

    Returns
    -------
    list of Path
        What was written, the list last.
    """
    folder = Path(results)
    found = list(_with_records(folder))
    written = []
    for comparison in found:
        base = folder / comparison.spec.table / f"{comparison.variant}.{comparison.penalty}"
        for ending, make in (("md", markdown), ("csv", as_csv)):
            # A table's name has dots in it: with_suffix would cut the penalty off.
            page = base.parent / f"{base.name}.{ending}"
            page.write_text(make(comparison), encoding="utf-8")
            written.append(page)
    heads = []
    for table, variant in dict.fromkeys((c.spec.table, c.variant) for c in found if c.spec.kind == "path"):
        for of in OF:
            picture = folder / table / f"{variant}.{of}.png"
            written.append(draw_frontier(table, picture, of=of, variant=variant, results=folder))
        leads = (headline(table, variant=variant, penalty=p, results=folder) for p in ("ours", "annealed"))
        heads += [lead for lead in leads if lead.levels]
    index = folder / "README.md"
    index.write_text(_index(found, heads), encoding="utf-8")
    return [*written, index]


def _with_records(folder: Path) -> Iterator[Comparison]:
    for table in table_names():
        penalties = get_args(Penalty) if load_spec(table).kind == "path" else ("paper",)
        for variant in get_args(Variant):
            for penalty in penalties:
                comparison = compare(table, variant=variant, penalty=penalty, results=folder)
                if comparison.records:
                    yield comparison


def _index(found: list[Comparison], heads: list[Headline]) -> str:
    lines = [
        "# Results",
        "",
        "Made by `xcal results-page` from the records in this folder. A score is the share of cells that match the "
        "paper's figure or are better; cells without a record are counted apart.",
        "",
        "| table | variant | penalty | score | cells compared | cells missing | runs |",
        "|---|---|---|---|---|---|---|",
    ]
    for c in found:
        link = f"[{c.spec.title}]({c.spec.table}/{c.variant}.{c.penalty}.md)"
        lines.append(
            f"| {link} | {c.variant} | {c.penalty} | {c.score:.2f} | {len(c.compared)} | {c.n_missing} "
            f"| {len(c.records)} |"
        )
    if heads:
        lines += [
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
        for head in heads:
            values = (head.share, head.share_nll, head.share_concordance, head.share_matched)
            shares = " | ".join(f"{value:.0%}" for value in values)
            lines.append(f"| {head.table} | {head.variant} | {head.penalty} | {len(head.levels)} | {shares} |")
        large = [
            head for head in heads if head.table in _LARGE and (head.variant, head.penalty) == ("as-published", "ours")
        ]
        levels = [level for head in large for level in head.levels]
        if levels:
            both, matched = (sum(getattr(level, name) for level in levels) for name in ("both", "matched"))
            share = f"both at {both} of {len(levels)} levels, {both / len(levels):.0%}"
            lines += ["", f"Gamma and MNIST tables together, as published: {share}; matched or better at {matched}."]
    return "\n".join(lines) + "\n"
