"""What a search may try: for each setting of the estimator, a range of numbers or a list of values."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sklearn.base import BaseEstimator

from xcal._checks import as_flag, as_number, fail

# The weight is chosen by the path itself, and the rest says where and how to train, not what.
_NOT_SEARCHED = {
    "lambdas": "it is what select() chooses for each setting",
    "target_dcal": "it takes the place of the weights, among which select() chooses",
    "device": "it does not decide how good a model is",
    "progress": "it does not decide how good a model is",
}


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, both included; whole numbers if both ends are.

    Parameters
    ----------
    low, high : int or float
    log : bool
        Whether the search goes by ratios, as for learning rates; `low` is then above zero.

    Examples
    --------
    >>> Range(1e-4, 1e-2, log=True)
    Range(low=0.0001, high=0.01, log=True)
    >>> Range(8, 4)
    Traceback (most recent call last):
    ValueError: high: expected a number above low (8), got 4
    """

    low: float
    high: float
    log: bool = False

    def __post_init__(self) -> None:
        as_number("low", self.low, above=0 if as_flag("log", self.log) else None)
        as_number("high", self.high)
        if self.high <= self.low:
            fail("high", f"a number above low ({self.low})", self.high)

    @property
    def whole(self) -> bool:
        """Whether the numbers are whole."""
        return isinstance(self.low, int) and isinstance(self.high, int)


Space = dict[str, Range | tuple[Any, ...]]


def checked_space(space: Any, estimator: BaseEstimator) -> Space:
    """Check that every setting is one of the estimator's, and every value one that a record can hold."""
    if not isinstance(space, Mapping) or not space:
        fail(
            "space", "a mapping of settings to ranges or lists, {'dropout': [0.0, 0.3]} for instance", repr(space)[:80]
        )
    known = estimator.get_params()
    found: Space = {}
    for name, values in space.items():
        if name in _NOT_SEARCHED:
            fail("space", f"other settings than {name}: {_NOT_SEARCHED[name]}", repr(name))
        if name not in known:
            fail("space", f"settings of {type(estimator).__name__} ({', '.join(sorted(known))})", repr(name))
        found[name] = values if isinstance(values, Range) else _choices(name, values)
    return found


def _choices(name: str, values: Any) -> tuple[Any, ...]:
    if isinstance(values, str | bytes) or not isinstance(values, Sequence) or len(values) == 0:
        fail(f"space[{name!r}]", "a Range, or a list of at least one value", repr(values)[:80])
    try:
        json.dumps(list(values), allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        fail(f"space[{name!r}]", "finite numbers, text, True, False, None or lists of these", repr(values)[:80])
    return tuple(tuple(value) if isinstance(value, list) else value for value in values)


def suggested(trial: Any, space: Space) -> dict[str, Any]:
    """Let Optuna choose the settings of one trial.

    Values of a list are chosen by their place: a value may be a tuple, which Optuna would not keep.
    """
    chosen: dict[str, Any] = {}
    for name, values in space.items():
        if not isinstance(values, Range):
            chosen[name] = values[trial.suggest_categorical(name, list(range(len(values))))]
        elif values.whole:
            chosen[name] = trial.suggest_int(name, int(values.low), int(values.high), log=values.log)
        else:
            chosen[name] = trial.suggest_float(name, float(values.low), float(values.high), log=values.log)
    return chosen
