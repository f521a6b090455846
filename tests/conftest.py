"""What all tests share: where the data files are, and settings that make a run depend on the code alone."""

import getpass
import os
import random
import shutil
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


def pytest_itemcollected(item):
    """Every test that needs a browser is one for CI, whatever fixture brings it."""
    if "browser" in getattr(item, "fixturenames", ()):
        item.add_marker(pytest.mark.ci)


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


@pytest.fixture(scope="session")
def browser():
    """Chromium without a window, one for all tests."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright, of the extra test")
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    found = next((path for path in map(shutil.which, names) if path), None)
    if found is None:
        pytest.skip(f"needs a browser, looked for {', '.join(names)}")
    with playwright.sync_playwright() as driver:
        # Containers have no sandbox of the kind that Chromium wants; the pages are our own.
        chromium = driver.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield chromium
        chromium.close()


class Tabs:
    """Opens files and waits until they are drawn; a tab lists its problems and the requests it made."""

    def __init__(self, browser):
        self.browser, self.contexts = browser, []

    def __call__(self, path, *, unfolded=True, **options):
        context = self.browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        self.contexts.append(context)
        tab = context.new_page()
        tab.set_default_timeout(20_000)
        tab.problems, tab.requests = [], []
        tab.on("console", lambda message: tab.problems.append(f"{message.type}: {message.text}"))
        tab.on("pageerror", lambda error: tab.problems.append(str(error)))
        tab.on("dialog", lambda dialog: (tab.problems.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        own = path.as_uri()

        def answer(route):
            if route.request.url == own:
                route.continue_()
            else:
                tab.requests.append(route.request.url)
                route.abort()

        context.route("**/*", answer)
        tab.goto(own)
        tab.wait_for_selector("main[aria-busy=false]")
        if unfolded and tab.locator("#unfold").count():
            tab.locator("#unfold").click()
        return tab

    def close(self):
        for context in self.contexts:
            context.close()


@pytest.fixture
def visit(browser):
    """A function that opens a file in the browser, for one test; see `Tabs`."""
    tabs = Tabs(browser)
    yield tabs
    tabs.close()


@pytest.fixture(scope="module")
def visit_once(browser):
    """The same for all tests of a file, which leave the tab as they found it."""
    tabs = Tabs(browser)
    yield tabs
    tabs.close()
