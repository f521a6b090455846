"""Good files of every format that is read, for `benchmarks.fuzz` to cut, flip and forge."""

import gzip
import json
import lzma
import struct
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

import xcal
from benchmarks._fuzz_functions import rows
from benchmarks._small_table import small_table
from benchmarks._victims import train
from benchmarks.fuzz import Target
from xcal import data
from xcal.experiments import Record, RecordFile, load_spec
from xcal.tuning.trials import Trial, TrialFile


def file_targets(folder: Path) -> Iterator[Target]:
    """Give the readers of all formats; the name of the file, or of the argument, must be in a refusal."""
    r = rows()
    y = data.Surv(time=r["time"], event=r["event"])
    yield from _models(folder, r, y)
    yield from _records(folder)
    yield from _tables(folder, r)
    yield from _data_files()


def _reader(folder: Path, name: str, read: Callable[[Path], Any], content: bytes, *words: str, slow: int = 1) -> Target:
    path = folder / name

    def call(content: bytes) -> Any:
        path.write_bytes(content)
        return read(path)

    return Target(f"file: {name}", call, {"content": content}, names=frozenset({str(path), name, *words}), slow=slow)


def _models(folder: Path, r: dict[str, Any], y: Any) -> Iterator[Target]:
    options: dict[str, Any] = {"epochs": 1, "hidden": (2,), "n_time_bins": 3, "calibration_bins": 3}
    model = xcal.SurvivalModel(**options).fit(r["X"], y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # so few rows cannot be judged
        path = xcal.SurvivalPath((0, 10), 1, cross_fit=0, **options).fit(r["X"], y)
    for name, fitted in (("model.safetensors", model), ("path.safetensors", path)):
        fitted.save(folder / name)
        yield _reader(folder, name, xcal.load, (folder / name).read_bytes(), "path", slow=2)
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


def _records(folder: Path) -> Iterator[Target]:
    record = Record("t", "as-published", "paper", "m", 0.0, 0, "h", "d", 1, 0, {"nll": 1.0}, {"dcal": 0.1})
    lines = "".join(replace(record, seed=seed).line() + "\n" for seed in range(4))
    yield _reader(folder, "records.jsonl", lambda path: RecordFile(path).read(), lines.encode(), "results")
    trial = "".join(Trial("s", number, {"dropout": 0.1}, 0.2, (0.2,), (0.0,)).line() + "\n" for number in range(3))
    yield _reader(folder, "trials.jsonl", lambda path: TrialFile(path).read("s"), trial.encode(), "records")
    spec = small_table(n=100, epochs=1)
    yield _reader(folder, "spec.toml", load_spec, spec.encode(), "table")


def _tables(folder: Path, r: dict[str, Any]) -> Iterator[Target]:
    from xcal.cli.table_file import read_table_file
    from xcal.cli.workflow.settings import FitSettings, read_config, write_config

    frame = pd.DataFrame({"t": r["time"], "e": r["event"].astype(int), "s_1": r["survival"][:, 0], "word": "a"})

    def audited(path: Path) -> Any:
        table = read_table_file(path)
        time, event = table.times("t", "--time"), table.events("e", "--event")
        shares = np.stack([table.shares("s_1", "--curves")] * 2, axis=1)
        return xcal.audit(
            y=data.Surv(time=time, event=event), survival=shares, times=[0.5, 1.0], n_bootstrap=0, progress=False
        ).data.n

    words = ("--time", "--event", "--curves", "y", "time", "event", "survival", "horizons")
    csv = frame.to_csv(index=False).encode()
    yield _reader(folder, "predictions.csv", audited, csv, *words, slow=2)
    yield _reader(folder, "predictions.csv.gz", audited, gzip.compress(csv), *words, slow=2)
    frame.to_parquet(folder / "predictions.parquet")
    packed = (folder / "predictions.parquet").read_bytes()
    yield _reader(folder, "predictions.parquet", audited, packed, *words, slow=2)

    def mapped(path: Path) -> Any:
        found = data.map_parquet(path, time="t", event="e", into=folder / "features.npy", features=["s_1"])
        return found.n

    yield _reader(folder, "rows.parquet", mapped, packed, "path", "time", "event", "features", "s_1", "t", "e")
    (folder / "patients.csv").write_bytes(csv)
    config = write_config(FitSettings(data=str(folder / "patients.csv"), time="t", event="e")).encode()
    yield _reader(folder, "config.toml", read_config, config, "--config")


def _data_files() -> Iterator[Target]:
    from xcal.datasets.benchmarks import parse_table
    from xcal.datasets.mimic3.manifest import FORMAT
    from xcal.datasets.mnist import parse_idx
    from xcal.datasets.rda import read_string_frame

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
    text = json.dumps({"format": FORMAT, "steps": {}, "settings": {}}).encode()
    yield Target("file: manifest of a prepared folder", _manifest, {"content": text}, frozenset({"folder", "manifest"}))


def _manifest(content: bytes) -> Any:
    import tempfile

    from xcal.datasets.mimic3.manifest import NAME, read_manifest

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
