"""Sphinx configuration. Build with `make docs`; every warning is an error."""

import sys
import tomllib
from pathlib import Path

_here = Path(__file__).parent
sys.path.insert(0, str(_here / "_ext"))

from gallery import RUN
from house import house
from paper_pages import copy_paper
from records import record_pages
from study_pages import copy_studies

import xcal
from xcal_paper.report import write_pages

# Made anew for every build; git ignores them.
record_pages(_here.parent / "paper" / "results", _here / "records", write_pages)
copy_paper(_here.parent / "paper" / "docs", _here / "paper")
copy_studies(_here.parent / "studies", _here / "studies")
# Files that examples write for the site while it is built: reports, a frontier page, and pictures.
(_here / "_generated" / "extra" / "reports").mkdir(parents=True, exist_ok=True)
(_here / "_generated" / "house.svg").write_text(house(_here.parent / "pyproject.toml"), encoding="utf-8")

project = "xcal"
author = "The xcal developers"
copyright = "The xcal developers, MIT licence"
version = release = xcal.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
    "mathml",
    "reference",
]
myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence"]
myst_heading_anchors = 3
html_math_renderer = "mathml"

# Single backticks in docstrings name Python objects.
default_role = "py:obj"
autodoc_member_order = "bysource"
autodoc_mock_imports = ["torchmetrics"]  # an extra that the documentation does not need otherwise
autodoc_typehints = "none"  # the numpydoc sections already state types and shapes
numpydoc_show_class_members = False

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": RUN,
    "reset_argv": "gallery.arguments",
    "within_subsection_order": "gallery.Order",
    "capture_repr": (),
    "download_all_examples": False,
    "show_signature": False,
    # Times belong to a machine.
    "min_reported_time": float("inf"),
    "write_computation_times": False,
}

exclude_patterns = ["_build", "_ext", "_generated"]

html_theme = "furo"
html_title = f"xcal {release}"
html_static_path = ["_static"]
html_extra_path = ["_generated/extra"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
_urls = tomllib.loads((_here.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]
if "Source" in _urls:
    html_theme_options = {"source_repository": _urls["Source"], "source_branch": "main", "source_directory": "docs/"}
