"""On a GPU: convolution, activation, dropout and pooling in one pass do what torch's layers do."""

import pytest
import torch
from torch import nn
from torch.nn.functional import max_pool2d, relu

from xcal.networks import PaperCNN
from xcal.networks._pooled import pooled_block

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

# Channels before and after, height, width: even and odd maps, images and maps, channels that are no power of two.
SHAPES = [(1, 32, 28, 28), (1, 5, 7, 10), (32, 64, 13, 13), (3, 20, 6, 7)]


@pytest.fixture
def exact():
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    yield
    torch.backends.cudnn.allow_tf32 = before


def convolution_and_rows(shape, n=40):
    before, after, height, width = shape
    torch.manual_seed(0)
    convolution = nn.Conv2d(before, after, 2).cuda()
    # Images have no gradient, maps have one.
    return convolution, torch.randn(n, before, height, width, device="cuda", requires_grad=before > 1)


def windows(y):
    """The four values that each pooled one is made of."""
    rows, columns = (size // 2 * 2 for size in y.shape[-2:])
    return torch.stack([y[..., i:rows:2, j:columns:2] for i in (0, 1) for j in (0, 1)])


def gradients(value, convolution, x):
    inputs = [*convolution.parameters(), *([x] if x.requires_grad else [])]
    return torch.autograd.grad(value, inputs)


@pytest.mark.parametrize("shape", SHAPES)
def test_without_dropout_value_and_gradient_are_those_of_torch(shape, exact):
    convolution, x = convolution_and_rows(shape)
    ours, theirs = pooled_block(x, convolution), relu(max_pool2d(convolution(x), 2))
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    weight = torch.randn_like(theirs)
    for one, other in zip(
        gradients((ours * weight).sum(), convolution, x),
        gradients((theirs * weight).sum(), convolution, x),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("shape", SHAPES)
def test_dropout_keeps_the_largest_of_four_that_is_left(shape, exact):
    convolution, x = convolution_and_rows(shape, n=400)
    rate = 0.3
    with torch.no_grad():
        pooled = pooled_block(x, convolution, single=rate) * (1 - rate)
        four = windows(relu(convolution(x)))
        ranked = four.sort(dim=0, descending=True).values
    # Four independent coins: the largest with probability 1 - p, the second with p (1 - p), and so on.
    above = (ranked > 0).all(0)
    assert int(above.sum()) > 1000
    for place in range(4):
        share = torch.isclose(pooled, ranked[place], rtol=1e-4)[above].double().mean()
        assert float(share) == pytest.approx(rate**place * (1 - rate), rel=0.15, abs=0.004)
    assert bool((torch.isclose(pooled, four, rtol=1e-4, atol=1e-6).any(0) | (pooled == 0)).all())


@pytest.mark.parametrize("shape", SHAPES)
def test_the_gradient_goes_where_the_value_came_from(shape, exact):
    convolution, x = convolution_and_rows(shape)
    rate = 0.3
    pooled = pooled_block(x, convolution, single=rate)
    # The value itself tells which of the four it is.
    four = windows(relu(convolution(x)))
    chosen = (four.detach() - pooled.detach() * (1 - rate)).abs().argmin(0, keepdim=True)
    same = torch.where(pooled > 0, four.gather(0, chosen)[0] / (1 - rate), 0.0)
    torch.testing.assert_close(pooled, same, rtol=1e-4, atol=1e-5)
    weight = torch.randn_like(same)
    expected = gradients((same * weight).sum(), convolution, x)
    for one, other in zip(gradients((pooled * weight).sum(), convolution, x), expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("shape", SHAPES)
def test_whole_channels_are_dropped_as_by_torch(shape, exact):
    convolution, x = convolution_and_rows(shape)
    layer = nn.Dropout2d(0.3)
    torch.cuda.manual_seed(2)
    ours = pooled_block(x, convolution, whole=0.3)
    torch.cuda.manual_seed(2)
    theirs = layer(pooled_block(x, convolution))
    assert torch.equal(ours, theirs)
    assert 0.1 < float((ours == 0).flatten(2).all(2).double().mean()) < 0.6
    weight = torch.randn_like(theirs)
    found, expected = (gradients((pooled * weight).sum(), convolution, x) for pooled in (ours, theirs))
    assert torch.equal(found[1], expected[1])  # of the bias, by our kernel
    for one, other in zip(found, expected, strict=True):  # of a map's weights by cuDNN, in any order
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-3)


def test_nan_is_not_pooled_away():
    convolution, x = convolution_and_rows(SHAPES[0])
    x[0, 0, 10, 10] = float("nan")
    assert bool(pooled_block(x, convolution)[0].isnan().any())


def test_dropout_is_drawn_anew_and_repeats_with_a_seed():
    convolution, x = convolution_and_rows(SHAPES[0])
    torch.cuda.manual_seed(1)
    first, second = pooled_block(x, convolution, single=0.2), pooled_block(x, convolution, single=0.2)
    torch.cuda.manual_seed(1)
    again = pooled_block(x, convolution, single=0.2)
    assert not torch.equal(first, second)
    assert torch.equal(first, again)


def test_the_whole_network(exact):
    torch.manual_seed(0)
    network, x = PaperCNN(7), torch.randn(30, 1, 28, 28)
    plain = network(x)
    expected = torch.autograd.grad(plain.square().sum(), list(network.parameters()))
    network.cuda()
    found = network(x.cuda())
    torch.testing.assert_close(found.cpu(), plain, rtol=1e-4, atol=1e-5)
    for one, other in zip(torch.autograd.grad(found.square().sum(), list(network.parameters())), expected, strict=True):
        torch.testing.assert_close(one.cpu(), other, rtol=1e-3, atol=1e-4)
