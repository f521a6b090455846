"""Pages of a folder of results."""

from paper.tests.experiments.made_records import as_the_paper, write
from xcal_paper.report import write_pages


def test_pages_of_all_records(tmp_path):
    write(tmp_path, "gamma-censored", as_the_paper, seeds=(0,))
    write(tmp_path, "gamma-censored", as_the_paper, penalty="ours", seeds=(0,))
    write(tmp_path, "gamma-censored", as_the_paper, epochs=1, variant="corrected", penalty="ours")
    names = {str(path.relative_to(tmp_path)) for path in write_pages(tmp_path)}
    assert names == {
        "README.md",
        *(f"gamma-censored/as-published.{p}.{e}" for p in ("paper", "ours") for e in ("md", "csv")),
        *(f"gamma-censored/as-published.{of}.png" for of in ("concordance", "nll", "dcal_within")),
    }
    index = (tmp_path / "README.md").read_text()
    assert (
        "| [Gamma simulation, censored](gamma-censored/as-published.paper.md) | as-published | paper | 1.00 |" in index
    )
    # The same values twice: nothing is strictly lower or higher anywhere.
    assert "together, as published: both at 0 of 42 levels, 0%; matched or better at 42." in index


def test_pages_of_nothing(tmp_path):
    assert [path.name for path in write_pages(tmp_path)] == ["README.md"]
