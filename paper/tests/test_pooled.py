"""The kernels of convolution blocks, emulated on a CPU in double precision, do what torch's layers do."""

import sys

import pytest
import torch
from tests.triton_on_cpu import emulated, on_cpu  # noqa: F401  (a fixture)
from torch import nn
from torch.nn.functional import max_pool2d, relu

import xcal.networks
from xcal_paper import networks as _pooled
from xcal_paper.networks import pooled_block

MODULES = ("xcal_paper._kernels", "xcal_paper._kernels")
# Channels before and after, height, width: even and odd maps; images, maps of whole tiles, and others.
SHAPES = [(1, 32, 8, 8), (1, 5, 7, 10), (16, 32, 7, 7), (32, 64, 5, 6), (64, 16, 3, 8), (16, 48, 6, 6), (3, 20, 6, 7)]
every_shape = pytest.mark.parametrize("shape", SHAPES)


@pytest.fixture(autouse=True)
def kernels_on_cpu(on_cpu, monkeypatch):  # noqa: F811
    on_cpu(*MODULES)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))


def block_and_rows(shape, n=7):
    before, after, height, width = shape
    torch.manual_seed(0)
    # Images have no gradient, maps have one.
    x = torch.randn(n, before, height, width, dtype=torch.float64, requires_grad=before > 1)
    return nn.Conv2d(before, after, 2).double(), x


def assert_same(ours, theirs, convolution, x):
    """Values, and gradients of a weighted sum of them."""
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)
    weight = torch.randn_like(theirs)
    inputs = [*convolution.parameters(), *([x] if x.requires_grad else [])]
    found, wanted = (torch.autograd.grad((pooled * weight).sum(), inputs) for pooled in (ours, theirs))
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


@every_shape
def test_value_and_gradient_are_those_of_torch(shape):
    convolution, x = block_and_rows(shape)
    assert_same(pooled_block(x, convolution), relu(max_pool2d(convolution(x), 2)), convolution, x)


@every_shape
def test_whole_channels_are_dropped_as_by_torch(shape):
    convolution, x = block_and_rows(shape)
    torch.manual_seed(1)
    ours = pooled_block(x, convolution, whole=0.5)
    torch.manual_seed(1)
    # A rate whose factor single precision has exactly.
    theirs = nn.Dropout2d(0.5)(relu(max_pool2d(convolution(x), 2)))
    assert 0 < int((theirs == 0).flatten(2).all(2).sum()) < theirs.shape[0] * theirs.shape[1]
    assert_same(ours, theirs, convolution, x)


@every_shape
def test_single_values_are_dropped_and_the_gradient_goes_where_the_value_came_from(shape):
    convolution, x = block_and_rows(shape)
    ours = pooled_block(x, convolution, single=0.25)
    y = relu(convolution(x))
    rows, columns = (size // 2 * 2 for size in y.shape[-2:])
    four = torch.stack([y[..., i:rows:2, j:columns:2] for i in (0, 1) for j in (0, 1)]) / 0.75
    # The value itself tells which of the four it is.
    chosen = (four - ours).abs().argmin(0, keepdim=True)
    assert set(chosen[0][ours > 0].tolist()) == {0, 1, 2, 3}
    assert float((ours.detach() < four.detach().amax(0) - 1e-9).double().mean()) > 0.1
    assert_same(ours, torch.where(ours > 0, four.gather(0, chosen)[0], 0.0), convolution, x)


def test_maps_of_whole_tiles_have_kernels_of_their_own_where_tensor_cores_do_the_products(monkeypatch):
    used = []
    kept = _pooled._Convolution.apply
    monkeypatch.setattr(_pooled._Convolution, "apply", lambda *given: used.append(given[1].shape[:2]) or kept(*given))
    for shape in SHAPES:
        convolution, x = block_and_rows(shape)
        pooled_block(x, convolution)
    assert [tuple(reversed(channels)) for channels in used] == [shape[:2] for shape in SHAPES[2:6]]
    monkeypatch.setattr(_pooled, "_precision", lambda: "ieee")
    pooled_block(x, convolution)
    assert len(used) == 4


def test_a_map_without_gradient_and_many_programs(monkeypatch):
    convolution, x = block_and_rows((16, 32, 9, 9), n=40)
    monkeypatch.setattr(_pooled, "_WEIGHT_PROGRAMS", 3)
    assert_same(pooled_block(x, convolution), relu(max_pool2d(convolution(x), 2)), convolution, x)
    x = x.detach()
    assert_same(pooled_block(x, convolution), relu(max_pool2d(convolution(x), 2)), convolution, x)


def test_nan_is_not_pooled_away():
    for shape in SHAPES:
        convolution, x = block_and_rows(shape)
        x = x.detach()
        x[0, 0, 1, 1] = torch.nan
        assert bool(pooled_block(x, convolution)[0].isnan().any())


def test_the_emulation_leaves_nothing_behind():
    before = {name: sys.modules.get(name) for name in ("triton", "triton.language", *MODULES)}
    modules = emulated(*MODULES)
    assert {name: sys.modules.get(name) for name in before} == before
    assert getattr(xcal.networks, "_kernels", None) is not modules[MODULES[0]]
