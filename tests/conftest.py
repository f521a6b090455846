"""Where the real data files are, for the tests that need them."""

import os
from pathlib import Path

import pytest

BESIDE = Path(__file__).parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def real_data():
    """A function: the data directory, if it has the named folder."""

    def find(folder):
        root = Path(os.environ.get("XCAL_DATA") or BESIDE)
        if not (root / folder).is_dir():
            pytest.skip(f"needs the data files in {folder}/, looked for in {root}: set XCAL_DATA to a folder with them")
        return root

    return find
