"""A lock for a long piece of work: one process at a time trains into a folder, and the second is told who does.

The lock is taken or refused at once, as the work behind it may take hours (`xcal._files.only_writer` waits, for
milliseconds). It belongs to the operating system and ends with its process, however that ends: a file that a kill has
left behind is no obstacle, and no clock decides whether it is stale.
"""

import contextlib
import errno
import json
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from xcal._files import NOT_SUPPORTED, fcntl

_READ_ONLY = {errno.EROFS, errno.EACCES, errno.EPERM}


class BusyError(OSError):
    """Another process, or another call in this one, is at work on the same files."""


@contextmanager
def sole_user(name: str, path: Path) -> Iterator[None]:
    """Keep `path`, a file or a folder, for this block alone.

    The lock is the file ``.user.lock`` in the folder, or ``.<name>.user.lock`` beside the file, and says who has it. It
    is removed at the end. Where there is no ``flock`` (Windows, some network file systems), or nothing can be written,
    nothing is locked: files are still written whole.

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
    with ExitStack() as kept:
        handle = _taken(name, path, lock)
        if handle is not None:
            kept.callback(os.close, handle)
            # While the lock is still held: nobody can have taken it by the name that goes.
            kept.callback(_remove, lock)
        yield


def _taken(name: str, path: Path, lock: Path) -> int | None:
    """Take the lock and write who has it; None where the file system has no locks."""
    if fcntl is None:
        return None
    while True:
        try:
            handle = os.open(lock, os.O_CREAT | os.O_RDWR, 0o666)
        except OSError as error:
            # Who cannot write here cannot be in anybody's way: a finished run is read from a read-only folder.
            if error.errno in _READ_ONLY:
                return None
            raise
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = _holder(handle)
            os.close(handle)
            if error.errno in NOT_SUPPORTED:
                return None
            if not isinstance(error, BlockingIOError):
                raise
            raise BusyError(
                f"{name}: expected {path} to be free, got one that {holder} is using; wait for its end or stop it"
            ) from None
        if _same_file(handle, lock):
            break
        # Its last holder removed the file between our opening and our locking it.
        os.close(handle)
    # On a full disk the lock holds all the same, without a name.
    with contextlib.suppress(OSError):
        _sign(handle)
    return handle


def _remove(lock: Path) -> None:
    with contextlib.suppress(OSError):
        lock.unlink()


def _same_file(handle: int, lock: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), lock.stat())
    except FileNotFoundError:
        return False


def _sign(handle: int) -> None:
    since = datetime.now(UTC).isoformat(timespec="seconds")
    content = json.dumps({"process": os.getpid(), "host": socket.gethostname(), "since": since})
    os.ftruncate(handle, 0)
    os.pwrite(handle, content.encode(), 0)


def _holder(handle: int) -> str:
    """Return who wrote the lock file; what stands there may be damaged, or not yet written."""
    try:
        said = json.loads(os.pread(handle, 1000, 0))
        return f"process {said['process']} on {said['host']} (since {said['since']})"
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return "another process"
