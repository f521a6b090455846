"""The penalty, forward and backward: ours against autograd through n x bins arrays.

Claims: on a CPU at n = 1e6 and 20 bins at most 0.5 of the time and 0.25 of the extra memory; on a GPU both again, with
the share of memory bandwidth reached. The least a forward and backward pass must move is 14 bytes a row: F and event
read twice, the gradient written once.
"""

import argparse
from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.measure import extra_bytes, median_seconds, recorded, side_by_side
from xcal import XCALLoss
from xcal.calibration import unchecked_penalty

BYTES_A_ROW = 4 + 1 + 4 + 1 + 4


def naive_paper(u: Tensor, event: Tensor, edges: Tensor) -> Tensor:
    a, b = edges[:-1].clone(), edges[1:].clone()
    width, upper = b - a, b.clone()
    a[0], b[-1] = -1.0, 2.0
    x = u[:, None]
    inside, below = torch.sigmoid(1e4 * (x - a) * (b - x)), torch.sigmoid(1e4 * (a - x))
    later = ((upper - x) * inside + width * below) / (1 - x)
    return (torch.where(event[:, None], inside, later).mean(0) - width).square().sum()


def naive_partition(u: Tensor, event: Tensor, edges: Tensor) -> Tensor:
    x, n_bins = u[:, None], edges.shape[0] - 1
    above = torch.cat([torch.ones_like(x), torch.sigmoid((x - edges[1:-1]) * (2 * n_bins)), torch.zeros_like(x)], 1)
    later = (edges[1:] - torch.maximum(edges[:-1], x)).clamp(min=0) / (1 - x)
    zeta = torch.where(event[:, None], above[:, :-1] - above[:, 1:], later)
    return (zeta.mean(0) - edges.diff()).square().sum()


def rows(n: int, device: str) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    u = torch.rand(n, generator=generator) * 0.999
    return u.to(device).requires_grad_(), (torch.rand(n, generator=generator) < 0.5).to(device)


def step(value: Callable[[Tensor, Tensor], Tensor], u: Tensor, event: Tensor) -> Callable[[], Tensor]:
    return lambda: torch.autograd.grad(value(u, event), u)[0]


def variants(n_bins: int, device: str) -> dict[str, tuple[Callable, Callable]]:
    edges = (torch.arange(n_bins + 1) / n_bins).to(device)
    return {
        "paper": (XCALLoss.paper(n_bins).to(device), lambda u, e: naive_paper(u, e, edges)),
        "default": (XCALLoss(n_bins).to(device), lambda u, e: naive_partition(u, e, edges)),
    }


def cpu_step(n: int, n_bins: int, name: str, which: int) -> Callable[[], Tensor]:
    return step(variants(n_bins, "cpu")[name][which], *rows(n, "cpu"))


def on_cpu(n: int, n_bins: int) -> None:
    print(f"CPU, {torch.get_num_threads()} threads, n = {n:,}, {n_bins} bins, float32, half the rows censored")
    print(f"{'penalty':>9}  {'ours s':>8}  {'naive s':>8}  {'time':>6}  {'ours MB':>8}  {'naive MB':>8}  {'memory':>6}")
    memory = {(name, k): extra_bytes(cpu_step, n, n_bins, name, k) for name in ("paper", "default") for k in (0, 1)}
    for name, (ours, naive) in variants(n_bins, "cpu").items():
        u, event = rows(n, "cpu")
        mine, theirs = step(ours, u, event)(), step(naive, u, event)()
        assert (mine - theirs).norm() < 1e-3 * theirs.norm(), f"{name}: the two gradients differ"
        taken = side_by_side({"ours": step(ours, u, event), "naive": step(naive, u, event)})
        mine, theirs = memory[name, 0], memory[name, 1]
        print(
            f"{name:>9}  {taken['ours']:>8.4f}  {taken['naive']:>8.4f}  {taken['ours'] / taken['naive']:>6.2f}"
            f"  {mine / 1e6:>8.1f}  {theirs / 1e6:>8.1f}  {mine / theirs:>6.2f}"
        )


def copy_bandwidth() -> float:
    """Bytes a second of a large copy on the GPU, read and written."""
    source = torch.empty(1 << 29, device="cuda", dtype=torch.uint8).random_()
    target = torch.empty_like(source)
    return 2 * source.numel() / median_seconds(lambda: target.copy_(source), cuda=True)


def gpu_bytes(run: Callable[[], Tensor]) -> int:
    run()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def captured(loss: XCALLoss, u: Tensor, event: Tensor) -> Callable[[], None]:
    """Capture the same step as a CUDA graph, as a training loop runs it: no Python, no look at the values."""
    return recorded(step(lambda x, e: unchecked_penalty(x, e, loss.edges, loss.spec), u, event))


def on_gpu(n: int, n_bins: int) -> None:
    bandwidth = copy_bandwidth()
    print(
        f"{torch.cuda.get_device_name()}, n = {n:,}, {n_bins} bins, float32; a copy moves {bandwidth / 1e12:.2f} TB/s"
    )
    print(f"{'penalty':>9}  {'how':>10}  {'ms':>8}  {'time':>6}  {'MB':>8}  {'memory':>6}  {'of bandwidth':>12}")
    for name, (ours, naive) in variants(n_bins, "cuda").items():
        u, event = rows(n, "cuda")
        compiled = torch.compile(ours, fullgraph=True)
        runs = {
            "naive": step(naive, u, event),
            "eager": step(ours, u, event),
            "compiled": step(compiled, u, event),
            "CUDA graph": captured(ours, u, event),
        }
        taken = {key: median_seconds(run, repeats=50, warmup=10, cuda=True) for key, run in runs.items()}
        # A graph keeps its memory for itself; what it allocates once is that of the eager step.
        memory = {key: gpu_bytes(runs["eager" if key == "CUDA graph" else key]) for key in runs}
        for key in runs:
            share = BYTES_A_ROW * n / taken[key] / bandwidth
            print(
                f"{name:>9}  {key:>10}  {1e3 * taken[key]:>8.3f}  {taken[key] / taken['naive']:>6.3f}"
                f"  {memory[key] / 1e6:>8.1f}  {memory[key] / memory['naive']:>6.3f}  {share:>12.1%}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=1_000_000)
    parser.add_argument("--bins", type=int, default=20)
    parser.add_argument("--device", choices=["cpu", "cuda"], help="only this one; both where there is a GPU")
    options, _ = parser.parse_known_args()
    if options.device != "cuda":
        on_cpu(options.n, options.bins)
    if torch.cuda.is_available() and options.device != "cpu":
        on_gpu(options.n, options.bins)
        on_gpu(32 * options.n, options.bins)


if __name__ == "__main__":
    main()
