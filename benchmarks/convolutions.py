"""One training step of the paper's Survival-MNIST network on a GPU: 5,000 images, dropout, TensorFloat-32, recorded.

Claim: at most half the time of torch's own layers, and faster than those layers under torch.compile.

What is left are our own kernels of the second and third convolution, forward and backward, 39 % of the step; no map
is written before it is pooled. The command prints where the time goes.
"""

import argparse
import sys
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.profiler import ProfilerActivity, profile

from benchmarks.measure import recorded, side_by_side
from xcal_paper import networks as _pooled
from xcal_paper.networks import PaperCNN

IMAGES, BINS, DROPOUT, STEPS = 5000, 50, 0.2, 50
COMPILED = "torch's layers, compiled"


def plain() -> nn.Module:
    """Make the same network of torch's own layers."""
    layers: list[nn.Module] = []
    for before, after in ((1, 32), (32, 64), (64, 128), (128, 256)):
        layers += [nn.Conv2d(before, after, 2), nn.ReLU(), nn.Dropout(DROPOUT)]
        layers += [nn.MaxPool2d(2)] if after < 256 else [nn.Flatten()]
    for before, after in ((256, 512), (512, 1024), (1024, 1024)):
        layers += [nn.Linear(before, after), nn.ReLU(), nn.Dropout(DROPOUT)]
    return nn.Sequential(*layers, nn.Linear(1024, BINS))


def step_of(network: nn.Module, x: Tensor, label: Tensor, *, compiled: bool) -> Callable[[], None]:
    """Make a training step: forward, cross-entropy, backward, fused Adam."""
    forward = torch.compile(network, dynamic=False) if compiled else network
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3, fused=True, capturable=True)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        cross_entropy(forward(x), label).backward()  # type: ignore[no-untyped-call]  # torch has no types there
        optimizer.step()

    return step


def many(replay: Callable[[], None]) -> Callable[[], None]:
    """Make a run of many steps, long enough to be timed."""

    def run() -> None:
        for _ in range(STEPS):
            replay()

    return run


def recordings(x: Tensor, label: Tensor, wanted: list[str]) -> tuple[dict[str, Callable[[], None]], Callable[[], None]]:
    """Record each step, and return what replays it many times; also PaperCNN's step, as it is.

    A recording begins by giving unused memory back to the driver. What a recorded step reads must therefore be held for
    as long as it may be replayed: `recorded` keeps the step, and the step its network and its optimiser.
    """
    ours = PaperCNN(BINS, dropout=DROPOUT)
    networks: dict[str, nn.Module] = {
        "torch's layers": plain(),
        COMPILED: plain(),
        "PaperCNN": ours,
        "PaperCNN, whole channels": PaperCNN(BINS, dropout=DROPOUT, released_dropout=True),
        "with cuDNN's convolutions": PaperCNN(BINS, dropout=DROPOUT),
        "the same, whole channels": PaperCNN(BINS, dropout=DROPOUT, released_dropout=True),
    }
    replays, tiled = {}, _pooled._tiled
    for name in wanted or list(networks):
        step = step_of(networks[name].cuda(), x, label, compiled=name == COMPILED)
        # A step is recorded with the kernels that are chosen then.
        _pooled._tiled = tiled if "Paper" in name else lambda x, weight: False
        replays[name] = many(recorded(step))
        # One that fails is known by its name.
        replays[name]()
        torch.cuda.synchronize()
        print(f"recorded: {name}", file=sys.stderr, flush=True)
    _pooled._tiled = tiled
    return replays, step_of(ours.cuda(), x, label, compiled=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", nargs="*", default=[], help="only these, by their names in the table")
    options, _ = parser.parse_known_args()
    if not torch.cuda.is_available():
        print("needs a GPU")
        return
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(0)
    x = torch.rand(IMAGES, 1, 28, 28, device="cuda")
    label = torch.randint(BINS, (IMAGES,), device="cuda")
    replays, ours = recordings(x, label, options.steps)
    times = side_by_side(replays, cuda=True)
    for name, seconds in times.items():
        ratio = f", ratio {times['PaperCNN'] / seconds:.2f}" if "PaperCNN" in times else ""
        print(f"{name:26s} {1e3 * seconds / STEPS:6.2f} ms per step{ratio}", flush=True)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as found:
        for _ in range(3):
            ours()
        torch.cuda.synchronize()
    kernels = [e for e in found.key_averages() if e.device_type == torch.autograd.DeviceType.CUDA]
    print("where PaperCNN's time goes (ms):")
    for event in sorted(kernels, key=lambda e: -e.self_device_time_total)[:16]:
        print(f"  {event.self_device_time_total / 3000:.3f} {event.key[:100]}")


if __name__ == "__main__":
    main()
