"""Checkpoints: tensors only, written whole or not at all.

A file that was damaged, or made by something else, is refused before any of it reaches a model.
"""

import hashlib
import json
import logging
import zipfile
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, distributed

from xcal._checks import fail
from xcal._files import check_writable, reason, write_whole
from xcal._locks import sole_user
from xcal._torch_private import adam_state_names
from xcal.training.result import Failure
from xcal.training.stack import Stack
from xcal.training.state import RunState

_DIGEST = "digest"

_log = logging.getLogger("xcal.training")


def _digest(tensors: dict[str, Tensor]) -> Tensor:
    """Checksum of names and contents: a flipped bit must not become other weights."""
    seen = hashlib.sha256()
    for name in sorted(tensors):
        seen.update(name.encode())
        seen.update(tensors[name].reshape(-1).view(torch.uint8).numpy().tobytes())
    return torch.frombuffer(bytearray(seen.digest()), dtype=torch.uint8).clone()


def write_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write tensors whole or not at all: a reader sees the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = {key: value.detach().cpu().contiguous() for key, value in tensors.items()}
    kept[_DIGEST] = _digest(kept)
    # Into memory first: the writers of both formats make errors of their own out of a full disk.
    if find_spec("safetensors") is not None:
        from safetensors.torch import save

        content = save(kept)
    else:
        buffer = BytesIO()
        torch.save(kept, buffer)
        content = buffer.getvalue()
    write_whole(path, content)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read what `write_tensors` wrote, in either format; neither can run code."""
    with path.open("rb") as file:
        # torch.save writes a zip archive.
        zipped = file.read(4) == b"PK\x03\x04"
    try:
        loaded: dict[str, Tensor]
        if zipped:
            _check_archive(path)
            loaded = torch.load(path, map_location="cpu", weights_only=True)
        else:
            from safetensors.torch import load_file

            loaded = load_file(path)
        # A view can be larger than what it shows, without end.
        if any(not isinstance(values, Tensor) or not values.is_contiguous() for values in loaded.values()):
            raise ValueError("it holds other things than tensors")
        found = loaded.pop(_DIGEST, None)
        if found is None or not torch.equal(found, _digest(loaded)):
            raise ValueError("its checksum does not fit its contents")
        return loaded
    # Whatever a broken file makes the two readers raise, the user gets one error that names it.
    except Exception as error:
        said = " ".join(str(error).split())[:300]
        raise ValueError(f"checkpoint: expected a checkpoint file, got {path}, which cannot be read: {said}") from error


def _check_archive(path: Path) -> None:
    """Refuse a compressed archive: torch writes none, and a small one can grow without end."""
    with zipfile.ZipFile(path) as archive:
        if any(entry.file_size != entry.compress_size for entry in archive.infolist()):
            raise ValueError("it is compressed")


class CheckpointWriter:
    """The checkpoints of one run. A write that fails costs a warning, not the run.

    The next checkpoint tries again. One warning is given for a disk that stays full, and a line of the log when it can
    be written again.
    """

    def __init__(self, path: Path, fingerprint: str) -> None:
        self.path, self.fingerprint, self.failing = path, fingerprint, False

    def write(self, stack: Stack, optimizer: torch.optim.Optimizer, state: RunState) -> None:
        """Write the state, or say that it could not be written."""
        try:
            write_checkpoint(self.path, self.fingerprint, stack, optimizer, state)
        except OSError as error:
            if not self.failing:
                _log.warning(
                    "checkpoint: %s could not be written after epoch %d: %s. Training goes on, and the next checkpoint "
                    "tries again", self.path, state.epoch, reason(error),
                )  # fmt: skip
            self.failing = True
        else:
            if self.failing:
                _log.info("checkpoint: %s was written again, after epoch %d", self.path, state.epoch)
            self.failing = False


def sole_training(folder: Path | None) -> AbstractContextManager[None]:
    """Keep a folder of checkpoints for one run. Of a run on several processes, the first one has it for all."""
    if folder is None or (distributed.is_available() and distributed.is_initialized() and distributed.get_rank() > 0):
        return nullcontext()
    with suppress(OSError):  # said by `check_folder`
        folder.mkdir(parents=True, exist_ok=True)
    return sole_user("checkpoint", folder) if folder.is_dir() else nullcontext()


def check_folder(folder: Path, names: Sequence[str]) -> None:
    """Find out before the first epoch whether checkpoints of these names can be written.

    Where all of them are there already nothing is tried: a finished run can be read from a folder that cannot be
    written to.
    """
    if all((folder / name).exists() for name in names):
        return
    try:
        check_writable(folder)
    except OSError as error:
        message = f"checkpoint: expected a folder that can be written, got {folder}: {reason(error)}"
        raise type(error)(message) from error


def write_checkpoint(
    path: Path, fingerprint: str, stack: Stack, optimizer: torch.optim.Optimizer, state: RunState
) -> None:
    """Write everything that the rest of training depends on."""
    failures = [[f.model, f.epoch, -1 if f.batch is None else f.batch] for f in state.failures]
    history = state.history()
    arrays: dict[str, Any] = {
        "fingerprint": np.frombuffer(fingerprint.encode(), dtype=np.uint8).copy(),
        "epoch": np.array([state.epoch]),
        "failures": np.array(failures, dtype=np.int64).reshape(-1, 3),
        "stopped": state.stopped,
        "best_total": state.best_total,
        "best_epoch": state.best_epoch,
        "lambdas": state.lambdas,
        "best_lambdas": state.best_lambdas,
        "objective": history.objective,
        "dcal": history.dcal,
        "total": history.total,
    }
    tensors = {f"run.{name}": torch.as_tensor(values) for name, values in arrays.items()}
    tensors |= {f"now.{name}": values for name, values in stack.snapshot().items()}
    tensors |= {f"best.{name}": values for name, values in state.best.items()}
    tensors |= {f"adam.{name}": optimizer.state[stack.flat][name] for name in adam_state_names()}
    write_tensors(path, tensors)


def read_checkpoint(
    path: Path,
    fingerprint: str,
    stack: Stack,
    optimizer: torch.optim.Optimizer,
    tensors: dict[str, Tensor] | None = None,
) -> RunState:
    """Put stack and optimiser where the checkpoint left them, and return the rest of the state.

    Another process may have read the `tensors`.
    """
    tensors = read_tensors(path) if tensors is None else tensors
    found = tensors.get("run.fingerprint")
    if found is None or found.dtype != torch.uint8:
        fail("checkpoint", "a checkpoint of fit_path", f"{path}, which holds other tensors")
    check_fingerprint(path, bytes(found.numpy()).decode(errors="replace"), fingerprint)
    _check_tensors(path, tensors, stack)

    def part(name: str) -> dict[str, Tensor]:
        device = stack.flat.device
        return {k.removeprefix(name): v.to(device) for k, v in tensors.items() if k.startswith(name)}

    stack.load(part("now."))
    adam = part("adam.")
    # A fused step wants its counter where the weights are.
    optimizer.state[stack.flat] = {name: adam[name] for name in adam_state_names()}
    run = {k.removeprefix("run."): v.numpy() for k, v in tensors.items() if k.startswith("run.")}
    return RunState(
        best=part("best."),
        best_total=run["best_total"],
        best_epoch=run["best_epoch"],
        stopped=run["stopped"],
        lambdas=run["lambdas"],
        best_lambdas=run["best_lambdas"],
        epoch=int(run["epoch"][0]),
        failures=[Failure(m, e, None if b < 0 else b) for m, e, b in run["failures"].tolist()],
        objective=list(run["objective"]),
        dcal=list(run["dcal"]),
        total=list(run["total"]),
    )


def check_fingerprint(path: Path, found: str, wanted: str) -> None:
    """Refuse to go on with another run's checkpoint, and say in what it differs."""
    if found == wanted:
        return
    try:
        old = json.loads(found)
    except (ValueError, RecursionError):
        old = None
    if not isinstance(old, dict):
        fail("checkpoint", "a checkpoint of fit_path", f"{path}, which does not say what it is of")
    new = json.loads(wanted)
    differing = [_named(name, old.get(name), new[name]) for name in new if old.get(name) != new[name]]
    expected = "a checkpoint of the same run (another folder starts a new one)"
    fail("checkpoint", expected, f"{path}, made with another {', '.join(differing or ['version of xcal'])}")


def _named(name: str, old: Any, new: Any) -> str:
    """Name what differs: of several settings those that do, with what they were."""
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return name
    settings = [f"{key} {old[key]!r}" for key in new if key in old and old[key] != new[key]]
    return f"{name} ({', '.join(settings)})" if settings else name


def _check_tensors(path: Path, tensors: dict[str, Tensor], stack: Stack) -> None:
    """Check that the file has what `write_checkpoint` writes for these models, and nothing else."""
    epoch = tensors.get("run.epoch", torch.tensor([-1]))
    failures = tensors.get("run.failures", torch.empty(0))
    known = epoch.shape == (1,) and epoch.dtype == torch.int64 and failures.ndim == 2
    epochs, n = int(epoch[0]) if known else -1, stack.n_models
    counter, *averages = adam_state_names()
    wanted: dict[str, tuple[torch.dtype, tuple[int, ...]]] = {
        "run.fingerprint": (torch.uint8, tuple(tensors["run.fingerprint"].shape)),
        "run.epoch": (torch.int64, (1,)),
        "run.failures": (torch.int64, (failures.shape[0], 3)),
        "run.stopped": (torch.bool, (n,)),
        "run.best_epoch": (torch.int64, (n,)),
        **{f"run.{name}": (torch.float64, (n,)) for name in ("best_total", "lambdas", "best_lambdas")},
        **{f"run.{name}": (torch.float64, (epochs, n)) for name in ("objective", "dcal", "total")},
        # Its type is torch's default one of when it was written.
        f"adam.{counter}": (torch.float64 if _is_double(tensors.get(f"adam.{counter}")) else torch.float32, ()),
        **{f"adam.{name}": (stack.flat.dtype, tuple(stack.flat.shape)) for name in averages},
    }
    for name, values in stack.snapshot().items():
        wanted |= {f"{when}.{name}": (values.dtype, tuple(values.shape)) for when in ("now", "best")}
    for name in sorted(wanted.keys() | tensors.keys()):
        found = (tensors[name].dtype, tuple(tensors[name].shape)) if name in tensors else None
        if found != wanted.get(name):
            fail("checkpoint", f"{name} to be {_words(wanted.get(name))}", f"{_words(found)} in {path}")
    if epochs < 0 or not ((failures[:, 0] >= 0) & (failures[:, 0] < n)).all():
        fail("checkpoint", f"epochs and failures of {n} models", f"others in {path}")


def _is_double(values: Tensor | None) -> bool:
    return values is not None and values.dtype == torch.float64


def _words(kind: tuple[torch.dtype, tuple[int, ...]] | None) -> str:
    return "nothing" if kind is None else f"{str(kind[0]).removeprefix('torch.')} of shape {kind[1]}"
