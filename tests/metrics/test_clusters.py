"""`evaluate` of rows in clusters: whole clusters are drawn."""

import numpy as np
import pytest

from xcal.calibration.bins import as_clusters
from xcal.metrics import evaluate
from xcal.metrics.pit import bin_shares, uniform_variance
from xcal.metrics.resamples import drawn_by_generator

TIMES = np.linspace(0.1, 3, 12)


def sample(n_clusters=40, size=6, seed=0):
    """Exponential times of subjects whose hours all have the same time: as dependent as rows can be."""
    rng = np.random.default_rng(seed)
    cluster = np.repeat(np.arange(n_clusters), size)
    rate = np.exp(0.3 * rng.normal(size=n_clusters))[cluster]
    time = (rng.exponential(size=n_clusters))[cluster] / rate
    event = (rng.random(n_clusters) < 0.8)[cluster]
    return {
        "time": time,
        "event": event,
        "survival": np.exp(-np.outer(rate, TIMES)),
        "times": TIMES,
    }, cluster


def test_whole_clusters_are_drawn():
    label = np.array(["c", "a", "b", "a", "c", "c"])
    clusters = as_clusters(label, 6)
    rng = np.random.default_rng(0)
    for _ in range(50):
        times_drawn = drawn_by_generator(rng, 1, np.arange(6), clusters)(0)
        # All rows of a cluster equally often, and as many clusters as there are.
        assert all(np.unique(times_drawn[label == name]).size == 1 for name in "abc")
        assert sum(times_drawn[[2, 1, 0]]) == 3


def test_every_cluster_is_drawn_as_often():
    clusters = as_clusters([0, 1, 1, 2], 4)
    rng = np.random.default_rng(1)
    draw = drawn_by_generator(rng, 4000, np.arange(4), clusters)
    drawn = np.mean([draw(number) for number in range(4000)], axis=0)
    # Each of three clusters is drawn once on average; the variance of that number is 2/3.
    assert np.abs(drawn - 1).max() < 4 * np.sqrt(2 / 3 / 4000)


def test_clusters_of_one_row_give_the_row_bootstrap():
    given, _ = sample(60, 1)
    settings = {"n_bootstrap": 40, "metrics": ["harrell", "brier", "d_calibration", "ici", "km_calibration"]}
    alone = evaluate(**given, **settings, generator=np.random.default_rng(3))
    result = evaluate(**given, **settings, generator=np.random.default_rng(3), clusters=np.arange(60))
    for one, other in zip(result.scores, alone.scores, strict=True):
        assert one.name == other.name
        if one.name == "d_calibration_p":  # that of clusters comes from draws
            continue
        ends = [(score.value, score.lower, score.upper) for score in (one, other)]
        np.testing.assert_allclose(*ends, rtol=1e-9, err_msg=one.name)


def test_repeated_rows_do_not_narrow_the_interval():
    given, cluster = sample(50, 6)
    first = np.unique(cluster, return_index=True)[1]
    single = {name: values if name == "times" else values[first] for name, values in given.items()}
    settings = {"n_bootstrap": 60, "metrics": ["d_calibration", "harrell", "ici", "oe", "slope"], "at": 0.7}
    once = evaluate(**single, **settings, generator=np.random.default_rng(0))
    repeated = evaluate(**given, **settings, generator=np.random.default_rng(0), clusters=cluster)
    naive = evaluate(**given, **settings, generator=np.random.default_rng(0))
    # Every row six times says nothing new: masses, and so their deviations in every resample, are the same.
    assert repeated["d_calibration"].upper == pytest.approx(once["d_calibration"].upper, rel=1e-9)
    for name in ("d_calibration", "harrell", "ici", "oe", "slope"):
        assert repeated[name].upper - repeated[name].lower > 1.5 * (naive[name].upper - naive[name].lower), name


@pytest.mark.filterwarnings("ignore:the [0-9]+ events have [0-9]+ distinct times only:UserWarning")
def test_order_of_rows_does_not_matter():
    given, cluster = sample(20, 4)
    order = np.random.default_rng(5).permutation(cluster.size)
    shuffled = {name: values if name == "times" else values[order] for name, values in given.items()}
    settings = {"n_bootstrap": 20, "metrics": ["harrell", "d_calibration", "d_calibration_p", "brier"], "at": 0.7}
    a = evaluate(**given, **settings, generator=np.random.default_rng(0), clusters=cluster)
    b = evaluate(**shuffled, **settings, generator=np.random.default_rng(0), clusters=cluster[order])
    for one, other in zip(a.scores, b.scores, strict=True):
        numbers = [(score.value, score.lower, score.upper) for score in (one, other)]
        np.testing.assert_allclose(*numbers, rtol=1e-9, atol=1e-12)


def test_naive_p_values_are_left_out_or_refused():
    given, cluster = sample()
    result = evaluate(**given, clusters=cluster)
    assert list(result.skipped) == ["one_calibration_p"]
    assert "not computed: one_calibration_p (it counts every row as one observation" in repr(result)
    assert "240 rows in 40 clusters" in repr(result)
    assert "one_calibration_p" not in [score.name for score in result.scores]
    # Six equal rows make a perfect model look refuted if each of them counts.
    assert result["d_calibration_p"].value > 10 * evaluate(**given)["d_calibration_p"].value
    with pytest.raises(ValueError, match=r"metrics: expected metrics that hold for rows in clusters, got 'one_calib"):
        evaluate(**given, clusters=cluster, metrics=["one_calibration_p"])


def test_bad_clusters_are_refused():
    given, cluster = sample()
    with pytest.raises(ValueError, match="clusters: expected 240 rows, as many as time has, got 239"):
        evaluate(**given, clusters=cluster[1:])
    missing = [None if row == 17 else "a" for row in range(240)]
    with pytest.raises(ValueError, match="clusters: expected a label for every row, got None at row 17"):
        evaluate(**given, clusters=missing)


def test_the_range_of_a_bin_counts_clusters():
    rng = np.random.default_rng(2)
    u, event = rng.random(90), rng.random(90) < 0.7
    alone = uniform_variance(bin_shares(u, event))
    np.testing.assert_allclose(uniform_variance(bin_shares(u, event), as_clusters(np.arange(90), 90)), alone)
    # Copies of a row tell nothing new.
    copies = bin_shares(np.repeat(u, 4), np.repeat(event, 4))
    np.testing.assert_allclose(uniform_variance(copies, as_clusters(np.repeat(np.arange(90), 4), 360)), alone)
