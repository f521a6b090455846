"""Table 1: the figures of another package on public data, and nothing that tells of a few rows."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import xcal
from xcal.validation.table_one import TableOne

NUMBERS, LABELS = ["age", "nodes", "pgr", "er"], ["meno", "size", "grade", "hormon"]


@pytest.fixture(scope="module")
def breast_cancer(real_data):
    """Return the rows of GBSG and of Rotterdam, with gaps in two columns of both."""
    folder, both = real_data("rotterdam_gbsg") / "rotterdam_gbsg", []
    rng = np.random.default_rng(0)
    for name, time, event in (("gbsg", "rfstime", "status"), ("rotterdam", "rtime", "recur")):
        frame = pd.read_csv(folder / f"{name}.csv")
        if name == "gbsg":
            frame["size"] = pd.cut(frame["size"], [-1, 20, 50, 1000], labels=["<=20", "20-50", ">50"]).astype(str)
        X = frame[NUMBERS + LABELS].astype({"age": float, "size": object})
        X.loc[rng.random(len(X)) < 0.1, "age"] = np.nan
        X.loc[rng.random(len(X)) < 0.2, "size"] = None
        both.append((X, (frame[time].to_numpy(), frame[event].to_numpy())))
    return both


def test_figures_are_those_of_tableone(breast_cancer):
    reference = pytest.importorskip("tableone", reason="needs tableone, of the extra test")
    (now, y), (then, before) = breast_cancer
    found = xcal.table_one(now, y, training=(then, before), min_cell=0)
    both = pd.concat([now.assign(rows="now"), then.assign(rows="then")], ignore_index=True)
    given_to = {"categorical": LABELS, "groupby": "rows", "smd": True, "include_null": False}
    theirs = reference.TableOne(both, columns=[*NUMBERS, *LABELS], **given_to)
    differences = theirs.smd_table["SMD (now,then)"]
    counted = theirs.cat_table
    for line in found.lines:
        assert line.difference == pytest.approx(abs(differences[line.name]), rel=1e-9)
        if line.label == "missing":
            assert line.rows.n == now[line.name].isna().sum()
            assert line.training.n == then[line.name].isna().sum()
        elif line.label:
            for own, column in ((line.rows, "now"), (line.training, "then")):
                n, share = counted.loc[(line.name, line.label), column].replace("(", "").replace(")", "").split()
                assert own.n == int(n)
                assert 100 * own.value == pytest.approx(float(share), abs=0.0501)
    numbers = [line for line in found.lines if line.name in NUMBERS and not line.label]
    assert [line.name for line in numbers] == NUMBERS
    described = both.groupby("rows")[NUMBERS].describe()
    for line in numbers:
        for own, which in ((line.rows, "now"), (line.training, "then")):
            n, mean, sd, _, low, middle, high, _ = described.loc[which, line.name]
            assert own.n == n
            ours = (own.value, own.sd, own.lower_quartile, own.median, own.upper_quartile)
            np.testing.assert_allclose(ours, (mean, sd, low, middle, high), rtol=1e-12)


def test_follow_up_is_that_of_lifelines(breast_cancer):
    (now, y), _ = breast_cancer
    followed = xcal.table_one(now, y, min_cell=0).follow_up
    assert (followed.n, followed.n_events, followed.n_competing) == (686, 299, 0)
    assert followed.person_time == pytest.approx(y[0].sum())
    from lifelines import KaplanMeierFitter

    curve = KaplanMeierFitter().fit(y[0], 1 - y[1]).survival_function_["KM_estimate"]
    assert followed.median == curve.index[curve <= 0.5][0]
    assert followed.lower_quartile == curve.index[curve <= 0.75][0]


def test_time_under_observation_of_late_and_interval_rows():
    X = pd.DataFrame({"x": np.arange(6) / 7})
    late = xcal.Surv(time=[3, 4, 5, 6, 7, 8], event=[1, 0, 1, 0, 1, 0], entry=[1, 1, 1, 1, 1, 1])
    assert xcal.table_one(X, late, min_cell=0).follow_up.person_time == 33 - 6
    between = xcal.Surv(lower=[1, 2, 3, 4, 5, 6], upper=[2, np.inf, 4, np.inf, 6, np.inf])
    assert xcal.table_one(X, between, min_cell=0).follow_up.person_time == 21


def lines(labels, **more) -> TableOne:
    n = len(labels)
    y = (np.arange(1, n + 1), np.arange(n) % 2)
    return xcal.table_one(pd.DataFrame({"ward": labels}), y, **more)


def test_labels_of_few_rows_are_merged_until_they_are_not_few():
    wards = ["north"] * 40 + ["south"] * 30 + ["J. Quux"] * 2 + ["A. Quux"] + [None] * 1
    found = lines(wards)
    assert [(one.label, one.rows.n) for one in found.lines] == [("north", 40), ("4 other labels", 34)]
    assert "Quux" not in repr(found)
    assert [(one.label, one.rows.n) for one in lines(wards, min_cell=0).lines] == [
        ("A. Quux", 1),
        ("J. Quux", 2),
        ("north", 40),
        ("south", 30),
        ("missing", 1),
    ]
    two = lines(["f"] * 57 + ["m"] * 3)
    assert two.lines == ()
    assert two.left_out == (("ward", "all its labels but one have fewer than 5 rows"),)


@given(st.lists(st.integers(0, 12), min_size=1, max_size=8), st.lists(st.integers(0, 12), min_size=8, max_size=8))
def test_no_count_of_few_rows_can_be_read_or_subtracted(counts, before):
    labels, training = (
        [None if k == 0 else f"label {k}" for k, count in enumerate(own) for _ in range(count)] + ["all"] * 20
        for own in (counts, before)
    )
    X = pd.DataFrame({"ward": training})
    found = lines(labels, training=(X, (np.arange(1, len(X) + 1), np.arange(len(X)) % 2)))
    for which, n in (("rows", len(labels)), ("training", len(training))):
        told = [getattr(one, which).n for one in found.lines]
        assert all(count is not None and (count == 0 or count >= 5) for count in told)
        assert sum(told) in (0, n)


def test_few_missing_numbers_are_not_counted():
    values = [*np.linspace(1, 2, 57), np.nan, np.nan, np.nan]
    found = lines(values)
    assert [(one.label, one.rows.n) for one in found.lines] == [("", None), ("missing", None)]
    assert np.isnan(found.lines[1].rows.value)
    assert [one.rows.n for one in lines(values, min_cell=0).lines] == [57, 3]


def test_quartiles_of_long_numbers_are_rounded():
    found = lines(np.random.default_rng(1).lognormal(12, 1, 101)).lines[0].rows
    assert all(len(f"{one:.12g}".rstrip("0").replace(".", "")) <= 3 for one in (found.median, found.lower_quartile))


def test_weights_count_rows_as_often_as_they_say():
    rng = np.random.default_rng(2)
    X, weight = pd.DataFrame({"x": rng.normal(size=60), "g": rng.choice(["a", "b", "c"], 60)}), rng.integers(1, 5, 60)
    y = rng.exponential(size=60), rng.random(60) < 0.5
    weighted = xcal.table_one(X, y, weights=weight, min_cell=0)
    repeated = xcal.table_one(
        X.loc[X.index.repeat(weight)].reset_index(drop=True), tuple(np.repeat(v, weight) for v in y)
    )
    for one, other in zip(weighted.lines, repeated.lines, strict=True):
        assert one.rows.value == pytest.approx(other.rows.value, rel=1e-3)
    assert weighted.lines[1].rows.n == (X["g"] == "a").sum()
    assert weighted.lines[0].rows.median in set(X["x"])


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (np.arange(40), "its whole numbers are all different, as those of an id"),
        (pd.date_range("2020-01-01", periods=40), "it holds dates"),
        ([f"name {k}" for k in range(40)], "it has 40 different labels"),
        ([np.nan] * 40, "no value is known"),
    ],
)
def test_columns_that_are_no_characteristic_say_why(values, reason):
    found = lines(values, min_cell=0)
    assert (found.lines, found.left_out) == ((), (("ward", reason),))


def test_labels_that_only_one_set_has_differ_without_end():
    X = pd.DataFrame({"ward": ["a"] * 20})
    found = lines(["b"] * 20, training=(X, (np.arange(1, 21), np.arange(20) % 2)))
    assert {one.difference for one in found.lines} == {np.inf}
    assert {one.difference for one in lines(["a"] * 20, training=(X, (np.arange(1, 21), np.arange(20) % 2))).lines} == {
        0
    }
