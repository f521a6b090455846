"""Time and memory, measured the same way everywhere."""

import multiprocessing
import os
import resource
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def users_environment() -> dict[str, str]:
    """Environment of a process that keeps the bytecode of its modules, as a user's does."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def median_seconds(run: Callable[[], Any], *, repeats: int = 7, warmup: int = 2, cuda: bool = False) -> float:
    """Median wall time of `run`, after warming up; on a GPU it is waited for."""
    import torch

    times = []
    for k in range(warmup + repeats):
        if cuda:
            torch.cuda.synchronize()
        start = time.perf_counter()
        run()
        if cuda:
            torch.cuda.synchronize()
        if k >= warmup:
            times.append(time.perf_counter() - start)
    return statistics.median(times)


def side_by_side(runs: dict[str, Callable[[], Any]], *, rounds: int = 5, cuda: bool = False) -> dict[str, float]:
    """Median time of each, taking turns so that a busy machine slows all of them alike."""
    for run in runs.values():
        run()
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            times[name].append(median_seconds(run, repeats=1, warmup=0, cuda=cuda))
    return {name: statistics.median(taken) for name, taken in times.items()}


def recorded(step: Callable[[], Any]) -> Callable[[], None]:
    """Record a step as a CUDA graph, after warming up, and return what replays it.

    What is replayed reads and writes the memory of the step's network and optimiser, which is therefore kept.
    """
    import torch

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()

    def replay(kept: Callable[[], Any] = step) -> None:
        graph.replay()

    return replay


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def _watch(prepare: Callable[..., Callable[[], Any]], args: tuple[Any, ...], out: Any) -> None:
    run = prepare(*args)
    before, peak, done = _resident(), 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.is_set():
            peak = max(peak, _resident())
            time.sleep(0.0005)

    watcher = threading.Thread(target=watch)
    watcher.start()
    run()
    peak = max(peak, _resident())
    done.set()
    watcher.join()
    out.put(max(0, peak - before))


def extra_bytes(prepare: Callable[..., Callable[[], Any]], *args: Any) -> int:
    """Peak resident memory of one run above what its inputs take, sampled each 0.5 ms.

    `prepare` makes the inputs and returns what to run. It is called in a fresh process: one forked from a process that
    has used threads or a GPU may hang.
    """
    context = multiprocessing.get_context("spawn")
    out = context.Queue()
    process = context.Process(target=_watch, args=(prepare, args, out))
    process.start()
    value = int(out.get())
    process.join()
    return value
