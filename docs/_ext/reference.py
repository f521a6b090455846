"""The directive ``reference``: documentation of names of a module, one line each, classes with the members to show.

.. reference:: xcal

   d_calibration
   XCALLoss: paper, forward
"""

import importlib
import inspect
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.ext.autodoc.mock import mock
from sphinx.util.docutils import SphinxDirective


def found(name: str) -> Any:
    """Return what a full name stands for: a part of a module, which may have to be imported."""
    module, _, rest = name.rpartition(".")
    return getattr(importlib.import_module(module), rest)


class Reference(SphinxDirective):
    """Document each name by autodoc, as the class or the function that it is."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        """Return the nodes of all names."""
        lines: list[str] = []
        with mock(self.config.autodoc_mock_imports):
            for line in filter(None, map(str.strip, self.content)):
                name, _, members = line.partition(":")
                whole = f"{self.arguments[0]}.{name}"
                lines += [f".. auto{'class' if inspect.isclass(found(whole)) else 'function'}:: {whole}"]
                lines += [f"   :members: {members.strip()}"] * bool(members) + [""]
        place = nodes.Element()
        source = self.get_source_info()[0]
        self.state.nested_parse(StringList(lines, source=source), self.content_offset, place)
        return place.children


def setup(app: Any) -> dict[str, Any]:
    """Add the directive."""
    app.add_directive("reference", Reference)
    return {"parallel_read_safe": True}
