"""Pieces of work side by side: in processes of this machine, or on a Ray cluster."""

import contextlib
import os
import pickle
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing import connection, get_context, parent_process
from typing import Any, Generic, Literal, Self, TypeVar, get_args

from xcal._checks import as_choice

# --- Where the pieces of a sweep are computed: here one after another, or on the machines of a Ray cluster.
# A piece of work is a function of two arguments, what all pieces share and what is its own. It must not write
# anything: results come back to the one process that asked for them, and that one writes them. So nothing is written
# twice, whichever machine dies and however often a piece is computed again.

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
    """Return whether the cluster that is connected has a GPU."""
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


# --- Pieces of work side by side, in processes of this machine.
# The first process hands out the pieces, one at a time to each process, and gets the results: what is written, it
# writes. Processes are started anew, not forked: torch's threads and a GPU's state do not survive a fork. Each has a
# pipe of its own to the first process, so that one that dies is known by name and disturbs no other on its way.
# joblib's processes would be less code here, but have no way to report progress and leave Ctrl-C to every process.

_Common = TypeVar("_Common")
Report = Callable[[int], None]  # is told what a piece has come forward by since the last time
Work = Callable[[_Common, _Task, Report], _Result]

# A process that has ended its work gets so many seconds for its own end.
_PATIENCE = 10.0


@dataclass(frozen=True)
class _SharedValue:
    value: Any


@dataclass(frozen=True)
class _Progress:
    amount: int


@dataclass(frozen=True)
class _Done:
    result: Any


@dataclass(frozen=True)
class _Failed:
    error: Exception


class WorkerProcesses(Generic[_Common, _Task, _Result]):
    """Processes that do pieces of work; they start when the block begins, and have ended when it is left.

    They are kept between several calls of `results`: starting one takes seconds, in which it imports torch.

    Parameters
    ----------
    work
        A function of a module, which the processes can import.
    count
        Processes.
    threads
        torch's threads in each of them; None for work that has nothing to do with torch.
    """

    def __init__(self, work: Work[_Common, _Task, _Result], count: int, *, threads: int | None) -> None:
        self.work, self.count, self.threads = work, count, threads
        self._processes: dict[Any, Any] = {}  # by their pipes
        self._at_work: dict[Any, int] = {}  # numbers of tasks, by pipes

    def __enter__(self) -> Self:
        context = get_context("spawn")
        # Ctrl-C reaches all processes of a terminal; it is for the first one, from the others' very start.
        with _interrupts_ignored():
            for _ in range(self.count):
                here, there = context.Pipe()
                process = context.Process(target=_serve, args=(there, self.work, self.threads), daemon=True)
                process.start()
                there.close()
                self._processes[here] = process
        return self

    def __exit__(self, *_: object) -> None:
        """Let the processes end. One that still has work, after an error or an interruption, is not waited for."""
        for pipe, process in self._processes.items():
            pipe.close()  # by which a process that waits knows that there is no more
            if pipe in self._at_work:
                process.terminate()
        for process in self._processes.values():
            process.join(_PATIENCE)
            if process.is_alive():
                process.kill()
                process.join()

    def results(self, shared: _Common, tasks: Sequence[_Task], report: Report) -> Generator[tuple[int, _Result]]:
        """Yield the number of each task and its result, as they are done. Tasks begin in the order given.

        `report` is called here with every progress that a piece tells. An error in `work` is raised here as it was
        raised there, with the traceback as its note; what else was done at that moment comes first.

        Raises
        ------
        ChildProcessError
            Where a process died.
        """
        waiting = deque(enumerate(tasks))

        def begin(pipe: Any, *before: Any) -> None:
            if waiting:
                number, task = waiting.popleft()
                self._at_work[pipe] = number
                # A process that is dead already is noticed when its answer is waited for.
                with contextlib.suppress(OSError):
                    for message in (*before, task):
                        pipe.send(message)

        for pipe in self._processes:
            begin(pipe, _SharedValue(shared))
        while self._at_work:
            answers = [(pipe, self._answer(pipe)) for pipe in connection.wait(list(self._at_work))]
            for pipe, answer in sorted(answers, key=lambda pair: isinstance(pair[1], _Failed)):
                if isinstance(answer, _Progress):
                    report(answer.amount)
                    continue
                number = self._at_work.pop(pipe)
                if isinstance(answer, _Failed):
                    raise answer.error
                begin(pipe)
                yield number, answer.result

    def _answer(self, pipe: Any) -> _Progress | _Done | _Failed:
        try:
            answer: _Progress | _Done | _Failed = pipe.recv()
        except (EOFError, OSError):
            process = self._processes[pipe]
            process.join(_PATIENCE)
            return _Failed(ChildProcessError(_death(process.pid, process.exitcode)))
        return answer


def _death(number: int, code: int | None) -> str:
    named = code is not None and -code in set(signal.Signals)
    how = f"by {signal.Signals(-(code or 0)).name}" if named else f"with exit code {code}"
    return (
        f"worker process {number} died {how} (no memory left? try fewer --processes): what is finished is kept, run "
        "the same command again to resume"
    )


@contextlib.contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Ignore Ctrl-C for a moment; processes that are started meanwhile ignore it for good."""
    if threading.current_thread() is not threading.main_thread():  # others may not say what a signal does
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _serve(pipe: Any, work: Work[Any, Any, Any], threads: int | None) -> None:
    """Do what comes through the pipe, until it is closed."""
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if threads is not None:
        import torch

        torch.set_num_threads(threads)
    shared = None
    with contextlib.suppress(EOFError):
        while True:
            message = pipe.recv()
            if isinstance(message, _SharedValue):
                shared = message.value
            else:
                pipe.send(_outcome(work, shared, message, lambda amount: pipe.send(_Progress(amount))))


def _outcome(work: Work[Any, Any, Any], shared: Any, task: Any, report: Report) -> _Done | _Failed:
    try:
        return _Done(work(shared, task, report))
    except Exception as error:  # whatever it is: it is raised again in the first process
        told = traceback.format_exc()
        error.add_note(f"In a worker process:\n{told}")
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:  # an error with arguments of its own kind may not survive the way
            return _Failed(RuntimeError(told))
        return _Failed(error)


def end_with_parent() -> None:
    """End this process when the one that started it ends, even if that is killed."""
    first = parent_process()
    assert first is not None

    def watch() -> None:
        connection.wait([first.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
