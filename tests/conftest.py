"""What all tests share: where the data files are, and settings that make a run depend on the code alone."""

import getpass
import os
import random
import tempfile
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

BESIDE = Path(__file__).parents[2] / "shared" / "data"

# A result of a test must not depend on how busy the machine is; in CI not on chance either.
settings.register_profile("here", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")

# torch's compiler keeps the C++ that it wrote, but not for which instructions: what was written for AVX-512 fails to
# compile, or crashes, under another ATEN_CPU_CAPABILITY. One folder for each keeps them apart.
_CACHE = f"xcal-inductor-{getpass.getuser()}-{os.environ.get('ATEN_CPU_CAPABILITY') or 'native'}"
os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(Path(tempfile.gettempdir()) / _CACHE)


def pytest_addoption(parser):
    """``--shuffle SEED``: no test may need another one before it."""
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run files, and the tests of each, in a random order")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Shuffle files, and tests within a file: fixtures of a module are still made once."""
    seed = config.getoption("--shuffle")
    if seed is None:
        return
    order = random.Random(seed)
    files = [list(tests) for _, tests in groupby(items, key=lambda item: item.path)]
    order.shuffle(files)
    for tests in files:
        order.shuffle(tests)
    items[:] = [test for tests in files for test in tests]


@pytest.fixture(autouse=True)
def _numpys_own_warnings():
    """Start every test with numpy's defaults: lifelines switches warnings off for all who come after it."""
    before = np.seterr(divide="warn", over="warn", under="ignore", invalid="warn")
    yield
    np.seterr(**before)


@pytest.fixture(scope="session")
def real_data():
    """A function: the data directory, if it has the named folder."""

    def find(folder):
        root = Path(os.environ.get("XCAL_DATA") or BESIDE)
        if not (root / folder).is_dir():
            pytest.skip(f"needs the data files in {folder}/, looked for in {root}: set XCAL_DATA to a folder with them")
        return root

    return find
