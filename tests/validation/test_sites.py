"""Values by site, their mean over sites and what a new site may show."""

import numpy as np
import pandas as pd
import pytest

import xcal
from xcal.metrics.intervals import POSITIVE, SHARE, error_of_interval, random_effects
from xcal.show.page import Table, Text
from xcal.validation.charts import drawing_of


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(1)
    n = 1200
    site = rng.integers(0, 5, n)
    site[:40] = rng.integers(5, 9, 40)
    x = rng.normal(size=n)
    # Hazards differ between sites in a way that the model does not know.
    rate = np.exp(0.7 * x + rng.normal(0, 0.4, 9)[site])
    dies, leaves = rng.exponential(1 / rate), rng.exponential(2, n)
    times = np.linspace(0, 6, 60)
    return {
        "survival": np.exp(-times * np.exp(0.7 * x)[:, None]),
        "times": times,
        "y": xcal.Surv(time=np.minimum(dies, leaves), event=dies <= leaves),
        "X": pd.DataFrame({"x": x, "hospital": [f"H{k}" for k in site]}),
        "horizons": [0.5],
        "progress": False,
        "n_bootstrap": 100,
    }


@pytest.fixture(scope="module")
def found(rows):
    return xcal.audit(**rows, sites="hospital")


def test_each_site_has_its_values_and_small_ones_stand_together(rows, found):
    judged = [f"hospital = H{k}" for k in range(5)]
    assert set(found.sites) == {"hospital = 4 small sites together", *judged}
    for name in judged:
        auc = found.value("auc", horizon=0.5, group=name)
        assert 0.5 < auc.lower < auc.value < auc.upper < 1
        own = rows["X"]["hospital"] == name.removeprefix("hospital = ")
        given = {**rows, "X": None, "survival": rows["survival"][own], "y": rows["y"][own.to_numpy()]}
        alone = xcal.audit(**{**given, "n_bootstrap": 0})
        for metric in ("oe", "slope", "auc"):
            one = alone.value(metric, horizon=0.5).value
            assert found.value(metric, horizon=0.5, group=name).value == pytest.approx(one, rel=1e-9)


@pytest.mark.parametrize(("metric", "scale"), [("oe", POSITIVE), ("auc", SHARE)])
def test_mean_and_new_site_follow_from_the_sites(found, metric, scale):
    alone = [one for one in found.sites if "together" not in one]
    values = [found.value(metric, horizon=0.5, group=name) for name in alone]
    errors = [error_of_interval(one.lower, one.upper, 0.95, scale) for one in values]
    across = random_effects([one.value for one in values], errors, scale=scale)
    mean = found.value(f"{metric}_sites", horizon=0.5)
    assert (mean.value, mean.lower, mean.upper) == pytest.approx((across.mean, across.lower, across.upper))
    new = found.value(f"{metric}_new_site", horizon=0.5)
    assert (new.lower, new.upper) == pytest.approx((across.new_lower, across.new_upper))
    assert found.value(f"{metric}_sites_i2", horizon=0.5).value == pytest.approx(across.i2)


def test_hazards_that_differ_between_sites_show_and_equal_ones_do_not(found):
    assert found.value("oe_sites_i2", horizon=0.5).value > 0.8
    new, mean = found.value("oe_new_site", horizon=0.5), found.value("oe_sites", horizon=0.5)
    assert new.upper / new.lower > 1.5 * mean.upper / mean.lower


def test_page_and_words(found, tmp_path):
    page = found.report(tmp_path / "a.html").read_text()
    assert "Is it right at every site?" in page
    assert "A new site" in page
    assert "4 small sites together" in page
    assert "random effects" in found.methods
    (part,) = [one for one in _sections(found) if one.short == "Sites"]
    (table,) = [one for one in part.blocks if isinstance(one, Table) and one.header[0] == "Site"]
    assert [row[0] for row in table.rows] == list(found.sites)
    assert table.rows[-1][0] == "hospital = H4"
    for row in table.rows[1:]:  # of small sites together the ICI needs more rows
        ici, d = (found.value(name, horizon=at, group=row[0]) for name, at in (("ici", 0.5), ("d_calibration", None)))
        assert (row[1][1], row[2][1]) == (ici.value, d.value)
    (over,) = [one for one in part.blocks if isinstance(one, Table) and "A new site" in one.header]
    shown = {row[0]: [cell[1] for cell in row[1:]] for row in over.rows}
    roles = ("oe_sites", "oe_new_site", "oe_sites_tau2", "oe_sites_i2")
    assert shown["O/E"] == [found.value(role, horizon=found.horizons[0]).value for role in roles]
    drawn = drawing_of(found, "sites", 0.5)
    assert [row.name for row in drawn.rows] == ["All rows", *found.sites, "Mean of sites", "A new site"]
    assert drawing_of(found, "groups", 0.5) is None  # there are none beside the sites
    groups = page.split("Is it right in every group?")[1].split("Is it right at every site?")[0]
    assert "No groups were given" in groups


def test_two_sites_have_no_mean(rows):
    two = np.where(rows["X"]["x"] > 0, "a", "b")
    result = xcal.audit(**rows, sites=two)
    assert result.sites == ("site = a", "site = b")
    with pytest.raises(KeyError):
        result.value("oe_sites", horizon=0.5)
    assert "Is it right at every site?" in str([s.heading for s in _sections(result)])


def test_what_is_a_site_is_not_read_off_its_name(rows):
    """A group whose name begins as those of sites do is no site; a site may be called as small ones together are."""
    called = rows["X"]["hospital"].replace({"H0": "2 small sites together"})
    result = xcal.audit(**rows, sites=called, groups={"hospital = old": np.where(rows["X"]["x"] > 0, "a", "b")})
    alone = [f"hospital = {name}" for name in ("2 small sites together", "H1", "H2", "H3", "H4")]
    assert set(result.sites) == {*alone, "hospital = 4 small sites together"}
    assert {"'hospital = old' = a", "'hospital = old' = b"} <= set(result.groups)
    (part,) = [one for one in _sections(result) if one.short == "Sites"]
    notes = [block.text for block in part.blocks if isinstance(block, Text)]
    assert [note for note in notes if "alone: hospital = 4 small sites together" in note] == notes


def _sections(result):
    from xcal.validation.page import report_page

    return report_page(result).sections


@pytest.mark.parametrize(
    ("sites", "words"),
    [
        ("ward", "sites: expected names of columns of X .x, hospital., got 'ward'"),
        (np.full(1200, "a"), "sites: expected two sites or more, got a in every row"),
        (["a", "b"], "sites: expected 1200"),
    ],
)
def test_refused(rows, sites, words):
    with pytest.raises(ValueError, match=words):
        xcal.audit(**rows, sites=sites)
