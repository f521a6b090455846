"""The one way xcal refuses bad input.

Every message has the same form, ``argument: expected ..., got ... at row i``: what was wrong, where, and what was
expected instead. Checks run once, at the public doors; inner functions trust their arguments.
"""

from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.floating[Any]]


def fail(name: str, expected: str, got: object, row: int | tuple[int, ...] | None = None) -> NoReturn:
    """Raise the one error form."""
    where = "" if row is None else f" at row {row}"
    raise ValueError(f"{name}: expected {expected}, got {got}{where}")


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
        except (TypeError, ValueError) as error:
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
    except (TypeError, NotImplementedError):
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
        fail(name, "a one-dimensional array, one value a row", f"shape {array.shape}")
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


def check_same_length(name: str, array: npt.NDArray[Any], reference_name: str, n: int) -> None:
    """Check that `array` has one value for each of the `n` rows of the reference argument."""
    if array.shape[0] != n:
        fail(name, f"{n} rows, as many as {reference_name} has", f"{array.shape[0]}")


def as_event(event: Any, n: int, *, reference: str = "cdf", name: str = "event") -> BoolArray:
    """Event indicators as booleans: bool or 0/1, True means that the event happened."""
    array = as_vector(name, event)
    check_same_length(name, array, reference, n)
    if array.dtype == np.bool_:
        return array
    bad = ~((array == 0) | (array == 1))
    if bad.any():
        row = first_row(bad)
        fail(name, "True/False or 0/1, 1 meaning that the event happened", array[row], row)
    return array.astype(np.bool_)


def as_probability(name: str, values: Any) -> FloatArray:
    """One probability a row, finite and within [0, 1]."""
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
