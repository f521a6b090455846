"""People whose covariates change, put together: against R's values, a law that is true, and sums by hand."""

from typing import ClassVar

import numpy as np
import pandas as pd
import pytest

from xcal import Surv, d_calibration
from xcal.calibration.histogram import cumulative_hazard
from xcal.metrics import by_person, kaplan_meier
from xcal.metrics.observed_expected import event_ratio
from xcal.metrics.rows import since


def walked(n, seed, *, gaps=False):
    """Rows of people whose log hazard is a random walk over visits half a unit apart, and the hazard along each row.

    Half of the people enter late, and who has a high hazard leaves early.
    """
    rng = np.random.default_rng([n, seed])
    lines = []
    for person in range(n):
        start, level = (rng.uniform(0, 1) if rng.random() < 0.5 else 0.0), rng.normal(scale=0.7)
        needed, leaves = rng.exponential(), start + rng.exponential(4)
        while True:
            stop = start + 0.5
            seen = not gaps or rng.random() < 0.8
            lived = 0.5 * np.exp(level) if seen else 0.0
            if seen and needed <= lived:
                lines.append((person, start, start + needed / np.exp(level), 1, level, needed))
                break
            needed -= lived
            if seen:
                lines.append((person, start, stop, 0, level, lived))
            if stop > leaves - 0.5 * level:
                break
            start, level = stop, level + rng.normal(scale=0.5)
    return pd.DataFrame(lines, columns=["id", "entry", "time", "event", "level", "hazard"])


class TestOfR:
    """The registry of myeloma, and bilirubin that is measured again and again; figures of the reference data."""

    @pytest.fixture
    def folder(self, real_data):
        return real_data("coarsened") / "coarsened"

    def test_rows_would_be_far_too_even(self, folder):
        rows = pd.read_csv(folder / "pbcseq_predicted.csv")
        outcome = {"id": rows["id"], "time": rows["stop"], "event": rows["event"], "entry": rows["start"]}
        found = by_person(rows["expected"], **outcome)
        assert (found.cdf.size, int(found.event.sum()), found.n_gaps) == (156, 68, 0)
        assert cumulative_hazard(found.cdf).sum() == pytest.approx(94.8872, abs=5e-5)
        assert d_calibration(found.cdf, found.event, p_value=None).value == pytest.approx(0.002205, abs=5e-7)
        late = rows.groupby("id")["expected"].cumsum()
        ends = (1 - np.exp(-values) for values in (late, late - rows["expected"]))
        cdf, cdf_entry = ends
        by_rows = d_calibration(cdf, rows["event"], cdf_entry=np.maximum(cdf_entry, 0), p_value=None)
        assert by_rows.value == pytest.approx(6.14e-5, abs=5e-8)  # 935 rows for 156 people: (156 / 935)² of it

    def test_entry_ignored(self, folder):
        rows = pd.read_csv(folder / "myeloma.csv")
        curve = kaplan_meier(time=rows["futime"], event=rows["death"])
        np.testing.assert_allclose(
            curve.at([365, 1000, 2000, 4000]), [0.778915, 0.504143, 0.261590, 0.065740], atol=5.1e-7
        )

    def test_martingale_residuals(self, folder):
        rows = pd.read_csv(folder / "myeloma_predicted.csv")
        cdf, cdf_entry = (1 - np.exp(-rows[f"cumhaz_{at}"].to_numpy()) for at in ("time", "entry"))
        lived = cumulative_hazard(since(cdf, cdf_entry))
        np.testing.assert_allclose(rows["death"] - lived, rows["martingale"], atol=1e-9)
        found = event_ratio(cdf, rows["death"], cdf_entry=cdf_entry)
        assert found.expected == pytest.approx(rows["expected"].sum(), rel=1e-12)


class TestSums:
    def test_by_hand_in_any_order(self):
        rows = walked(60, 0, gaps=True)
        shuffled = rows.sample(frac=1, random_state=1).reset_index(drop=True)
        columns = ("time", "event", "entry")
        found = by_person(shuffled["hazard"], id=shuffled["id"], **{name: shuffled[name] for name in columns})
        people = rows.groupby("id")
        np.testing.assert_allclose(found.cdf, 1 - np.exp(-people["hazard"].sum()), rtol=1e-12)
        np.testing.assert_array_equal(found.event, people["event"].max() == 1)
        np.testing.assert_array_equal(found.time, people["time"].max())
        np.testing.assert_array_equal(found.entry, people["entry"].min())
        np.testing.assert_array_equal(shuffled["entry"].to_numpy()[found.first], found.entry)
        np.testing.assert_array_equal(shuffled["time"].to_numpy()[found.last], found.time)
        np.testing.assert_array_equal(np.unique(rows["id"])[found.person], shuffled["id"])
        after = (rows["entry"] > rows["time"].shift() + 1e-9) & (rows["id"] == rows["id"].shift())
        assert found.n_gaps == rows["id"][after].nunique() > 0

    def test_cutting_rows_changes_nothing(self):
        rows = walked(50, 2)
        middle = (rows["entry"] + rows["time"]) / 2
        halves = rows["hazard"] / 2
        cut = pd.concat([rows.assign(time=middle, event=0, hazard=halves), rows.assign(entry=middle, hazard=halves)])
        one, other = (
            by_person(**{name: table[name] for name in ("hazard", "id", "time", "event", "entry")})
            for table in (rows, cut)
        )
        np.testing.assert_allclose(one.cdf, other.cdf, rtol=1e-12)
        np.testing.assert_array_equal(one.event, other.event)

    def test_a_person_of_one_row(self):
        found = by_person([0.1, 0.4], id=["a", "b"], time=[1, 2], event=[1, 0])
        np.testing.assert_allclose(found.cdf, -np.expm1([-0.1, -0.4]))
        assert found.n_gaps == 0

    @pytest.mark.parametrize("gaps", [False, True])
    def test_a_true_model_holds_the_level(self, gaps):
        """250 data sets of 60 people: .05 with a standard error of .014. Hazards 1.5 times too high are found."""
        rejected = np.zeros(4)
        for seed in range(250):
            rows = walked(60, 100 + seed, gaps=gaps)
            columns = {name: rows[name].to_numpy() for name in ("id", "time", "event", "entry")}
            right, wrong = (by_person(factor * rows["hazard"].to_numpy(), **columns) for factor in (1.0, 1.5))
            tests = [
                *(d_calibration(one.cdf, one.event, n_bins=5).p_value for one in (right, wrong)),
                *(event_ratio(one.cdf, one.event).p_value for one in (right, wrong)),
            ]
            rejected += np.array(tests) <= 0.05
        assert (rejected[[0, 2]] <= 0.05 * 250 + 3.2 * (250 * 0.05 * 0.95) ** 0.5).all(), rejected
        assert (rejected[[1, 3]] > 100).all(), rejected


class TestBadInput:
    ROWS: ClassVar = {"time": [2, 5, 4], "event": [0, 1, 0], "entry": [0, 2, 0], "id": ["ann", "ann", "bob"]}

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (
                {"entry": [0, 1, 0]},
                "entry: expected rows of one id that do not overlap: 2 or later, .* row 0 .*got 1 at row 1",
            ),
            ({"event": [1, 1, 0]}, "event: expected an event in the last row of an id alone, .*at row 0"),
            ({"entry": [0, 5, 0]}, "entry: expected an entry before the time of the row, 5, got 5.0 at row 1"),
            ({"entry": None}, "entry: expected rows of one id that do not overlap"),
            ({"hazard": [0.1, -1, 0]}, "hazard: expected cumulative hazards of zero or more, got -1.0 at row 1"),
            ({"hazard": [0.1, np.nan, 0]}, "hazard: expected cumulative hazards of zero or more, got nan at row 1"),
            ({"hazard": [0.1]}, "hazard: expected 3 rows, as many as time has, got 1"),
            ({"id": ["ann", None, "bob"]}, "id: "),
        ],
    )
    def test_words(self, change, message):
        with pytest.raises(ValueError, match=message):
            by_person(**{"hazard": [0.1, 0.2, 0.3], **self.ROWS, **change})

    def test_kinds_that_do_not_mix(self):
        with pytest.raises(
            ValueError, match="both ends of every interval, and nothing beside them but entry, got id too"
        ):
            Surv(lower=[1, 2], upper=[2, 3], id=["a", "a"])
        with pytest.raises(ValueError, match="id: expected None beside cause, got several rows of one id"):
            Surv(time=[1, 2], cause=[0, 1], entry=[0, 1], id=["a", "a"])
