"""Checkpoints: tensors only, written whole or not at all."""

import hashlib
import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from xcal._checks import fail
from xcal._files import new_file
from xcal.training.result import Failure
from xcal.training.stack import Stack
from xcal.training.state import RunState

_ADAM = ("step", "exp_avg", "exp_avg_sq")
_DIGEST = "digest"


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
    with new_file(path) as part:
        if find_spec("safetensors") is not None:
            from safetensors.torch import save_file

            save_file(kept, part)
        else:
            torch.save(kept, part)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read what `write_tensors` wrote, in either format; neither can run code."""
    with path.open("rb") as file:
        # torch.save writes a zip archive.
        zipped = file.read(4) == b"PK\x03\x04"
    try:
        loaded: dict[str, Tensor]
        if zipped:
            loaded = torch.load(path, map_location="cpu", weights_only=True)
        else:
            from safetensors.torch import load_file

            loaded = load_file(path)
        found = loaded.pop(_DIGEST, None)
        if found is None or not torch.equal(found, _digest(loaded)):
            raise ValueError("its checksum does not fit its contents")
        return loaded
    # Whatever a broken file makes the two readers raise, the user gets one error that names it.
    except Exception as error:
        raise ValueError(
            f"checkpoint: expected a checkpoint file, got {path}, which cannot be read: {error}"
        ) from error


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
    tensors |= {f"adam.{name}": optimizer.state[stack.flat][name] for name in _ADAM}
    write_tensors(path, tensors)


def read_checkpoint(path: Path, fingerprint: str, stack: Stack, optimizer: torch.optim.Optimizer) -> RunState:
    """Put stack and optimiser where the checkpoint left them, and return the rest of the state."""
    tensors = read_tensors(path)
    if "run.fingerprint" not in tensors:
        fail("checkpoint", "a checkpoint of fit_path", f"{path}, which holds other tensors")
    check_fingerprint(path, bytes(tensors["run.fingerprint"].numpy()).decode(), fingerprint)

    def part(name: str) -> dict[str, Tensor]:
        device = stack.flat.device
        return {k.removeprefix(name): v.to(device) for k, v in tensors.items() if k.startswith(name)}

    stack.load(part("now."))
    adam = part("adam.")
    # A fused step wants its counter where the weights are.
    optimizer.state[stack.flat] = {name: adam[name] for name in _ADAM}
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
    old, new = json.loads(found), json.loads(wanted)
    differing = [name for name in new if old.get(name) != new[name]]
    fail("checkpoint", "a checkpoint of the same run", f"{path}, made with another {', '.join(differing)}")
