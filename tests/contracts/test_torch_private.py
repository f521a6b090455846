"""torch's private names stand in one module, and results do not depend on them: each is removed in turn."""

import ast
import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import xcal
from tests.training.simulate import N_INPUTS, same_state, simulated_rows, small_mlp
from xcal import _torch_private, fit_path, xcal_penalty
from xcal.distributions import family
from xcal.training import TrainingConfig
from xcal.training.stack import draws, seeded

SOURCE = Path(xcal.__file__).parent
HOME = SOURCE / "_torch_private.py"
# Where torch keeps each name, and what the module calls it.
NAMES = {
    "_is_wrapped": ("torch._C._functorch", "is_functorch_wrapped_tensor"),
    "_transforms_active": ("torch._C", "_are_functorch_transforms_active"),
    "_functional_adam": ("torch.optim.adam", "adam"),
    "_run_backward": ("torch.autograd.graph", "_engine_run_backward"),
    "_DispatchMode": ("torch.utils._python_dispatch", "TorchDispatchMode"),
    "_flop_formulas": ("torch.utils.flop_counter", "flop_registry"),
}


every_name = pytest.mark.parametrize(
    "name",
    [
        *("_is_wrapped", "_transforms_active", "_has_plain_apply", "_functional_adam", "_run_backward", "_Watch"),
        "_flop_formulas",
    ],
)


@pytest.fixture
def remove(monkeypatch):
    """A function that takes a name away."""
    return lambda name: monkeypatch.setattr(_torch_private, name, False if name == "_has_plain_apply" else None)


# --- one module ---


def private_names(source):
    """Private names of torch and Triton in a source: imports, attributes, and names in strings."""
    tree = ast.parse(source)
    aliases = {"torch", "triton"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = getattr(node, "module", None) or ""
            for name in node.names:
                full = f"{module}.{name.name}".strip(".")
                if full.split(".")[0] not in {"torch", "triton"}:
                    continue
                aliases.add(name.asname or name.name.split(".")[0])
                # The functional optimisers are public in name only: their signatures change between releases.
                if any(part.startswith("_") for part in full.split(".")) or module == "torch.optim.adam":
                    yield full
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.count("\n") == 0:
            if re.match(r"torch(\.\w+)*\._\w", node.value) or node.value in STATE or node.value == "vmap":
                yield node.value
        elif isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            chain = ast.unparse(node.value).split(".")
            if chain[0] in aliases - {"Tensor"} or node.attr in STATE:
                yield ast.unparse(node)


STATE = {"_parameters", "_buffers", "_modules", "exp_avg", "exp_avg_sq"}


@pytest.mark.parametrize(
    "line",
    [
        "import torch._dynamo",
        "from torch.nn.modules.conv import _ConvNd",
        "from torch.utils._python_dispatch import TorchDispatchMode",
        "from torch.optim.adam import adam",
        "import torch\ntorch._C._functorch.is_functorch_wrapped_tensor(x)",
        "import torch.nn as nn\nnn._reduction",
        "import triton.language as tl\ntl._experimental",
        "import_module('torch._C')",
        "'vmap' in str(error)",
        "module._parameters",
        "state['exp_avg']",
    ],
)
def test_the_search_finds_a_private_name(line):
    assert list(private_names(line))


def test_private_names_are_used_in_one_module_only():
    found = {
        str(path.relative_to(SOURCE)): names
        for path in SOURCE.rglob("*.py")
        if path != HOME and (names := list(private_names(path.read_text(encoding="utf-8"))))
    }
    assert found == {}
    assert list(private_names(HOME.read_text(encoding="utf-8")))


# --- a release without the names ---


@pytest.mark.parametrize("name", NAMES)
def test_the_name_is_there_today(name):
    """Otherwise the slower way is taken and nobody notices."""
    module, attribute = NAMES[name]
    assert getattr(_torch_private, name) is getattr(importlib.import_module(module), attribute)
    assert _torch_private._has_plain_apply


@pytest.mark.parametrize("name", NAMES)
def test_the_module_can_be_imported_without_the_name(name, monkeypatch):
    module, attribute = NAMES[name]
    spec = importlib.util.spec_from_file_location("torch_private_of_another_release", HOME)
    other = importlib.util.module_from_spec(spec)
    with monkeypatch.context() as gone:
        gone.delattr(importlib.import_module(module), attribute)
        spec.loader.exec_module(other)
    assert getattr(other, name) is None
    assert (other._Watch is None) == (name == "_DispatchMode")


def test_a_module_of_torch_that_is_gone_is_no_error():
    assert _torch_private._found("torch.no_such_module", "name") is None
    assert _torch_private._found("torch.optim", "no_such_name") is None


# --- the same results ---


def transforms():
    """Whether values are seen as those of a transform, in and outside of the transforms of torch.func."""
    seen = []

    def look(x):
        seen.append(_torch_private.in_transform(x))
        return x.square().sum()

    x = torch.ones(3, 2)
    look(x)
    look(x[:1].expand(4, 2))
    look(torch.empty(0))
    torch.func.vmap(look)(x)
    torch.func.grad(look)(x)
    torch.func.vmap(torch.func.grad(look))(x)
    torch.func.jvp(look, (x,), (x,))
    return seen


def test_transforms_are_recognised_by_public_means_too(monkeypatch):
    assert transforms() == [False, False, False, True, True, True, True]
    monkeypatch.setattr(_torch_private, "_is_wrapped", None)
    assert transforms() == [False, False, False, True, True, True, True]


def penalties():
    """Values and gradients of the penalty and of a discrete likelihood, plain and within transforms."""
    generator = torch.Generator().manual_seed(0)
    u, event = torch.rand(4, 50, generator=generator), torch.rand(50, generator=generator) < 0.6
    raw = torch.randn(4, 50, 3, generator=generator)
    categorical = family("categorical", edges=[0.0, 0.5, 1.0, 2.0])

    def penalty(x):
        return xcal_penalty(x, event)

    def likelihood(x):
        return sum(part.sum() for part in categorical.distribution(x).log_likelihood_and_cdf(2 * u[0], event))

    results = []
    for function, x in ((penalty, u), (likelihood, raw)):
        results += [torch.func.vmap(function)(x), torch.func.vmap(torch.func.grad(function))(x)]
        leaf = x.clone().requires_grad_()
        value = function(leaf).sum()
        results += [value.detach(), *torch.autograd.grad(value, leaf)]
    return results


@every_name
def test_penalty_and_likelihood_are_the_same_without_the_name(name, remove):
    expected = penalties()
    remove(name)
    assert all(torch.equal(one, other) for one, other in zip(expected, penalties(), strict=True))


@every_name
def test_a_penalty_within_vmap_reads_no_values(name, remove):
    """And outside it still refuses a wrong one."""
    remove(name)
    wrong = torch.tensor([[0.5, 1.5], [0.2, 0.3]])
    assert torch.func.vmap(lambda x: xcal_penalty(x, torch.ones(2)))(wrong).shape == (2,)
    with pytest.raises(ValueError, match=r"cdf: expected values in \[0, 1\], got 1.5 in model \(0,\) at row 1"):
        xcal_penalty(wrong, torch.ones(2))


class Noisy(nn.Module):
    """Dropout, which draws from the fit's own numbers, and RReLU, which can only draw from torch's."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(N_INPUTS, 8), nn.RReLU(), nn.Dropout(0.3), nn.Linear(8, 2))

    def forward(self, x):
        return self.layers(x)


@every_name
@pytest.mark.parametrize("make_network", [small_mlp, Noisy])
def test_training_is_the_same_without_the_name(name, make_network, tmp_path, remove):
    rows, held_out = simulated_rows(120), simulated_rows(60, seed=1)
    arguments = {"lambdas": (0.0, 10.0), "seeds": (0, 1), "mode": "sequential"}

    def train(epochs, folder=None):
        config = TrainingConfig(epochs=epochs, batch_size=40, optimizer="adamw", weight_decay=1e-2)
        return fit_path(
            make_network, family("lognormal"), rows, held_out, config=config, checkpoint=folder, **arguments
        )

    expected = train(3, tmp_path / "with")
    remove(name)
    path = train(3, tmp_path / "without")
    assert all(same_state(expected.state(k), path.state(k)) for k in range(4))
    assert np.array_equal(expected.history.total, path.history.total)
    # A checkpoint of the one is read by the other.
    again = train(3, tmp_path / "with")
    assert all(same_state(expected.state(k), again.state(k)) for k in range(4))


def test_where_nobody_can_watch_a_network_is_taken_for_a_random_one(monkeypatch):
    """Its numbers are then seeded under a lock, which does no harm to a network that draws none."""
    assert draws(lambda: torch.ones(3)) == (False, False)
    monkeypatch.setattr(_torch_private, "_Watch", None)
    assert draws(lambda: torch.ones(3)) == (True, True)


@pytest.mark.parametrize(
    "function", [lambda: torch.rand(3), lambda: nn.functional.rrelu(-torch.ones(3), training=True)]
)
def test_seeded_numbers_are_the_same_without_a_watch(function, monkeypatch):
    expected = seeded(function, 7)
    monkeypatch.setattr(_torch_private, "_Watch", None)
    before = torch.get_rng_state()
    assert torch.equal(seeded(function, 7), expected)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize(
    ("kind", "light"),
    [(torch.optim.Adam, _torch_private.LightAdam), (torch.optim.AdamW, _torch_private.LightAdamW)],
)
@pytest.mark.parametrize("gone", ["function", "names of the state"])
def test_steps_are_those_of_the_optimiser_itself(kind, light, gone, monkeypatch):
    def walk(step, kind=light):
        flat = torch.linspace(-1, 1, 12).reshape(3, 4).clone().requires_grad_()
        optimizer = kind([flat], lr=0.01, weight_decay=0.1, fused=True)
        for k in range(5):
            flat.grad = (flat.detach() - k).sin()
            step(optimizer, flat)
        return flat.detach()

    expected = walk(lambda optimizer, flat: optimizer.step(), kind)
    assert torch.equal(walk(lambda optimizer, flat: optimizer.step()), expected)
    assert torch.equal(walk(_torch_private.adam_step), expected)
    if gone == "function":
        monkeypatch.setattr(_torch_private, "_functional_adam", None)
    else:
        monkeypatch.setattr(_torch_private, "_ADAM_STATE", ("step", "other_name"))
    assert torch.equal(walk(_torch_private.adam_step), expected)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.BatchNorm1d(5), nn.Linear(5, 1)), (4, 6)),
        (nn.Conv2d(3, 4, 3, padding=1), (2, 3, 8, 8)),
        (nn.LSTM(6, 5, batch_first=True), (2, 7, 6)),
        (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (2, 5, 8)),
        (nn.Embedding(10, 3), (4,)),
    ],
    ids=["dense", "convolution", "recurrent", "attention", "embedding"],
)
def test_multiplications_are_counted_as_torch_counts_them(layer, shape):
    x = torch.ones(shape, dtype=torch.int64 if isinstance(layer, nn.Embedding) else torch.float32)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        layer(x)
    with torch.no_grad():
        found = _torch_private.multiplications(lambda: layer(x))
    assert found == counter.get_total_flops() / 2
    # torch has no formula for a recurrent layer.
    assert found > 0 or isinstance(layer, nn.LSTM | nn.Embedding)


def test_kernels_are_not_used_with_a_triton_that_lacks_a_name(monkeypatch):
    _torch_private._triton_works.cache_clear()
    monkeypatch.setattr(_torch_private, "_TRITON_NAMES", ("no_such_name",))
    try:
        assert not _torch_private._triton_works()
    finally:
        _torch_private._triton_works.cache_clear()


def test_every_convolution_of_torch_is_known():
    from xcal.networks import has_convolutions

    kinds = [getattr(nn, name) for name in dir(nn) if re.fullmatch(r"(Lazy)?Conv(Transpose)?[123]d", name)]
    assert len(kinds) == 12
    lazy = [kind(2, 3) for kind in kinds if kind.__name__.startswith("Lazy")]
    plain = [kind(2, 2, 3) for kind in kinds if not kind.__name__.startswith("Lazy")]
    assert all(has_convolutions(nn.Sequential(nn.ReLU(), layer)) for layer in [*plain, *lazy])
    assert not has_convolutions(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.MaxPool1d(2), nn.GRU(2, 2)))
