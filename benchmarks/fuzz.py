"""Hostile input for every public function and every file format.

Claim: the outcome is a result, or one sentence that names the argument (ValueError, TypeError, or OSError for files).
No other exception, no NaN without a warning or a documented rule, no memory that a file's header asks for, no call
without end. `--inputs 10000` per function is the claim; the default takes minutes. Needs Linux.

Each call is a good one of which one to three arguments were spoilt. A file is a good one with bytes cut, flipped,
doubled or forged. The table counts outcomes; what is none of the allowed ones is printed below it, once for each kind.
"""

import argparse
import contextlib
import random
import re
import resource
import signal
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

OUTCOMES = ("result", "warned", "refused", "unclear", "silent nan", "too slow", "bare")
GOOD = {"result", "warned", "refused"}
LONGEST = 60  # seconds of one call; a busy machine is no fault
MEMORY = 3 << 30  # bytes beyond those in use when the fuzzing begins


@dataclass(frozen=True)
class Target:
    """A public function with good arguments, or a reader of files with good content.

    `names` are words of which one must be in the message of a refusal. `nan` are the fields of a result whose NaN the
    documentation explains; "*" for all of them.
    """

    name: str
    call: Callable[..., Any]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    names: frozenset[str] = frozenset()
    nan: frozenset[str] = frozenset()
    slow: int = 1


@dataclass(frozen=True)
class Problem:
    """An outcome that must not be."""

    target: str
    outcome: str
    what: str
    arguments: str


class TooSlowError(BaseException):
    """A call that does not end; no ``except Exception`` on the way catches it."""


def outcome_of(target: Target, given: Mapping[str, Any]) -> tuple[str, str]:
    """Call the function and say what came of it, and in words what is wrong with that."""
    with warnings.catch_warnings(record=True) as told, time_limit(), np.errstate(all="warn"):
        warnings.simplefilter("always")
        try:
            result = target.call(**given)
        except (ValueError, TypeError, OSError, ImportError) as error:
            return judged_refusal(target, error)
        except TooSlowError:
            return "too slow", f"more than {LONGEST} s"
        except BaseException as error:
            return "bare", f"{type(error).__name__}: {str(error)[:160]}"
        if told:
            return "warned", ""
        found = sorted(set(where_nan(result)) - target.nan)
    if found and "*" not in target.nan and not any(has_nan(value) for value in given.values()):
        return "silent nan", f"NaN in {', '.join(found[:4])}"
    return "result", ""


def judged_refusal(target: Target, error: Exception) -> tuple[str, str]:
    """Tell a sentence that names the argument from the words of a library underneath."""
    message = str(error)
    named = target.names | set(target.arguments)
    clear = any(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", message) for name in named)
    if clear and message.count("\n") == 0:
        return "refused", ""
    return "unclear", f"{type(error).__name__}: {message[:160]!r}"


@contextlib.contextmanager
def time_limit() -> Iterator[None]:
    """End a call that does not end by itself."""

    def ring(*_: object) -> None:
        raise TooSlowError

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(LONGEST)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def where_nan(value: Any, name: str = "result", depth: int = 0) -> Iterator[str]:
    """Name the fields of a result that hold NaN."""
    if depth > 4:
        return
    if is_dataclass(value) and not isinstance(value, type):
        for one in fields(value):
            yield from where_nan(getattr(value, one.name, None), one.name, depth + 1)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from where_nan(item, str(key), depth + 1)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from where_nan(item, name, depth + 1)
    elif isinstance(value, pd.DataFrame):
        for column in value.columns:
            if pd.isna(value[column]).any():
                yield str(column)
    elif has_nan(value):
        yield name


def has_nan(value: Any) -> bool:
    """Whether a number or an array of numbers has a NaN."""
    if isinstance(value, torch.Tensor):
        return value.layout == torch.strided and value.is_floating_point() and bool(torch.isnan(value).any())
    try:
        array = np.asarray(value)
        return array.dtype.kind in "fc" and bool(np.isnan(array).any())
    except (ValueError, TypeError, RuntimeError):
        return False


# --- spoiling --------------------------------------------------------------------------------------------------------

CONSTANTS: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 3, 10**6, -(10**6), 2**63, 10**400, 0.0, -0.0, 0.5, 1.0, 1.5, -1.5, 1e-320, 1e308,
    float("nan"), float("inf"), -1e400, "", "abc", "uniform", "0.5", b"x", (), [], {}, set(), [[1.0], [2.0, 3.0]],
    [1, 2, 3], [0.5], [None], ["a"], [np.nan] * 24, {"a": 1}, object(), len, 1j, range(3), np.nan, np.float32(0.5),
    np.int64(3), np.array([]), np.array(0.5), np.zeros((0, 3)), np.zeros((2, 0)), np.zeros((3, 3, 3)), np.array(["a"]),
    np.array([1 + 2j] * 24), np.array([None] * 24, dtype=object), np.zeros(24, dtype="datetime64[s]"), pd.NA, pd.NaT,
    np.zeros(24, dtype=[("a", float), ("b", bool)]), pd.Series([pd.NA] * 24, dtype="Float64"), pd.DataFrame(),
    torch.zeros(0), torch.zeros(24), torch.zeros(24, requires_grad=True), torch.eye(3).to_sparse(),
    torch.zeros(24, dtype=torch.bfloat16), torch.zeros(24, device="meta"), Path("/nowhere/at/all"), "/nowhere", 10**9,
)  # fmt: skip
NUMBERS = (np.nan, np.inf, -np.inf, -1.0, 0.0, 1.0, 2.0, 1e308, -1e308, 5e-324, 1e-300, 0.5)
TYPES = (np.float16, np.float32, np.int8, np.int64, np.bool_, object, np.complex128, np.str_, ">f8")


def spoilt(value: Any, rng: random.Random) -> Any:
    """Return a worse value: anything at all, or nearly the good one."""
    if isinstance(value, bytes):
        return spoilt_bytes(value, rng)
    if isinstance(value, torch.Tensor) and rng.random() < 0.8:
        made = spoilt_array(value.detach().numpy(), rng)
        try:
            return torch.as_tensor(np.asarray(made))
        except (TypeError, ValueError, RuntimeError):
            return made
    if isinstance(value, np.ndarray) and value.dtype.names is None and rng.random() < 0.8:
        return spoilt_array(value, rng)
    return rng.choice(CONSTANTS)


def spoilt_array(value: np.ndarray, rng: random.Random) -> Any:
    """Change entries, type, shape or container of an array."""
    array = np.array(value)
    kind = rng.randrange(9)
    if kind <= 2 and array.size:
        changed = array.astype(np.float64)
        for _ in range(rng.choice((1, 1, 2, array.size))):
            changed.flat[rng.randrange(array.size)] = rng.choice(NUMBERS)
        return changed
    if kind == 3 and array.size:
        return np.full(array.shape, rng.choice(NUMBERS))
    if kind == 4:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return array.astype(rng.choice(TYPES))
    if kind == 5:
        return rng.choice(
            (array[:1], array[:0], array[:-1], np.concatenate([array, array]), array[None], array[..., None])
        )
    if kind == 6:
        return rng.choice((array[::-1], np.sort(array, axis=0), array * 1e300, array * 1e-300, array - array.mean()))
    if kind == 7:
        return rng.choice((array.tolist(), pd.Series(list(array)), tuple(array), torch.as_tensor(array.copy())))
    return np.ma.MaskedArray(array, mask=np.arange(array.size).reshape(array.shape) == 0)


def spoilt_bytes(content: bytes, rng: random.Random) -> bytes:
    """Cut, flip, double or overwrite bytes of a file; forge a number in it."""
    changed = bytearray(content)
    at = rng.randrange(len(changed))
    kind = rng.randrange(8)
    if kind == 0:
        return bytes(changed[:at])
    if kind == 1:
        for _ in range(rng.choice((1, 1, 8, 100))):
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    elif kind == 2:
        changed[at:at] = bytes(rng.randrange(256) for _ in range(rng.choice((1, 4, 64))))
    elif kind == 3:
        changed[at : at + 4] = rng.choice((b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", bytes(4), b"\x00\x00\x00\x01"))
    elif kind == 4:
        # A header in words that claims 10^12 rows, or something that is no number.
        digits = [place for place, byte in enumerate(changed) if 48 <= byte <= 57]
        if digits:
            at = rng.choice(digits)
            changed[at : at + 1] = rng.choice((b"1000000000000", b"-1", b"1e999", b"NaN", b"[]", b'"a"', b"0"))
    elif kind == 5:
        changed += changed[: rng.randrange(len(changed))]
    elif kind == 6:
        del changed[at : at + rng.choice((1, 2, 16, 200))]
    else:
        return rng.choice(
            (b"", b"\0" * 64, b"[" * 100_000, bytes(changed[::-1]), b"\xef\xbb\xbf" + content, b"PK\x03\x04")
        )
    return bytes(changed)


def attempts(target: Target, n: int, rng: random.Random) -> Iterator[dict[str, Any]]:
    """Give sets of arguments: some of the good ones spoilt, one sometimes left out."""
    names = list(target.arguments)
    for _ in range(n):
        given = dict(target.arguments)
        for name in rng.sample(names, min(len(names), rng.choice((1, 1, 1, 2, 3)))):
            given[name] = spoilt(given[name], rng)
        if rng.random() < 0.02:
            del given[rng.choice(names)]
        yield given


def fuzzed(target: Target, n: int, seed: int) -> tuple[Counter[str], list[Problem]]:
    """Call one function with so many hostile inputs."""
    rng = random.Random(f"{seed} {target.name}")
    counts: Counter[str] = Counter()
    problems: dict[str, Problem] = {}
    good, why = outcome_of(target, target.arguments)
    if good not in ("result", "warned"):
        raise RuntimeError(f"{target.name}: the good arguments are not good: {good} {why}")
    for given in attempts(target, max(1, n // target.slow), rng):
        outcome, what = outcome_of(target, given)
        counts[outcome] += 1
        if outcome not in GOOD:
            spoiled = {k: v for k, v in given.items() if v is not target.arguments.get(k)}
            problems.setdefault(what[:60], Problem(target.name, outcome, what, repr(spoiled)[:300]))
    return counts, list(problems.values())


def limit_memory() -> None:
    """Let a call have so much memory and no more: what a header asks for is then an error that is seen."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, resource.RLIM_INFINITY))


def main() -> None:
    from benchmarks._fuzz_files import file_targets
    from benchmarks._fuzz_functions import function_targets

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=200, help="for each function and format")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="functions whose name has this in it")
    options, _ = parser.parse_known_args()
    torch.set_num_threads(1)
    problems: list[Problem] = []
    total: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        targets = [t for t in (*function_targets(), *file_targets(Path(folder))) if options.only in t.name]
        limit_memory()
        print(f"{'function or format':<44}" + "".join(f"{name:>12}" for name in OUTCOMES))
        for target in targets:
            counts, found = fuzzed(target, options.inputs, options.seed)
            total += counts
            problems += found
            print(f"{target.name:<44}" + "".join(f"{counts[name]:>12}" for name in OUTCOMES), flush=True)
    print(f"{'all':<44}" + "".join(f"{total[name]:>12}" for name in OUTCOMES))
    for problem in problems:
        print(f"\n{problem.target}: {problem.outcome}: {problem.what}\n    {problem.arguments}")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
