"""One training step of the paper's Survival-MNIST network on a GPU: 5,000 images, dropout, TensorFloat-32, recorded.

Claim: at most half the time of torch's own layers, and faster than those layers under torch.compile.

What is left are our own kernels of the second and third convolution, forward and backward, 39 % of the step; no map
is written before it is pooled. The command prints where the time goes.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.profiler import ProfilerActivity, profile

from benchmarks.measure import recorded, side_by_side
from xcal_paper import networks as _pooled
from xcal_paper.networks import PaperCNN

IMAGES, BINS, DROPOUT, STEPS = 5000, 50, 0.2, 50


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


def main() -> None:
    if not torch.cuda.is_available():
        print("needs a GPU")
        return
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(0)
    x = torch.rand(IMAGES, 1, 28, 28, device="cuda")
    label = torch.randint(BINS, (IMAGES,), device="cuda")
    ours = step_of(PaperCNN(BINS, dropout=DROPOUT).cuda(), x, label, compiled=False)
    whole = step_of(PaperCNN(BINS, dropout=DROPOUT, released_dropout=True).cuda(), x, label, compiled=False)
    steps = {
        "torch's layers": step_of(plain().cuda(), x, label, compiled=False),
        "torch's layers, compiled": step_of(plain().cuda(), x, label, compiled=True),
        "PaperCNN": ours,
        "PaperCNN, whole channels": whole,
    }
    replays = {name: many(recorded(step)) for name, step in steps.items()}
    # A step is recorded with the kernels that are chosen then.
    _pooled._tiled = lambda x, weight: False
    for name, released in (("with cuDNN's convolutions", False), ("the same, whole channels", True)):
        network = PaperCNN(BINS, dropout=DROPOUT, released_dropout=released).cuda()
        replays[name] = many(recorded(step_of(network, x, label, compiled=False)))
    times = side_by_side(replays, cuda=True)
    for name, seconds in times.items():
        print(f"{name:26s} {1e3 * seconds / STEPS:6.2f} ms a step, ratio {times['PaperCNN'] / seconds:.2f}")
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
