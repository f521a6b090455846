"""Files that are written whole or not at all, and a lock between writers of one file.

A new file is written beside the old one under a name of its own, brought to the disk and moved into place in one step:
a reader, or a process killed at any moment, sees the old file or the new one.

A kill (or a power cut) can leave a temporary file, ``.<name>.<random>.part``. It does no harm: nothing reads it, and
the next write of the same file removes it once it is a day old, when no writer can still be at work on it.
"""

import contextlib
import errno
import os
import secrets
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

_PART = ".part"
_DAY = 86_400.0
# Only where there is no flock: a lock that old was left by a process that died. It is held for milliseconds.
_STALE = 600.0
# What a file system says that has no locks of this kind, or cannot bring a folder to the disk.
_NOT_SUPPORTED = {errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}
# Some network file systems give a lock to a process, not to a thread.
_between_threads = threading.Lock()


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Give an empty temporary file to write to; at the end of the block it takes the place of `path`.

    After any error in the block, or in bringing the file to the disk, the temporary file is removed and the old file
    is as it was. A file that is replaced passes its permissions on.
    """
    _remove_old_parts(path)
    part = path.with_name(f".{path.name}.{secrets.token_hex(8)}{_PART}")
    # Not tempfile.mkstemp: a model, a checkpoint or a record is for every reader that the user's settings let in.
    os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666))
    try:
        with contextlib.suppress(FileNotFoundError):
            part.chmod(stat.S_IMODE(path.stat().st_mode))
        yield part
        _to_disk(part)
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    _folder_to_disk(path.parent)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file whole or not at all; see `new_file`."""
    with new_file(path) as part:
        part.write_bytes(content)


def check_writable(folder: Path) -> None:
    """Make the folder and a file in it, and remove the file: an OSError now rather than after hours of work."""
    folder.mkdir(parents=True, exist_ok=True)
    probe = folder / f".{secrets.token_hex(8)}{_PART}"
    try:
        # Something to write: an empty file also fits on a full disk.
        probe.write_bytes(b"writable?")
    finally:
        probe.unlink(missing_ok=True)


@contextmanager
def only_writer(path: Path) -> Iterator[None]:
    """Keep other threads and processes that ask for the same lock out, for reading, changing and writing `path`.

    The lock is the file ``.<name>.lock`` beside it. It stays there: removing it could let two in at once on a network
    file system. The lock itself ends with its process, however that ends. Where there is no ``flock`` (Windows, some
    network file systems) the existence of a second file is the lock; left by a process that died, it counts no more
    after ten minutes.
    """
    lock = path.with_name(f".{path.name}.lock")
    with _between_threads:
        handle = os.open(lock, os.O_CREAT | os.O_RDWR, 0o666)
        try:
            release = _acquire(handle, lock)
            try:
                yield
            finally:
                release()
        finally:
            os.close(handle)


def _acquire(handle: int, lock: Path) -> Callable[[], None]:
    """Wait for the lock; returns what gives it back."""
    if fcntl is not None:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in _NOT_SUPPORTED:
                raise
        else:
            # Closing the handle gives it back.
            return lambda: None
    held = lock.with_name(f"{lock.name}.held")
    while True:
        try:
            os.close(os.open(held, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666))
        except (FileExistsError, PermissionError) as error:
            # Windows denies access to a file that is being removed; elsewhere what is denied stays denied.
            if isinstance(error, PermissionError) and os.name != "nt":
                raise
            if _age(held) > _STALE:
                held.unlink(missing_ok=True)
            time.sleep(0.005)
        else:
            return lambda: held.unlink(missing_ok=True)


def _age(path: Path) -> float:
    """Seconds since the file was last written to; none if it is gone."""
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return 0.0


def _remove_old_parts(path: Path) -> None:
    start = f".{path.name}."
    # A folder that cannot be listed can still be written to.
    with contextlib.suppress(OSError):
        for entry in path.parent.iterdir():
            if entry.name.startswith(start) and entry.name.endswith(_PART) and _age(entry) > _DAY:
                entry.unlink(missing_ok=True)


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
        if error.errno not in _NOT_SUPPORTED:
            raise
    finally:
        os.close(handle)
