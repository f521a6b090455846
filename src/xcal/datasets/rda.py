"""Just enough of R's .rda format to read one data frame of strings, the form in which the glioma data is published."""

import lzma
import struct
from collections.abc import Callable
from typing import Any

from xcal._checks import fail

# Type codes of R's serialisation, format version 2 ("R Internals", section 1.8).
_SYMBOL, _PAIRLIST, _CHAR, _INT, _STRINGS, _LIST = 1, 2, 9, 13, 16, 19
_REFERENCE, _NIL = 255, 254
_HAS_ATTRIBUTES, _HAS_TAG = 1 << 9, 1 << 10


def read_string_frame(name: str, content: bytes) -> dict[str, list[str]]:
    """Read the columns of the first object, a data frame of strings; a missing value becomes an empty string."""
    try:
        raw = lzma.decompress(content)
    except (lzma.LZMAError, EOFError) as error:
        fail(name, "an R data file, xz-compressed", f"{len(content)} bytes that do not decompress ({error})")
    if raw[:7] != b"RDX2\nX\n":
        fail(name, "an R data file, xz-compressed, binary, version 2", f"one that begins with {raw[:7]!r}")
    try:
        # Three version numbers follow the seven bytes; the file is a list of name and value.
        _, value = _Reader(raw, 7 + 12).item()[0]
        columns, attributes = value
        return dict(zip(dict(attributes)["names"][0], (column for column, _ in columns), strict=True))
    # What a walk through other bytes ends in; lists within lists without end among it.
    except (struct.error, KeyError, TypeError, ValueError, IndexError, RecursionError) as error:
        fail(name, "an R data file with one data frame of strings", f"{type(error).__name__}: {error}")


class _Reader:
    """Walks through the bytes; vectors come as (values, attributes), pairlists as a list of (tag, value)."""

    def __init__(self, raw: bytes, at: int) -> None:
        self.raw = raw
        self.at = at
        self.symbols: list[str] = []
        self.kinds: dict[int, Callable[[int], Any]] = {
            _SYMBOL: self._symbol,
            _PAIRLIST: self._pairlist,
            _CHAR: self._char,
            _INT: self._ints,
            _STRINGS: self._strings,
            _LIST: self._list,
            _REFERENCE: lambda flags: self.symbols[(flags >> 8) - 1],
            _NIL: lambda flags: [],
        }

    def item(self) -> Any:
        flags = self._int()
        return self.kinds[flags & 255](flags)

    def _int(self) -> int:
        (value,) = struct.unpack_from(">i", self.raw, self.at)
        self.at += 4
        return int(value)

    def _symbol(self, flags: int) -> str:
        self.symbols.append(self.item())
        return self.symbols[-1]

    def _char(self, flags: int) -> str:
        length = max(self._int(), 0)  # -1 is R's NA
        self.at += length
        return self.raw[self.at - length : self.at].decode("utf-8", errors="replace")

    def _attributes(self, flags: int) -> list[tuple[str, Any]]:
        return self.item() if flags & _HAS_ATTRIBUTES else []

    def _ints(self, flags: int) -> tuple[list[int], Any]:
        values = [self._int() for _ in range(self._int())]
        return values, self._attributes(flags)

    def _strings(self, flags: int) -> tuple[list[str], Any]:
        # Six million of them, nearly all missing: one call for each would take most of the time.
        values, unpack, raw = [], struct.Struct(">ii").unpack_from, self.raw
        count = self._int()
        at = self.at
        for _ in range(count):
            _, length = unpack(raw, at)
            at += 8
            if length <= 0:
                values.append("")
            else:
                values.append(raw[at : at + length].decode("utf-8", errors="replace"))
                at += length
        self.at = at
        return values, self._attributes(flags)

    def _list(self, flags: int) -> tuple[list[Any], Any]:
        values = [self.item() for _ in range(self._int())]
        return values, self._attributes(flags)

    def _pairlist(self, flags: int) -> list[tuple[str, Any]]:
        pairs = []
        while flags & 255 == _PAIRLIST:
            if flags & _HAS_ATTRIBUTES:
                self.item()
            tag = self.item() if flags & _HAS_TAG else ""
            pairs.append((tag, self.item()))
            flags = self._int()
        return pairs
