"""What a table seems to hold, and the command that does what the page was asked for.

``python -m xcal.serve.tables FILE`` prints what was understood as JSON: the page reads a stranger's file in a process
of its own, by the reader of `xcal audit` and `xcal fit`.
"""

import json
import re
import shlex
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from xcal._checks import fail

# Words in the name of a column, the likeliest first.
_TIME = ("time", "t", "duration", "survtime", "followup", "months", "days", "years", "weeks", "os", "rfstime", "futime")
_EVENT = ("event", "e", "status", "died", "dead", "death", "relapse", "recurrence", "outcome", "fustat")
_HAPPENED = ("1", "True", "true", "yes", "dead", "died", "event", "deceased", "relapse")
_UNITS = ("days", "weeks", "months", "years")
_GROUPS = ("sex", "gender")
_SITES = ("site", "hospital", "centre", "center", "clinic", "region")
_NUMBERED = re.compile(r"(.*?)(\d+(?:\.\d+)?)")
# Labels of a column from which it is offered as a group, and names of columns that are listed at most.
_MOST_LABELS, _MOST_COLUMNS = 12, 2000
# Curves may rise by their rounding.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class ColumnSeen:
    """A column: its name, whether it holds numbers, and the labels that many rows have, where it has few."""

    name: str
    number: bool
    labels: tuple[str, ...]


@dataclass(frozen=True)
class Asked:
    """What the page asks for: the options of `xcal audit`, or of `xcal fit` where the table holds no predictions."""

    kind: Literal["predictions", "data"] = "predictions"
    time: str = ""
    event: str = ""
    event_value: str = ""
    cause: str = ""
    curves: str = ""
    risk: str = ""
    horizon: str = ""
    cdf: str = ""
    time_unit: str = ""
    horizons: str = ""
    by: tuple[str, ...] = ()
    site: str = ""
    clusters: str = ""
    export: str = ""
    decimal: str = ""


@dataclass(frozen=True)
class Understood:
    """What a table holds, and what is asked of it unless the reader corrects it."""

    rows: int
    columns: tuple[ColumnSeen, ...]
    curves: tuple[str, ...]  # patterns of columns that could be survival curves
    asked: Asked
    notes: tuple[str, ...]


def understand(path: Path, decimal: str = "") -> Understood:
    """Read a table and guess what its columns are."""
    from xcal.cli.table_file import read_table_file

    table = read_table_file(path, decimal=decimal or ".")
    if len(table.names) > _MOST_COLUMNS:
        fail(path.name, f"at most {_MOST_COLUMNS:,} columns", f"{len(table.names):,}")
    columns = tuple(_seen(name, table.frame[name]) for name in table.names)
    curves = tuple(_curves(table.frame, columns))
    return Understood(table.n, columns, curves, _guess(table.frame, columns, curves, decimal), table.notes)


def _seen(name: str, values: Any) -> ColumnSeen:
    from xcal.cli.table_file import common_labels

    number = values.dtype.kind in "iufb"
    labels = common_labels(values) if values.nunique() <= _MOST_LABELS else ()
    return ColumnSeen(name, number, tuple(labels))


def _curves(frame: Any, columns: Sequence[ColumnSeen]) -> Iterable[str]:
    """Find names that differ by a number alone, whose columns are probabilities that fall."""
    found: dict[str, dict[float, str]] = {}
    for one in columns:
        if one.number and (parts := _NUMBERED.fullmatch(one.name)):
            found.setdefault(parts[1], {})[float(parts[2])] = one.name
    for before, names in found.items():
        values = frame[[names[time] for time in sorted(names)]].to_numpy(dtype=np.float64)
        if (
            len(names) > 1
            and "*" not in before
            and _are_shares(values)
            and not (np.diff(values, axis=1) > _ROUNDING).any()
        ):
            yield f"{before}*"


def _are_shares(values: Any) -> bool:
    known = values[~np.isnan(values)]
    return bool(known.size and known.min() >= 0 and known.max() <= 1)


def _guess(frame: Any, columns: Sequence[ColumnSeen], curves: Sequence[str], decimal: str) -> Asked:
    numbers = [one.name for one in columns if one.number]
    in_curves = [
        name for name in numbers for pattern in curves if name.startswith(pattern[:-1]) and name != pattern[:-1]
    ]
    labelled = [one for one in columns if len(one.labels) > 1 and one.name not in in_curves]
    cause = _first([one.name for one in labelled], ("cause",))
    event = _first([one.name for one in labelled], _EVENT)
    if not event and not cause:
        event = next((one.name for one in labelled if set(one.labels) == {"0", "1"}), "")
    labels = next((one.labels for one in labelled if one.name == event), ())
    free = [name for name in numbers if name not in (*in_curves, event)]
    time = _first([name for name in free if (frame[name].dropna() >= 0).all()], _TIME)
    shares = [name for name in free if name != time and _are_shares(frame[name].to_numpy(dtype=np.float64))]
    continuous = [name for name in shares if frame[name].nunique() > _MOST_LABELS]
    cdf = _first(continuous, ("cdf", "f"))
    risk = (
        ""
        if curves
        else next(
            (name for name in continuous if name != cdf and re.search("risk|prob|pred|^r_?[0-9]", name.lower())), ""
        )
    )
    at = re.search(r"(\d+(?:\.\d+)?)\D*$", risk)
    words = {word for name in (time,) for word in _words(name)}
    unit = next((unit for unit in _UNITS if words & {unit, unit[:-1]}), "")
    known = {"0", "1"} >= set(labels) or {"True", "False"} >= set(labels)
    value = "" if known else next((word for word in _HAPPENED if word in labels), "")
    names = [one.name for one in columns if one.name not in (time, event)]
    return Asked(
        kind="predictions" if curves or risk or cdf else "data",
        time=time,
        event=event,
        event_value=value,
        cause="" if curves or risk or cdf else cause,
        curves=curves[0] if curves else "",
        risk=risk,
        horizon=at[1] if risk and at else "",
        cdf=cdf if not risk else "",
        time_unit=unit,
        by=tuple(one.name for one in labelled if set(_words(one.name)) & set(_GROUPS)),
        site=_first(names, _SITES),
        decimal=decimal,
    )


def _words(name: str) -> list[str]:
    return [word for word in re.split(r"[^a-z]+", name.lower()) if word]


def _first(names: Sequence[str], likely: Sequence[str]) -> str:
    """Return the column whose name is, or holds, the likeliest word; "" where none does."""
    for holds in (lambda name, word: name.lower() == word, lambda name, word: word in _words(name)):
        for word in likely:
            if found := next((name for name in names if holds(name, word)), ""):
                return found
    return ""


# --- The command.


def command(asked: Asked, file: str) -> list[str]:
    """Return the words of the command, the first of them "xcal"; an option and its value are one word."""
    given: dict[str, Any] = {"time": asked.time, "event": asked.event, "event-value": asked.event_value}
    if asked.kind == "predictions":
        given |= {"curves": asked.curves, "risk": asked.risk, "horizon": asked.horizon, "cdf": asked.cdf}
        given |= {"clusters": asked.clusters, "export": asked.export}
        last = {"out": "report.html", "json": "audit.json"}
    else:
        given = {"time": asked.time, "cause": asked.cause} if asked.cause else given
        given |= {"group": asked.clusters}
        last = {"out": "run"}
    given |= {
        "by": asked.by,
        "site": asked.site,
        "horizons": asked.horizons,
        "time-unit": asked.time_unit,
        "decimal": asked.decimal,
    }
    words = ["xcal", "audit" if asked.kind == "predictions" else "fit", file]
    for name, value in (given | last).items():
        words += [f"--{name}={one}" for one in ([value] if isinstance(value, str) else value) if one]
    return words


def as_text(words: Sequence[str]) -> str:
    """Write a command as it can be pasted into a terminal.

    Examples
    --------
    >>> as_text(["xcal", "audit", "my file.csv", "--curves=s_*"])
    "xcal audit 'my file.csv' '--curves=s_*'"
    """
    return shlex.join(words)


if __name__ == "__main__":
    try:
        print(json.dumps(asdict(understand(Path(sys.argv[1]), *sys.argv[2:]))))
    except (ValueError, OSError, ImportError) as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
