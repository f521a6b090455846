"""Good files of every format that is read, for `tests.fuzz` to cut, flip and forge."""

import gzip
import io
import json
import lzma
import os
import struct
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import torch

import xcal
from tests.faults.victims import train
from tests.fuzz.functions import rows
from tests.fuzz.mimic import mimic_targets
from tests.fuzz.outcomes import Target
from tests.fuzz.spoiling import Table
from tests.small_table import small_table
from xcal import data
from xcal.tuning import Trial, read_trials
from xcal_paper import Record, RecordFile, load_spec

HERE = "@folder@"  # stands for the folder of the files, which has another name each time


def file_targets(folder: Path) -> Iterator[Target]:
    """Return the readers of all formats; the name of the file, or of the argument, must be in a refusal."""
    r = rows()
    y = data.Surv(time=r["time"], event=r["event"])
    yield from _models(folder, r, y)
    yield from _records(folder)
    yield from _tables(folder, r)
    if find_spec("tqdm") is None:
        print("folders of predictions: left out, as tqdm is not installed")
    else:
        yield from _folders(folder, r)
    yield from _data_files()
    yield from mimic_targets(folder)


def _reader(folder: Path, name: str, read: Callable[[Path], Any], content: bytes, *words: str, slow: int = 1) -> Target:
    path = folder / name

    def call(content: bytes) -> Any:
        path.write_bytes(content)
        return read(path)

    return Target(f"file: {name}", call, {"content": content}, names=frozenset({str(path), name, *words}), slow=slow)


def _models(folder: Path, r: dict[str, Any], y: Any) -> Iterator[Target]:
    options: dict[str, Any] = {"epochs": 1, "hidden": (2,), "n_time_bins": 3, "calibration_bins": 3, "random_state": 0}
    model = xcal.SurvivalModel(**options).fit(r["X"], y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # so few rows cannot be judged
        path = xcal.SurvivalPath((0, 10), 1, cross_fit=0, **options).fit(r["X"], y)
        recalibrated = xcal.Recalibrated(model).fit(r["X"], y)
    for name, fitted in (("model", model), ("path", path), ("recalibrated", recalibrated)):
        file = folder / f"{name}.safetensors"
        fitted.save(file)
        # Both before the first of them writes to the file.
        yield from (
            _reader(folder, file.name, xcal.load, file.read_bytes(), "path", slow=2),
            _forged(folder, name, file),
        )
    checkpoints = folder / "checkpoints"
    train(checkpoints)
    content = (checkpoints / "path.ckpt").read_bytes()

    def resumed(path: Path) -> None:
        path.replace(checkpoints / "path.ckpt")
        train(checkpoints)

    yield _reader(folder, "path.ckpt", resumed, content, "checkpoint", slow=8)
    from xcal.training.checkpoint import _digest, read_tensors

    tensors = {"weights": torch.zeros(3)}
    torch.save(tensors | {"digest": _digest(tensors)}, folder / "old.ckpt")

    yield _reader(folder, "old.ckpt", read_tensors, (folder / "old.ckpt").read_bytes(), "checkpoint")


def _forged(folder: Path, name: str, file: Path) -> Target:
    """Return the reader of a file whose header was spoilt and whose checksum is right."""
    from safetensors import safe_open
    from safetensors.torch import save

    from xcal.estimators import persistence
    from xcal.recalibration import estimator as saving

    with safe_open(file, framework="pt") as opened:
        metadata = opened.metadata()
        # A tensor may be the file itself, which other inputs will overwrite.
        tensors = {key: opened.get_tensor(key).clone() for key in opened.keys()}  # noqa: SIM118, not a dict

    def read(path: Path) -> Any:
        header = path.read_bytes().decode(errors="replace")
        inside = tensors["model"].numpy() if name == "recalibrated" else None
        digest = persistence._digest(header, tensors) if inside is None else saving._digest(header, inside)
        path.write_bytes(save(tensors, metadata | {"header": header, "digest": digest}))
        return xcal.load(path)

    return _reader(folder, f"{name}, forged header", read, metadata["header"].encode(), "path", slow=2)


def _records(folder: Path) -> Iterator[Target]:
    record = Record("t", "as-published", "paper", "m", 0.0, 0, "h", "d", 1, 0, {"nll": 1.0}, {"dcal": 0.1})
    lines = "".join(replace(record, seed=seed).line() + "\n" for seed in range(4))
    yield _reader(folder, "records.jsonl", lambda path: RecordFile(path).read(), lines.encode(), "results")
    trial = "".join(Trial("s", number, {"dropout": 0.1}, 0.2, (0.2,), (0.0,)).line() + "\n" for number in range(3))
    yield _reader(folder, "trials.jsonl", lambda path: read_trials(path, "s"), trial.encode(), "records")
    spec = small_table(n=100, epochs=1)
    yield _reader(folder, "spec.toml", load_spec, spec.encode(), "table")


def _tables(folder: Path, r: dict[str, Any]) -> Iterator[Target]:
    from xcal.cli.run_folder import FitSettings, read_config, write_config
    from xcal.cli.table_file import read_table_file

    frame = pd.DataFrame({"t": r["time"], "e": r["event"].astype(int), "s_1": r["survival"][:, 0], "word": "a"})

    def audited(path: Path) -> Any:
        table = read_table_file(path)
        time, event = table.times("t", "--time"), table.events("e", "--event")
        shares = np.stack([table.shares("s_1", "--curves")] * 2, axis=1)
        return xcal.audit(
            y=data.Surv(time=time, event=event), survival=shares, times=[0.5, 1.0], n_bootstrap=0, progress=False
        ).data.n

    words = ("--time", "--event", "--curves", "y", "time", "event", "survival", "horizons")
    csv = Table(frame.to_csv(index=False).encode())
    yield _reader(folder, "predictions.csv", audited, csv, *words, slow=2)
    yield _reader(folder, "predictions.csv.gz", audited, gzip.compress(csv, mtime=0), *words, slow=2)
    frame.to_parquet(folder / "predictions.parquet")
    packed = (folder / "predictions.parquet").read_bytes()
    yield _reader(folder, "predictions.parquet", audited, packed, *words, slow=2)

    def mapped(path: Path) -> Any:
        found = data.map_parquet(path, time="t", event="e", into=folder / "features.npy", features=["s_1"])
        return found.n

    yield _reader(folder, "rows.parquet", mapped, packed, "path", "time", "event", "features", "s_1", "t", "e")
    (folder / "patients.csv").write_bytes(csv)
    config = write_config(FitSettings(data=str(folder / "patients.csv"), time="t", event="e"))

    def configured(path: Path) -> Any:
        path.write_bytes(path.read_bytes().replace(HERE.encode(), str(folder).encode()))
        return read_config(path)

    yield _reader(folder, "config.toml", configured, config.replace(str(folder), HERE).encode(), "--config")


def _folders(folder: Path, r: dict[str, Any]) -> Iterator[Target]:
    """Return what a folder holds beside tables: parts of predictions, those that are done, the summary of a run."""
    from xcal.cli.run_folder import SUMMARY, read_summary
    from xcal.outofcore import evaluate_folder
    from xcal.outofcore.evaluation import SideFile

    parts, out = folder / "parts", folder / "metrics.json"
    parts.mkdir()
    frame = pd.DataFrame({name: r[name] for name in ("time", "event", "risk", "cdf")} | {"S_1": r["survival"][:, 0]})
    frame.to_parquet(parts / "part-0.parquet")
    os.utime(parts / "part-0.parquet", (0, 0))
    with mock.patch.object(SideFile, "remove"):
        whole = evaluate_folder(parts, out).to_json()
    side = out.with_name(f"{out.name}.resume")
    # numpy keeps text in four bytes per letter.
    name, placeholder = (text.encode("utf-32-le") for text in (str(folder), "@" * len(str(folder))))
    kept = side.read_bytes()

    def resumed(path: Path) -> Any:
        side.write_bytes(path.read_bytes().replace(placeholder, name))
        # A damaged file is counted anew; it must never give other metrics.
        if evaluate_folder(parts, out).to_json() != whole:
            raise AssertionError("other metrics")

    def forged(path: Path) -> Any:
        header = path.read_bytes().decode(errors="replace").replace(HERE, str(folder))
        with np.load(io.BytesIO(kept)) as stored:
            arrays = dict(stored) | {"header": np.array(header)}
        with path.open("wb") as file:
            np.savez(file, **arrays)
        return resumed(path)

    def evaluated(path: Path) -> Any:
        (folder / "spoilt").mkdir(exist_ok=True)
        path.replace(folder / "spoilt" / "part-0.parquet")
        return evaluate_folder(folder / "spoilt", folder / "spoilt.json")

    with np.load(io.BytesIO(kept)) as stored:
        header = str(stored["header"]).replace(str(folder), HERE).encode()
    words = (str(side), side.name)
    yield _reader(folder, "metrics.json.resume", resumed, kept.replace(name, placeholder), *words)
    yield _reader(folder, "metrics.json.resume, forged header", forged, header, *words)
    content = (parts / "part-0.parquet").read_bytes()
    columns = ("part-0.parquet", str(folder / "spoilt"), "time", "event", "risk", "cdf", "horizons")
    yield _reader(folder, "part-0.parquet", evaluated, content, *columns, slow=2)
    summary = _reader(folder, SUMMARY, lambda path: read_summary(path.parent), b'{"chosen": {"lambda": 10}, "n": 3}')
    yield replace(summary, nan=frozenset("*"))  # what the file says


def _data_files() -> Iterator[Target]:
    from xcal.datasets import parse_hdf5, parse_table
    from xcal_paper.glioma import read_string_frame
    from xcal_paper.mimic3.preparation import FORMAT
    from xcal_paper.simulated import parse_idx

    def packed(raw: bytes, pack: Callable[[bytes], bytes], read: Callable[[bytes], Any]) -> Callable[..., Any]:
        """Read what was spoilt before it was packed, and sometimes what was spoilt after."""
        return lambda content: read(pack(content) if content[:1] == raw[:1] else content)

    idx = bytes([0, 0, 8, 3]) + struct.pack(">iii", 2, 3, 4) + bytes(24)
    yield Target(
        "file: IDX",
        packed(idx, gzip.compress, lambda content: parse_idx("images", content, 3)),
        {"content": idx},
        frozenset({"images"}),
    )
    frame = b"RDX2\nX\n" + struct.pack(">iii", 2, 0, 0) + _r_frame({"time": ["1", "2"], "event": ["0", "1"]})
    yield Target(
        "file: rda",
        packed(frame, lzma.compress, lambda content: read_string_frame("glioma", content)),
        {"content": frame},
        frozenset({"glioma"}),
    )
    table = b"x0,x1,time,event\n" + b"".join(b"%d,0.5,%d,1\n" % (k, k + 1) for k in range(5))
    yield Target("file: benchmark CSV", lambda content: parse_table("METABRIC", content), {"content": table},
                 frozenset({"METABRIC"}))  # fmt: skip
    yield Target("file: benchmark HDF5", lambda content: parse_hdf5("METABRIC", content), {"content": _hdf5()},
                 frozenset({"METABRIC"}), needs="h5py")  # fmt: skip
    yield Target(
        "file: list of test subjects", _subjects, {"content": b"17,1\n18,0\n19,0\n"}, frozenset({"subjects.csv"})
    )
    text = json.dumps({"format": FORMAT, "steps": {}, "settings": {}}).encode()
    yield Target("file: manifest of a prepared folder", _manifest, {"content": text}, frozenset({"folder", "manifest"}))


def _hdf5() -> bytes:
    """Return a file of the published form; nothing where the package is missing."""
    if find_spec("h5py") is None:
        return b""
    h5py: Any = import_module("h5py")
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        for part in ("train", "test"):
            group = file.create_group(part)
            group["x"], group["t"], group["e"] = np.ones((3, 2)), np.arange(1.0, 4.0), np.array([0, 1, 1])
    return buffer.getvalue()


def _subjects(content: bytes) -> Any:
    import tempfile

    from xcal_paper.mimic3.steps import read_test_subjects

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "subjects.csv"
        path.write_bytes(content)
        return read_test_subjects(path)


def _manifest(content: bytes) -> Any:
    import tempfile

    from xcal_paper.mimic3.preparation import NAME, read_manifest

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / NAME).write_bytes(content)
        try:
            return read_manifest(Path(folder))
        except ValueError as error:
            raise ValueError(str(error).replace(folder, "folder ")) from error


def _r_frame(columns: dict[str, list[str]]) -> bytes:
    """Write a data frame of strings as R does: a list of one name and value."""

    def char(text: str) -> bytes:
        return struct.pack(">ii", 9, len(text)) + text.encode()

    def strings(values: list[str], flags: int = 16) -> bytes:
        return struct.pack(">ii", flags, len(values)) + b"".join(map(char, values))

    def symbol(text: str) -> bytes:
        return struct.pack(">i", 1) + char(text)

    end = struct.pack(">i", 254)
    body = struct.pack(">ii", 19 | 1 << 9, len(columns)) + b"".join(map(strings, columns.values()))
    attributes = struct.pack(">i", 2 | 1 << 10) + symbol("names") + strings(list(columns)) + end
    return struct.pack(">i", 2 | 1 << 10) + symbol("frame") + body + attributes + end
