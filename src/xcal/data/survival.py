"""`SurvivalData`: rows with features, times and events, checked once; and how they are split."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from xcal._checks import (
    as_count,
    as_flag,
    as_floats,
    as_numpy,
    as_vector,
    check_same_length,
    fail,
    first_row,
    is_missing,
)
from xcal._devices import as_device
from xcal.data.features import MappedFeatures, chosen_features, loaded_features, moved_features, read_features
from xcal.data.surv import Outcome, outcome_given, read_outcome


def check_nothing_beside(others: Mapping[str, Any]) -> None:
    """Check that what `SurvivalData` holds is not given a second time."""
    for name, value in others.items():
        if value is not None:
            fail(name, "nothing beside SurvivalData, which has times, events and weights", type(value).__name__)


def row_numbers(rows: Any, n: int) -> Any:
    """Turn what chooses rows into a slice that goes forward, or an array of numbers from 0 to n - 1."""
    if isinstance(rows, slice):
        if rows.step not in (None, 1):
            rows = np.arange(n)[rows]
        elif len(range(*rows.indices(n))) > 0:
            return rows
        else:
            fail("rows", "at least one row", f"none in {rows.start}:{rows.stop} of {n}")
    wanted = as_numpy("rows", rows)
    if wanted.ndim != 1 or wanted.dtype.kind not in "biu" or wanted.size == 0:
        fail("rows", "a slice, a mask or row numbers, at least one", f"{wanted.dtype} of shape {wanted.shape}")
    if wanted.dtype == np.bool_:
        if wanted.size != n or not wanted.any():
            found = "a mask without a row" if wanted.size == n else f"{wanted.size}"
            fail("rows", f"a mask of {n} rows with at least one of them", found)
        return np.flatnonzero(wanted)
    numbers = wanted.astype(np.int64)
    outside = (numbers < -n) | (numbers >= n)
    if outside.any():
        place = int(np.argmax(outside))
        fail("rows", f"row numbers below {n}", f"{numbers[place]} at position {place}")
    return np.where(numbers < 0, numbers + n, numbers)


def check_fractions(values: Any) -> list[float]:
    """Return shares above 0 that sum to 1, two or more of them."""
    try:
        shares = [float(value) for value in values]
    except (TypeError, ValueError, OverflowError, RuntimeError):
        fail("fractions", "a sequence of numbers", repr(values))
    if len(shares) < 2 or not all(0 < share < 1 for share in shares) or not math.isclose(sum(shares), 1.0):
        fail("fractions", "two or more shares above 0 that sum to 1", repr(values))
    return shares


# --- What a row can have besides features, time and event, each checked.


def read_weights(name: str, values: Any, n: int, *, reference: str = "x") -> npt.NDArray[np.float64]:
    """Weights in float64: finite, zero or larger, and not all zero."""
    weights = as_floats(name, values)
    check_same_length(name, weights, reference, n)
    bad = ~(np.isfinite(weights) & (weights >= 0))
    if bad.any():
        fail(name, "finite weights, zero or larger", weights[first_row(bad)], first_row(bad))
    if not weights.sum() > 0:
        fail(name, "a positive sum", weights.sum())
    return weights.astype(np.float64)


def read_labels(name: str, values: Any, n: int) -> npt.NDArray[Any]:
    """Labels, all numbers or all text, none missing."""
    if hasattr(values, "detach"):
        labels = as_numpy(name, values)
    else:
        try:
            labels = np.asarray(values)
        except ValueError:
            fail(name, "one label for each row", "lists of different lengths")
    if labels.ndim != 1:
        fail(name, "one label for each row", f"shape {labels.shape}")
    check_same_length(name, labels, "x", n)
    if labels.dtype.kind == "O":
        labels = _of_one_kind(name, labels)
    if labels.dtype.kind not in "biufU":
        fail(name, "numbers or text", f"dtype {labels.dtype}")
    if labels.dtype.kind == "f" and np.isnan(labels).any():
        fail(name, "a label in every row", "nan", first_row(np.isnan(labels)))
    return np.array(labels)


def _of_one_kind(name: str, labels: npt.NDArray[np.object_]) -> npt.NDArray[Any]:
    """Return an array of objects in the type that they share."""
    missing = np.array([is_missing(value) for value in labels])
    if missing.any():
        fail(name, "a label in every row", labels[first_row(missing)], first_row(missing))
    kind = str if isinstance(labels[0], str) else int
    other = np.array([not isinstance(value, str if kind is str else int | np.integer) for value in labels])
    if other.any():
        row = first_row(other)
        fail(name, "all whole numbers or all text", f"a {type(labels[row]).__name__} beside a {kind.__name__}", row)
    return labels.astype(kind)


def read_ids(name: str, values: Any, n: int) -> npt.NDArray[Any]:
    """Labels that are all different."""
    ids = read_labels(name, values, n)
    _, first = np.unique(ids, return_index=True)
    if first.size < n:
        repeated = np.ones(n, dtype=bool)
        repeated[first] = False
        row = first_row(repeated)
        fail(name, "a different name for each row", f"{ids[row]!s} a second time", row)
    return ids


def read_extra(name: str, values: Any, n: int) -> npt.NDArray[Any]:
    """Numbers of each row that no model sees; they may be missing or infinite."""
    numbers = as_vector(f"extra[{name!r}]", values)
    check_same_length(f"extra[{name!r}]", numbers, "x", n)
    return np.array(numbers)


def read_names(name: str, values: Sequence[str], shape: tuple[int, ...]) -> tuple[str, ...]:
    """Names of the columns of features of this shape, all different, or none at all."""
    if isinstance(values, str) or not isinstance(values, Sequence):
        fail(name, "a sequence of names", repr(values))
    names = tuple(values)
    if not names:
        return names
    seen: set[str] = set()
    for place, value in enumerate(names):
        if not isinstance(value, str) or value in seen:
            fail(name, "texts that are all different", f"{value!r} at position {place}")
        seen.add(value)
    if len(shape) != 2 or len(names) != shape[1]:
        fail(name, f"one for each column of x, of shape {shape}", f"{len(names)} names")
    return names


# --- Which row goes into which part: random splits and folds, by event or by whole groups.

IntArray = npt.NDArray[np.int64]
Kinds = npt.NDArray[np.bool_] | IntArray  # whether an event happened, or its cause


@dataclass(frozen=True, eq=False)
class Fold:
    """Row numbers of one fold: `train` and `test` are disjoint, sorted, and together all rows."""

    train: IntArray
    test: IntArray


def split_by_event(event: Kinds, fractions: Sequence[float], rng: np.random.Generator) -> IntArray:
    """Part of each row; every part has its share of the events, of each cause, and of the censored rows.

    Parts that could have an event each do: one without cannot be trained or validated on.
    """
    part = np.zeros(event.size, dtype=np.int64)
    for kind in (*range(1, int(event.max()) + 1), 0):
        rows = rng.permutation(np.flatnonzero(event == kind))
        part[rows] = _parts_in_order(rows.size, fractions, none_empty=kind > 0)
    return part


def split_at_random(n: int, fractions: Sequence[float], rng: np.random.Generator) -> IntArray:
    """Part of each row, whatever its event."""
    part = np.empty(n, dtype=np.int64)
    part[rng.permutation(n)] = _parts_in_order(n, fractions, none_empty=True)
    return part


def split_groups(groups: npt.NDArray[Any], fractions: Sequence[float], rng: np.random.Generator) -> IntArray:
    """Part of each row, all rows of a group in the same one.

    Groups are dealt in random order, each to the part that lacks most rows: no part gets more rows than its share and
    one group.
    """
    _, group, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    lacking = np.asarray(fractions, dtype=np.float64) * groups.size
    part_of_group = np.empty(sizes.size, dtype=np.int64)
    for number in rng.permutation(sizes.size):
        part_of_group[number] = np.argmax(lacking)
        lacking[part_of_group[number]] -= sizes[number]
    return part_of_group[group]


def folds_by_event(event: Kinds, k: int, rng: np.random.Generator) -> IntArray:
    """Fold of each row; sizes differ by at most one row, and so do the numbers of events, and those of each cause."""
    shuffled = rng.permutation(event.size)
    # Events first, by cause, then censored rows, each in random order, dealt like cards to the k folds in turn.
    kinds = (*range(1, int(event.max()) + 1), 0)
    order = np.concatenate([shuffled[event[shuffled] == kind] for kind in kinds])
    fold = np.empty(event.size, dtype=np.int64)
    fold[order] = np.arange(event.size) % k
    return fold


def _parts_in_order(size: int, fractions: Sequence[float], *, none_empty: bool) -> IntArray:
    """Part of each of `size` shuffled rows: the last part first, so that the first one takes what rounding leaves."""
    last = len(fractions) - 1
    sizes, before = np.zeros(last + 1, dtype=np.int64), 0
    for k, share in enumerate(np.cumsum(fractions[::-1])[:-1]):
        end = max(round(float(share) * size), before)
        if none_empty and size > last:
            end = min(max(end, before + 1), size - (last - k))
        sizes[last - k], before = end - before, end
    sizes[0] = size - before
    return np.repeat(np.arange(last, -1, -1), sizes[::-1])


# Numbers of each row that go with the features to a device; what else a row has stays in numpy, on the host.
_NUMBERS = ("time", "event", "cause", "entry", "lower", "weights")


@dataclass(frozen=True, eq=False, repr=False)
class SurvivalData:
    """Features, times and events of some rows, checked when they are put together and trusted from then on.

    Numbers are kept where the features are: if `x` is a tensor, then `time`, `event` and `weights` are tensors on the
    same device, otherwise numpy arrays. The features are not copied; do not change them afterwards.

    Parameters
    ----------
    x : (n, ...)
        Features, one vector, image or other array for each row: a float32 or float64 array or tensor, or a data frame.
        Their type is the type that models are trained in. A memory-mapped array (``np.load(path, mmap_mode="r")``)
        stays in its file and is never read whole; `xcal.data.map_parquet` makes one from a parquet file.
    time, event : (n,)
        Observed times, of the event or of censoring: finite, zero or larger. True or 1 where the event happened, False
        or 0 where the row is censored.
    cause : (n,), optional
        In place of `event`, where an event has one of several causes: 0 for a censored row, 1, 2, ... or the name of
        the cause of its event. `event` is then "any of them happened".
    causes : sequence of str, optional
        Names of causes 1, 2, ...; "1", "2", ... by default.
    entry : (n,), optional
        Time from which each row was under observation; 0 for rows observed from the start.
    lower, upper : (n,), optional
        In place of `time` and `event`, the two ends of the interval in which each event lies; see `xcal.Surv`. `time`
        is then the later one, or of a censored row `lower`.
    id : (n,), optional
        The person of each row, where some have several rows, from `entry` to `time` each. Splits keep people whole.
    weights : (n,), optional
        Row weights, finite, zero or larger. Only their ratios matter; a row of weight zero is not trained on.
    groups : (n,), optional
        What each row belongs to, numbers or text: a subject with several rows, a hospital, a class of images.
    row_ids : (n,), optional
        A name for each row, numbers or text, all different.
    extra : mapping of (n,) arrays, optional
        Further numbers of each row that no model sees, such as the true mean of a simulated time.
    feature_names : sequence of str, optional
        One for each column of `x`; those of a data frame are read from it.
    time_unit : str
        Unit of the times, such as "days".
    name : str
        Name of the data set.

    Examples
    --------
    >>> data = SurvivalData([[50.0], [61.0], [47.0]], time=[10, 4, 7], event=[1, 0, 1], time_unit="days")
    >>> data
    SurvivalData(3 rows of 1 feature, 1 censored, time from 4 to 10 days)
    >>> data[data.event].time
    array([10.,  7.])
    >>> data.to("cpu").time
    tensor([10.,  4.,  7.], dtype=torch.float64)
    >>> SurvivalData([[50.0], [61.0]], time=[10, -4], event=[1, 0])
    Traceback (most recent call last):
    ValueError: time: expected finite times, zero or larger, got -4.0 at row 1
    """

    x: Any
    time: Any = None
    event: Any = None
    weights: Any = None
    cause: Any = field(default=None, kw_only=True)
    causes: Sequence[str] = field(default=(), kw_only=True)
    entry: Any = field(default=None, kw_only=True)
    lower: Any = field(default=None, kw_only=True)
    upper: InitVar[Any] = field(default=None, kw_only=True)
    id: Any = field(default=None, kw_only=True)
    groups: Any = field(default=None, kw_only=True)
    row_ids: Any = field(default=None, kw_only=True)
    extra: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    feature_names: Sequence[str] = field(default=(), kw_only=True)
    time_unit: str = field(default="", kw_only=True)
    name: str = field(default="", kw_only=True)

    def __post_init__(self, upper: Any) -> None:
        x, columns = read_features("x", self.x)
        n = x.shape[0]
        beside = {one: getattr(self, one) for one in ("x", "weights", "groups", "row_ids")}
        given = {one: getattr(self, one) for one in ("time", "event", "cause", "entry", "lower", "id")}
        given["upper"] = upper
        for name, values in given.items():
            if getattr(values, "ndim", 1) == 1 and hasattr(values, "__len__"):
                check_same_length(name, values, "x", n)
        found = outcome_given(given, self.causes or None, beside=beside)
        numbers = {one: getattr(found, one) for one in ("time", "event", "cause", "entry", "lower", "id")}
        numbers["weights"] = None if self.weights is None else read_weights("weights", self.weights, n)
        labels = {
            "groups": None if self.groups is None else read_labels("groups", self.groups, n),
            "row_ids": None if self.row_ids is None else read_ids("row_ids", self.row_ids, n),
            "extra": {key: read_extra(key, values, n) for key, values in self.extra.items()},
            "feature_names": read_names("feature_names", _named(self.feature_names, columns), tuple(x.shape)),
        }
        for text in ("time_unit", "name"):
            if not isinstance(getattr(self, text), str):
                fail(text, "text", repr(getattr(self, text)))
        # Copies of the small arrays: nobody else can change them, and a field of a structured array has gaps between
        # its values, which torch cannot take.
        own = {key: None if values is None else np.array(values) for key, values in numbers.items()}
        self.__dict__.update(x=x, causes=found.causes, **own, **labels)
        if isinstance(x, Tensor):
            self.__dict__.update(self._numbers_on(x.device))

    @classmethod
    def trusted(cls, x: Any, time: Any, event: Any, weights: Any = None, **others: Any) -> "SurvivalData":
        """Put together what was checked before, without another check; for code, not for people's data."""
        nothing: dict[str, Any] = dict.fromkeys(("cause", "entry", "lower", "id", "groups", "row_ids"))
        plain = nothing | {"causes": (), "extra": {}, "feature_names": (), "time_unit": "", "name": ""}
        made = object.__new__(cls)
        made.__dict__.update({"x": x, "time": time, "event": event, "weights": weights, **plain, **others})
        return made

    def replaced(self, **values: Any) -> "SurvivalData":
        """Copy with other values in some places, which are trusted."""
        return SurvivalData.trusted(**{**self.__dict__, **values})

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self.time.shape[0])

    def __len__(self) -> int:
        return self.n

    @property
    def outcome(self) -> Outcome:
        """What was observed of the rows, as numpy arrays on the host."""
        known = {one: getattr(self, one) for one in ("time", "event", "cause", "entry", "lower", "id")}
        arrays: dict[str, Any] = {
            one: None if values is None else as_numpy(one, values) for one, values in known.items()
        }
        return Outcome(**arrays, causes=tuple(self.causes))

    def with_outcome(self, found: Outcome) -> "SurvivalData":
        """Return the rows with what was observed of them, which is trusted."""
        own = {one: getattr(found, one) for one in ("time", "event", "cause", "causes", "entry", "lower", "id")}
        return self.replaced(**own)

    @property
    def plain(self) -> bool:
        """Whether rows are observed from the start, with times that are known and events of one kind."""
        return self.cause is None and self.entry is None and self.lower is None

    @property
    def device(self) -> torch.device:
        """Where the tensors are, or go when they are read from a file; the CPU for numpy arrays."""
        return self.time.device if isinstance(self.time, Tensor) else torch.device("cpu")

    def __getitem__(self, rows: Any) -> "SurvivalData":
        """Pick rows by a slice, a mask or row numbers, in the given order. Features in a file stay there."""
        chosen = row_numbers(rows, self.n)

        def pick(values: Any) -> Any:
            if isinstance(values, Tensor) and not isinstance(chosen, slice):
                return values[torch.as_tensor(chosen, device=values.device)]
            return None if values is None else values[chosen]

        return self.replaced(
            x=chosen_features(self.x, chosen),
            **{key: pick(getattr(self, key)) for key in (*_NUMBERS, "id", "groups", "row_ids")},
            extra={key: pick(values) for key, values in self.extra.items()},
        )

    def to(self, device: str | torch.device) -> "SurvivalData":
        """Features, times, events and weights as tensors on a device; features in a file go there as they are read."""
        where = as_device(device)
        return self.replaced(x=moved_features(self.x, where), **self._numbers_on(where))

    def _numbers_on(self, device: torch.device) -> dict[str, Tensor | None]:
        kept = {key: getattr(self, key) for key in _NUMBERS}
        return {key: None if values is None else torch.as_tensor(values).to(device) for key, values in kept.items()}

    def batches(self, size: int, *, seed: int | None = None) -> Iterator["SurvivalData"]:
        """All rows, `size` at a time and fewer in the last batch, in their order or shuffled by a seed.

        Features in a file are read batch by batch.
        """
        step = as_count("size", size, at_least=1)
        order = None if seed is None else np.random.default_rng(as_count("seed", seed, at_least=0)).permutation(self.n)
        for start in range(0, self.n, step):
            rows = slice(start, start + step)
            batch = self[rows if order is None else order[rows]]
            yield batch.replaced(x=loaded_features(batch.x))

    def split(
        self, fractions: Sequence[float], *, seed: int, by_event: bool = True, whole_groups: bool = False
    ) -> tuple["SurvivalData", ...]:
        """Split the rows at random into parts; rows keep their order within a part, and all of a person are in one.

        Parameters
        ----------
        fractions : sequence of float
            Share of each part; together 1.
        seed : int
            The same seed gives the same parts.
        by_event : bool
            Give every part its share of the events and of the censored rows.
        whole_groups : bool
            Keep all rows of a group (`groups`) in one part, so that no model is judged on a subject that it knows.
            Parts are then as close to their shares as the sizes of the groups allow, and `by_event` is not used.

        Examples
        --------
        >>> visits = [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]  # two rows for each of five patients
        >>> data = SurvivalData(np.zeros((10, 1)), time=np.ones(10), event=[1, 0] * 5, groups=visits)
        >>> [part.n for part in data.split((0.6, 0.4), seed=0)]
        [6, 4]
        >>> train, test = data.split((0.6, 0.4), seed=0, whole_groups=True)
        >>> set(train.groups) & set(test.groups)
        set()
        """
        shares = check_fractions(fractions)
        rng = np.random.default_rng(as_count("seed", seed, at_least=0))
        if as_flag("whole_groups", whole_groups):
            part = split_groups(self._groups(), shares, rng)
        else:
            event, person = self._people()
            if as_flag("by_event", by_event):
                part = split_by_event(event, shares, rng)[person]
            else:
                part = split_at_random(event.size, shares, rng)[person]
        rows = [np.flatnonzero(part == k) for k in range(len(shares))]
        for share, chosen in zip(shares, rows, strict=True):
            if chosen.size == 0:
                of = f"{np.unique(self.groups).size} groups" if whole_groups else f"{self.n} rows"
                fail("fractions", "parts with at least one row", f"none for a share of {share:g} of {of}")
        return tuple(self[chosen] for chosen in rows)

    def folds(self, k: int, seed: int, *, whole_groups: bool = False) -> tuple[Fold, ...]:
        """Row numbers of `k` folds: each row is in exactly one `test`, and all rows of a person in the same one.

        The sizes of any two folds differ by at most one row, or person, and so do their numbers of events.

        Parameters
        ----------
        k : int
            Number of folds, from 2 to the number of rows.
        seed : int
            The same seed gives the same folds.
        whole_groups : bool
            Keep all rows of a group (`groups`) in one fold. Sizes then differ by at most the largest group.

        Examples
        --------
        >>> data = SurvivalData(np.zeros((20, 1)), time=np.ones(20), event=[True, False] * 10)
        >>> [int(data.event[fold.test].sum()) for fold in data.folds(5, seed=0)]
        [2, 2, 2, 2, 2]
        """
        whole = as_flag("whole_groups", whole_groups)
        event, person = self._people()
        most = np.unique(self._groups()).size if whole else event.size
        if as_count("k", k, at_least=2) > most:
            unit = "groups" if whole else "rows" if self.id is None else "people"
            fail("k", f"at most {most}, the number of {unit}", k)
        rng = np.random.default_rng(as_count("seed", seed, at_least=0))
        # Of whole groups sizes differ by at most the largest group.
        fold = split_groups(self._groups(), [1 / k] * k, rng) if whole else folds_by_event(event, k, rng)[person]
        return tuple(Fold(np.flatnonzero(fold != i), np.flatnonzero(fold == i)) for i in range(k))

    def _groups(self) -> npt.NDArray[Any]:
        """Return the group of each row; one that holds a person whole, where people have several rows."""
        if self.groups is None:
            fail("whole_groups", "data with groups", "none: give SurvivalData(groups=...)")
        if self.id is not None:
            _, first, person = np.unique(self.id, return_index=True, return_inverse=True)
            if (other := self.groups != self.groups[first][person]).any():
                row = first_row(other)
                fail("groups", "all rows of one id in one group", f"another one than row {first[person[row]]}", row)
        return np.asarray(self.groups)

    def _people(self) -> tuple[Kinds, Any]:
        """Return the event or cause of each person, and the person of each row; rows are people without `id`."""
        event = as_numpy("event", self.event) if self.cause is None else as_numpy("cause", self.cause)
        if self.id is None:
            return event, slice(None)
        _, person = np.unique(self.id, return_inverse=True)
        return np.bincount(person, event) > 0, person

    def __repr__(self) -> str:
        time = as_numpy("time", self.time)
        told = [f"{self.n} row{'s' * (self.n != 1)} of {_shape(self.x)}", f"{int((~self.event).sum())} censored"]
        told.append(f"time from {time.min():g} to {time.max():g}{' ' * bool(self.time_unit)}{self.time_unit}")
        told += ["weighted"] if self.weights is not None else []
        told += ["with times of entry"] if self.entry is not None else []
        told += ["in intervals"] if self.lower is not None else []
        told += [f"{np.unique(self.id).size} people"] if self.id is not None else []
        told += [f"{np.unique(self.groups).size} groups"] if self.groups is not None else []
        told += ["features in a file"] if isinstance(self.x, np.memmap | MappedFeatures) else []
        told += [f"on {self.device}"] if self.device.type != "cpu" else []
        return f"SurvivalData({self.name}{': ' * bool(self.name)}{', '.join(told)})"


def _named(names: Any, columns: Sequence[str]) -> Any:
    """Return the names given, as a list where an array or an index has them, or those of a data frame."""
    if hasattr(names, "tolist") and not isinstance(names, Tensor) and np.ndim(names) == 1:
        names = names.tolist()
    return columns if isinstance(names, Sequence) and len(names) == 0 else names


def _shape(x: Any) -> str:
    shape = " x ".join(str(size) for size in x.shape[1:])
    return f"{shape} feature{'s' * (tuple(x.shape[1:]) != (1,))}"


def outcome_of(
    X: Any,
    y: Any,
    n: int | None = None,
    *,
    name: str = "y",
    entry: bool = False,
    intervals: bool = False,
    people: bool = False,
    causes: bool = False,
) -> Outcome:
    """Read what was observed of the `n` rows of X, where that is known, from y or from the `SurvivalData` that X is.

    The last four say what the caller knows beside times and events, as in `xcal.data.surv.read_outcome`.
    """
    if isinstance(X, SurvivalData):
        check_nothing_beside({name: y})
        found = X.outcome.limited("X", entry=entry, intervals=intervals, people=people, causes=causes)
        return replace(found, time=found.time.astype(np.float64))
    if y is None:
        got = "None: a survival model requires y to be passed, but the target y is None"
        fail(name, "Surv(time=..., event=...)", got)
    found = read_outcome(y, name=name, X=X, entry=entry, intervals=intervals, people=people, causes=causes)
    if n is not None:
        check_same_length(name, found.time, "X", n)
    # A field of a structured array has gaps between its values, which torch cannot take; one row counts as contiguous
    # whatever its gaps, so that only a copy is safe.
    copies: dict[str, Any] = {name: np.array(own) for name, own in vars(found).items() if isinstance(own, np.ndarray)}
    return replace(found, **copies)
