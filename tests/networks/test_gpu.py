"""On a GPU: convolution, activation, dropout and pooling in one pass do what torch's layers do."""

from contextlib import contextmanager

import pytest
import torch
from torch import nn
from torch.nn.functional import max_pool2d, relu

from xcal_paper.networks import PaperCNN, pooled_block

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

# Channels before and after, height, width: even and odd maps, images and maps, channels that are no power of two.
SHAPES = [(1, 32, 28, 28), (1, 5, 7, 10), (32, 64, 13, 13), (64, 128, 6, 6), (16, 48, 7, 10), (3, 20, 6, 7)]
MAPS = [shape for shape in SHAPES if shape[0] % 16 == 0]
# Maps of whole tiles have kernels of their own where TensorFloat-32 is allowed, and are left to cuDNN where it is not.
every_way = pytest.mark.parametrize(
    ("shape", "tf32"), [(shape, False) for shape in SHAPES] + [(shape, True) for shape in MAPS]
)


@contextmanager
def precision(*, tf32):
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = tf32
    yield
    torch.backends.cudnn.allow_tf32 = before


@pytest.fixture
def exact():
    with precision(tf32=False):
        yield


def rounded(values):
    """As TensorFloat-32 has them and more: products of such values are exact."""
    return values.bfloat16().float()


def convolution_and_rows(shape, n=40):
    before, after, height, width = shape
    torch.manual_seed(0)
    convolution = nn.Conv2d(before, after, 2).cuda()
    convolution.weight.data = rounded(convolution.weight.data)
    # Images have no gradient, maps have one.
    return convolution, rounded(torch.randn(n, before, height, width, device="cuda")).requires_grad_(before > 1)


def block(x, convolution, *, tf32, **rates):
    with precision(tf32=tf32):
        return pooled_block(x, convolution, **rates)


def windows(y):
    """The four values that each pooled one is made of."""
    rows, columns = (size // 2 * 2 for size in y.shape[-2:])
    return torch.stack([y[..., i:rows:2, j:columns:2] for i in (0, 1) for j in (0, 1)])


def gradients(value, convolution, x, *, tf32=False):
    inputs = [*convolution.parameters(), *([x] if x.requires_grad else [])]
    with precision(tf32=tf32):
        return torch.autograd.grad(value, inputs)


@every_way
def test_without_dropout_value_and_gradient_are_those_of_torch(shape, tf32, exact):
    convolution, x = convolution_and_rows(shape)
    ours, theirs = block(x, convolution, tf32=tf32), relu(max_pool2d(convolution(x), 2))
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    weight = rounded(torch.randn_like(theirs))
    for one, other in zip(
        gradients((ours * weight).sum(), convolution, x, tf32=tf32),
        gradients((theirs * weight).sum(), convolution, x),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("shape", MAPS)
def test_of_other_values_tensor_cores_keep_three_digits(shape, exact):
    convolution, x = convolution_and_rows(shape)
    x = (x + 0.001 * torch.randn_like(x)).detach().requires_grad_()
    ours, theirs = block(x, convolution, tf32=True), relu(max_pool2d(convolution(x), 2))
    torch.testing.assert_close(ours, theirs, rtol=1e-2, atol=1e-2)
    assert not torch.equal(ours, theirs)
    # Two positions that are nearly equal may change places; so the sums over many are compared.
    weight = torch.rand_like(theirs)
    found, wanted = (
        gradients((ours * weight).sum(), convolution, x, tf32=True),
        gradients((theirs * weight).sum(), convolution, x),
    )
    for one, other in zip(found, wanted, strict=True):
        assert float((one - other).norm() / other.norm()) < 0.05


@pytest.mark.parametrize("shape", MAPS)
def test_the_same_bits_twice(shape):
    convolution, x = convolution_and_rows(shape, n=300)
    values = [block(x, convolution, tf32=True) for _ in range(2)]
    assert torch.equal(*values)
    for one, other in zip(
        *(gradients(value.square().sum(), convolution, x, tf32=True) for value in values), strict=True
    ):
        assert torch.equal(one, other)


def test_more_values_than_short_integers_count(exact):
    if torch.cuda.get_device_properties(0).total_memory < 4e10:
        pytest.skip("needs 40 GB of GPU memory")
    convolution, _ = convolution_and_rows((16, 32, 3, 3))
    x = torch.empty(15_000_000, 16, 3, 3, device="cuda", memory_format=torch.channels_last).zero_().requires_grad_()
    assert x.numel() > 2**31
    with torch.no_grad():
        x[-3:] = rounded(torch.randn(3, 16, 3, 3, device="cuda"))
    ours = block(x, convolution, tf32=True)
    (found,) = torch.autograd.grad(ours[-3:].sum(), [x])
    few = x[-3:].detach().requires_grad_()
    theirs = relu(max_pool2d(convolution(few), 2))
    torch.testing.assert_close(ours[-3:], theirs, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found[-3:], torch.autograd.grad(theirs.sum(), [few])[0], rtol=1e-4, atol=1e-3)


@every_way
def test_dropout_keeps_the_largest_of_four_that_is_left(shape, tf32, exact):
    convolution, x = convolution_and_rows(shape, n=400)
    rate = 0.3
    with torch.no_grad():
        pooled = block(x, convolution, tf32=tf32, single=rate) * (1 - rate)
        four = windows(relu(convolution(x)))
        ranked = four.sort(dim=0, descending=True).values
    # Four independent coins: the largest with probability 1 - p, the second with p (1 - p), and so on.
    above = (ranked > 0).all(0)
    assert int(above.sum()) > 1000
    for place in range(4):
        share = torch.isclose(pooled, ranked[place], rtol=1e-4)[above].double().mean()
        assert float(share) == pytest.approx(rate**place * (1 - rate), rel=0.15, abs=0.004)
    assert bool((torch.isclose(pooled, four, rtol=1e-4, atol=1e-6).any(0) | (pooled == 0)).all())


@every_way
def test_the_gradient_goes_where_the_value_came_from(shape, tf32, exact):
    convolution, x = convolution_and_rows(shape)
    rate = 0.3
    pooled = block(x, convolution, tf32=tf32, single=rate)
    # The value itself tells which of the four it is.
    four = windows(relu(convolution(x)))
    chosen = (four.detach() - pooled.detach() * (1 - rate)).abs().argmin(0, keepdim=True)
    same = torch.where(pooled > 0, four.gather(0, chosen)[0] / (1 - rate), 0.0)
    torch.testing.assert_close(pooled, same, rtol=1e-4, atol=1e-5)
    weight = rounded(torch.randn_like(same))
    expected = gradients((same * weight).sum(), convolution, x)
    for one, other in zip(gradients((pooled * weight).sum(), convolution, x, tf32=tf32), expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-2)


@every_way
def test_whole_channels_are_dropped_as_by_torch(shape, tf32, exact):
    convolution, x = convolution_and_rows(shape)
    layer = nn.Dropout2d(0.3)
    torch.cuda.manual_seed(2)
    ours = block(x, convolution, tf32=tf32, whole=0.3)
    torch.cuda.manual_seed(2)
    theirs = layer(block(x, convolution, tf32=tf32))
    assert torch.equal(ours, theirs)
    assert 0.1 < float((ours == 0).flatten(2).all(2).double().mean()) < 0.6
    weight = rounded(torch.randn_like(theirs))
    # What layer multiplies the gradient by is no rounded value: tensor cores keep three digits of the product.
    found, expected = (gradients((pooled * weight).sum(), convolution, x, tf32=tf32) for pooled in (ours, theirs))
    assert torch.equal(found[1], expected[1])  # of the bias, by our kernel
    for one, other in zip(found, expected, strict=True):  # of a map's weights by cuDNN, in any order
        torch.testing.assert_close(one, other, rtol=1e-2 if tf32 else 1e-4, atol=1e-1 if tf32 else 1e-3)


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
