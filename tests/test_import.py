import subprocess
import sys

import pytest

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


# A path of a network with dropout, trained for one step; two threads, so that its work is measured.
TRAINING = """
import sys
import numpy as np
import torch
from torch import nn
from xcal import SurvivalModel, fit_path
from xcal.data import SurvivalData
from xcal.distributions import family
from xcal.training import TrainingConfig

torch.set_num_threads(2)
rows = SurvivalData(torch.randn(20, 2), torch.rand(20) + 0.1, torch.ones(20, dtype=torch.bool))
make = lambda: nn.Sequential(nn.Linear(2, 4), nn.Dropout(0.1), nn.Linear(4, 2))
fit_path(make, family("lognormal"), rows, rows, lambdas=(0, 1), seeds=(0,), config=TrainingConfig(epochs=1))
X = np.random.default_rng(0).normal(size=(60, 2))
y = np.abs(X[:, 0]) + 0.1, np.ones(60)
SurvivalModel(epochs=1).fit(X, y).predict_cdf(X, [0.5])
print(sorted({"torch._dynamo", "sympy"} & set(sys.modules)))
"""


@pytest.mark.ci
def test_training_imports_no_compiler():
    """torch imports its own in many places, and sympy, for more than a second, where nothing is compiled."""
    out = subprocess.run([sys.executable, "-c", TRAINING], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"


def test_public_names_are_an_explicit_list():
    import xcal

    assert all(hasattr(xcal, name) for name in xcal.__all__)


@pytest.mark.ci
def test_an_interrupt_waits_until_a_name_is_imported():
    """Cut short inside torch's import, everything that needs torch failed for the rest of the process."""
    code = (
        "import os, signal, sys\n"
        "import xcal\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell's background job ignores it
        "class Interrupt:\n"
        "    def find_spec(self, name, *others):\n"
        "        if name == 'torch.nn':\n"  # torch is half imported
        "            sys.meta_path.remove(self)\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "try:\n"
        "    xcal.SurvivalModel\n"
        "    raise SystemExit('nothing was interrupted')\n"
        "except KeyboardInterrupt:\n"
        "    pass\n"
        "import numpy as np\n"
        "rng = np.random.default_rng(0)\n"
        "y = rng.exponential(size=60), np.ones(60)\n"
        "model = xcal.SurvivalModel(epochs=1, progress=False).fit(rng.normal(size=(60, 2)), y)\n"
        "print(model.predict(np.zeros((1, 2))).size)\n"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "1", done.stderr
