"""No test of this folder reaches for the network."""

import sys

import pytest


@pytest.fixture(autouse=True)
def no_download(monkeypatch):
    """No test reaches for the network, whether or not pooch is installed; those about fetching put a stand-in."""
    monkeypatch.setitem(sys.modules, "pooch", None)
