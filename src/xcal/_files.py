"""Files that are written whole or not at all, locks, lines of JSON with checksums, and what a file says, checked."""

import contextlib
import errno
import hashlib
import json
import math
import os
import reprlib
import secrets
import socket
import stat
import sys
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType, NoneType, UnionType
from typing import Annotated, Any, Literal, Protocol, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
from filelock import BaseFileLock, FileLock, SoftFileLock, Timeout

from xcal._checks import fail

# --- Files that are written whole or not at all, and a lock between writers of one file.
# A new file is written beside the old one under a name of its own, brought to the disk and moved into place in one
# step: a reader, or a process killed at any moment, sees the old file or the new one.
#
# A kill (or a power cut) can leave a temporary file, ``.<name>.<random>.part``. It does no harm: nothing reads it, and
# the next write of the same file removes it once it is a day old and no writer holds it. A clock that jumps can make a
# file look old, but not free.
#
# What cannot be written is one error that names the file that was asked for, and not the temporary one.

fcntl: ModuleType | None


try:
    import fcntl
except ImportError:  # Windows
    fcntl = None


_PART = ".part"
_DAY = 86_400.0
_KEPT = "what was there before is as it was"

_POLL = 0.005  # seconds between two looks at a lock that is held for milliseconds

# What a file system says that has no locks of this kind, or cannot bring a folder to the disk.
NOT_SUPPORTED = {errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}

# Some network file systems give a lock to a process, not to a thread.
_between_threads = threading.Lock()


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Yield an empty temporary file to write to; at the end of the block it takes the place of `path`.

    After any error in the block, or in bringing the file to the disk, the temporary file is removed and the old file
    is as it was. A file that is replaced passes its permissions on.

    Raises
    ------
    OSError
        Of the kind that the system gives, in one sentence that names `path`: a folder stands there, the disk is full,
        the folder cannot be written. Other errors of the block are left as they are.
    """
    if path.is_dir():
        raise IsADirectoryError(f"{path}: expected the name of a file to write, got a folder")
    _remove_old_parts(path)
    part = path.with_name(f".{path.name}.{secrets.token_hex(8)}{_PART}")
    try:
        # Not tempfile.mkstemp: a model, a checkpoint or a record is for every reader that the user's settings let in.
        handle = os.open(part, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666)
    except OSError as error:
        raise _named(path, error) from error
    try:
        _try_lock(handle)
        with contextlib.suppress(FileNotFoundError):
            part.chmod(stat.S_IMODE(path.stat().st_mode))
        yield part
        _to_disk(part)
        os.replace(part, path)
    except BaseException as error:
        part.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno is not None and error.filename in (None, str(part), part):
            raise _named(path, error) from error
        raise
    finally:
        os.close(handle)
    _folder_to_disk(path.parent)


def _named(path: Path, error: OSError) -> OSError:
    """Make an error about a temporary file, or about none, one about the file that was asked for."""
    told = type(error)(f"{path}: expected a file that can be written, got: {error.strerror or error} ({_KEPT})")
    told.errno = error.errno  # a caller can still tell a full disk from a folder that is read-only
    return told


def reason(error: OSError) -> str:
    """Return the system's words for an error, also where it was raised again with a sentence of ours."""
    cause = error.__cause__
    return error.strerror or (reason(cause) if isinstance(cause, OSError) else str(error))


def write_whole(path: Path, content: bytes) -> None:
    """Write a file whole or not at all; see `new_file`."""
    with new_file(path) as part:
        part.write_bytes(content)


def cache_folder() -> Path:
    """Return xcal's folder among the user's caches, which need not exist, nor be one that can be written.

    ``$XDG_CACHE_HOME`` or ``~/.cache``; ``~/Library/Caches`` on macOS; ``%LOCALAPPDATA%`` on Windows.
    """
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    elif sys.platform == "darwin":
        base = "~/Library/Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or ""
        # The convention's own rule: a relative path there is to be ignored.
        base = base if os.path.isabs(base) else "~/.cache"
    return Path(base).expanduser() / "xcal"


def check_writable(folder: Path) -> None:
    """Make the folder and a file in it, and remove the file: an OSError now rather than after hours of work."""
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{folder}: expected a folder, got a file")
    folder.mkdir(parents=True, exist_ok=True)
    probe = folder / f".{secrets.token_hex(8)}{_PART}"
    try:
        # Something to write: an empty file also fits on a full disk.
        probe.write_bytes(b"writable?")
    except OSError as error:
        told = type(error)(f"{folder}: expected a folder that can be written, got: {error.strerror or error}")
        told.errno = error.errno
        raise told from error
    finally:
        with contextlib.suppress(OSError):  # a folder that cannot be written holds no probe either
            probe.unlink(missing_ok=True)


def check_target(path: Path) -> None:
    """Find out before any work whether a file of this name can be written: its folder, and no folder of its name."""
    if path.is_dir():
        raise IsADirectoryError(f"{path}: expected the name of a file to write, got a folder")
    check_writable(path.resolve().parent)


@contextmanager
def only_writer(path: Path) -> Iterator[None]:
    """Keep other threads and processes that ask for the same lock out, for reading, changing and writing `path`.

    The lock is the file ``.<name>.lock`` beside it. It stays there: removing it could let two in at once on a network
    file system. The lock itself ends with its process, however that ends. Where the file system has no ``flock`` the
    existence of a second file is the lock; it names its process and does not count once that has died.
    """
    lock = path.with_name(f".{path.name}.lock")
    with _between_threads, ExitStack() as kept:
        own: BaseFileLock = FileLock(lock)
        try:
            own.acquire(poll_interval=_POLL)
        except (OSError, NotImplementedError) as error:
            if isinstance(error, OSError) and error.errno not in NOT_SUPPORTED:
                raise
            own = SoftFileLock(f"{lock}.held")
            own.acquire(poll_interval=_POLL)
        kept.callback(own.release)
        yield


def _remove_old_parts(path: Path) -> None:
    start = f".{path.name}."
    # A folder that cannot be listed can still be written to, and a file may be gone meanwhile.
    with contextlib.suppress(OSError):
        for entry in path.parent.iterdir():
            if entry.name.startswith(start) and entry.name.endswith(_PART):
                with contextlib.suppress(OSError):
                    if time.time() - entry.stat().st_mtime > _DAY and _is_free(entry):
                        entry.unlink(missing_ok=True)


def _is_free(part: Path) -> bool:
    """Return whether no writer holds a temporary file. Without ``flock`` its age alone has to tell."""
    handle = os.open(part, os.O_RDWR)
    try:
        return _try_lock(handle)
    finally:
        os.close(handle)


def _try_lock(handle: int) -> bool:
    """Take the lock of an open file unless another has it; it ends when the file is closed, or with the process."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in NOT_SUPPORTED
    return True


def _to_disk(path: Path) -> None:
    handle = os.open(path, os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _folder_to_disk(folder: Path) -> None:
    """Bring the new name to the disk too; Windows does that by itself and cannot open a folder."""
    if os.name == "nt":
        return
    try:
        handle = os.open(folder, os.O_RDONLY)
    except PermissionError:  # a folder that may be written but not read; the file itself is in place
        return
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in NOT_SUPPORTED:
            raise
    finally:
        os.close(handle)


# --- A lock for a long piece of work: one process at a time trains into a folder, and the second is told who does.
# The lock is taken or refused at once, as the work behind it may take hours (`xcal._files.only_writer` waits, for
# milliseconds). It belongs to the operating system and ends with its process, however that ends: a file that a kill
# has left behind is no obstacle, and no clock decides whether it is stale.

_READ_ONLY = {errno.EROFS, errno.EACCES, errno.EPERM}


class BusyError(OSError):
    """Another process, or another call in this one, is at work on the same files."""


@contextmanager
def sole_user(name: str, path: Path) -> Iterator[None]:
    """Keep `path`, a file or a folder, for this block alone.

    The lock is the file ``.user.lock`` in the folder, or ``.<name>.user.lock`` beside the file, and says who has it. It
    is removed at the end. Where the file system has no ``flock``, or nothing can be written, nothing is locked: files
    are still written whole.

    Parameters
    ----------
    name : str
        The argument that names `path`, for the message.

    Raises
    ------
    BusyError
        Where another has it: says who, and since when.
    """
    # Another name than that of `only_writer`, which is taken and given back many times meanwhile.
    lock = path / ".user.lock" if path.is_dir() else path.with_name(f".{path.name}.user.lock")
    own = FileLock(lock)
    with ExitStack() as kept:
        if _taken(name, path, lock, own):
            kept.callback(own.release)
            # While the lock is still held: nobody can have taken it by the name that goes.
            kept.callback(_remove, lock)
        yield


def _taken(name: str, path: Path, lock: Path, own: BaseFileLock) -> bool:
    """Take the lock and write who has it; False where nothing can be written, or the file system has no locks."""
    try:
        own.acquire(blocking=False)
    except Timeout:
        raise BusyError(
            f"{name}: expected {path} to be free, got one that {_holder(lock)} is using; wait for its end or stop it"
        ) from None
    except (OSError, NotImplementedError) as error:
        # Who cannot write here cannot be in anybody's way: a finished run is read from a read-only folder.
        if isinstance(error, OSError) and error.errno not in _READ_ONLY | NOT_SUPPORTED:
            raise
        _remove(lock)
        return False
    since = datetime.now(UTC).isoformat(timespec="seconds")
    # On a full disk the lock holds all the same, without a name.
    with contextlib.suppress(OSError):
        lock.write_text(json.dumps({"process": os.getpid(), "host": socket.gethostname(), "since": since}))
    return True


def _remove(lock: Path) -> None:
    with contextlib.suppress(OSError):
        lock.unlink()


def _holder(lock: Path) -> str:
    """Return who wrote the lock file; what stands there may be damaged, or not yet written."""
    try:
        said = json.loads(lock.read_text())
        return f"process {said['process']} on {said['host']} (since {said['since']})"
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return "another process"


# --- Files of records: lines of JSON, each with a checksum of itself, rewritten whole under a lock.
# What a record holds is its owner's affair (`xcal.tuning`, the records of the paper): it has a `key`, a `line`,
# and a function that reads a line's content again. A line that does not match its checksum is reported, and its record
# counts as missing.


class Recorded(Protocol):
    """What a file of records holds."""

    @property
    def key(self) -> Any:
        """What tells the records of one file apart; the order of the lines."""

    def line(self) -> str:
        """One line of JSON that carries its own checksum: `as_line`."""


_Record = TypeVar("_Record", bound=Recorded)
_Found = TypeVar("_Found")


@dataclass(frozen=True)
class Corrupt:
    """A line that cannot be read."""

    path: Path
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path}, line {self.line}: {self.reason}; its run counts as missing"


def as_line(content: dict[str, Any]) -> str:
    """Write a record as one line with its checksum, the last of its values."""
    return json.dumps(content | {"check": _check(content)}, allow_nan=False)


def content_of(line: bytes) -> dict[str, Any]:
    """Read a line that `as_line` wrote; a ValueError says what is wrong with another."""
    try:
        content = json.loads(line)
        if not isinstance(content, dict) or "check" not in content:
            raise LookupError
        right = content.pop("check") == _check(content)
    except LookupError:
        raise ValueError("no record") from None
    except (ValueError, RecursionError) as error:
        # A recursion error is JSON nested too deeply for anything that we wrote.
        raise ValueError("not a whole line of JSON") from error
    if not right:
        raise ValueError("the checksum does not match")
    return content


def _check(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]


def read_lines(
    path: Path, read: Callable[[dict[str, Any]], _Found], key: Callable[[_Found], Hashable]
) -> tuple[dict[Any, _Found], list[Corrupt]]:
    """Return the records of a file by their keys, and the lines that cannot be read. Without a file there are none."""
    records: dict[Any, _Found] = {}
    corrupt: list[Corrupt] = []
    if not path.exists():
        return records, corrupt
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            record = read(content_of(line))
        except ValueError as error:
            corrupt.append(Corrupt(path, number, str(error)))
        else:
            records[key(record)] = record
    return records, corrupt


def add_lines(path: Path, read: Callable[[dict[str, Any]], _Record], new: Iterable[_Record], name: str) -> None:
    """Write the old records and the new ones, all or nothing; a new record replaces an old one with the same key.

    The file is read again first, and other writers wait until it is written: what another thread or process has added
    is kept. `name` is the argument that named the file, for the message where it cannot be written.
    """
    added = {record.key: record for record in new}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with only_writer(path):
            records = read_lines(path, read, lambda record: record.key)[0] | added
            lines = [records[key].line() for key in sorted(records)]
            write_whole(path, ("\n".join(lines) + "\n").encode())
    except OSError as error:
        raise _unwritable(name, path, error) from error


def check_place(path: Path, name: str) -> None:
    """Find out before hours of training whether records can be written at all."""
    try:
        check_writable(path.parent)
    except OSError as error:
        raise _unwritable(name, path, error) from error


def _unwritable(name: str, path: Path, error: OSError) -> OSError:
    message = f"{name}: expected a folder that can be written, got {path.parent}: {reason(error)}"
    told = type(error)(f"{message} (earlier records are as they were)")
    told.errno = error.errno  # a caller can still tell a full disk from a folder that is read-only
    return told


# --- What a file says as checked objects: the type hints of a dataclass are the rules for its JSON or TOML.
# A file may come from a stranger: every key and every value is looked at before anything is made of it, and what does
# not fit is one error that names the key. No error is longer than a few lines, however large the value.

_Kind = TypeVar("_Kind")
LARGEST_INTEGER = 2**63  # whole numbers are kept in 64 bits
_SCALARS: dict[Any, tuple[type | tuple[type, ...], str]] = {
    str: (str, "text"),
    bool: (bool, "true or false"),
    int: (int, "a whole number"),
    float: ((int, float), "a number"),
}
_shortened = reprlib.Repr()
_shortened.maxstring = _shortened.maxother = _shortened.maxlong = 100


@dataclass(frozen=True)
class Limits:
    """Numbers that a key may have: ``Annotated[float, Limits(at_least=0, below=1)]``."""

    at_least: float = -math.inf
    above: float = -math.inf
    below: float = math.inf

    def check(self, name: str, value: Any) -> None:
        """Refuse a number outside."""
        if not (self.at_least <= value < self.below and value > self.above):
            sides = {"of at least": self.at_least, "above": self.above, "below": self.below}
            fail(name, "a number " + " and ".join(f"{w} {x:g}" for w, x in sides.items() if abs(x) < math.inf), value)


@dataclass(frozen=True)
class OneOf:
    """Words that a key may have, where they are not known before the program runs."""

    words: Iterable[str]

    def check(self, name: str, value: Any) -> None:
        """Refuse another word."""
        if value not in self.words:
            fail(name, " or ".join(self.words), shown(value))


class NotANumberToo:
    """Lets a float be NaN or infinite."""


def shown(value: Any) -> str:
    """Return a value as text of a bounded length, however large or deep it is."""
    return _shortened.repr(value)


def parse_json(name: str, text: str | bytes) -> Any:
    """Return what a text of JSON holds; what is no JSON, or nested without end, is an error that names it."""
    try:
        return json.loads(text)
    except RecursionError:
        fail(name, "JSON", "JSON that is nested too deeply")
    except ValueError as error:
        fail(name, "JSON", f"text that is none ({error})")


def read(kind: type[_Kind], values: Any, where: str = "") -> _Kind:
    """Return a dataclass from the table of its keys and values.

    Parameters
    ----------
    kind : dataclass
        Its hints may be str, bool, int, float (finite), Any, None, Literal, dataclasses, lists, arrays of float64,
        tuples, tables ``dict[str, ...]``, unions of these, and ``Annotated`` with `Limits` or `OneOf`. A field with a
        default may be left out. ``field(metadata={"key": ...})`` says the name in the file where it is another.
    values
        From `parse_json` or `tomllib`.
    where : str
        What to call it in an error.

    Examples
    --------
    >>> @dataclass
    ... class Layer:
    ...     size: Annotated[int, Limits(at_least=1)]
    ...     dropout: float = 0.0
    >>> read(Layer, {"size": 8})
    Layer(size=8, dropout=0.0)
    >>> read(Layer, {"size": 8, "dropout": "high"}, "layer")
    Traceback (most recent call last):
    ValueError: layer.dropout: expected a number, got 'high'
    """
    # The type variable stands for dataclasses only, which mypy has no way to be told.
    known: dict[str, Field[Any]] = {one.metadata.get("key", one.name): one for one in fields(kind)}  # type: ignore[arg-type]
    needed = [key for key, one in known.items() if one.default is MISSING and one.default_factory is MISSING]
    check_keys(where or "keys", values, known, needed)
    hints = get_type_hints(kind, include_extras=True)
    dot = f"{where}." if where else ""
    return kind(**{known[key].name: checked(dot + key, value, hints[known[key].name]) for key, value in values.items()})


def check_keys(where: str, values: Any, known: Iterable[str], needed: Iterable[str]) -> None:
    """Refuse what is no table, has a key that is not known, or lacks one that is needed."""
    if not isinstance(values, Mapping):
        fail(where, "a table of keys and values", shown(values))
    for key in values:
        if key not in known:
            fail(where, f"one of the keys {', '.join(known)}", shown(key))
    for key in needed:
        if key not in values:
            fail(where, f"a value for {key!r}", "none")


def checked(where: str, value: Any, hint: Any) -> Any:
    """Return a value as its type hint says, or refuse it; see `read`."""
    origin, options = get_origin(hint), get_args(hint)
    if origin is Annotated:
        rules = hint.__metadata__
        if any(rule is NotANumberToo for rule in rules) and isinstance(value, float):
            return value
        found = checked(where, value, options[0])
        for rule in rules:
            if rule is not NotANumberToo:
                rule.check(where, found)
        return found
    if origin in (Union, UnionType):
        return _one_of_kinds(where, value, options)
    if origin is Literal:
        # The type too: True equals 1, and a list has no hash.
        if not any(value == option and type(value) is type(option) for option in options):
            fail(where, " or ".join(map(repr, options)), shown(value))
        return value
    if origin is np.ndarray:
        return np.array(checked(where, value, list[float]), dtype=np.float64)
    if origin in (tuple, list):
        return _sequence(where, value, origin, options)
    if origin is dict:
        check_keys(where, value, value, ())
        return {key: checked(f"{where}.{key}", item, options[1]) for key, item in value.items()}
    if is_dataclass(hint):
        return read(hint, value, where)  # type: ignore[arg-type]  # a class, as hints are
    return value if hint is Any else _scalar(where, value, hint)


def _one_of_kinds(where: str, value: Any, kinds: tuple[Any, ...]) -> Any:
    if value is None and NoneType in kinds:
        return None
    others = [kind for kind in kinds if kind is not NoneType]
    for kind in others[:-1]:
        if kind in _SCALARS and isinstance(value, _SCALARS[kind][0]) and not isinstance(value, bool):
            return checked(where, value, kind)
    return checked(where, value, others[-1])


def _sequence(where: str, value: Any, kind: type, options: tuple[Any, ...]) -> Any:
    """Check a list, whose items are all of one kind or, in a tuple of so many, each of its own."""
    if not isinstance(value, list):
        fail(where, "a list", shown(value))
    hints: Iterable[Any] = options
    if kind is list or options[-1] is Ellipsis:
        hints = [options[0]] * len(value)
    elif len(value) != len(options):
        fail(where, f"a list of {len(options)} values", shown(value))
    return kind(checked(f"{where}[{i}]", item, hint) for i, (item, hint) in enumerate(zip(value, hints, strict=True)))


def _scalar(where: str, value: Any, hint: Any) -> Any:
    """Check text, a truth value or a number; a whole number in the place of a float becomes one."""
    kind, name = _SCALARS[hint]
    if not isinstance(value, kind) or (isinstance(value, bool) and hint is not bool):
        fail(where, name, shown(value))
    number: Any = value
    if hint is int and abs(number) >= LARGEST_INTEGER:
        fail(where, "a whole number of 64 bits", shown(value))
    if hint is float and (abs(number) >= LARGEST_INTEGER if isinstance(number, int) else not math.isfinite(number)):
        fail(where, "a finite number", shown(value))
    return float(number) if hint is float else number
