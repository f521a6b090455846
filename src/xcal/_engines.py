"""Where the pieces of a sweep are computed: here one after another, or on the machines of a Ray cluster.

A piece of work is a function of two arguments, what all pieces share and what is its own. It must not write anything:
results come back to the one process that asked for them, and that one writes them. So nothing is written twice,
whichever machine dies and however often a piece is computed again.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Literal, TypeVar, get_args

from xcal._checks import as_choice

Engine = Literal["local", "ray"]
_Shared = TypeVar("_Shared")
_Task = TypeVar("_Task")
_Result = TypeVar("_Result")

# So often a piece is computed again whose process died under it. A piece that kills every process must end some time.
RETRIES = 10
# And so often a cluster on this machine is started.
STARTS = 3


class LostWorkError(OSError):
    """A piece of work whose process died every time."""


def as_engine(engine: Any) -> Engine:
    """Check the name of an engine, and that what it needs is installed."""
    chosen: Engine = as_choice("engine", engine, get_args(Engine))
    if chosen == "ray":
        _ray()
    return chosen


def results(
    engine: Engine,
    work: Callable[[_Shared, _Task], _Result],
    shared: _Shared,
    tasks: Sequence[_Task],
    *,
    gpus: int = 0,
) -> Iterator[tuple[int, _Result]]:
    """Yield the number of each task and its result, as they are done.

    Closing the iterator, or an error, gives up what is not done yet. An error in `work` is raised here as it was
    raised there.

    Parameters
    ----------
    work
        A function of a module, which the other processes can import.
    gpus : int
        GPUs that Ray gives to each task.
    """
    if engine == "local":
        yield from ((number, work(shared, task)) for number, task in enumerate(tasks))
        return
    with ExitStack() as at_the_end:
        ray = at_the_end.enter_context(cluster())
        remote = ray.remote(max_retries=RETRIES, num_cpus=1, num_gpus=gpus)(work)
        common = ray.put(shared)
        waiting = {remote.remote(common, task): number for number, task in enumerate(tasks)}
        at_the_end.callback(_give_up, ray, waiting)
        while waiting:
            done, _ = ray.wait(list(waiting), num_returns=1)
            result = _received(ray, done[0])
            yield waiting.pop(done[0]), result


@contextmanager
def cluster() -> Iterator[Any]:
    """Yield the module ray, connected: to what the caller has connected to, to ``RAY_ADDRESS``, or to this machine."""
    ray = _ray()
    if ray.is_initialized():
        yield ray
        return
    _connect(ray, os.environ.get("RAY_ADDRESS"))
    try:
        yield ray
    finally:
        ray.shutdown()


def _connect(ray: Any, address: str | None) -> None:
    """Connect to a cluster, or start one here. A machine that is busy may need another attempt."""
    where: dict[str, Any] = {"address": address} if address else {"address": "local", "include_dashboard": False}
    if not address:
        # Nothing of a small local cluster is told to anybody, unless the user wants it to be.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    for left in reversed(range(1 if address else STARTS)):
        try:
            ray.init(**where, log_to_driver=False, logging_level="ERROR")
        except Exception as error:  # of many kinds, a plain Exception for a node that takes too long
            ray.shutdown()
            if not left:
                said = " ".join(str(error).split())[:300]
                raise LostWorkError(
                    f"engine: expected Ray {_at(address)}, got {type(error).__name__}: {said}"
                ) from error
        else:
            return


def _at(address: str | None) -> str:
    return f"at RAY_ADDRESS={address}" if address else "to start on this machine"


def has_gpus() -> bool:
    """Whether the cluster that is connected has a GPU."""
    return bool(_ray().cluster_resources().get("GPU", 0))


def _received(ray: Any, reference: Any) -> Any:
    """Wait for a result; an error of the work itself is raised as it was there."""
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, Exception):
            raise error.cause from error
        raise LostWorkError(f"engine: expected a result, got an error on another machine: {error}") from error
    except ray.exceptions.RayError as error:
        said = " ".join(str(error).split()) or type(error).__name__
        raise LostWorkError(
            f"engine: expected a result, got a process that died each of {RETRIES + 1} times: {said[:300]} "
            "(what was finished is recorded; run the same again to resume)"
        ) from error


def _give_up(ray: Any, waiting: dict[Any, int]) -> None:
    for reference in waiting:
        ray.cancel(reference, force=True)


def _ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise ImportError('engine: "ray" needs Ray: pip install "xcal[ray]"') from error
    return ray
