"""The checks that all network constructors share."""

from collections.abc import Sequence

from xcal._checks import fail


def check_size(name: str, value: object) -> int:
    """Check a number of inputs, outputs or units."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        fail(name, "an integer of 1 or more", repr(value))
    return value


def check_sizes(name: str, values: Sequence[int]) -> tuple[int, ...]:
    """Check the sizes of hidden layers; none at all is a linear model."""
    if isinstance(values, str) or not isinstance(values, Sequence):
        fail(name, "a sequence of layer sizes", repr(values))
    return tuple(check_size(name, value) for value in values)


def check_dropout(value: float) -> float:
    """Check a dropout probability."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        fail("dropout", "a probability from 0 to below 1", repr(value))
    return float(value)
