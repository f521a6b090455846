"""The checks that all network constructors share."""

from collections.abc import Sequence

from xcal._checks import as_count, as_number, fail


def check_size(name: str, value: object) -> int:
    """Check a number of inputs, outputs or units."""
    return as_count(name, value, at_least=1)


def check_sizes(name: str, values: Sequence[int]) -> tuple[int, ...]:
    """Check the sizes of hidden layers; none at all is a linear model."""
    if isinstance(values, str) or not isinstance(values, Sequence):
        fail(name, "a sequence of layer sizes", repr(values))
    return tuple(check_size(name, value) for value in values)


def check_dropout(value: float) -> float:
    """Check a dropout probability."""
    return as_number("dropout", value, at_least=0, below=1)
