"""Labels of rows, such as groups and clusters: numbers, strings or dates, none missing."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from xcal._checks import as_numpy, check_same_length, fail, first_row, is_missing, refuse_masked


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
