"""Several processes for a test: started from one server that has imported torch already, as imports take seconds."""

import multiprocessing
import os
import pickle
import tempfile
import time
import traceback
from multiprocessing.connection import wait
from pathlib import Path

import torch
import torch.distributed as dist

_CONTEXT = multiprocessing.get_context("forkserver")
# torch imports its compiler, a second's work, for the first DistributedDataParallel and others of its functions.
_TORCH = ["torch", "torch.distributed", "torch._dynamo"]
_CONTEXT.set_forkserver_preload([*_TORCH, "pytest", "xcal.training", "xcal.networks", "xcal.distributions"])


def together(size, function, *arguments, seconds=240, dies=None):
    """What `function(rank, size, *arguments)` returns on each of `size` processes that know of each other.

    The first error of a process is raised here, with its traceback as its message. A process that is to die returns
    None.
    """
    pipes, processes = [], []
    with tempfile.TemporaryDirectory() as folder:
        for rank in range(size):
            here, there = _CONTEXT.Pipe(duplex=False)
            process = _CONTEXT.Process(target=_one, args=(there, folder, rank, size, function, arguments), daemon=True)
            process.start()
            there.close()
            pipes.append(here)
            processes.append(process)
        try:
            return _answers(pipes, time.monotonic() + seconds, dies)
        finally:
            for process in processes:
                process.join(timeout=5)
                if process.is_alive():
                    process.kill()
                    process.join()


def _answers(pipes, end, dies):
    found = {}
    while len(found) < len(pipes):
        left = [pipe for rank, pipe in enumerate(pipes) if rank not in found]
        ready = wait(left, timeout=max(0.0, end - time.monotonic()))
        assert ready, f"processes {[rank for rank in range(len(pipes)) if rank not in found]} did not answer"
        for pipe in ready:
            rank = pipes.index(pipe)
            try:
                # Plain bytes: torch would hand over shared memory, which ends with its process.
                good, answer = pickle.loads(pipe.recv_bytes())
            except EOFError:
                good, answer = rank == dies, None if rank == dies else f"process {rank} ended without an answer"
            if not good:
                raise RuntimeError(answer)
            found[rank] = answer
    return [found[rank] for rank in range(len(pipes))]


def _one(pipe, folder, rank, size, function, arguments):
    torch.set_num_threads(1)
    # Variables that torchrun would set for others.
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        os.environ.pop(name, None)
    try:
        store = dist.FileStore(str(Path(folder) / "store"), size)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
        pipe.send_bytes(pickle.dumps((True, function(rank, size, *arguments))))
        dist.destroy_process_group()
    except BaseException:
        pipe.send_bytes(pickle.dumps((False, f"process {rank}: {traceback.format_exc()}")))
