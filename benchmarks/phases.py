"""Where the time of a table goes, phase by phase.

Claim: none. Each job of a table is trained in this process, and a GPU is waited for at the end of every phase, so that
the sum is somewhat more than what `xcal reproduce` takes. "recording" is that of the first step on a GPU, with Triton's
compiler; "choosing" that of the best epoch; "testing" all figures of a record. The rest is making networks and copies.

    python -m benchmarks.phases --epochs appendix
    python -m benchmarks.phases --models mtlr-i --epochs 2 --device cpu
"""

import argparse
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch

from xcal.training.loop import Steps
from xcal.training.problem import Problem
from xcal.training.result import RunState
from xcal_paper import reproduce
from xcal_paper.jobs import JobRecords
from xcal_paper.runner import TableRuns

PHASES = {
    "loading": (TableRuns, "load"),
    "recording": (Steps, "begin"),
    "training": (Steps, "run"),
    "validation": (Problem, "validate"),
    "choosing": (RunState, "choose"),
    "testing": (JobRecords, "_measure"),
}
taken: dict[str, float] = defaultdict(float)


def waited() -> float:
    """Time of the clock once the GPU has nothing left to do."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def timed(phase: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """Add the seconds of a method to its phase."""

    @wraps(method)
    def run(*given: Any, **named: Any) -> Any:
        start = waited()
        try:
            return method(*given, **named)
        finally:
            taken[phase] += waited() - start

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="*", default=["gamma-censored"])
    parser.add_argument("--models", nargs="*", default=["lognormal-nll", "lognormal-scrps", "categorical-i", "mtlr-i"])
    parser.add_argument("--epochs", default="2", help="a number, or the name of a trial")
    parser.add_argument("--device")
    options, _ = parser.parse_known_args()
    for phase, (owner, name) in PHASES.items():
        setattr(owner, name, timed(phase, getattr(owner, name)))
    epochs = int(options.epochs) if options.epochs.isdigit() else options.epochs
    print(f"{'seconds':32s}{'all':>8s}" + "".join(f"{phase:>13s}" for phase in (*PHASES, "rest")))
    for table in options.tables:
        for model in options.models:
            with tempfile.TemporaryDirectory() as folder:
                taken.clear()
                start = waited()
                reproduce(table, models=[model], epochs=epochs, device=options.device, results=folder, progress=False)
                whole = waited() - start
            own = [taken[phase] for phase in PHASES]
            shown = "".join(f"{seconds:13.2f}" for seconds in (*own, whole - sum(own)))
            print(f"{table + ', ' + model:32s}{whole:8.2f}{shown}", flush=True)


if __name__ == "__main__":
    main()
