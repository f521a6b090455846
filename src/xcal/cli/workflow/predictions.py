"""Predictions of a run's model for the rows of a file, as a table."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xcal._checks import fail
from xcal._files import new_file
from xcal.cli.table_file import PARQUET, TableFile, is_number, is_parquet
from xcal.cli.workflow.parts import read_new
from xcal.cli.workflow.settings import FitSettings
from xcal.estimators import SurvivalModel

# Names of the columns, with the time or the share after the last two.
RANKED, OWN_CDF, SURVIVAL, QUANTILE = ("risk", "median"), "cdf", "s_", "q_"
# How a text begins that a spreadsheet takes for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
# Ends of names of tables that can be written.
_FORMS = (".csv", ".csv.gz", ".tsv", ".tsv.gz", *PARQUET)


def predicted(
    model: SurvivalModel,
    table: TableFile,
    settings: FitSettings,
    *,
    times: Sequence[float],
    quantiles: Sequence[float],
    copied: Sequence[str],
    extrapolate: bool,
) -> Any:
    """Make a data frame with one line for each row of the file, in its order.

    Columns: those of `copied`, time and event where the file has them, ``risk``, ``median``, ``s_<time>`` (probability
    of no event until then), ``q_<share>`` (time by which that share has had the event), and ``cdf``, F at the row's own
    time, where the file has times.
    """
    import pandas as pd

    X = read_new(table, model, settings)
    found: dict[str, Any] = {name: table.column(name, "--copy").to_numpy() for name in copied}
    for name in settings.outcome:
        if name in table.names:
            found.setdefault(name, table.frame[name].to_numpy())
    ranked = model.predict(X), model.predict_median(X, extrapolate=extrapolate)
    found |= dict(zip(RANKED, ranked, strict=True))
    if times:
        survival = model.predict_survival_function(X, np.array(times), extrapolate=extrapolate)
        found |= {f"{SURVIVAL}{time:g}": survival[:, k] for k, time in enumerate(times)}
    if quantiles:
        at = model.predict_quantile(X, np.array(quantiles), extrapolate=extrapolate)
        found |= {f"{QUANTILE}{share:g}": at[:, k] for k, share in enumerate(quantiles)}
    if settings.time in table.names:
        found[OWN_CDF] = _own_cdf(model, X, table, settings.time)
    return pd.DataFrame(found)


def _own_cdf(model: SurvivalModel, X: Any, table: TableFile, column: str) -> Any:
    """F at the observed time of each row whose time is known; empty elsewhere."""
    from xcal.interop import read_model

    known = table.frame[column].notna().to_numpy()
    if not known.any():
        return np.full(table.n, np.nan)
    rows = np.flatnonzero(known)
    # Zero in place of an empty cell, for the check only: errors name the line of the file.
    filled = table.frame[column].where(known, 0).infer_objects()
    time = TableFile(table.path, table.frame.assign(**{column: filled}), table.lines).times(column, "--time")[rows]
    read = read_model(model, X.iloc[rows].reset_index(drop=True), time=time, event=np.ones(rows.size, dtype=bool))
    values = np.full(table.n, np.nan)
    values[rows] = read.cdf
    return values


def check_target(path: Path, source: Path, *, overwrite: bool) -> None:
    """Check before any work that the table can be written."""
    if path.resolve() == source.resolve():
        fail("--out", "another file than the one to read", str(path))
    if not path.name.lower().endswith(_FORMS):
        fail("--out", f"a name that ends in {', '.join(_FORMS[:-1])} or {_FORMS[-1]}", str(path))
    if path.exists() and not overwrite:
        fail("--out", "a new file, or --overwrite to replace it", f"{path}, which exists")
    path.resolve().parent.mkdir(parents=True, exist_ok=True)


def write_table(frame: Any, path: Path) -> None:
    """Write a CSV file (packed, if its name ends in .gz) or a parquet file, whole or not at all.

    Texts of a CSV file that a spreadsheet would take for a formula get a quote before them.
    """
    with new_file(path) as part:
        if is_parquet(path):
            try:
                frame.to_parquet(part, index=False)
            except ImportError as error:
                raise ImportError('parquet files need pyarrow: pip install "xcal[parquet]"') from error
        else:
            # A packed file without a date inside: the same numbers give the same bytes.
            packed = {"method": "gzip", "mtime": 0} if path.suffix.lower() == ".gz" else None
            separator = "\t" if ".tsv" in path.suffixes else ","
            without_formulas(frame).to_csv(part, index=False, sep=separator, compression=packed)


def without_formulas(frame: Any) -> Any:
    """Put a quote before texts, and names of columns, that a spreadsheet would run; numbers stay as they are.

    Examples
    --------
    >>> import pandas as pd
    >>> without_formulas(pd.DataFrame({"id": ["=1+2", "-7", "A-7"]}))["id"].tolist()
    ["'=1+2", '-7', 'A-7']
    """

    def quoted(cell: Any) -> Any:
        formula = isinstance(cell, str) and cell.startswith(_FORMULA) and not is_number(cell)
        return f"'{cell}" if formula else cell

    changed = {name: column.map(quoted) for name, column in frame.items() if column.dtype.kind == "O"}
    return frame.assign(**changed).rename(columns=quoted)


def default_times(summary: dict[str, Any]) -> list[float]:
    """Return the times at which the report of a run judged its model."""
    return [float(time) for time in summary["horizons"]]
