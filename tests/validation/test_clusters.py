"""Audits of rows that depend on each other: whole clusters are drawn and counted."""

import numpy as np
import pytest
from scipy.stats import norm

from tests.validation.simulate import HORIZONS, TIMES, measure, sample
from xcal import audit
from xcal.calibration.bins import as_clusters
from xcal.interop.predictions import ModelPredictions
from xcal.metrics.estimates import _part
from xcal.metrics.resamples import drawn_by_seed
from xcal.metrics.spec import Key, Skipped

COPIES = 4


def several(one, copies=COPIES):
    """The same rows several times, each with its copies in one cluster: as dependent as rows can be."""
    p = one.predictions
    again = np.tile(np.arange(p.n), copies)
    predictions = ModelPredictions(
        p.model, p.library, again.size, survival=p.survival[again], times=p.times, interpolation=p.interpolation
    )
    return one.but(
        time=one.time[again], event=one.event[again], predictions=predictions, clusters=as_clusters(again, again.size)
    )


@pytest.fixture(scope="module")
def both():
    one = sample(120, too_fast=1.3, groups=False, covariates=())
    # Bins of few events would be merged, and copies make them many.
    return [measure(rows.but(min_cell=0), n_bootstrap=40, seed=2) for rows in (one, several(one))]


def test_copies_of_a_row_say_nothing_new(both):
    one, copied = both
    # Ties among copies change what concordance counts, so it is not compared.
    for metric in ("brier", "mean_risk", "ibs", "ipa", "d_calibration", "km_calibration"):
        keys = [key for key in one.draws if key.metric == metric]
        assert keys
        for key in keys:
            np.testing.assert_allclose(copied.draws[key], one.draws[key], rtol=1e-9, atol=1e-12)
    alone, together = ({(v.metric, v.horizon): v for v in found.values} for found in both)
    for name in ("d_calibration_floor", "d_calibration_km_floor", "d_calibration_ipcw_floor"):
        assert together[name, None].value == pytest.approx(alone[name, None].value, rel=0.05), name
    for ours, theirs in zip(copied.pit, one.pit, strict=True):
        np.testing.assert_allclose(ours.upper - ours.lower, theirs.upper - theirs.lower, rtol=0.05)


def test_no_interval_supposes_independent_rows(both):
    _, copied = both
    alone, values = ({(v.metric, v.horizon): v for v in found.values} for found in both)
    drawn, found = copied.draws[Key("observed_risk", HORIZONS[1])], values["observed_risk", HORIZONS[1]]
    assert (found.lower, found.upper) == pytest.approx(norm(found.value, drawn.std(ddof=1)).interval(0.95))
    # By formula, with the squares of cluster sums: as wide as without the copies.
    for name in ("oe", "slope", "intercept"):
        one, other = alone[name, HORIZONS[1]], values[name, HORIZONS[1]]
        assert other.upper - other.lower == pytest.approx(one.upper - one.lower, rel=0.05), name
    assert np.isnan(values["cox_slope", None].lower)
    (why,) = {one.why for one in copied.skipped if one.what == "one_calibration_p"}
    assert "rows of a cluster" in why
    assert not {metric for metric, _ in values} & {"one_calibration_p", "conditional_calibration"}
    # Tests by random signs of whole clusters: copies say nothing new.
    assert values["oe_p", HORIZONS[1]].value == pytest.approx(alone["oe_p", HORIZONS[1]].value, abs=0.1)


def test_whole_clusters_are_drawn_and_the_same_for_every_model():
    given = sample(90, groups=False, clusters=as_clusters(np.arange(90) // 5, 90))
    rows = given.rows
    draw = drawn_by_seed(rows.order, rows.clusters, 7)
    counts = np.array([draw(number) for number in range(3)])
    in_sample = np.empty_like(counts)
    in_sample[:, rows.order] = counts
    assert (in_sample.reshape(3, 18, 5) == in_sample.reshape(3, 18, 5)[:, :, :1]).all()
    assert (in_sample[:, ::5].sum(axis=1) == 18).all()
    part = rows.clusters.codes[_part(rows, 32, 1)]
    assert sorted(np.unique(part, return_counts=True)[1]) == [5] * 6


def test_more_rows_than_are_resampled_are_cut_by_clusters():
    given = several(sample(300, groups=False, covariates=()))
    found, whole = (measure(given, n_bootstrap=30, most_rows=most) for most in (400, None))
    key = Key("mean_risk", HORIZONS[1])
    ratio = found.draws[key].std() / whole.draws[key].std()
    assert 0.5 < ratio < 2  # scaled to all rows


class TestOfAnAudit:
    def audited(self, clusters, **changes):
        given = sample(200, seed=4)
        p = given.predictions
        return audit(
            survival=p.survival,
            times=TIMES,
            y=(given.time, given.event),
            clusters=clusters,
            **{"n_bootstrap": 10, "progress": False} | changes,
        )

    def test_says_what_was_done(self):
        result = self.audited(np.arange(200) // 2)
        assert result.data.n_clusters == 100
        assert "whole clusters were drawn (100 in all)" in result.methods
        assert "10 resamples of 100 clusters" in repr(result)
        (concern,) = [one for one in result.data.concerns if "200 rows in 100 clusters" in one.what]
        assert not concern.serious

    def test_few_clusters_are_a_serious_concern(self):
        result = self.audited(np.arange(200) // 10)
        assert any(one.serious and "20 clusters" in one.what for one in result.data.concerns)
        assert result.verdict.level != "trust"

    def test_labels_that_are_all_different_change_nothing(self):
        alone, each = self.audited(None), self.audited([f"p{k}" for k in range(200)])
        assert alone.to_json() == each.to_json()

    def test_a_group_of_few_clusters_is_not_judged(self):
        label = np.repeat(["a", "b"], [160, 40])
        result = self.audited(np.arange(200) // 5, groups={"site": label})
        assert result.groups == ("site = a",)
        why = "8 clusters of rows: too few to judge, at least 10 are needed"
        assert Skipped("group", why, group="site = b") in result.measured.skipped

    @pytest.mark.parametrize(
        ("clusters", "told"),
        [
            ("patient", "clusters: expected a mapping of names to labels, where X is no data frame"),
            (np.zeros(200, dtype=int), "clusters: expected at least two clusters"),
            (np.arange(100), "clusters: expected 200"),
        ],
    )
    def test_labels_that_cannot_be(self, clusters, told):
        with pytest.raises(ValueError, match=told):
            self.audited(clusters)
