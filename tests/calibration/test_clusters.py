"""D-calibration of rows in clusters: floor and p-value of dependent rows."""

from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

from xcal import d_calibration

METHODS = {"uniform": {}, "km": {}, "ipcw": {"time": True}, "own G": {"time": True, "censoring_survival": True}}


def clustered(n_clusters, seed, *, alike=0.9, censored=False, largest=8):
    """F values of a perfect model: uniform, and alike within a cluster (a Gaussian copula)."""
    rng = np.random.default_rng(seed)
    cluster = np.repeat(np.arange(n_clusters), rng.integers(1, largest + 1, size=n_clusters))

    def uniforms():
        own = rng.normal(size=cluster.size)
        return stats.norm.cdf(np.sqrt(alike) * rng.normal(size=n_clusters)[cluster] + np.sqrt(1 - alike) * own)

    happens = uniforms()
    censors = uniforms() * 1.3 if censored else np.full(cluster.size, np.inf)
    return np.minimum(happens, censors), happens <= censors, cluster


def arguments(method, u, event):
    """Of `d_calibration` for one of METHODS; F serves as the time."""
    given = {"method": "ipcw" if method == "own G" else method}
    if "time" in METHODS[method]:
        given["time"] = u
    if "censoring_survival" in METHODS[method]:
        given["censoring_survival"] = np.maximum(0.05, 1 - u / 1.3)
    return given


def shares(u, event, edges):
    """Share of every row in every bin by the definition: its own bin, or spread evenly over [F, 1]."""
    out = np.zeros((u.size, edges.size - 1))
    for i, (f, happened) in enumerate(zip(u, event, strict=True)):
        for j, (a, b) in enumerate(pairwise(edges)):
            out[i, j] = a <= f < b if happened else max(0.0, b - max(a, f)) / (1 - f)
    return out


@pytest.mark.parametrize("censored", [False, True])
def test_floor_of_uniform_is_the_variance_of_cluster_sums(censored):
    u, event, cluster = clustered(30, 0, censored=censored)
    edges = np.arange(11) / 10
    excess = shares(u, event, edges) - 0.1
    expected = sum(np.square(excess[cluster == c].sum(axis=0) / u.size).sum() for c in np.unique(cluster))
    result = d_calibration(u, event, clusters=cluster, p_value=None)
    assert result.floor == pytest.approx(expected, rel=1e-12)
    assert result.n_clusters == 30


@pytest.mark.parametrize("method", METHODS)
def test_floor_is_what_a_perfect_model_scores_on_average(method):
    drawn = [clustered(60, seed, censored=True) for seed in range(400)]
    results = [d_calibration(u, e, clusters=c, p_value=None, **arguments(method, u, e)) for u, e, c in drawn]
    value, floor = np.array([(r.value, r.floor) for r in results]).T
    # Four standard errors of the difference of the means; masses by a G that was estimated, or held away from zero, are
    # not quite without bias, which adds to the value.
    error = 4 * (value - floor).std() / np.sqrt(value.size)
    assert abs(value.mean() - floor.mean()) < error + (0.0 if method == "uniform" else 0.1 * floor.mean())
    naive = np.mean([d_calibration(u, e, p_value=None, **arguments(method, u, e)).floor for u, e, _ in drawn[:50]])
    assert naive < 0.5 * floor.mean()


@pytest.mark.parametrize("method", ["uniform", "km", "ipcw"])
def test_clusters_of_one_row_have_the_floor_of_rows(method):
    u, event, _ = clustered(200, 3, censored=True)
    given = arguments(method, u, event)
    alone = d_calibration(u, event, p_value=None, **given)
    result = d_calibration(u, event, clusters=np.arange(u.size), p_value=None, **given)
    assert result.floor == pytest.approx(alone.floor, rel=1e-9)
    assert result.value == alone.value


def test_own_g_with_clusters_of_one_row_has_the_floor_of_rows():
    u, event, _ = clustered(200, 3, censored=True)
    g = np.maximum(0.05, 1 - u / 1.3)
    given = {"method": "ipcw", "censoring_survival": g, "p_value": None, "time": u}
    ours = d_calibration(u, event, clusters=np.arange(u.size), **given)
    rows = event | (u >= u[event].max())
    share = shares(u, event, ours.edges)[rows] / g[rows, None]
    expected = np.square((share - 0.1 * share.sum(axis=1, keepdims=True)) / share.sum()).sum()
    assert ours.floor == pytest.approx(expected, rel=1e-9)


def test_statistic_is_the_one_of_rows_and_p_value_follows_from_signs_of_clusters():
    u, event, cluster = clustered(12, 5, alike=0.4, censored=True, largest=90)
    result = d_calibration(u, event, clusters=cluster, n_simulations=4000)
    assert result.statistic == pytest.approx(d_calibration(u, event).statistic, rel=1e-9)
    # All 2^11 patterns of signs, up to a common one, from observed minus expected events by the definition.
    edges = np.arange(11) / 10
    hazard = -np.log1p(-np.minimum(u[:, None], edges))
    excess = ((u[:, None] >= edges[:-1]) & (u[:, None] < edges[1:]) & event[:, None]) - np.diff(hazard, axis=1)
    sums = np.array([excess[cluster == c].sum(axis=0) for c in range(12)])
    signs = np.array([[1, *(1 - 2 * (k >> b & 1) for b in range(11))] for k in range(2**11)])
    variance = np.diff(hazard, axis=1).sum(axis=0)
    assert variance.min() > 5  # no cells are joined, so the sums above are the statistic's
    statistics = (np.square(signs @ sums) / variance).sum(axis=1)
    exact = np.mean(statistics >= statistics[0] * (1 - 1e-9))
    assert statistics[0] == pytest.approx(result.statistic, rel=1e-9)
    assert abs(result.p_value - exact) < 4 * np.sqrt(exact * (1 - exact) / 4000) + 1e-3


def test_p_value_holds_its_size_where_the_naive_one_does_not():
    drawn = [clustered(100, seed, alike=0.8) for seed in range(300)]
    rejected = np.mean([d_calibration(u, e, clusters=c, n_simulations=99).p_value <= 0.05 for u, e, c in drawn])
    naive = np.mean([d_calibration(u, e).p_value <= 0.05 for u, e, _ in drawn])
    assert rejected < 0.05 + 3.5 * np.sqrt(0.05 * 0.95 / 300)
    assert naive > 0.3


def test_a_wrong_model_is_still_found():
    u, event, cluster = clustered(300, 1, alike=0.5)
    assert d_calibration(1 - (1 - u) ** 2, event, clusters=cluster).p_value == pytest.approx(0.001)


def test_one_event_where_none_is_expected_refutes_the_model():
    result = d_calibration(np.zeros(6), [1, 0, 0, 0, 0, 0], clusters=[0, 0, 1, 1, 2, 2])
    assert result.statistic == np.inf
    assert result.p_value == 0


@pytest.mark.parametrize("method", METHODS)
def test_order_of_rows_does_not_matter(method):
    u, event, cluster = clustered(40, 2, censored=True)
    order = np.random.default_rng(0).permutation(u.size)
    name = np.array([f"subject {c}" for c in cluster])

    def measured(rows):
        given = arguments(method, u[rows], event[rows])
        return d_calibration(u[rows], event[rows], clusters=name[rows], **given)

    a, b = measured(np.arange(u.size)), measured(order)
    assert a.floor == pytest.approx(b.floor, rel=1e-9)
    assert a.p_value == b.p_value


def test_groups_have_the_clusters_that_are_in_them():
    u, event, cluster = clustered(40, 2)
    group = cluster % 2
    result = d_calibration(u, event, clusters=cluster, groups=group)
    own = d_calibration(u[group == 1], event[group == 1], clusters=cluster[group == 1])
    assert result.groups[1].floor == pytest.approx(own.floor, rel=1e-12)
    assert [result.whole.n_clusters, result.groups[0].n_clusters, result.groups[1].n_clusters] == [40, 20, 20]
    with pytest.raises(ValueError, match="clusters: expected at least two clusters in every group, got one in group 7"):
        d_calibration(u, event, clusters=cluster, groups=np.where(cluster == 0, 7, 1))


@pytest.mark.parametrize("p_value", ["pearson", "simulated"])
def test_a_naive_p_value_is_refused_with_the_reason(p_value):
    u, event, cluster = clustered(10, 0)
    with pytest.raises(
        ValueError, match=r"p_value: expected 'akritas' or None with clusters, whose rows are not indep"
    ):
        d_calibration(u, event, clusters=cluster, p_value=p_value)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([1, 2], "clusters: expected 4 rows, as many as cdf has, got 2"),
        (["a", None, "b", "b"], "clusters: expected a label for every row, got None at row 1"),
        ([1.0, 1.0, 2.0, np.nan], "clusters: expected a label for every row, got nan at row 3"),
        ([1, 2, 1, "a"], "clusters: expected labels of one type"),
        ([[1, 2], [3, 4]], "clusters: expected a one-dimensional array"),
        ([5, 5, 5, 5], "clusters: expected at least two clusters, got the label 5 in every row"),
    ],
)
def test_bad_labels_are_refused(labels, message):
    with pytest.raises(ValueError, match=message):
        d_calibration([0.1, 0.2, 0.3, 0.4], [1, 1, 0, 1], clusters=labels)


def test_repr_names_the_clusters():
    u, event, cluster = clustered(40, 2)
    assert f"{u.size} rows in 40 clusters" in repr(d_calibration(u, event, clusters=cluster))
