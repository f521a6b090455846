"""A table small enough for a test, and what all tests share."""

import sys

import pytest
from tests.conftest import _numpys_own_warnings, real_data
from tests.small_table import small_table

__all__ = ["_numpys_own_warnings", "real_data"]


@pytest.fixture(autouse=True)
def no_download(monkeypatch):
    """No test reaches for the network, whether or not pooch is installed."""
    monkeypatch.setitem(sys.modules, "pooch", None)


@pytest.fixture
def small(tmp_path):
    """A function that writes a small spec, changed by (old, new) pairs of text, and returns its path."""

    def write(*changes, kind="path", job="model", name="small.toml"):
        text = small_table(kind=kind, job=job)
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        path = tmp_path / name
        path.write_text(text)
        return path

    return write
