"""The one way xcal refuses bad input.

Every message has the same form, ``argument: expected ..., got ... at row i``: what was wrong, where, and what was
expected instead. Checks run once, in the public functions; inner functions trust their arguments.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import Any, Literal, NoReturn, TypeVar, overload

import numpy as np
import numpy.typing as npt

BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.floating[Any]]
Floats = npt.NDArray[np.float64]
Choice = TypeVar("Choice", bound=str)
# More bins, points, groups, features or draws than anybody needs, and far fewer than fill a memory.
MANY = 10**6
MIN_CELL = 5
"""Rows of a cell that is shown, unless another number is asked for; 0 and 1 show all. See `metrics.inputs`."""
# Sampling weights that can be squared and summed, and the largest over the smallest of them.
_WEIGHTS, _RATIO = (1e-100, 1e100), 1e12
_FLAGS = "True/False or 0/1"  # what an event may be
MOST_CAUSES = 1000  # a larger number is no cause but an amount, a time for instance
_SHOWN = 400  # characters of a value that a message shows


def fail(name: str, expected: str, got: object, row: int | tuple[int, ...] | None = None) -> NoReturn:
    """Raise the one error form: one line, however many lines the printed value has."""
    where = "" if row is None else f" at row {row}"
    shown = " ".join(str(got).split())
    shown = shown if len(shown) <= _SHOWN else f"{shown[: _SHOWN - 3]}..."
    raise ValueError(f"{name}: expected {expected}, got {shown}{where}")


def as_count(name: str, value: Any, *, at_least: int, below: int | None = None, at_most: int | None = None) -> int:
    """Check that `value` is an integer, Python's or numpy's, of `at_least` or more; the result is Python's.

    True and False are no integers here: who writes ``n_bins=True`` means something else. `at_most` is a limit that
    nobody meets who does not make a mistake, and is told only to those who do.

    Examples
    --------
    >>> as_count("n_bins", np.int64(10), at_least=2)
    10
    """
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or value < at_least or (below is not None and value >= below):
        wanted = f"an integer of {at_least} or more" if below is None else f"an integer from {at_least} to {below - 1}"
        fail(name, wanted, repr(value))
    if at_most is not None and value > at_most:
        fail(name, f"an integer of at most {at_most:,}", repr(value))
    return int(value)


def as_number(
    name: str, value: Any, *, above: float | None = None, at_least: float | None = None, below: float = math.inf
) -> float:
    """Check that `value` is one finite number, Python's or numpy's, within the limits given; the result is Python's.

    Examples
    --------
    >>> as_number("gamma", np.float32(0.5), above=0)
    0.5
    """
    number = _as_float(value)
    # Comparisons with NaN are false, so NaN is refused with what lies outside.
    inside = -math.inf < number < below and (above is None or number > above)
    if not inside or (at_least is not None and number < at_least):
        fail(name, _range(above, at_least, below), repr(value))
    return number


def _as_float(value: Any) -> float:
    """One number as a float; NaN for what is none, and for an integer too large for one."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan


def _range(above: float | None, at_least: float | None, below: float) -> str:
    """Return in words which numbers are welcome."""
    if below == math.inf:
        if above is not None:
            return f"a finite number above {above:g}"
        return "a finite number" if at_least is None else f"a finite number of {at_least:g} or more"
    if above is not None:
        return f"a number between {above:g} and {below:g}"
    return f"a number below {below:g}" if at_least is None else f"a number from {at_least:g} to below {below:g}"


@overload
def as_choice(name: str, value: Choice, allowed: Iterable[Choice]) -> Choice: ...


@overload
def as_choice(
    name: str, value: Choice | None, allowed: Iterable[Choice], *, or_none: Literal[True]
) -> Choice | None: ...


def as_choice(name: str, value: Choice | None, allowed: Iterable[Choice], *, or_none: bool = False) -> Choice | None:
    """Check that `value` is one of the allowed words, or None where that is allowed too.

    Examples
    --------
    >>> as_choice("method", "km", ("uniform", "km"))
    'km'
    """
    words = tuple(allowed)
    # The type first: an array compared with a word is an array.
    if not (value is None and or_none) and not (isinstance(value, str) and value in words):
        fail(name, "one of " + ", ".join(map(repr, words)) + (" or None" if or_none else ""), repr(value))
    return value


def as_flag(name: str, value: Any) -> bool:
    """Check that `value` is True or False, Python's or numpy's: an array has no one truth value.

    Examples
    --------
    >>> as_flag("left_limit", np.True_)
    True
    """
    if not isinstance(value, bool | np.bool_):
        fail(name, "True or False", repr(value))
    return bool(value)


def as_row(name: str, values: Any) -> npt.NDArray[Any]:
    """Return numbers of any form as a one-dimensional array; a single number becomes an array of one."""
    return np.atleast_1d(as_numpy(name, values))


def as_numpy(name: str, values: Any) -> npt.NDArray[Any]:
    """Any array-like, a torch tensor on any device included, as a numpy array (no copy where none is needed)."""
    if hasattr(values, "detach"):
        values = _readable(name, values)
    refuse_masked(name, values)
    try:
        array = np.asarray(values)
    except ValueError:  # numpy's words for a list of lists that make no rectangle do not name the argument
        fail(name, "an array of numbers", "rows of different lengths")
    if array.dtype == object:
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError, OverflowError) as error:
            # A whole number that no float can hold is as little a number here as a word.
            raise ValueError(f"{name}: expected numbers, got values of mixed or non-numeric type") from error
    if array.dtype.names:
        fields = ", ".join(array.dtype.names)
        fail(name, "an array of numbers", f"a structured array with fields {fields}: pass one of them")
    if array.dtype.kind not in "biuf":
        fail(name, "an array of numbers", f"dtype {array.dtype}")
    return array


def _readable(name: str, tensor: Any) -> Any:
    """Bring a torch tensor to the CPU, in a type that numpy has."""
    try:
        # numpy has no bfloat16; float32 holds every bfloat16 and float16 exactly.
        half = tensor.is_floating_point() and tensor.element_size() < 4
        return (tensor.detach().float() if half else tensor.detach()).cpu().numpy()
    # Sparse, quantised and meta tensors each refuse in a way of their own.
    except (TypeError, NotImplementedError, RuntimeError):
        fail(name, "a tensor whose values can be read", f"one of layout {tensor.layout} on device {tensor.device}")


def refuse_masked(name: str, values: Any) -> None:
    """Refuse numpy's masked values: as an array they are numbers like all others."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        row = tuple(int(i) for i in np.argwhere(np.ma.getmaskarray(values))[0])
        fail(name, "values without a mask", "a masked one", row[0] if len(row) == 1 else row)


def as_vector(name: str, values: Any) -> npt.NDArray[Any]:
    """Check that `values` is one-dimensional and not empty."""
    array = as_numpy(name, values)
    if array.ndim != 1:
        fail(name, "a one-dimensional array, one value per row", f"shape {array.shape}")
    if array.size == 0:
        fail(name, "at least one row", "an empty array")
    return array


def as_floats(name: str, values: Any) -> FloatArray:
    """Turn `values` into a one-dimensional float array: float32 stays as it is, everything else becomes float64."""
    array = as_vector(name, values)
    return array if array.dtype == np.float32 else array.astype(np.float64, copy=False)


def first_row(bad: npt.NDArray[np.bool_]) -> int:
    """Index of the first offending row."""
    return int(np.argmax(bad))


def check_same_length(name: str, array: Any, reference_name: str, n: int) -> None:
    """Check that `array` has one value for each of the `n` rows of the reference argument."""
    if len(array) != n:
        fail(name, f"{n} rows, as many as {reference_name} has", f"{len(array)}")


def check_rows(named: Mapping[str, Any]) -> None:
    """Refuse pandas objects whose indexes say that their rows are not the same ones in the same order.

    Rows are taken by position, and nobody can know whether the index or the position is right: the same labels in
    another order, or other labels. An index that only counts the rows says nothing beside other labels. What has no
    index is not looked at.

    Examples
    --------
    >>> import pandas as pd
    >>> check_rows({"time": pd.Series([1.0, 2.0]), "event": pd.Series([0, 1], index=[1, 0])})
    Traceback (most recent call last):
    ValueError: event: expected rows with the index of time, in its order (to match labels: .loc[time.index]; if the \
rows are in order as they are: .to_numpy()), got the same labels in another order
    """
    indexed = [(name, index) for name, values in named.items() if (index := index_of(values)) is not None]
    for place, (name, own) in enumerate(indexed):
        for reference, other in indexed[:place]:
            got = "" if len(own) != len(other) or own.equals(other) else _difference(own, other)
            if got:
                # A target that was made of columns with an index has no rows to locate.
                found = "" if hasattr(named[name], "loc") else "Surv of columns "
                taken = ".to_numpy()" if not found else f"numpy.asarray({name})"
                ways = f"to match labels: {found}.loc[{reference}.index]; if the rows are in order as they are: {taken}"
                fail(name, f"rows with the index of {reference}, in its order ({ways})", got)


def _difference(own: Any, other: Any) -> str:
    if set(own) == set(other):
        return "the same labels in another order"
    return "" if counts_rows(own) or counts_rows(other) else "other labels"


def index_of(values: Any) -> Any:
    """Return the index of a pandas object or of a target; None for anything else. Lists have a method of that name."""
    index = getattr(values, "index", None)
    return index if hasattr(index, "equals") else None


def counts_rows(index: Any) -> bool:
    """Return whether an index only counts the rows: 0, 1, 2, ..."""
    return list(index) == list(range(len(index)))


def as_event(event: Any, n: int, *, reference: str = "cdf", name: str = "event") -> BoolArray:
    """Event indicators as booleans: bool or 0/1, True means that the event happened."""
    _refuse_words_and_gaps(name, event)
    array = as_vector(name, event)
    check_same_length(name, array, reference, n)
    if array.dtype == np.bool_:
        return array
    bad = ~((array == 0) | (array == 1))
    if bad.any():
        row = first_row(bad)
        fail(name, "True/False or 0/1, 1 meaning that the event happened", array[row], row)
    return array.astype(np.bool_)


def _refuse_words_and_gaps(name: str, event: Any, wanted: str = _FLAGS) -> None:
    """Refuse events that are words, and ones that are missing in a column of objects or of pandas' own types."""
    # A tensor has neither; an array of numbers is looked at by its numbers.
    if hasattr(event, "detach") or getattr(getattr(event, "dtype", None), "kind", "O") in "iuf":
        return
    try:
        values = np.asarray(event)
    except ValueError:  # of no rectangle: said by as_vector
        return
    if values.ndim != 1 or values.dtype.kind not in "OUST":
        return
    listed = values.tolist()
    words = sorted({value for value in listed if isinstance(value, str)})
    if words:
        shown = ", ".join(map(repr, words[:4])) + (", ..." if len(words) > 4 else "")
        which = f": say which word is the event, as in status == {words[0]!r}" if wanted == _FLAGS else ""
        fail(name, f"{wanted}{which}", f"the words {shown}")
    missing = np.array([is_missing(value) for value in listed])
    if missing.any():
        row = first_row(missing)
        fail(name, f"{wanted} in every row", f"a missing value ({listed[row]})", row)


def is_missing(value: Any) -> bool:
    """Return whether a label is None, NaN, NaT or pandas' NA: what is not equal to itself, or cannot say."""
    try:
        return value is None or bool(value != value)  # noqa: PLR0124 - that is the definition of NaN
    except (TypeError, ValueError):
        return True


def as_labels(name: str, values: Any, n: int, *, reference: str = "cdf") -> npt.NDArray[Any]:
    """One label per row, as an array that can be sorted.

    Examples
    --------
    >>> as_labels("groups", ["a", "b", "a"], 3)
    array(['a', 'b', 'a'], dtype='<U1')
    """
    refuse_masked(name, values)
    # A tensor's labels are numbers; the one way to read them also says which tensors cannot be read.
    labels: Any = as_numpy(name, values) if hasattr(values, "detach") else values
    one_each = "a one-dimensional array, one label per row"
    if not (isinstance(labels, np.ndarray) and labels.dtype.kind in "biuU"):
        # Looked at one by one before numpy sees them, which would turn a missing label into the string "nan".
        shapeless = isinstance(labels, str) or not isinstance(labels, Iterable) or getattr(labels, "ndim", 1) == 0
        if shapeless or getattr(getattr(labels, "dtype", None), "names", None):
            fail(name, one_each, repr(labels))
        listed = list(labels)
        missing = np.array([is_missing(label) for label in listed], dtype=np.bool_)
        if missing.any():
            row = first_row(missing)
            fail(name, "a label for every row", listed[row], row)
        if len({type(label) for label in listed}) > 1:
            fail(name, "labels of one type", f"{type(listed[0]).__name__} and others")
        try:
            labels = np.asarray(labels)
        except ValueError:
            fail(name, one_each, "rows of different lengths")
    if labels.ndim != 1:
        fail(name, one_each, f"shape {labels.shape}")
    check_same_length(name, labels, reference, n)
    return np.asarray(labels)


def as_probability(name: str, values: Any) -> FloatArray:
    """One probability per row, finite and within [0, 1]."""
    array = as_floats(name, values)
    # NaN makes both comparisons false, so one pass over extrema catches everything.
    if not (array.min() >= 0 and array.max() <= 1):
        row = first_row(~((array >= 0) & (array <= 1)))
        fail(name, "values in [0, 1]", array[row], row)
    return array


def as_time(time: Any, n: int | None = None, *, reference: str = "event", name: str = "time") -> FloatArray:
    """Observed times: finite and not negative."""
    array = as_floats(name, time)
    if n is not None:
        check_same_length(name, array, reference, n)
    bad = ~(np.isfinite(array) & (array >= 0))
    if bad.any():
        row = first_row(bad)
        fail(name, "finite times, zero or larger", array[row], row)
    return array


def as_times(name: str, times: Any) -> Floats:
    """One time or several, in any order, as float64: finite and not negative."""
    return as_time(as_row(name, times), name=name).astype(np.float64)


def as_levels(name: str, levels: Any) -> Floats:
    """One share or several, in any order, as float64: above 0 and below 1."""
    values = as_floats(name, as_row(name, levels)).astype(np.float64)
    bad = ~((values > 0) & (values < 1))
    if bad.any():
        fail(name, "shares between 0 and 1", values[first_row(bad)], first_row(bad))
    return values


def as_causes(
    cause: Any,
    n: int,
    *,
    n_causes: int | None = None,
    names: Sequence[str] = (),
    reference: str = "time",
    name: str = "cause",
) -> IntArray:
    """Causes of events as whole numbers: 0 for a censored row, or the number of its cause.

    Where causes have `names`, a row may also have a name, or "censored". `n_causes` is the largest number that there
    may be, where it is known.
    """
    most = len(names) if names else n_causes
    wanted = "0 for a censored row, or a cause: " + ("1, 2, ..." if most is None else f"1 to {most}")
    if names:
        wanted = "0 or 'censored' for a censored row, or a cause: " + ", ".join(map(repr, names))
        cause = _numbered(cause, names, name, wanted)
    else:
        _refuse_words_and_gaps(name, cause, f"{wanted}; causes=('first', 'second') gives names")
    array = as_vector(name, cause)
    check_same_length(name, array, reference, n)
    bad = ~(np.isfinite(array) & (array >= 0) & (array == np.floor(array)))
    bad |= array > (MOST_CAUSES if most is None else most)
    if bad.any():
        fail(name, wanted, array[first_row(bad)], first_row(bad))
    return array.astype(np.int64)


def _numbered(cause: Any, names: Sequence[str], name: str, wanted: str) -> Any:
    """Replace the names of causes by their numbers; what is no text stays as it is."""
    listed = np.asarray(cause, dtype=object) if not hasattr(cause, "detach") else None
    if listed is None or listed.ndim != 1 or not any(isinstance(value, str) for value in listed):
        return cause
    numbers: dict[Any, int] = {"censored": 0, **{label: k for k, label in enumerate(names, 1)}}
    found = [numbers.get(value, -1) if isinstance(value, str) else value for value in listed]
    for row, value in enumerate(found):
        if is_missing(value) or (isinstance(value, int) and value < 0):
            fail(name, wanted, repr(listed[row]), row)
    return found


def as_cause_names(names: Any) -> tuple[str, ...]:
    """Check names of causes: texts, different, none of them empty or "censored"."""
    if isinstance(names, str) or not isinstance(names, Iterable):
        fail("causes", "a sequence of names, such as ('recurrence', 'death')", repr(names))
    found = tuple(names)
    bad = [one for one in found if not isinstance(one, str) or not one or one == "censored" or found.count(one) > 1]
    if bad or not found:
        fail("causes", "different names, none of them '' or 'censored'", repr(bad[0]) if bad else "none")
    return found


def as_weights(name: str, values: Any, n: int, *, reference: str = "cdf") -> Floats:
    """Check sampling weights: one finite number above zero per row."""
    array = as_floats(name, values).astype(np.float64)
    check_same_length(name, array, reference, n)
    bad = ~(np.isfinite(array) & (array > 0))
    if bad.any():
        row = first_row(bad)
        fail(name, "finite weights above zero (leave rows of weight zero out)", array[row], row)
    # Beyond this, squares leave the range of floats, and sums forget the smallest rows.
    if not (array.min() >= _WEIGHTS[0] and array.max() <= min(_WEIGHTS[1], _RATIO * array.min())):
        row = int(np.argmax(np.abs(np.log(array / np.median(array)))))
        limits = f"weights from {_WEIGHTS[0]:g} to {_WEIGHTS[1]:g}, within a factor of {_RATIO:g} of each other"
        fail(name, limits, array[row], row)
    return array


def effective_units(weights: Floats) -> Floats | None:
    """Return weights in units in which their sum is the effective number of rows; None where all are equal.

    Only ratios of weights matter, and equal ones say nothing. In these units the sum of the weights is also the sum of
    their squares, Kish's effective number of rows: the variance of a weighted mean is that of the plain mean of so
    many.

    Examples
    --------
    >>> effective_units(np.array([1.0, 1.0, 2.0]))
    array([0.66666667, 0.66666667, 1.33333333])
    """
    largest = weights.max()
    if weights.min() == largest:
        return None
    shares = weights / largest  # whose squares stay within the range of floats, however large the weights
    return np.asarray(shares * (shares.sum() / np.square(shares).sum()))
