"""One training step of the paper's Survival-MNIST network on a GPU: 5,000 images, dropout, TensorFloat-32, recorded.

Claim: at most half the time of torch's own layers, and faster than those layers under torch.compile.

What is left are our own kernels of the second and third convolution, forward and backward, 39 % of the step; no map
is written before it is pooled. The command prints where the time goes. Each kind of step is measured in a process of
its own: recordings of several kinds in one process once ended in a segmentation fault. One that dies is told by name.
"""

import argparse
import subprocess
import sys
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.profiler import ProfilerActivity, profile

from benchmarks.measure import median_seconds, recorded
from xcal_paper import networks as _pooled
from xcal_paper.networks import PaperCNN

IMAGES, BINS, DROPOUT, STEPS = 5000, 50, 0.2, 50
COMPILED, OURS = "torch's layers, compiled", "PaperCNN"


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


KINDS: dict[str, Callable[[], nn.Module]] = {
    OURS: partial(PaperCNN, BINS, dropout=DROPOUT),
    "torch's layers": plain,
    COMPILED: plain,
    "PaperCNN, whole channels": partial(PaperCNN, BINS, dropout=DROPOUT, released_dropout=True),
    "with cuDNN's convolutions": partial(PaperCNN, BINS, dropout=DROPOUT),
    "cuDNN's, whole channels": partial(PaperCNN, BINS, dropout=DROPOUT, released_dropout=True),
}


def measure(name: str) -> None:
    """Print the milliseconds of one kind of step, recorded and replayed; of ours then where they go."""
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(0)
    x = torch.rand(IMAGES, 1, 28, 28, device="cuda")
    label = torch.randint(BINS, (IMAGES,), device="cuda")
    if "cuDNN" in name:
        _pooled._tiled = lambda x, weight: False  # a step is recorded with the kernels that are chosen then
    step = step_of(KINDS[name]().cuda(), x, label, compiled=name == COMPILED)
    replay = recorded(step)

    def run() -> None:
        for _ in range(STEPS):
            replay()

    print(1e3 * median_seconds(run, cuda=True) / STEPS, flush=True)
    if name != OURS:
        return
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as found:
        for _ in range(3):
            step()
        torch.cuda.synchronize()
    kernels = [e for e in found.key_averages() if e.device_type == torch.autograd.DeviceType.CUDA]
    print("where PaperCNN's time goes (ms):")
    for event in sorted(kernels, key=lambda e: -e.self_device_time_total)[:16]:
        print(f"  {event.self_device_time_total / 3000:.3f} {event.key[:100]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", nargs="*", choices=list(KINDS), default=list(KINDS), help="only these")
    parser.add_argument("--here", choices=list(KINDS), help=argparse.SUPPRESS)  # in this process
    options, _ = parser.parse_known_args()
    if not torch.cuda.is_available():
        print("needs a GPU")
        return
    if options.here is not None:
        measure(options.here)
        return
    times, more = {}, ""
    for name in options.steps:
        words = [sys.executable, "-X", "faulthandler", "-m", "benchmarks.convolutions", "--here", name]
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
        first, _, rest = done.stdout.partition("\n")
        if first:
            times[name], more = float(first), more + rest
            ratio = f", {times[OURS] / times[name]:.2f} for PaperCNN in units of it" if OURS in times else ""
            print(f"{name:26s} {times[name]:6.2f} ms per step{ratio}", flush=True)
        if done.returncode:
            print(f"{name:26s} died with status {done.returncode}", flush=True)
    print(more, end="")


if __name__ == "__main__":
    main()
