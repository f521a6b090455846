import subprocess
import sys

HEAVY = [
    "torch",
    "numpy",
    "matplotlib",
    "pandas",
    "sklearn",
    "scipy",
    "polars",
    "plotly",
    "duckdb",
    "ray",
    "lifelines",
    "typer",
]


def test_importing_xcal_pulls_in_nothing_heavy():
    code = f"import sys, xcal; print([name for name in {HEAVY!r} if name in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"


def test_public_names_are_an_explicit_list():
    import xcal

    assert all(hasattr(xcal, name) for name in xcal.__all__)
