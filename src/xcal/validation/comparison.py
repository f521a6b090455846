"""`xcal.compare_models`: models on the same rows, with paired differences."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from xcal._checks import fail
from xcal._files import write_whole
from xcal.interop.reading import is_plain
from xcal.metrics.intervals import resampled_interval
from xcal.metrics.spec import Key
from xcal.show.charts import time_in_words
from xcal.validation.audit import audit
from xcal.validation.result import AuditResult, AuditValue
from xcal.validation.words import COLUMNS, FORMAT, as_plain, html_table, label, wrapped

# Measured by `python -m studies.audit_coverage --comparisons`, see docs/audit.md.
WORDS = (
    '"better" and "worse" allow for the number of these lines, and were said of two equally good models in at most 2 '
    "of 100 data sets; a single interval does not, and some line excluded 0 in 12 to 25 of 100."
)


@dataclass(frozen=True, eq=False, repr=False)
class ModelComparison:
    """Audits of several models on the same rows; see `compare_models`.

    Attributes
    ----------
    results : mapping of str to AuditResult
        By the names that were given.
    differences : mapping of str to tuple of AuditValue
        For every model but the first, its values minus those of the first. Intervals are from the same resamples of
        the rows for both models; NaN where a value was not resampled. Each holds for itself.
    clear : mapping of str to frozenset of Key
        For every model but the first, the main differences that are more than chance if all of them are looked at.
    """

    results: Mapping[str, AuditResult]
    differences: Mapping[str, tuple[AuditValue, ...]]
    clear: Mapping[str, frozenset[Key]]

    def __getitem__(self, name: str) -> AuditResult:
        return self.results[name]

    @property
    def first(self) -> str:
        """Name of the model that the others are compared with."""
        return next(iter(self.results))

    def of_cause(self, cause: Any) -> "ModelComparison":
        """Return the comparison for one cause, where events have several; the differences here are for all events."""
        for name, result in self.results.items():
            if str(cause) not in result.by_cause:
                known = ", ".join(result.by_cause) or "none"
                fail("cause", f"a cause that every model was judged for (of {name!r}: {known})", repr(cause))
        return _compared({name: result.by_cause[str(cause)] for name, result in self.results.items()})

    def to_frame(self) -> Any:
        """One line per model and number, and per difference, as a pandas DataFrame.

        Columns are those of `AuditResult.to_frame` after ``model`` and ``minus``, which is None for a model's own
        numbers and the name of the first model for a difference from it.
        """
        import pandas as pd

        own = [result.to_frame().assign(model=name, minus=None) for name, result in self.results.items()]
        rows = [
            {**vars(value), "model": name, "minus": self.first}
            for name, values in self.differences.items()
            for value in values
        ]
        columns = ["model", "minus", *COLUMNS]
        return pd.concat([*(frame[columns].astype(object) for frame in own), pd.DataFrame(rows, columns=columns)])

    def to_json(self, path: str | Path | None = None) -> str:
        """Everything as JSON text, written whole to `path` if one is given."""
        from xcal import __version__

        content = {
            "format": FORMAT,
            "xcal": __version__,
            "results": as_plain(dict(self.results)),
            "differences": as_plain(dict(self.differences)),
            "clear": {name: sorted(map(_plain, keys), key=str) for name, keys in self.clear.items()},
        }
        text = json.dumps(content, indent=1, allow_nan=False) + "\n"
        if path is not None:
            write_whole(Path(path), text.encode("utf-8"))
        return text

    def report(self, path: str | Path) -> Path:
        """Write two models on one page, one HTML file that needs no network."""
        from xcal.show.page import write_page
        from xcal.validation.page import comparison_page

        if len(self.results) != 2:
            fail(
                "compare_models",
                "two models, to put them on one page (comparison[name].report for each)",
                len(self.results),
            )
        ((name, differences),) = self.differences.items()
        both = tuple(self.results.values())
        return write_page(comparison_page(both, differences=differences, main=self._lines(name), words=WORDS), path)

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the answer for each model, and the main differences."""
        first = self.results[self.first]
        said = [f"<li><b>{escape(name)}</b>: {escape(one.verdict.headline)}</li>" for name, one in self.results.items()]
        title = f"{len(self.results)} models on the same {first.data.n:,} rows, {first.data.n_events:,} events"
        parts = [f"<p>{title}</p><ul>{''.join(said)}</ul>"]
        for name in self.differences:
            head = (f"{name} minus {self.first}", "difference", f"{100 * first.level:g} % interval", "")
            parts.append(html_table(head, self._lines(name)))
        return "".join(parts)

    def _lines(self, name: str) -> list[tuple[str, str, str, str]]:
        """Return the main differences of a model from the first in words; see `_told`."""
        first = self.results[self.first]
        main = [value for value in self.differences[name] if is_main(value, first.horizons)]
        return [_told(value, first.time_unit, self.clear[name]) for value in main]

    def __repr__(self) -> str:
        first = self.results[self.first]
        lines = [f"{len(self.results)} models on the same {first.data.n:,} rows, {first.data.n_events:,} events", ""]
        for name, result in self.results.items():
            lines += wrapped(f"{name}: {result.verdict.headline}")
        lines += [f"note: {one.what}. {one.effect}" for one in first.data.concerns if one.serious]
        for name in self.differences:
            lines += ["", f"{name} minus {self.first}, {100 * first.level:g} % intervals from paired resamples:"]
            for what, shown, ends, said in self._lines(name):
                lines.append(f"  {what:<26}{shown}{f'  {ends}  {said}' if ends else ''}")
            lines += wrapped(WORDS)
        return "\n".join(lines)


def _plain(key: Key) -> list[Any]:
    return [key.metric, key.horizon, key.group]


def is_main(value: AuditValue, horizons: tuple[float, ...]) -> bool:
    """Return whether a difference is a main one: over all times, or at the horizon in the middle."""
    middle = horizons[len(horizons) // 2] if horizons else None
    return value.group is None and label(value.metric).main and value.horizon in (None, middle)


def _told(value: AuditValue, unit: str, clear: frozenset[Key]) -> tuple[str, str, str, str]:
    """Write a main difference: of what, how large, its interval, and what that says; "" without an interval."""
    at = "" if value.horizon is None else f" at {time_in_words(value.horizon, unit)}"
    ends = said = ""
    if np.isfinite(value.lower) and np.isfinite(value.upper):
        ends, said = f"[{value.lower:+.4f}, {value.upper:+.4f}]", "no clear difference"
        if value.key in clear:
            said = "better" if np.sign(value.value) == label(value.metric).better else "worse"
    return f"{label(value.metric).name}{at}", f"{value.value:+.4f}", ends, said


def compare_models(models: Mapping[str, Any], X: Any = None, y: Any = None, **options: Any) -> ModelComparison:
    """Validate several models on the same rows, with paired differences from the first.

    Parameters
    ----------
    models : mapping of str to model
        Fitted models, or survival curves, by the names under which they are shown; at least two. Each may be anything
        that `xcal.audit` takes.
    X
        Features of the rows; a mapping from the models' names if they take different ones.
    y
        Outcomes.
    **options
        As in `xcal.audit`. The horizons of the first model are used for all.

    Returns
    -------
    ModelComparison
        The same resamples of the rows are used for every model, so that intervals of the differences are paired.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> rate = rng.uniform(0.5, 2.0, 300)
    >>> y = (rng.exponential(1 / rate), np.full(300, True))
    >>> times = np.array([0.25, 0.5, 1.0, 2.0])
    >>> curves = {"true": np.exp(-rate[:, None] * times), "fast": np.exp(-2 * rate[:, None] * times)}
    >>> found = compare_models(curves, y=y, times=times, horizons=1.0, n_bootstrap=0)
    >>> found["true"].verdict.level, found["fast"].verdict.level
    ('caution', 'distrust')
    """
    if not isinstance(models, Mapping) or len(models) < 2:
        got = f"{len(models)}" if isinstance(models, Mapping) else type(models).__name__
        fail("models", "a mapping of names to at least two models", got)
    for alone in ("survival", "cif", "cdf", "risk", "name"):
        if alone in options:
            fail(alone, "predictions inside the mapping of models", f"{alone}= beside it")
    by_name = isinstance(X, Mapping) and not is_plain(X) and set(X) == set(models)
    results: dict[str, AuditResult] = {}
    for name, model in models.items():
        own = X[name] if by_name else X
        results[name] = audit(model, own, y, name=str(name), **options)
        options = {**options, "horizons": results[name].horizons}
    return _compared(results)


def _compared(results: Mapping[str, AuditResult]) -> ModelComparison:
    first, *others = results.items()
    found = {name: differences(first[1], result) for name, result in others}
    return ModelComparison(results, found, {name: _clear(first[1], result, found[name]) for name, result in others})


def differences(first: AuditResult, second: AuditResult) -> tuple[AuditValue, ...]:
    """Every value of the second model minus that of the first, where both have it."""
    base = {value.key: value for value in first.values}
    found = []
    for value in second.values:
        key = value.key
        if key not in base or not label(value.metric).compared:
            continue
        difference = value.value - base[key].value
        ends = _paired_interval(first, second, key, difference)
        found.append(AuditValue(key.metric, key.horizon, key.group, difference, *ends))
    return tuple(found)


def _paired_interval(first: AuditResult, second: AuditResult, key: Key, value: float) -> tuple[float, float]:
    """Return the interval of a difference: the k-th resample is of the same rows for both models."""
    before, after = first.measured.draws.get(key), second.measured.draws.get(key)
    if before is None or after is None or before.size != after.size or before.size == 0:
        return float("nan"), float("nan")
    return resampled_interval(value, after - before, second.level)


def _clear(first: AuditResult, second: AuditResult, found: tuple[AuditValue, ...]) -> frozenset[Key]:
    """Return the main differences whose intervals exclude zero when they are widened to hold all at once.

    Differences over their standard errors, and the largest deviation of any of them in a resample: among resamples it
    is smaller than the chosen quantile in as many cases as the level says.
    """
    level, deviations, sizes = second.level, [], {}
    for value in found:
        key = value.key
        before, after = first.measured.draws.get(key), second.measured.draws.get(key)
        if not is_main(value, first.horizons) or before is None or after is None or before.size != after.size:
            continue
        drawn = after - before
        error = float(np.nanstd(drawn))
        if error > 0 and np.isfinite(value.lower):
            deviations.append(np.abs(drawn - np.nanmean(drawn)) / error)
            sizes[key] = abs(value.value) / error
    if not deviations:
        return frozenset()
    reach = float(np.quantile(np.nanmax(deviations, axis=0), level))
    return frozenset(key for key, size in sizes.items() if size > reach)
