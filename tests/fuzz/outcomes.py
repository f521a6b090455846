"""What became of a call with hostile input: one of the allowed outcomes, or a problem."""

import contextlib
import io
import re
import signal
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch

OUTCOMES = ("result", "warned", "refused", "as asked", "unclear", "silent nan", "too slow", "bare")
GOOD = {"result", "warned", "refused", "as asked"}
LONGEST = 20.0  # seconds of one call, of the processor: a busy machine is no fault
ASKED = 2.0  # seconds after which a call that was asked for much work is ended
MUCH = 10**5  # epochs, trials, draws: then it is the caller who wants to wait
REPEATED = ("epochs", "n_bootstrap", "n_draws", "n_simulations", "n_trials", "seeds", "folds", "cross_fit")
ENDLESS = 900.0  # seconds by the clock


@dataclass(frozen=True)
class Target:
    """A public function with good arguments, or a reader of files with good content.

    `names` are words of which one must be in the message of a refusal. `nan` are the fields of a result whose NaN the
    documentation explains; "*" for all of them. `needs` is a package that may be missing. A test takes `slow` times
    fewer inputs.
    """

    name: str
    call: Callable[..., Any]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    names: frozenset[str] = frozenset()
    nan: frozenset[str] = frozenset()
    slow: int = 1
    needs: str = ""


class TooSlowError(BaseException):
    """A call that does not end; no ``except Exception`` on the way catches it."""


def outcome_of(target: Target, given: Mapping[str, Any]) -> tuple[str, str]:
    """Call the function and say what came of it, and in words what is wrong with that."""
    asked = much_work(given)
    limit = time_limit(ASKED if asked else LONGEST)
    # Bars of progress are not what is looked for.
    silent = contextlib.redirect_stderr(io.StringIO())
    with warnings.catch_warnings(record=True) as told, limit, silent, np.errstate(all="warn"):
        warnings.simplefilter("always")
        try:
            result = target.call(**given)
        except (ValueError, TypeError, OSError, ImportError) as error:
            return judged_refusal(target, error)
        except TooSlowError:
            return ("as asked", "") if asked else ("too slow", f"more than {LONGEST:g} s")
        except BaseException as error:
            return "bare", f"{type(error).__name__}: {str(error)[:160]}"
        if told:
            return "warned", ""
        found = sorted(set(where_nan(result)) - target.nan)
    if found and "*" not in target.nan and not any(has_nan(value) for value in given.values()):
        return "silent nan", f"NaN in {', '.join(found[:4])}"
    return "result", ""


def judged_refusal(target: Target, error: Exception) -> tuple[str, str]:
    """Return how a refusal is judged: one that names the argument is clear, words of a library underneath are not."""
    message = str(error)
    named = target.names | set(target.arguments)
    clear = any(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", message) for name in named)
    if clear and message.count("\n") == 0:
        return "refused", ""
    return "unclear", f"{type(error).__name__}: {message[:160]!r}"


def much_work(given: Mapping[str, Any]) -> bool:
    """Whether the caller asks for so many repetitions that the call may take long."""
    counts = [given.get(name) for name in REPEATED]
    return any(isinstance(count, int | float | np.number) and count >= MUCH for count in counts)


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """End a call that takes more of the processor, or waits for ever."""

    def ring(*_: object) -> None:
        raise TooSlowError

    timers = ((signal.SIGPROF, signal.ITIMER_PROF, seconds), (signal.SIGALRM, signal.ITIMER_REAL, ENDLESS))
    before = [(number, signal.signal(number, ring)) for number, _, _ in timers]
    for _, timer, limit in timers:
        signal.setitimer(timer, limit, 5.0)  # again after 5 s, where a library swallowed the first
    try:
        yield
    finally:
        for _, timer, _ in timers:
            signal.setitimer(timer, 0)
        for number, handler in before:
            signal.signal(number, handler)


def where_nan(value: Any, name: str = "result", depth: int = 0) -> Iterator[str]:
    """Name the fields of a result that hold NaN."""
    if depth > 4:
        return
    if is_dataclass(value) and not isinstance(value, type):
        for one in fields(value):
            yield from where_nan(getattr(value, one.name, None), one.name, depth + 1)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from where_nan(item, str(key), depth + 1)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from where_nan(item, name, depth + 1)
    elif isinstance(value, pd.DataFrame):
        for column in value.columns:
            if pd.isna(value[column]).any():
                yield str(column)
    elif has_nan(value):
        yield name


def has_nan(value: Any) -> bool:
    """Whether a number or an array of numbers has a NaN."""
    if isinstance(value, torch.Tensor):
        plain = value.layout == torch.strided and not value.is_meta and value.is_floating_point()
        return plain and bool(torch.isnan(value).any())
    try:
        array = np.asarray(value)
        return array.dtype.kind in "fc" and bool(np.isnan(array).any())
    except (ValueError, TypeError, RuntimeError):
        return False
