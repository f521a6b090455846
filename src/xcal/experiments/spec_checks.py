"""What must fit together in a spec, beyond the type of each value; every error names the key."""

import re
from typing import TYPE_CHECKING

from xcal._checks import fail
from xcal.calibration.softbins import SoftBins

if TYPE_CHECKING:
    from xcal.experiments.spec import RowSpec, Spec

# The table's name is a folder of the results: one word, never a path out of it.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}(?<!\.)")
# Subgroups and kinds of network that fit each kind of data: images, or a row of numbers.
_GROUPS = {"gamma": "mean-quartiles", "mnist": "label", "glioma": "age-halves"}
_NETWORKS = {
    "gamma": ("mlp", "linear", "aft"),
    "glioma": ("mlp", "linear", "aft"),
    "mnist": ("mlp", "cnn", "published-cnn"),
}
_MOST_BINS = 10_000
_MOST_UNITS, _MOST_LAYERS = 100_000, 100


def check_spec(spec: "Spec") -> None:
    """Check a spec as a whole."""
    if not _NAME.fullmatch(spec.table):
        fail("table", "a name of letters, digits, '-', '_' and '.', the folder of its results", repr(spec.table))
    names = [row.name for row in spec.rows]
    if len(set(names)) < len(names):
        fail("rows", "rows of different names", names)
    if not spec.lambdas or min(spec.lambdas) < 0 or len(set(spec.lambdas)) < len(spec.lambdas):
        fail("lambdas", "different numbers, zero or larger", list(spec.lambdas))
    for key, bins in (("calibration_bins", spec.calibration_bins), ("time_bins", spec.time_bins)):
        if not 2 <= bins <= _MOST_BINS:
            fail(key, f"from 2 to {_MOST_BINS}", bins)
    try:
        spec.training.config()
    except ValueError as error:
        raise ValueError(f"training.{error}") from error
    _check_data(spec)
    for index, row in enumerate(spec.rows):
        _check_row(f"rows[{index}]", row, spec)
    _check_variants(spec)


def _check_data(spec: "Spec") -> None:
    data = spec.data
    if data.seed < 0:
        fail("data.seed", "a whole number, zero or larger", data.seed)
    if data.groups != _GROUPS[data.name]:
        fail("data.groups", f"groups that these data have, {_GROUPS[data.name]!r}", f"{data.groups!r} for {data.name}")
    if data.name == "glioma" and not data.censored:
        fail("data.censored", "true: the glioma data are censored", "false")


def _check_row(where: str, row: "RowSpec", spec: "Spec") -> None:
    if not row.name or row.name != row.name.strip() or not row.name.isprintable() or "," in row.name:
        fail(f"{where}.name", "a name without commas, which --rows can ask for", repr(row.name))
    networks = _NETWORKS[spec.data.name]
    if row.network not in networks:
        fail(f"{where}.network", f"one for the {spec.data.name} data ({', '.join(networks)})", repr(row.network))
    if row.network == "aft" and row.discrete:
        fail(f"{where}.network", "another one: 'aft' is a regression of a continuous time", f"'aft' for {row.model}")
    if len(row.hidden) > _MOST_LAYERS or any(not 1 <= units <= _MOST_UNITS for units in row.hidden):
        expected = f"at most {_MOST_LAYERS} layers of 1 to {_MOST_UNITS} units"
        fail(f"{where}.hidden", expected, list(row.hidden[:_MOST_LAYERS]))
    if not 0 <= row.dropout < 1:
        fail(f"{where}.dropout", "a probability from 0 to below 1", row.dropout)
    if row.network in {"linear", "aft"} and (row.hidden or row.dropout):
        fail(f"{where}.network", "a network that has hidden layers and dropout", f"{row.network!r}, which has none")
    if row.released_dropout and row.network != "cnn":
        fail(f"{where}.released_dropout", "false: only the network 'cnn' has it", "true")
    try:
        SoftBins("product", gamma=row.gamma, censored="soft")
    except ValueError as error:
        raise ValueError(f"{where}.{error}") from error


def _check_variants(spec: "Spec") -> None:
    for name, settings in spec.variants.items():
        where = f"variants.{name}"
        if settings.test_rows is not None and settings.test_rows < 1:
            fail(f"{where}.test_rows", "a whole number of 1 or more", settings.test_rows)
        if settings.bias and spec.data.name != "gamma":
            fail(f"{where}.bias", "false: only the gamma data have one", "true")
        if settings.first_guess and not settings.intercept and any(row.network == "aft" for row in spec.rows):
            fail(f"{where}.first_guess", "false, or an intercept that can hold the guess", "true without an intercept")
