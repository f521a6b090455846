"""Harrell's concordance of many rows: ours against lifelines, a Fenwick tree under numba, and three more peers.

Claims: at n = 1e5, 5e5 and 1e6 at least twenty times faster than lifelines and faster than the compiled tree, with
less than 100 MB of extra memory at 1e6. Times are taken in turns in this process on one thread; extra memory is the
largest resident size above that before the call, watched from a thread in a process of its own.
"""

import argparse
import ctypes
import gc
import importlib
import time
import warnings
from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from benchmarks.measure import extra_bytes, side_by_side
from xcal.metrics import concordance_index

Rows = tuple[np.ndarray, np.ndarray, np.ndarray]
Run = Callable[[Rows], float]


def rows(n: int, ties: bool) -> Rows:
    """Draw times, events (about 60 %) and predicted times; with ties, whole days and predictions with two digits."""
    rng = np.random.default_rng(0)
    seen, event = rng.exponential(size=n), rng.random(n) < 0.6
    predicted = seen * rng.lognormal(size=n)
    return (np.ceil(1000 * seen), event, predicted.round(2)) if ties else (seen, event, predicted)


def ours(data: Rows) -> float:
    return concordance_index(time=data[0], event=data[1], predicted_time=data[2]).value


def lifelines() -> Run:
    from lifelines.utils import concordance_index as index

    return lambda data: index(data[0], data[2], data[1])


def fenwick() -> Run:
    """Count by a Fenwick tree of predicted ranks, filled in time order: the textbook O(n log n) loop, compiled."""
    import numba

    @numba.njit
    def count(rank: np.ndarray, group: np.ndarray, event: np.ndarray, size: int) -> tuple[int, int, int]:
        tree = np.zeros(size + 1, dtype=np.int64)
        concordant = tied = comparable = n_before = 0
        start = 0
        while start < rank.size:
            stop = start
            while stop < rank.size and group[stop] == group[start]:
                below, place = 0, rank[stop] - 1
                while place > 0:
                    below += tree[place]
                    place -= place & -place
                up_to, place = 0, rank[stop]
                while place > 0:
                    up_to += tree[place]
                    place -= place & -place
                concordant += below
                tied += up_to - below
                comparable += n_before
                stop += 1
            if event[start]:
                for row in range(start, stop):
                    place = rank[row]
                    while place <= size:
                        tree[place] += 1
                        place += place & -place
                n_before += stop - start
            start = stop
        return concordant, tied, comparable

    def run(data: Rows) -> float:
        seen, happened, predicted = data
        by_score = np.argsort(predicted)
        steps = np.diff(predicted[by_score]) > 0
        rank = np.empty(seen.size, dtype=np.int64)
        rank[by_score] = np.concatenate([[1], 1 + np.cumsum(steps)])
        order = np.lexsort((~happened, seen))
        seen, happened = seen[order], happened[order]
        group = np.concatenate([[0], np.cumsum((np.diff(seen) > 0) | (happened[1:] != happened[:-1]))])
        concordant, tied, comparable = count(rank[order], group, happened, int(rank.max()))
        return (concordant + tied / 2) / comparable

    return run


def scikit_survival() -> Run:
    from sksurv.metrics import concordance_index_censored as index

    return lambda data: index(data[1], data[0], -data[2], tied_tol=0)[0]


def survivaleval() -> Run:
    module = importlib.import_module("SurvivalEVAL.evaluations.discrimination.static.concordance")
    return lambda data: module.concordance(data[2], data[0], data[1], ties="Risk")[0]


def torchsurv() -> Run:
    from torchsurv.metrics.cindex import ConcordanceIndex

    def run(data: Rows) -> float:
        seen, event, predicted = (torch.from_numpy(np.asarray(part)) for part in data)
        return float(ConcordanceIndex(tied_tol=0.0)(-predicted, event, seen, instate=False))

    return run


# Beyond its limit a peer takes minutes for one call, or more memory than a common machine has.
PEERS: dict[str, tuple[Callable[[], Run], int, str]] = {
    "lifelines": (lifelines, 10**8, ""),
    "numba Fenwick tree": (fenwick, 10**8, ""),
    "SurvivalEVAL": (survivaleval, 10**8, ""),
    "scikit-survival": (scikit_survival, 100_000, "its time grows with n^2"),
    "torchsurv": (torchsurv, 20_000, "its time and memory grow with n^2"),
}
FAST = ("ours", "lifelines", "numba Fenwick tree")


def available() -> dict[str, Run]:
    peers = {}
    for name, (load, _, _) in PEERS.items():
        try:
            peers[name] = load()
        except ImportError as error:
            print(f"{name}: not installed ({error}), skipped")
    return peers


def prepare(name: str, n: int, ties: bool) -> Callable[[], float]:
    """Load one of them in a fresh process, warm up, and give freed memory back so that using it again counts."""
    run = ours if name == "ours" else PEERS[name][0]()
    run(rows(100, ties))
    data = rows(n, ties)
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return lambda: run(data)


def table(n: int, ties: bool, peers: dict[str, Run]) -> None:
    data = rows(n, ties)
    runs: dict[str, Run] = {"ours": ours} | {name: run for name, run in peers.items() if n <= PEERS[name][1]}
    if ties:  # the same loops again; the slow peers have been seen
        runs = {name: run for name, run in runs.items() if name in FAST}
    values, taken = {}, {}
    for name, run in runs.items():
        run(rows(100, ties))  # compiles, and imports what is imported late
        start = time.perf_counter()
        values[name] = run(data)
        taken[name] = time.perf_counter() - start
    # What takes a second or more is steady enough to be timed once.
    quick = {name: lambda run=run: run(data) for name, run in runs.items() if taken[name] < 1}
    taken |= side_by_side(quick, rounds=9)
    print(f"\nn = {n:,}, {'ties in time and prediction' if ties else 'no ties'}, C = {values['ours']:.12f}")
    print(f"{'':>20}  {'s':>9}  {'ours is faster by':>17}  {'extra MB':>9}  {'off by':>8}")
    for name, seconds in taken.items():
        extra = extra_bytes(partial(prepare, name, n, ties)) / 1e6
        off = abs(values[name] - values["ours"])
        print(f"{name:>20}  {seconds:>9.4f}  {seconds / taken['ours']:>16.1f}x  {extra:>9.1f}  {off:>8.0e}", flush=True)
    for name in peers:
        if n > PEERS[name][1] and not ties:
            print(f"{name:>20}  not run at this size: {PEERS[name][2]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, nargs="*", default=[10_000, 100_000, 500_000, 1_000_000])
    options, _ = parser.parse_known_args()
    warnings.simplefilter("ignore")  # the peers' own, on stderr between the lines of the table
    torch.set_num_threads(1)
    peers = available()
    for n in options.n:
        for ties in (False, True):
            table(n, ties, peers)


if __name__ == "__main__":
    main()
