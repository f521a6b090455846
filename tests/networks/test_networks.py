"""Shapes, sizes as in the paper, independence of towers, and errors."""

import numpy as np
import pytest
import torch
from torch import nn

from xcal.distributions import family
from xcal.metrics import kaplan_meier
from xcal.networks import MLP, Linear, TwoTower, start_near
from xcal_paper.networks import PaperCNN, PublishedCNN

SHARED = MLP(3, 1)
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.parametrize(
    ("network", "x", "n_outputs"),
    [
        (MLP(10, 50), torch.zeros(7, 10), 50),
        (MLP(3, 2, hidden=()), torch.zeros(7, 3), 2),
        (MLP(3, 2, hidden=[5], dropout=0.5), torch.zeros(2, 7, 3), 2),
        (Linear(10, 49), torch.zeros(7, 10), 49),
        (TwoTower(lambda: MLP(10, 1)), torch.zeros(7, 10), 2),
        (PaperCNN(50), torch.zeros(7, 1, 28, 28), 50),
        (PublishedCNN(50, dropout=0.1), torch.zeros(7, 1, 28, 28), 50),
        (PublishedCNN(3, head=()), torch.zeros(7, 1, 28, 28), 3),
        (TwoTower(lambda: PaperCNN(1, head=(), dropout=0.1)), torch.zeros(7, 1, 28, 28), 2),
    ],
)
def test_one_row_of_outputs_for_each_row(network, x, n_outputs):
    assert network(x).shape == (*x.shape[: -3 if x.ndim == 4 else -1], n_outputs)


def test_the_gamma_network_has_the_papers_sizes():
    sizes = [tuple(p.shape) for p in MLP(10, 50).parameters() if p.ndim == 2]
    assert sizes == [(128, 10), (64, 128), (64, 64), (50, 64)]


def test_the_mnist_network_has_the_papers_sizes():
    network = PaperCNN(50)
    convolutions = [m for m in network.modules() if isinstance(m, nn.Conv2d)]
    assert [(m.out_channels, m.kernel_size, m.stride) for m in convolutions] == [
        (channels, (2, 2), (1, 1)) for channels in (32, 64, 128, 256)
    ]
    # 28 - 27 - 13 - 12 - 6 - 5 - 2 - 1: one number for each of the 256 channels.
    dense = [(m.in_features, m.out_features) for m in network.modules() if isinstance(m, nn.Linear)]
    assert dense == [(256, 512), (512, 1024), (1024, 1024), (1024, 50)]


def test_towers_share_nothing():
    towers = TwoTower(lambda: MLP(3, 1))
    assert not torch.equal(towers.first.output.weight, towers.second.output.weight)
    raw = towers(torch.randn(5, 3))
    for output, unmoved in ((0, towers.second), (1, towers.first)):
        gradients = torch.autograd.grad(raw[:, output].sum(), list(unmoved.parameters()), retain_graph=True)
        assert all((g == 0).all() for g in gradients)


def test_dropout_acts_in_training_only():
    network, x = MLP(3, 2, dropout=0.5), torch.randn(5, 3)
    assert not torch.equal(network(x), network(x))
    network.eval()
    assert torch.equal(network(x), network(x))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MLP(0, 2), "n_inputs: expected an integer of 1 or more, got 0"),
        (lambda: MLP(3, 2.0), "n_outputs: expected an integer of 1 or more, got 2.0"),
        (lambda: MLP(3, 2, hidden=(4, 0)), "hidden: expected an integer of 1 or more, got 0"),
        (lambda: MLP(3, 2, hidden=4), "hidden: expected a sequence of layer sizes, got 4"),
        (lambda: MLP(3, 2, dropout=1.0), "dropout: expected a number from 0 to below 1, got 1.0"),
        (lambda: PaperCNN(2, image=(28, 28)), r"image: expected \(channels, height, width\)"),
        (lambda: PaperCNN(2, image=(1, 4, 4)), "image: expected an image large enough for 4 convolutions"),
        (lambda: TwoTower(lambda: SHARED), "make_tower: expected a function that makes a new network"),
    ],
)
def test_errors_name_the_argument(make, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        make()


def test_pooling_before_the_activation_changes_nothing():
    x = torch.randn(5, 1, 28, 28)
    network = PaperCNN(3, head=())
    expected = x
    for block in network.convolutions:
        expected = nn.functional.relu(block.convolution(expected))
        expected = nn.functional.max_pool2d(expected, 2) if min(expected.shape[-2:]) >= 2 else expected
    torch.testing.assert_close(network(x), network.output(expected.flatten(1)))


def growth(network, last):
    """Mean of the maps up to a layer in training, over that in use."""
    x = torch.rand(50, 1, 28, 28)
    with torch.no_grad():
        training = torch.stack([network.train()[:last](x).mean() for _ in range(10)]).mean()
        return float(training / network.eval()[:last](x).mean())


def test_dropout_before_max_pooling_makes_the_maps_larger_in_training():
    torch.manual_seed(0)
    assert growth(PaperCNN(3, head=(), dropout=0.2).convolutions, 1) > 1.15
    assert growth(PaperCNN(3, head=(), dropout=0.2).convolutions, 3) > 1.5
    # Average pooling does not, nor does dropout of whole channels; after three blocks ReLU has added its noise.
    assert growth(PublishedCNN(3, head=(), dropout=0.2).body, 4) == pytest.approx(1, abs=0.05)
    whole = PaperCNN(3, head=(), dropout=0.2, released_dropout=True).convolutions
    assert growth(whole, 1) == pytest.approx(1, abs=0.05)
    assert growth(whole, 3) < 1.35


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_gpu)])
def test_released_dropout_drops_whole_channels_and_scales_the_others(device):
    torch.manual_seed(0)
    block = PaperCNN(3, dropout=0.2, released_dropout=True).convolutions[0].to(device)
    x = torch.rand(500, 1, 28, 28, device=device)
    with torch.no_grad():
        used, training = block.eval()(x), block.train()(x)
    dropped = (training == 0).all(-1).all(-1) & (used > 0).any(-1).any(-1)
    share = float(dropped.sum() / (used > 0).any(-1).any(-1).sum())
    assert share == pytest.approx(0.2, abs=0.02)
    kept = ~dropped[..., None, None]
    torch.testing.assert_close(training, torch.where(kept, used / 0.8, 0.0))


def test_released_dropout_spares_the_output():
    kinds = [type(module).__name__ for module in PaperCNN(3, dropout=0.1, released_dropout=True).body]
    dense = ["Linear", "ReLU", "Dropout"]
    assert kinds == ["Flatten", *dense, *dense, "Linear", "ReLU"]
    assert [type(module).__name__ for module in PaperCNN(3, dropout=0.1).body] == ["Flatten", *dense, *dense, *dense]


def test_the_published_network_layer_by_layer():
    """Kernels 5, 5, 4; average pooling; dropout of whole channels twice, and between hidden layers only."""
    kinds = [type(module).__name__ for module in PublishedCNN(3, dropout=0.1).body]
    block = ["Conv2d", "ReLU", "Dropout2d", "AvgPool2d"]
    dense = ["Linear", "ReLU", "Dropout"]
    assert kinds == [*block, *block, "Conv2d", "ReLU", "Flatten", *dense, *dense, "Linear", "ReLU"]
    shapes = [tuple(p.shape) for p in PublishedCNN(3, head=()).parameters() if p.ndim == 4]
    assert shapes == [(64, 1, 5, 5), (128, 64, 5, 5), (256, 128, 4, 4)]


def test_the_published_network_is_for_images_of_28_by_28():
    with pytest.raises(ValueError, match=r"x: expected images of 1 x 28 x 28, got \(2, 1, 32, 32\)"):
        PublishedCNN(3)(torch.zeros(2, 1, 32, 32))


@pytest.mark.parametrize("make", [lambda: MLP(3, 1, hidden=(5,)), lambda: Linear(3, 2)])
def test_towers_run_at_once_give_the_same(make):
    towers, x = TwoTower(make).double(), torch.randn(5, 3, dtype=torch.float64)
    assert towers._alike()
    results = []
    for raw in (towers._together(x), towers(x)):
        results.append((raw, *torch.autograd.grad(raw.square().sum(), list(towers.parameters()))))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)


def test_towers_that_cannot_run_at_once():
    sizes = iter([(4,), (5,)])
    assert not TwoTower(lambda: MLP(3, 1, hidden=next(sizes)))._alike()
    assert not TwoTower(lambda: PaperCNN(1, head=()))._alike()


def test_start_near_is_the_kaplan_meier_curve():
    rng = np.random.default_rng(0)
    time, event = rng.exponential(size=400), rng.random(400) < 0.7
    edges = np.quantile(time, np.linspace(0, 1, 21))
    edges[0] = 0
    x = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
    for name in ("logistic-hazard", "mtlr", "categorical"):
        made = family(name, edges=edges)
        torch.manual_seed(0)
        network = MLP(4, made.n_outputs, hidden=(8,))
        start_near(network.output, made.initial(time, event))
        predicted = made.distribution(network(x)).cdf(torch.tensor(edges[5:15:3]).float().unsqueeze(-1)).detach()
        expected = 1 - kaplan_meier(time=time, event=event).at(edges[5:15:3])
        # A spread of a tenth lets rows differ by some hundredths.
        np.testing.assert_allclose(predicted.mean(-1), expected, atol=0.03)
    with pytest.raises(ValueError, match=r"outputs: expected 20 numbers, one for each output of the layer, got \(3,\)"):
        start_near(network.output, torch.zeros(3))
    with pytest.raises(ValueError, match="layer: expected a linear layer with a bias"):
        start_near(nn.Linear(2, 3, bias=False), torch.zeros(3))
