"""Columns of a table that hold survival curves, found by a pattern of their names."""

from xcal._checks import as_number, fail
from xcal.cli.table_file import TableFile, is_number, listed_names


def curve_columns(table: TableFile, pattern: str, option: str = "--curves") -> dict[float, str]:
    """Columns of survival curves by their times: with "s_*", the column "s_12" is that of time 12."""
    if pattern.count("*") != 1:
        fail(option, 'a pattern with one star for the time, such as "s_*"', repr(pattern))
    before, after = pattern.split("*")
    found: dict[float, str] = {}
    for name in table.names:
        middle = name[len(before) : len(name) - len(after)]
        if not (name.startswith(before) and name.endswith(after) and len(name) > len(before) + len(after)):
            continue
        if not is_number(middle):
            fail(f"{option}, {table.path}", f"columns {pattern} with a time in place of the star", repr(name))
        time = as_number(f"{option}, time of column {name!r}", float(middle), at_least=0)
        if time in found:
            fail(f"{option}, {table.path}", "one column for each time", f"{found[time]!r} and {name!r}")
        found[time] = name
    if not found:
        fail(f"{option}, {table.path}", f"columns {pattern}", f"the columns {listed_names(table.names)}")
    return dict(sorted(found.items()))
