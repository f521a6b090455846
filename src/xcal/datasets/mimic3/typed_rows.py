"""Rows of a raw file with types: text becomes numbers and dates, or an error that names file, column and line."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, NoReturn

import numpy as np

from xcal.datasets.mimic3.database import batches, csv_source, plain_errors
from xcal.datasets.mimic3.raw_files import RawFile

# Text as a value, or null. Finite numbers, and years of four digits: with others, later steps would stop in SQL.
_VALUE = {
    "INTEGER": 'TRY_CAST("{0}" AS INTEGER)',
    "DOUBLE": 'CASE WHEN isfinite(TRY_CAST("{0}" AS DOUBLE)) THEN TRY_CAST("{0}" AS DOUBLE) END',
    "TIMESTAMP": """CASE WHEN TRY_CAST("{0}" AS TIMESTAMP) BETWEEN TIMESTAMP '1000-01-01' AND TIMESTAMP '9999-12-31'
        THEN TRY_CAST("{0}" AS TIMESTAMP) END""",
    "VARCHAR": '"{0}"',
}
_EXPECTED = {
    "INTEGER": "a whole number",
    "DOUBLE": "a number",
    "TIMESTAMP": "a date and time such as 2101-10-20 19:08:00",
}


def typed_batches(
    connection: Any,
    file: RawFile,
    types: Mapping[str, str],
    *,
    filled: Collection[str] = (),
    expressions: Mapping[str, str] | None = None,
    hidden: Collection[str] = (),
) -> Iterator[Any]:
    """Read a raw file once, in its order, and check every row.

    Parameters
    ----------
    types
        SQL type of each column that is wanted; the result has these columns, under upper-case names.
    filled
        Columns that may not be empty.
    expressions
        Further columns: name and SQL, in which a raw column is written as its upper-case name.
    hidden
        Raw columns that only the expressions use.

    Yields
    ------
    pyarrow.RecordBatch
    """
    typed = [name for name, type_ in types.items() if type_ != "VARCHAR"]
    raw = ", ".join(f'"{name}"' for name in (*types, *hidden))
    value = {name: _VALUE[type_].format(name) for name, type_ in types.items()}
    wanted = [f'{sql} AS "{name}"' for name, sql in value.items()]
    wanted += [f'{sql} AS "{name}"' for name, sql in (expressions or {}).items()]
    # Number of the first column whose text is no value of its type: 0 where all are.
    # The text itself is asked for too: DuckDB reads a column that is only ever cast as one of that type, and then fails
    # with an error of its own.
    tests = [
        f'WHEN {"" if name in filled else "NOT"} "{name}" IS NULL '
        f"{'OR' if name in filled else 'AND'} {value[name]} IS NULL THEN {number}"
        for number, name in enumerate(typed, start=1)
    ]
    query = f"""
        SELECT {", ".join(wanted)}, CASE {" ".join(tests)} ELSE 0 END AS problem
        FROM (SELECT {raw} FROM {csv_source(file)})"""
    seen = 0
    with plain_errors(file.path.name):
        for batch in batches(connection, query):
            problem = batch.column("problem").to_numpy()
            if problem.any():
                row = int(np.argmax(problem != 0))
                name = typed[problem[row] - 1]
                bad_cell(file, name, _EXPECTED[types[name]], seen + row)
            seen += batch.num_rows
            yield batch.drop_columns(["problem"])


def bad_cell(file: RawFile, column: str, expected: str, row: int) -> NoReturn:
    """Refuse what one cell holds. Its content is a patient's and is not shown.

    Parameters
    ----------
    row
        Number of the row, from 0; the first one stands in line 2 of the file.
    """
    raise ValueError(f"{file.path.name}, column {column}: expected {expected}, got something else at line {row + 2}")
