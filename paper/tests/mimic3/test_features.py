"""Statistics and hours against slow references, written from the description of the benchmark's steps."""

import csv
import gzip
import json
import math
import warnings
from collections import defaultdict

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import skew

from xcal_paper.mimic3 import discretised_names, feature_names, variables
from xcal_paper.mimic3.features import MICROSECONDS, statistics_of

SPANS = [(0, 1), (0, 0.1), (0, 0.25), (0, 0.5), (0.9, 1), (0.75, 1), (0.5, 1)]


def slow_statistics(times, values):
    """42 statistics of one variable that was measured at some hours, by the definition, one after the other."""
    found = []
    for start, stop in SPANS:
        if not len(values):
            found += [math.nan] * 6
            continue
        first, span = times[0], times[-1] - times[0]
        inside = (times > first + start * span - 1e-6) & (times < first + stop * span + 1e-6)
        part = values[inside]
        with warnings.catch_warnings():  # scipy warns where the skewness of equal values is not defined
            warnings.simplefilter("ignore", RuntimeWarning)
            third = math.nan if np.ptp(part) == 0 else float(skew(part))
        found += [part.min(), part.max(), np.mean(part), np.std(part), third, len(part)]
    return np.array(found)


@pytest.fixture(scope="module")
def features(demo):
    tables = [
        pq.read_table(demo.folder / "features" / f"split={split}").to_pandas()
        for split in ("train", "validation", "test")
    ]
    return pd.concat(tables, ignore_index=True)


@pytest.fixture(scope="module")
def scaling(demo):
    return pd.read_csv(demo.folder / "features" / "scaling.csv", index_col="column")


@pytest.fixture(scope="module")
def series(demo_files):
    """The benchmark's own time series: for each stay its rows, categories as the benchmark's numbers."""
    info = json.loads((demo_files / "benchmark_resources" / "channel_info.json").read_text())
    found = defaultdict(list)
    with gzip.open(demo_files / "demo_expected" / "los_timeseries.csv.gz", "rt", newline="") as file:
        for row in csv.DictReader(file):
            numbers = [float(row["Hours"])]
            for name in variables():
                text = row[name]
                known = info[name].get("values")
                numbers.append(math.nan if text == "" else float(known[text] if known else text))
            found[row["stay"]].append(numbers)
    return {stay: np.array(rows) for stay, rows in found.items()}


@pytest.mark.parametrize("n", [50, pytest.param(200, marks=pytest.mark.ci)])
def test_714_features_of_instances_equal_the_slow_reference(demo, features, scaling, series, n):
    stays = pq.read_table(demo.folder / "stays" / "stays.parquet").to_pandas().set_index("stay_id")
    names = list(feature_names())
    assert list(scaling.index) == names
    assert list(features.columns[5:]) == list(feature_names(masks=True))
    mean, deviation = scaling["mean"].to_numpy(), scaling["standard_deviation"].to_numpy()
    chosen = features.sample(n, random_state=3)
    assert chosen.stay_id.nunique() > n / 4
    for _, row in chosen.iterrows():
        stay = stays.loc[row.stay_id]
        rows = series[f"{stay.subject_id}_episode{stay.episode}_timeseries.csv"]
        rows = rows[rows[:, 0] <= row.period_length + 1e-6]
        expected = []
        for column in range(1, 18):
            measured = ~np.isnan(rows[:, column])
            expected.append(slow_statistics(rows[measured, 0], rows[measured, column]))
        expected = np.concatenate(expected)
        stored = row[names].to_numpy(float)
        found = stored * deviation + mean
        assert np.array_equal(np.isnan(found), np.isnan(expected))
        assert np.array_equal(row[[f"{name}.defined" for name in names]].to_numpy(bool), ~np.isnan(expected))
        # Both the statistic and its standardised form are rounded to float32, with 24 bits.
        rounding = 2.0**-22 * (np.abs(expected) + np.abs(mean) + np.abs(stored) * deviation) + 1e-12
        defined = ~np.isnan(expected)
        assert np.all(np.abs(found - expected)[defined] <= rounding[defined])


def test_features_are_standardised_on_the_training_rows(demo, scaling):
    names = list(feature_names())
    train = pq.read_table(demo.folder / "features" / "split=train", columns=names).to_pandas().astype(float)
    assert (train.notna().sum() == scaling.defined).all()
    defined = train.columns[train.notna().any()]
    varying = [name for name in defined if train[name].max() > train[name].min()]
    assert len(varying) > 500
    # Sums of some thousand float32 numbers.
    assert np.allclose(train[defined].mean(), 0, atol=1e-4)
    assert np.allclose(train[varying].std(ddof=0), 1, atol=1e-4)


def test_rows_of_instances_and_features_are_the_same_and_mix_stays(demo):
    for path in (demo.folder / "instances").glob("*/*.parquet"):
        instances = pq.read_table(path, partitioning=None).to_pandas()
        features = pq.read_table(
            demo.folder / "features" / path.parent.name / path.name, columns=list(instances), partitioning=None
        )
        pd.testing.assert_frame_equal(features.to_pandas(), instances)
        # Sorted rows would have about as many changes of stay as there are stays.
        assert (instances.stay_id.diff() != 0).mean() > 0.8


def seconds(draw, low, high):
    return draw(st.lists(st.integers(low, high), max_size=12).map(sorted))


@st.composite
def measured(draw):
    """A few stays with times in whole seconds, so that borders of sub-periods are often met exactly."""
    stays = [seconds(draw, 0, 400) for _ in range(draw(st.integers(1, 4)))]
    values = [[draw(st.integers(-3, 3)) / 2 for _ in times] for times in stays]
    moments = [draw(st.lists(st.integers(0, 450), min_size=1, max_size=4)) for _ in stays]
    return stays, values, moments


@given(measured())
def test_statistics_equal_the_slow_reference_on_any_series(drawn):
    stays, values, moments = drawn
    stay = np.repeat(np.arange(len(stays)), [len(times) for times in stays])
    time = np.array([moment for times in stays for moment in times], np.int64) * 1_000_000
    value = np.array([number for numbers in values for number in numbers], float)
    instance_stay = np.repeat(np.arange(len(stays)), [len(some) for some in moments])
    instance_time = np.array([moment for some in moments for moment in some], np.int64) * 1_000_000
    found = statistics_of(stay, time, value, instance_stay, instance_time)
    for row, (which, moment) in enumerate(zip(instance_stay, instance_time, strict=True)):
        seen = (stay == which) & (time <= moment)
        expected = slow_statistics(time[seen] / MICROSECONDS, value[seen])
        # float32, and two ways to add up.
        assert np.allclose(found.table[found.row[row]], expected, rtol=1e-6, atol=1e-6, equal_nan=True)


def test_huge_outliers_do_not_blur_other_values():
    """A sum over the whole series, minus its beginning, would lose the small numbers beside a large one."""
    time = np.arange(40, dtype=np.int64) * MICROSECONDS
    value = 98.0 + np.arange(40) % 3
    value[0] = 2_222_221.7e6
    found = statistics_of(np.zeros(40, np.int64), time, value, np.zeros(1, np.int64), time[-1:])
    expected = slow_statistics(time / MICROSECONDS, value)
    assert np.allclose(found.table[found.row[0]], expected, rtol=1e-6, equal_nan=True)


def test_hours_equal_the_slow_reference(demo, demo_files):
    """All hours of every stay, from the benchmark's time series and its table of categories."""
    config = json.loads((demo_files / "benchmark_resources" / "discretizer_config.json").read_text())
    possible = config["possible_values"]
    stays = pq.read_table(demo.folder / "stays" / "stays.parquet").to_pandas()
    by_name = {f"{row.subject_id}_episode{row.episode}_timeseries.csv": row.stay_id for row in stays.itertuples()}
    found = pq.read_table(demo.folder / "discretised").to_pandas().set_index(["stay_id", "hour"]).sort_index()
    found = found[list(discretised_names())]
    assert found.shape[1] == 76
    expected = defaultdict(lambda: ([0.0] * 59, [0.0] * 17))
    start = np.cumsum([0, *(len(possible[name]) or 1 for name in config["id_to_channel"])])
    last = {}
    with gzip.open(demo_files / "demo_expected" / "los_timeseries.csv.gz", "rt", newline="") as file:
        for row in csv.DictReader(file):
            stay, hour = by_name[row["stay"]], int(float(row["Hours"]) - 1e-6)
            last[stay] = max(hour, last.get(stay, 0))
            values, masks = expected[stay, hour]
            for place, name in enumerate(config["id_to_channel"]):
                if row[name] == "":
                    continue
                masks[place] = 1.0
                if possible[name]:
                    values[start[place] : start[place + 1]] = [float(text == row[name]) for text in possible[name]]
                else:
                    values[start[place]] = float(row[name])
    index = [(stay, hour) for stay in sorted(last) for hour in range(last[stay] + 1)]
    assert list(found.index) == index
    wanted = np.array([[*expected[place][0], *expected[place][1]] for place in index], np.float32)
    assert np.array_equal(found.to_numpy(), wanted)
