"""Runs that differ in anything that decides their result do not share a checkpoint."""

import importlib
import os
import subprocess
import sys
import threading
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from tests.training.simulate import simulated_rows, small_mlp
from xcal.data import SurvivalData
from xcal.distributions import family
from xcal.distributions.families import LogNormalFamily
from xcal.objectives import nll
from xcal.training import TrainingConfig, fit_path
from xcal.training.checkpoint import settings_digest

ROWS, HELD_OUT = simulated_rows(200), simulated_rows(100, seed=1)
LOGNORMAL = family("lognormal")
CONFIG = TrainingConfig(epochs=1, batch_size=100)


@dataclass(frozen=True)
class Sharper(LogNormalFamily):
    """A family of a user's own, with a setting."""

    factor: float = 1.0

    def distribution(self, raw):
        return super().distribution(raw * self.factor)


class Plain(LogNormalFamily):
    """A setting that is no field."""

    def __init__(self, factor):
        object.__setattr__(self, "factor", factor)


class OfItsClass(LogNormalFamily):
    factor = 1.0


def of_a_class(factor):
    return type("OfItsClass", (OfItsClass,), {"factor": factor, "__module__": __name__})()


class Objective:
    """An objective with an attribute."""

    def __init__(self, factor):
        self.factor = factor

    def __call__(self, distribution, time, event):
        return self.factor * nll(distribution, time, event)


def enclosing(factor):
    return lambda distribution, time, event: factor * nll(distribution, time, event)


def with_default(factor):
    def objective(distribution, time, event, *, by=factor):
        return by * nll(distribution, time, event)

    return objective


def calling(factor):
    def inner(value):
        return factor * value

    return lambda distribution, time, event: inner(nll(distribution, time, event))


class Tempered(nn.Module):
    """A network with an attribute that is no weight."""

    def __init__(self, temperature):
        super().__init__()
        self.temperature, self.output = temperature, nn.Linear(4, 2)

    def forward(self, x):
        return self.output(x) / self.temperature


def constant_start(value):
    def make():
        network = small_mlp()
        nn.init.constant_(network.output.bias, value)
        return network

    return make


def two_events_swapped(rows):
    """Change places of events so that no weighted sum of an obvious kind shows it."""
    event = rows.event.clone()
    event[[10, 13, 11, 12]] = torch.tensor([True, True, False, False])
    return SurvivalData(rows.x, rows.time, event)


def other_events_swapped(rows):
    event = rows.event.clone()
    event[[10, 13, 11, 12]] = torch.tensor([False, False, True, True])
    return SurvivalData(rows.x, rows.time, event)


DIFFERENCES = {
    "field of a family": ({"family": Sharper(1.0)}, {"family": Sharper(2.0)}, "family"),
    "attribute of a family": ({"family": Plain(1.0)}, {"family": Plain(2.0)}, "family"),
    "attribute of a family's class": ({"family": of_a_class(1.0)}, {"family": of_a_class(2.0)}, "family"),
    "family of another class": ({"family": LOGNORMAL}, {"family": family("loglogistic")}, "family"),
    "time edges": (
        {"family": family("categorical", edges=[0.0, 1.0, 3.0])},
        {"family": family("categorical", edges=[0.0, 2.0, 3.0])},
        "family",
    ),
    "closure of an objective": ({"objective": enclosing(1.0)}, {"objective": enclosing(2.0)}, "objective"),
    "closure's closure": ({"objective": calling(1.0)}, {"objective": calling(2.0)}, "objective"),
    "default of an objective": ({"objective": with_default(1.0)}, {"objective": with_default(2.0)}, "objective"),
    "attribute of an objective": ({"objective": Objective(1.0)}, {"objective": Objective(2.0)}, "objective"),
    "method of an object": (
        {"objective": Objective(1.0).__call__},
        {"objective": Objective(2.0).__call__},
        "objective",
    ),
    "argument of a partial": (
        {"objective": partial(Objective.__call__, Objective(1.0))},
        {"objective": partial(Objective.__call__, Objective(2.0))},
        "objective",
    ),
    "tensor in an attribute": (
        {"objective": Objective(torch.tensor([1.0, 2.0])[:1])},
        {"objective": Objective(torch.tensor([1.0, 2.0])[1:])},
        "objective",
    ),
    "attribute of a network": (
        {"make_network": lambda: Tempered(1.0)},
        {"make_network": lambda: Tempered(2.0)},
        "network",
    ),
    "initial weights": (
        {"make_network": constant_start(0.0)},
        {"make_network": constant_start(0.5)},
        "initial weights",
    ),
    "four event flags": (
        {"train": two_events_swapped(ROWS)},
        {"train": other_events_swapped(ROWS)},
        "train",
    ),
    "one time": (
        {"train": ROWS},
        {
            "train": SurvivalData(
                ROWS.x, torch.where(torch.arange(200) == 7, ROWS.time * (1 + 1e-6), ROWS.time), ROWS.event
            )
        },
        "train",
    ),
    "validation rows": ({"validation": HELD_OUT}, {"validation": two_events_swapped(HELD_OUT)}, "validation"),
}


def run(folder, changes):
    settings = {"make_network": small_mlp, "family": LOGNORMAL, "train": ROWS, "validation": HELD_OUT} | changes
    return fit_path(**settings, config=CONFIG, checkpoint=folder)


@pytest.mark.parametrize("name", DIFFERENCES)
def test_another_run_is_refused_and_the_same_resumed(name, tmp_path):
    first, second, message = DIFFERENCES[name]
    run(tmp_path, first)
    run(tmp_path, first)
    with pytest.raises(ValueError, match=rf"checkpoint: expected a checkpoint of the same run .*another {message}$"):
        run(tmp_path, second)


SCALE = 1.0


def test_a_value_that_a_function_looks_up_counts(monkeypatch):
    def objective(distribution, time, event):
        return SCALE * nll(distribution, time, event)

    before = settings_digest("objective", objective)
    assert settings_digest("objective", objective) == before
    monkeypatch.setitem(globals(), "SCALE", 2.0)
    assert settings_digest("objective", objective) != before


USER_CODE = """
import functools
import user_package
import user_package.settings
from user_package import settings

def helper(module):
    return module.K

@functools.lru_cache
def cached():
    return settings.K

def attribute(distribution, time, event): return settings.K
def of_a_package(distribution, time, event): return user_package.settings.K
def function_of_it(distribution, time, event): return settings.double()
def handed_on(distribution, time, event): return helper(settings)
def by_name(distribution, time, event): return getattr(settings, "K")
def in_a_cache(distribution, time, event): return cached()
def imported_there(distribution, time, event):
    import user_package.settings as here
    return here.K
def taken_there(distribution, time, event):
    from user_package.settings import K
    return K
def within(distribution, time, event): return [settings.K for _ in range(2)]
def enclosed():
    from user_package import settings as own
    return lambda distribution, time, event: own.K
enclosed = enclosed()
class Callable:
    module = settings
    def __call__(self, distribution, time, event): return self.module.K
on_a_class = Callable()
"""
WAYS = (
    "attribute", "of_a_package", "function_of_it", "handed_on", "by_name", "in_a_cache", "imported_there",
    "taken_there", "within", "enclosed", "on_a_class",
)  # fmt: skip


@pytest.fixture
def user_code(tmp_path, monkeypatch):
    """Modules of a user: a constant in one, and functions that read it in another."""
    package = tmp_path / "user_package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "settings.py").write_text("K = 1.0\nOTHER = 1.0\ndef double(): return 2 * K\n")
    (tmp_path / "user_objectives.py").write_text(USER_CODE)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("user_objectives"), importlib.import_module("user_package.settings")
    for name in [name for name in sys.modules if name.startswith("user_")]:
        del sys.modules[name]


@pytest.mark.parametrize("way", WAYS)
def test_a_constant_in_a_module_of_the_user_counts(way, user_code):
    objectives, constants = user_code
    objective = getattr(objectives, way)
    before = settings_digest("objective", objective)
    assert settings_digest("objective", objective) == before
    constants.K = 30.0
    assert settings_digest("objective", objective) != before


def test_other_constants_of_a_module_do_not_matter_where_one_is_read(user_code):
    objectives, constants = user_code
    before = settings_digest("objective", objectives.attribute)
    constants.OTHER = 30.0
    assert settings_digest("objective", objectives.attribute) == before


def test_functions_with_many_names_are_read(user_code):
    _, constants = user_code
    many = "; ".join(f"print(name_{k})" for k in range(300))
    body = f"def objective(d, t, e):\n    {many}\n    from user_package.settings import K\n    return K\n"
    names = {"__name__": "user_many", "__package__": None}
    exec(body, names)
    before = settings_digest("objective", names["objective"])
    constants.K = 30.0
    assert settings_digest("objective", names["objective"]) != before


def test_a_module_that_is_handed_on_must_be_readable(user_code):
    objectives, constants = user_code
    constants.lock = threading.Lock()
    settings_digest("objective", objectives.attribute)
    with pytest.raises(ValueError, match=r"checkpoint: expected settings of the objective .* got a _thread\.lock"):
        settings_digest("objective", objectives.handed_on)


BY_NAME = """
import builtins, importlib, sys
from importlib import import_module
M = sys.modules
system = sys
def known(d, t, e): return sys.modules["user_package.settings"].K
def kept(d, t, e): return M["user_package.settings"].K
def handed_on(d, t, e): return getattr(getattr(system, "modules")["user_package.settings"], "K")
def imported_there(d, t, e):
    import sys as own
    return own.modules["user_package.settings"].K
def taken_there(d, t, e):
    from sys import modules
    return modules["user_package.settings"].K
def by_import(d, t, e): return import_module("user_package.settings").K
def by_importlib(d, t, e): return importlib.import_module("user_package.settings").K
def by_built_in(d, t, e): return __import__("user_package.settings").settings.K
def by_builtins(d, t, e): return builtins.eval("__import__('user_package.settings')").settings.K
def within(d, t, e): return [eval("M")["user_package.settings"].K for _ in range(2)]
def default(d, t, e, where=M): return where["user_package.settings"].K
"""


@pytest.mark.parametrize("way", [line.split("(")[0][4:] for line in BY_NAME.splitlines() if line.startswith("def ")])
def test_a_module_that_is_looked_up_by_its_name_is_refused(user_code, way):
    """Which module it is is known only when the code runs: two runs that differ in it would share a checkpoint."""
    names = {"__name__": "user_by_name", "__package__": None}
    exec(BY_NAME, names)
    assert names[way](None, None, None) in (1.0, [1.0, 1.0])
    with pytest.raises(ValueError, match=r"checkpoint: expected settings of the objective .* any module can be read"):
        settings_digest("objective", names[way])


def test_other_parts_of_python_are_used_as_before(user_code):
    def objective(d, t, e):
        import sys as own

        print(sys.float_info.max, own.version, importlib.util.find_spec("json"), file=sys.stderr)

    settings_digest("objective", objective)


def test_what_cannot_be_described_is_one_error():
    odd = type("Odd", (), {"__module__": property(len)})
    with pytest.raises(ValueError, match=r"checkpoint: expected settings of the objective .* AttributeError"):
        settings_digest("objective", partial(nll, odd))


def test_what_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"checkpoint: expected settings of the objective .* got a _thread\.lock"):
        run(tmp_path, {"objective": Objective(threading.Lock())})
    assert not list(tmp_path.iterdir())


def test_arrays_are_told_apart_by_their_contents():
    ones, twos = Objective(np.ones(3)), Objective(np.full(3, 2.0))
    assert settings_digest("objective", ones) == settings_digest("objective", Objective(np.ones(3)))
    assert settings_digest("objective", ones) != settings_digest("objective", twos)


def test_objects_that_refer_to_themselves_are_described():
    objective = Objective(1.0)
    objective.owner = [objective]
    assert settings_digest("objective", objective) == settings_digest("objective", objective)


def test_weights_of_a_network_count_if_asked():
    network = small_mlp()
    before = settings_digest("network", network), settings_digest("network", network, weights=False)
    with torch.no_grad():
        network.output.bias.add_(1.0)
    after = settings_digest("network", network), settings_digest("network", network, weights=False)
    assert before[0] != after[0]
    assert before[1] == after[1]


SCRIPT = """
from tests.training import test_fingerprint as t
from xcal.training.checkpoint import settings_digest
things = [t.Sharper(2.0), t.enclosing({"a", "b", "c"}), t.Objective({"x": 1, "y": (2, "z")}), t.Tempered(3.0)]
print([settings_digest("thing", thing, weights=False) for thing in things])
"""


@pytest.mark.ci
def test_another_process_finds_the_same_settings():
    def described(hash_seed):
        variables = os.environ | {"PYTHONHASHSEED": hash_seed}
        done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, env=variables, check=True)
        return done.stdout

    assert described("1") == described("2")


def test_a_changed_configuration_is_named(tmp_path):
    run(tmp_path, {})
    with pytest.raises(ValueError, match=r"another folder starts a new one.*another config \(learning_rate [0-9.]+\)$"):
        fit_path(small_mlp, LOGNORMAL, ROWS, HELD_OUT, config=replace(CONFIG, learning_rate=0.5), checkpoint=tmp_path)
