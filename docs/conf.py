"""Sphinx configuration. Build with `make docs`; every warning is an error."""

import shutil
from pathlib import Path

import xcal

# The rendered records are pages of the documentation too.
_here = Path(__file__).parent
shutil.rmtree(_here / "records", ignore_errors=True)
shutil.copytree(_here.parent / "results", _here / "records", ignore=shutil.ignore_patterns("*.jsonl", "*.csv", "trial"))

project = "xcal"
author = "The xcal developers"
copyright = "The xcal developers, MIT licence"
version = release = xcal.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "numpydoc",
]
myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence"]
myst_heading_anchors = 3

# Single backticks in docstrings name Python objects.
default_role = "py:obj"
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the numpydoc sections already state types and shapes
numpydoc_show_class_members = False

exclude_patterns = ["_build"]

html_theme = "furo"
html_title = f"xcal {release}"
html_static_path = ["_static"]
