"""For whom? in an audit: which columns are asked, what is found, and what the verdict makes of it."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm, rankdata

import xcal
from tests.validation.made_result import made_result
from xcal.calibration.subgroups import Column
from xcal.data.surv import Outcome
from xcal.validation.arguments import FEWEST_ROWS, MOST_COLUMNS, _association, read_covariates
from xcal.validation.for_whom import _parts
from xcal.validation.result import AuditValue, DataSummary
from xcal.validation.verdict import faintly_given_covariates, given_covariates, judge

TIMES = np.linspace(0.02, 4, 120)


def cohort(n, seed=0):
    """Exponential times; the hazard depends on age alone. Rows are sorted by time, as files often are."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"age": rng.uniform(40, 90, n), "stage": rng.choice(["I", "II", "III"], n)})
    hazard = np.exp(0.05 * (X["age"].to_numpy() - 65))
    happens, leaves = rng.exponential(1 / hazard), rng.exponential(2.0, n)
    time, event = np.minimum(happens, leaves), happens <= leaves
    order = np.argsort(time)
    return X.iloc[order].reset_index(drop=True), time[order], event[order], hazard[order]


def audited(n=2000, *, right=False, **options):
    X, time, event, hazard = cohort(n)
    # The average over all rows is right: the mean survival of the true curves.
    average = np.exp(-hazard[:, None] * TIMES).mean(axis=0)
    survival = np.exp(-hazard[:, None] * TIMES) if right else np.tile(average, (n, 1))
    given = {"survival": survival, "times": TIMES, "y": (time, event), "covariates": X, "n_bootstrap": 0}
    return xcal.audit(**given | options)


@pytest.fixture(scope="module")
def wrong():
    return audited()


@pytest.fixture(scope="module")
def right():
    return audited(right=True)


def test_a_model_that_is_right_on_average_alone_is_found(wrong):
    found = wrong.measured.for_whom
    assert wrong.value("d_calibration_p").value > 0.05
    assert found.p_value <= 0.01
    assert found.value > 5 * found.noise
    assert found.subgroup.rule.startswith("age")
    assert found.subgroup.p_value < 1e-4
    assert any(s.startswith("For whom: rows with age") for s in wrong.verdict.sentences)


def test_the_right_model_is_not(right):
    found = right.measured.for_whom
    assert found.p_value > 0.05
    assert abs(found.value) < 4 * found.noise
    assert not any(s.startswith("For whom") for s in right.verdict.sentences)


def test_numbers_are_in_the_table_and_in_json(wrong):
    found, frame = wrong.measured.for_whom, wrong.to_frame().set_index("metric")["value"]
    assert frame["conditional_calibration"] == found.value
    assert frame["conditional_calibration_floor"] == found.floor
    assert frame["conditional_calibration_noise"] == found.noise
    assert frame["conditional_calibration_p"] == found.p_value
    assert frame["subgroup_p"] == found.subgroup.p_value
    assert json.loads(wrong.to_json())["measured"]["for_whom"]["subgroup"]["rule"] == found.subgroup.rule
    assert "random Fourier features" in wrong.methods


def test_rows_keep_their_covariates_in_any_order():
    """Fewer rows than blocks: the sums do not depend on the order, the bandwidth hardly does."""
    X, time, event, _ = cohort(800)
    cdf = 1 - np.exp(-time * np.exp(0.02 * (X["age"].to_numpy() - 65)))
    mixed = np.random.default_rng(1).permutation(800)
    one = xcal.audit(cdf=cdf, y=(time, event), covariates=X, n_bootstrap=0)
    other = xcal.audit(cdf=cdf[mixed], y=(time[mixed], event[mixed]), covariates=X.iloc[mixed], n_bootstrap=0)
    alone = xcal.conditional_calibration(cdf, event, X, n_bins=10, where=False)
    values = [result.value("conditional_calibration").value for result in (one, other)]
    assert min(*values, alone.value) > 5 * alone.noise  # rows beside the covariates of others would give zero
    assert values == pytest.approx([alone.value] * 2, rel=0.1)


def test_parts_have_the_mean_of_f_at_the_event():
    X, time, event, hazard = cohort(600)
    cdf = 1 - np.exp(-time * hazard)
    found = xcal.audit(cdf=cdf, y=(time, event), covariates=X, n_bootstrap=0).measured.for_whom
    by_name = {part.name: part for part in found.parts}
    own = (X["stage"] == "II").to_numpy()
    # What a censored row would have had: uniform between its F and 1.
    grid = (np.arange(1000) + 0.5) / 1000
    expected = np.where(event, cdf, (cdf[:, None] + (1 - cdf[:, None]) * grid).mean(axis=1))[own].mean()
    part = by_name["stage = II"]
    assert (part.n, part.column) == (own.sum(), "stage")
    assert part.mean == pytest.approx(expected, rel=1e-12)
    assert sum(part.n for part in found.parts if part.column == "age") == 600
    assert np.mean([part.lower < 0.5 < part.upper for part in found.parts]) > 0.5  # the model is right


def outcome(n=200):
    rng = np.random.default_rng(5)
    return Outcome(rng.exponential(size=n), rng.random(n) < 0.6)


def reasons(**columns):
    _, left_out, _ = read_covariates(pd.DataFrame(columns), None, outcome())
    return dict(left_out)


def test_columns_that_cannot_be_used_are_named():
    rows = outcome()
    time, event = rows.time, rows.event
    rng = np.random.default_rng(6)
    found = reasons(
        id=np.arange(200),
        same=np.ones(200),
        holes=np.where(np.arange(200) < 41, np.nan, rng.normal(size=200)),
        gaps=np.where(np.arange(200) < 40, np.nan, rng.normal(size=200)),
        day=pd.date_range("2020-01-01", periods=200),
        name=[f"p{k}" for k in range(200)],
        days=np.round(365 * time),
        remaining=-time,
        died=event.astype(int),
        cause=np.where(event, rng.choice(["a", "b"], 200), "none"),
        age=rng.normal(size=200),
        old=rng.random(200) < 0.5,
        stage=np.where(np.arange(200) < 40, None, rng.choice(["I", "II"], 200)),
    )
    assert found.pop("holes") == "41 of its values are missing"
    assert set(found) == {"id", "same", "day", "name", "days", "remaining", "died", "cause"}
    assert {found[name] for name in ("days", "remaining")} == {"it follows from the time"}
    assert {found[name] for name in ("died", "cause")} == {"it tells whether the event happened"}


def test_a_few_missing_numbers_are_the_median():
    given = {"age": np.where(np.arange(200) % 10 == 0, np.nan, np.arange(200) * 0.7 % 13)}
    (column,), _, _ = read_covariates(given, None, outcome())
    assert set(column.values[::10]) == {np.nanmedian(given["age"])}
    assert (np.delete(column.values, np.s_[::10]) == np.delete(given["age"], np.s_[::10])).all()
    assert np.isnan(given["age"][0])  # the caller's own values stay


def test_a_missing_label_is_a_category():
    columns, _, _ = read_covariates({"stage": [None, "I", "II", "I"] * 50}, None, outcome())
    assert columns[0].labels == ("I", "II", "missing")


def test_a_prediction_at_the_observed_time_is_no_covariate():
    X, time, event, hazard = cohort(300)
    cdf = 1 - np.exp(-time * hazard)
    told = xcal.audit(cdf=cdf, y=(time, event), covariates=X.assign(F=cdf), n_bootstrap=0).measured.for_whom
    assert told.left_out == (("F", "it follows from F at the observed time"),)


def test_a_prediction_at_the_observed_time_is_none_beside_curves_that_end_early():
    X, time, event, hazard = cohort(400)
    times = np.quantile(time, np.linspace(0.05, 0.4, 20))  # past the last one F is that of the end, in six of ten rows
    given = {"survival": np.exp(-hazard[:, None] * times), "times": times, "y": (time, event), "n_bootstrap": 0}
    told = xcal.audit(**given, covariates=X.assign(F=1 - np.exp(-time * hazard))).measured.for_whom
    assert told.left_out == (("F", "it follows from F at the observed time"),)
    assert told.columns == ("age", "stage")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"covariates": None}, "no covariates were given"),
        ({"covariates": None, "X": np.zeros((2000, 3, 2))}, "X is no table"),
        ({"covariates": None, "X": np.zeros((2000, 2))}, "no column can be used: x0 (all its values are the same)"),
    ],
)
def test_without_covariates_the_reason_is_said(options, why):
    result = audited(**options)
    assert result.measured.for_whom is None
    assert why in reason(result)


def test_of_too_many_columns_those_that_go_most_with_the_risk_are_asked():
    X, *_ = cohort(2000)
    noise = np.random.default_rng(0).normal(size=(2000, 60))
    wide = X.assign(**{f"g{k}": noise[:, k] for k in range(60)})
    found = audited(covariates=None, X=wide, right=True).measured.for_whom
    assert len(found.columns) == MOST_COLUMNS
    assert "age" in found.columns
    assert found.left_out[-1][0] == "12 other columns"
    cdf = xcal.audit(cdf=np.linspace(0.01, 0.99, 2000), X=wide, y=(cohort(2000)[1], cohort(2000)[2]), n_bootstrap=0)
    assert "X has 62 columns" in reason(cdf)


def reason(result):
    (why,) = [one.why for one in result.measured.skipped if one.what == "conditional_calibration"]
    return why


def test_few_rows_are_not_asked():
    assert f"at least {FEWEST_ROWS}" in reason(audited(80))


def test_a_column_that_follows_from_the_outcome_decides_nothing():
    """It tells when a row was censored, and would both be found off and be taken for a cause of the censoring."""
    X, time, event, hazard = cohort(1500)
    given = {"survival": np.exp(-hazard[:, None] * TIMES), "times": TIMES, "y": (time, event), "n_bootstrap": 0}
    result = xcal.audit(**given, covariates=X.assign(F=1 - np.exp(-time * hazard)))
    assert not result.measured.parts
    assert result.measured.censoring.on == ()


@pytest.mark.parametrize(
    ("covariates", "what"),
    [
        (np.zeros((2000, MOST_COLUMNS + 1)), f"at most {MOST_COLUMNS} columns"),
        (np.zeros((30, 2)), "2000 rows"),
        (7, "a table"),
        (["age", "weight"], "names of columns of X"),
    ],
)
def test_covariates_that_were_asked_for_and_are_wrong_are_an_error(covariates, what):
    with pytest.raises(ValueError, match=what):
        audited(covariates=covariates, X=cohort(2000)[0])


def test_names_of_columns_choose_among_those_of_x():
    X = cohort(2000)[0]
    assert audited(X=X, covariates=["stage"]).measured.for_whom.columns == ("stage",)
    assert audited(X=X, covariates=None).measured.for_whom.columns == ("age", "stage")


def test_a_subgroup_counts_if_it_is_large_and_sure():
    """Two tests in one of two families: a p-value counts four times."""
    measured = replace(made_result("cdf", good=False).measured, n_families=2)
    worst = measured.for_whom.subgroup
    off = np.linspace(0.17, 0.03, 10)

    def judged(mass, p_value, p_of_all=0.5):
        subgroup = replace(worst, error=np.sqrt(10 * np.square(mass - 0.1).sum()), p_value=p_value)
        return given_covariates(
            replace(measured, for_whom=replace(measured.for_whom, subgroup=subgroup, p_value=p_of_all))
        )

    assert judged(off, 0.0049).state == "off"
    assert judged(off, 0.0051) is None
    assert judged(np.full(10, 0.1), 1e-6) is None  # sure, and too small to matter
    large = replace(measured.for_whom, subgroup=None, value=0.01, p_value=0.001)
    assert "no one subgroup" in given_covariates(replace(measured, for_whom=large)).words
    assert given_covariates(replace(measured, for_whom=replace(large, p_value=0.006))) is None


def test_a_small_difference_that_is_sure_is_told():
    measured = replace(made_result(good=True).measured, n_families=2)
    sure = replace(measured, for_whom=replace(measured.for_whom, subgroup=None, value=0.0005, p_value=0.003))
    assert given_covariates(sure) is None  # 7 % of a bin
    assert "p = 0.003" in faintly_given_covariates(sure)
    chance = replace(measured, for_whom=replace(sure.for_whom, p_value=0.03))
    assert faintly_given_covariates(chance) == ""
    large = replace(measured, for_whom=replace(sure.for_whom, value=0.01))
    assert faintly_given_covariates(large) == ""  # it counts, and is told as that
    values = (AuditValue("oe", 1.0, None, 1.0, 0.9, 1.1),)
    data = DataSummary(1000, 500, 10.0, 5.0, 0, 0, ())
    told = [judge("M", replace(one, values=values), data, level=0.95, time_unit="") for one in (sure, chance)]
    assert any(sentence.startswith("For whom: calibration differs") for sentence in told[0].sentences)
    assert not any(sentence.startswith("For whom") for sentence in told[1].sentences)


def test_the_interval_of_a_part_without_events_allows_for_those_that_were_expected():
    """Rows censored at F = 0.01 to 0.03: a hundred of them expect two events. None is no sign of a wrong model."""
    rng = np.random.default_rng(3)
    cdf, event = rng.uniform(0.01, 0.03, 100), np.zeros(100, dtype=bool)
    (part,) = _parts((Column("a", np.zeros(100)),), cdf, event, 0.95)
    assert part.lower < 0.5 < part.upper
    u, end = rng.uniform(size=(400, 100)), rng.uniform(0, 0.3, size=(400, 100))
    columns = (Column("a", np.zeros(100)),)
    held = [next(_parts(columns, np.minimum(a, b), a <= b, 0.95)) for a, b in zip(u, end, strict=True)]
    # Binomial: fewer than 365 of 400 at the level .95 happens once in a thousand.
    assert sum(part.lower <= 0.5 <= part.upper for part in held) >= 365


def test_a_category_whose_labels_are_numbers_is_one():
    rng = np.random.default_rng(4)
    clinic = pd.Series(rng.integers(1, 8, 300)).astype("category")
    u = rng.uniform(size=300)
    found = xcal.audit(cdf=u, y=(u + 1, np.ones(300)), covariates=pd.DataFrame({"clinic": clinic}), n_bootstrap=0)
    names = {part.name for part in found.measured.for_whom.parts}
    assert "clinic = 7" in names


def test_arrays_are_tables_of_columns():
    rng = np.random.default_rng(5)
    u = rng.uniform(size=150)
    given = {"cdf": u, "y": (u + 0.5, np.ones(150)), "n_bootstrap": 0}
    for shape, names in (((150,), ("x0",)), ((150, 2), ("x0", "x1"))):
        for where in ("covariates", "X"):
            found = xcal.audit(**given, **{where: rng.normal(size=shape)})
            assert found.measured.for_whom.columns == names
    for shape in ((150, 0), (150, 2, 2)):
        with pytest.raises(ValueError, match=r"covariates: expected a table, a mapping .*, got ndarray"):
            xcal.audit(**given, covariates=rng.normal(size=shape))
        assert xcal.audit(**given, X=rng.normal(size=shape)).measured.for_whom is None


def test_the_share_that_labels_explain_is_the_adjusted_r_squared():
    """By least squares on indicators, and the textbook's correction for their number."""
    rng = np.random.default_rng(0)
    codes = np.repeat(np.arange(4), 15)
    ranks = rankdata(codes + 2 * rng.normal(size=60)) - 30.5
    residual = ranks - np.eye(4)[codes] @ np.linalg.lstsq(np.eye(4)[codes], ranks, rcond=None)[0]
    expected = 1 - (residual @ residual / (60 - 4)) / (ranks @ ranks / (60 - 1))
    column = Column("ward", codes.astype(float), labels=("a", "b", "c", "d"))
    assert _association(column, ranks) == pytest.approx(expected)


@pytest.mark.parametrize("level", [0.8, 0.95])
def test_the_interval_of_a_part_without_horizon_is_that_of_a_count(level):
    """Events given the hazards lived through are about Poisson: the log of their number has the error 1 / sqrt."""
    counted = [part for part in audited(level=level).measured.parts if part.horizon is None]
    assert counted
    for part in counted:
        reach = np.exp(norm.ppf((1 + level) / 2) / np.sqrt(part.n_events))
        assert (part.lower, part.upper) == pytest.approx((part.value / reach, part.value * reach), rel=1e-9)
